#!/usr/bin/python
"""What state an instance is in, asked on its own host, as its descriptor says."""

from __future__ import annotations

DOCUMENTATION = r"""
module: health
short_description: Read an instance's health, and wait for it
description:
  - Reads the descriptor of an instance on its host and asks the instance itself.
    "Started" is not "active" - a passive broker that waits for a lock is healthy.
    Nor is an Artemis "active" that says so while nothing listens at an acceptor's port - it is still starting.
  - How a product is asked is in the collection's C(plugins/module_utils/health/), one module a product. The inventory's
    CA is all that is trusted.
options:
  descriptor: {description: The descriptor's path on the host., type: path, required: true}
  accept:
    description: The states that end the wait.
    type: list
    elements: str
    choices: [active, passive, syncing, starting, failed]
    default: [active, passive]
  in_sync: {description: Wait also until a replicated broker's copy is in sync., type: bool, default: false}
  timeout: {description: Seconds to wait; 0 looks once., type: int, default: 0}
  interval: {description: Seconds between looks., type: float, default: 0.5}
author: ["Brokerdrill developers (@brokerdrill)"]
"""

EXAMPLES = r"""
- name: Wait until the broker serves or is a synchronous copy
  brokerdrill.ha.health:
    descriptor: /etc/brokerdrill/artemis1.json
    in_sync: true
    timeout: 120
"""

RETURN = r"""
instance: {description: The instance's name., type: str, returned: always}
state: {description: "active, passive, syncing, starting or failed", type: str, returned: always}
in_sync: {description: Whether a replicated broker's copy is in sync., type: bool, returned: always}
detail: {description: What the instance answered., type: str, returned: always}
version: {description: The version that its descriptor says., type: str, returned: always}
restart_pending: {description: Whether it started before some file of its was changed., type: bool, returned: always}
newer: {description: These files., type: list, elements: str, returned: always}
"""

import json
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.brokerdrill.ha.plugins.module_utils.health import READERS
from ansible_collections.brokerdrill.ha.plugins.module_utils.health.answer import Health
from ansible_collections.brokerdrill.ha.plugins.module_utils.health.restarts import newer


def unit_state(unit: str | None) -> str:
    """Return systemd's word for the unit, `active` for an instance without one."""
    if not unit:
        return "active"
    done = subprocess.run(["systemctl", "is-active", unit], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def look(descriptor: dict[str, Any]) -> Health:
    """Return the instance's health now."""
    unit = unit_state(descriptor.get("unit"))
    if unit not in ("active", "activating", "reloading"):
        return Health("failed", False, f"{descriptor.get('unit')} is {unit}")
    try:
        return READERS[descriptor["product"]](descriptor)
    except HTTPError as error:
        return Health("starting", False, f"HTTP {error.code}")
    except (OSError, URLError, ValueError, KeyError) as error:
        return Health("starting", False, f"{type(error).__name__}: {error}")


def main() -> None:
    states = ["active", "passive", "syncing", "starting", "failed"]
    module = AnsibleModule(
        argument_spec={
            "descriptor": {"type": "path", "required": True},
            "accept": {"type": "list", "elements": "str", "choices": states, "default": ["active", "passive"]},
            "in_sync": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 0},
            "interval": {"type": "float", "default": 0.5},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        descriptor = json.loads(Path(params["descriptor"]).read_text())
    except FileNotFoundError:
        if module.check_mode:
            module.exit_json(changed=False, instance="", state="starting", in_sync=False, detail="would be deployed")
        module.fail_json(msg=f"{params['descriptor']} is not there: nothing was deployed")
    except ValueError as error:
        module.fail_json(msg=f"{params['descriptor']} is no JSON: {error}")
    if descriptor.get("product") not in READERS:
        known = ", ".join(sorted(READERS))
        module.fail_json(msg=f"{params['descriptor']}: product {descriptor.get('product')!r} is none of {known}")

    begin = time.monotonic()
    while True:
        found = look(descriptor)
        good = found.state in params["accept"] and (found.in_sync or not params["in_sync"])
        waited = time.monotonic() - begin
        if good or waited >= params["timeout"]:
            break
        time.sleep(params["interval"])
    result: dict[str, Any] = {
        "instance": descriptor["instance"],
        "state": found.state,
        "in_sync": found.in_sync,
        "detail": found.detail,
        "version": str(descriptor.get("version", "")),
        # No role restarts a member of a highly available system for them.
        "newer": newer(descriptor),
    }
    result["restart_pending"] = bool(result["newer"])
    if not good:
        wanted = " or ".join(params["accept"]) + (" and in sync" if params["in_sync"] else "")
        seen = f"{descriptor['instance']} is {found.state} after {waited:.0f} s, not {wanted}"
        module.fail_json(msg=f"{seen}; it answered: {found.detail}", **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
