"""Ask a host's memory, and refuse what its JVMs may come to take together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.action import Action
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.memory import heaps, machine_problems, memory_mib
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.products import read_all

# The limits of a container, which is its own root: of control groups' second and first version.
ASK = "cat /proc/meminfo; cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null; true"


class ActionModule(Action):
    """See plugins/modules/memory.py for the documentation."""

    ARGUMENTS: ClassVar[dict[str, Any]] = {}

    def act(self, args: dict[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        try:
            found = heaps(variables["inventory_hostname"], variables["hostvars"], read_all())
        except ValueError as error:
            raise AnsibleActionFail(str(error)) from None
        if not found:
            return {"changed": False, "heaps_mib": {}}
        done = self._low_level_execute_command(ASK)
        try:
            has = memory_mib(done["stdout"])
        except ValueError:
            raise AnsibleActionFail(f"the host's memory cannot be read: {done.get('stderr', '').strip()}") from None
        problems = machine_problems(found, has)
        return {
            "changed": False,
            "failed": bool(problems),
            "msg": "; ".join(problems),
            "heaps_mib": found,
            "has_mib": has,
        }
