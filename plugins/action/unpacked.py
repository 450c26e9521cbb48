"""Push an archive of the controller to the host and unpack it there, once: see plugins/modules/unpacked.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.action import Action


class ActionModule(Action):
    """Ask the host first; only when the archive is not there is it transferred."""

    TRANSFERS_FILES = True

    def act(self, args: dict[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        source = args.pop("src", None)
        if not source:
            raise AnsibleActionFail("unpacked needs src, the archive's path on the controller")
        try:
            result = self._execute_module("brokerdrill.ha.unpacked", module_args=args, task_vars=variables)
            if result.get("failed") or not result.get("changed") or self._task.check_mode:
                return result
            if self._connection._shell.tmpdir is None:
                self._make_tmp_path()
            remote = self._connection._shell.join_path(self._connection._shell.tmpdir, "archive")
            self._transfer_file(str(source), remote)
            self._fixup_perms2((self._connection._shell.tmpdir, remote))
            return self._execute_module(
                "brokerdrill.ha.unpacked", module_args={**args, "archive": remote}, task_vars=variables
            )
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
