"""Ask a host's clock, and say how far it is from the controller's."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.action import Action

LOOKS = 3


def offset(before: float, seen: float, after: float) -> tuple[float, float]:
    """Return (offset, uncertainty) in ms of a clock that showed `seen` between `before` and `after` (own clock, s)."""
    return (seen - (before + after) / 2) * 1000, (after - before) / 2 * 1000


class ActionModule(Action):
    """See plugins/modules/clock.py for the documentation."""

    ARGUMENTS: ClassVar[dict[str, Any]] = {}

    def act(self, args: dict[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        looks = []
        for _look in range(LOOKS):
            before = time.time()
            done = self._low_level_execute_command("date +%s.%N")
            after = time.time()
            try:
                looks.append(offset(before, float(done["stdout"].strip().splitlines()[-1]), after))
            except (ValueError, IndexError):
                raise AnsibleActionFail(f"the host's clock cannot be read: {done.get('stderr', '').strip()}") from None
        best = min(looks, key=lambda look: look[1])
        return {"changed": False, "offset_ms": best[0], "uncertainty_ms": best[1]}
