"""Where the controller keeps what it fetches and what it makes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

CACHE_VARIABLE = "BROKERDRILL_CACHE"
STATE_VARIABLE = "BROKERDRILL_STATE"
XDG = {"cache": ("XDG_CACHE_HOME", ".cache"), "state": ("XDG_STATE_HOME", ".local/state")}


def controller_dir(inventory_dir: str, kind: Literal["cache", "state"]) -> str:
    """Return the controller's directory for what it can make again (`cache`) or for what it cannot (`state`).

    What the environment says comes first, then `.cache` of the checkout that the inventory is in or where earlier
    releases left the inventory's secrets, then the user's own by the XDG Base Directory Specification.
    """
    given = (os.environ.get(STATE_VARIABLE) if kind == "state" else "") or os.environ.get(CACHE_VARIABLE)
    if given:
        return str(Path(given).expanduser())
    beside = Path(inventory_dir).parent.parent
    if (beside / "galaxy.yml").is_file() or (beside / ".cache" / "secrets").is_dir():
        return str(beside / ".cache")
    variable, default = XDG[kind]
    home = os.environ.get(variable, "")
    return str((Path(home) if home.startswith("/") else Path.home() / default) / "brokerdrill")


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {"controller_dir": controller_dir}
