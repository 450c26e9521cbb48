"""Approval: where an inventory says `drill_approval: true`, somebody has to allow the game day as it stands first."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from brokerdrill.base.atomic import write_json
from brokerdrill.base.errors import UsageError
from brokerdrill.inventory.topology import Topology

VARIABLE = "drill_approval"


def asking(topologies: Iterable[Topology]) -> list[str]:
    """Return the names of the topologies where some host asks for approval."""
    return [one.name for one in topologies if any(host.vars.get(VARIABLE) is True for host in one.hosts)]


def fingerprint(file: Path, topologies: Iterable[Topology]) -> str:
    """Return the SHA-256 (hex) of what is approved: the game day's file and its inventories."""
    parts = [hashlib.sha256(file.read_bytes()).hexdigest(), *(one.sha256 for one in topologies)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def approval_file(folder: Path, name: str) -> Path:
    """Return where the approval of the game day `name` is kept."""
    return folder / f"{name}.approval.json"


def approve(path: Path, what: str, by: str, until: datetime.datetime) -> None:
    """Write down that `by` approves `what` until then. Raises InfrastructureError."""
    write_json(path, {"sha256": what, "by": by, "until": until.isoformat(timespec="seconds")})


def missing(path: Path, what: str, now: datetime.datetime) -> str | None:
    """Return why there is no approval of `what` at `now`; None: there is. Raises UsageError for a file that is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        until = datetime.datetime.fromisoformat(found["until"])
        sha256 = found["sha256"]
    except FileNotFoundError:
        return "nobody has approved it"
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(f"{path} holds no approval") from None
    if sha256 != what:
        return "the game day or its inventory was changed after it was approved"
    return f"the approval ended at {until}" if now > until else None
