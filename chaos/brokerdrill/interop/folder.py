"""An imported run directory: it is there whole, or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from brokerdrill.base.atomic import new_folder, write_json
from brokerdrill.base.errors import UsageError
from brokerdrill.ledger import contract

# What the foreign tool itself said of the run, and what an export needs to know of it.
ORIGIN_FILE = "origin.json"


def check_new(out: Path) -> None:
    """Raise UsageError where `out` is there already."""
    if out.exists():
        raise UsageError(f"run directory {out} exists already")


def write_run_dir(
    out: Path,
    run: contract.RunInfo,
    ops: Iterable[Mapping[str, Any]],
    events: Iterable[Mapping[str, Any]],
    origin: Mapping[str, Any],
) -> Path:
    """Write a whole run directory and return it; rows lack run_id and clock, which are `run`'s and its only clock's.

    Raises UsageError where `out` exists, InfrastructureError where the disk does not take it; nothing is left then.
    """
    check_new(out)
    common = {"run_id": run.run_id, "clock": next(iter(run.clocks))}
    with new_folder(out, "run directory") as written:
        for folder, rows, columns in (
            (contract.OPS_DIR, ops, contract.OP_COLUMNS),
            (contract.EVENTS_DIR, events, contract.EVENT_COLUMNS),
        ):
            (written / folder).mkdir()
            with (written / folder / "imported.jsonl").open("wb") as file:
                file.writelines(contract.json_line(common | dict(row), columns) for row in rows)
        write_json(written / ORIGIN_FILE, origin)
        contract.write_run(written, run)
    return out


def read_origin(run_dir: Path) -> dict[str, Any]:
    """Return the origin that `write_run_dir` was given; empty for a run of our own. Raises UsageError: unreadable."""
    path = run_dir / ORIGIN_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path}: must be an object")
    return found
