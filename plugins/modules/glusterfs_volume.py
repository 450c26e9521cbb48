#!/usr/bin/python
"""A replicated volume of GlusterFS: made by one of its servers, waited for by the others."""

from __future__ import annotations

DOCUMENTATION = r"""
module: glusterfs_volume
short_description: Make a replicated volume of GlusterFS, or wait for it
description:
  - On the server that is to O(make) it, takes the other servers into the pool, makes the volume with a copy in each
    brick, sets its options and starts it. What is there already stays; a volume of other bricks is refused.
  - On the others it waits until the volume is there and started.
options:
  name: {description: The volume's name., type: str, required: true}
  bricks: {description: "Where each copy is: ADDRESS:DIRECTORY.", type: list, elements: str, required: true}
  options: {description: "The volume's options, by name.", type: dict, default: {}}
  make: {description: Whether this server makes it., type: bool, default: false}
  timeout: {description: Seconds in which the volume must be there on all servers., type: int, default: 60}
author: ["Brokerdrill developers (@brokerdrill)"]
"""

EXAMPLES = r"""
- name: A volume with three copies
  brokerdrill.ha.glusterfs_volume:
    name: shared
    bricks: ["10.0.0.1:/srv/glusterfs/shared", "10.0.0.2:/srv/glusterfs/shared", "10.0.0.3:/srv/glusterfs/shared"]
    options: {network.ping-timeout: "5"}
    make: "{{ inventory_hostname == groups['shared_store'][0] }}"
"""

RETURN = r"""
made: {description: What was done., type: list, elements: str, returned: always}
"""

import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any
from xml.etree import ElementTree

from ansible.module_utils.basic import AnsibleModule

BETWEEN_TRIES_S = 1
_CONNECTED = "1"
_STARTED = "Started"


class Refused(Exception):
    """What GlusterFS answered in place of what was asked for."""


def gluster(*words: str) -> ElementTree.Element:
    """Return the answer to a command of gluster(8). Raises Refused in its words."""
    command = ["gluster", "--mode=script", "--xml", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        answer = ElementTree.fromstring(done.stdout)
    except ElementTree.ParseError:
        raise Refused((done.stderr or done.stdout).strip() or f"status {done.returncode}") from None
    if answer.findtext("opRet") != "0":
        raise Refused((answer.findtext("opErrstr") or answer.findtext("cliOutput/output") or "it says nothing").strip())
    return answer


def connected(peers: ElementTree.Element) -> set[str]:
    """Return the addresses of the other servers of the pool that answer, from `gluster peer status`."""
    return {
        str(name.text)
        for peer in peers.iter("peer")
        if peer.findtext("connected") == _CONNECTED
        for name in peer.iter("hostname")
    }


def volume(answer: ElementTree.Element, name: str) -> dict[str, Any] | None:
    """Return {"bricks", "options", "started"} of the volume, from `gluster volume info`; None where there is none."""
    for found in answer.iter("volume"):
        if found.findtext("name") == name:
            return {
                "bricks": [str(brick.findtext("name")) for brick in found.iter("brick") if brick.findtext("name")],
                "options": {str(o.findtext("name")): str(o.findtext("value")) for o in found.iter("option")},
                "started": found.findtext("statusStr") == _STARTED,
            }
    return None


def steps(name: str, bricks: Sequence[str], options: dict[str, str], there: dict[str, Any] | None) -> list[list[str]]:
    """Return the commands that make of what is `there` the volume asked for. Raises Refused for one of other bricks."""
    if there is not None and sorted(there["bricks"]) != sorted(bricks):
        raise Refused(f"the volume {name} has the bricks {', '.join(there['bricks'])}, not {', '.join(bricks)}")
    wanted: list[list[str]] = []
    if there is None:
        # `force`: a brick may be on the root file system.
        wanted.append(["volume", "create", name, "replica", str(len(bricks)), *bricks, "force"])
    has = there["options"] if there else {}
    wanted += [["volume", "set", name, key, value] for key, value in options.items() if has.get(key) != value]
    if there is None or not there["started"]:
        wanted.append(["volume", "start", name])
    return wanted


def until(deadline: float, step: Callable[[], bool]) -> str | None:
    """Repeat `step` until it is true; return None, or at the `deadline` why it was not."""
    said = "it does not come about"
    while True:
        try:
            if step():
                return None
        except Refused as error:
            said = str(error)
        if time.monotonic() > deadline:
            return said
        time.sleep(BETWEEN_TRIES_S)


def answer_or_fail(module: AnsibleModule, *words: str) -> ElementTree.Element:
    """As `gluster`; what it refuses fails the module."""
    try:
        return gluster(*words)
    except Refused as error:
        return module.fail_json(msg=f"gluster {' '.join(words)}: {error}")


def pool(module: AnsibleModule, name: str, bricks: Sequence[str], deadline: float) -> list[str]:
    """Take the servers of the other bricks into this one's pool; return what was done."""
    others = {brick.rpartition(":")[0] for brick in bricks[1:]}
    before = connected(answer_or_fail(module, "peer", "status"))

    def pooled() -> bool:
        for address in sorted(others - connected(gluster("peer", "status"))):
            gluster("peer", "probe", address)
        return others <= connected(gluster("peer", "status"))

    if (problem := until(deadline, pooled)) is not None:
        module.fail_json(msg=f"the servers of {name} do not find each other: {problem}")
    return [f"peer {address}" for address in sorted(others - before)]


def carry_out(module: AnsibleModule, wanted: Sequence[Sequence[str]], deadline: float) -> None:
    """Give each of the commands. Another server may be at a change of its own: what is refused is tried again."""
    for words in wanted:

        def done(words: Sequence[str] = words) -> bool:
            gluster(*words)
            return True

        if (problem := until(deadline, done)) is not None:
            module.fail_json(msg=f"gluster {' '.join(words)}: {problem}")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "bricks": {"type": "list", "elements": "str", "required": True},
            "options": {"type": "dict", "default": {}},
            "make": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    name, bricks, make = (module.params[key] for key in ("name", "bricks", "make"))
    options = {str(key): str(value) for key, value in module.params["options"].items()}
    deadline = time.monotonic() + module.params["timeout"]

    def look() -> dict[str, Any] | None:
        return volume(gluster("volume", "info"), name)

    def started() -> bool:
        found = look()
        return found is not None and found["started"]

    if module.check_mode:
        try:
            planned = steps(name, bricks, options, look()) if make else []
        except (Refused, OSError):
            # Nothing is installed yet.
            planned = [["volume", "create", name]] if make else []
        module.exit_json(changed=bool(planned), made=[" ".join(words) for words in planned])
    made: list[str] = []
    if make:
        made = pool(module, name, bricks, deadline)
        try:
            wanted = steps(name, bricks, options, look())
        except Refused as error:
            module.fail_json(msg=str(error))
        carry_out(module, wanted, deadline)
        made += [" ".join(words) for words in wanted]
    if (problem := until(deadline, started)) is not None:
        module.fail_json(msg=f"the volume {name} is not there: {problem}", made=made)
    module.exit_json(changed=bool(made), made=made)


if __name__ == "__main__":
    main()
