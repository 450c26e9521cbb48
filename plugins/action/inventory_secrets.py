"""Note, on the controller, whose the CA and the passwords in a directory are, and refuse another inventory's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.action import ControllerAction

NOTE = "inventory"
CA = "ca.pem"


def refusal(directory: Path, inventory: str, noted: str | None) -> str:
    """Return why `inventory` may not use the secrets in `directory`, where `noted` is the owner; "" where it may.

    An owner that is a path which is not there any more has moved. Without a note a CA's owner is unknown.
    """
    if noted is None:
        if not (directory / CA).exists():
            return ""
        return (
            f"{directory} has a CA and no note whose it is; where it is this inventory's own, "
            f"write {inventory} into {directory / NOTE}, else give the inventory another common_inventory_name"
        )
    if noted == inventory or (noted.startswith("/") and not Path(noted).exists()):
        return ""
    return (
        f"{directory} has the CA and the passwords of {noted}, which {inventory} must not share; "
        "give the inventory another common_inventory_name"
    )


def owner(directory: Path) -> str | None:
    """Return what the directory's note says, without spaces around it; None where there is none."""
    try:
        return (directory / NOTE).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None


class ActionModule(ControllerAction):
    """See plugins/modules/inventory_secrets.py for the documentation of the arguments."""

    ARGUMENTS: ClassVar[dict[str, Any]] = {
        "directory": {"type": "path", "required": True},
        "inventory": {"type": "str", "required": True},
    }

    def act(self, args: dict[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        directory, inventory = Path(args["directory"]), args["inventory"]
        noted = owner(directory)
        if problem := refusal(directory, inventory, noted):
            raise AnsibleActionFail(problem)
        if noted != inventory and not self._task.check_mode:
            previous = os.umask(0o077)
            try:
                directory.mkdir(parents=True, exist_ok=True)
                directory.chmod(0o700)
                # A name of its own: the hosts of a play come here side by side.
                with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=directory, delete=False) as file:
                    file.write(f"{inventory}\n")
                Path(file.name).replace(directory / NOTE)
            finally:
                os.umask(previous)
        return {"changed": False, "inventory": inventory}
