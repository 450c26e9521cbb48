"""An imported run directory: it is there whole, or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from brokerdrill import ledger
from brokerdrill.errors import InfrastructureError, UsageError

# What the foreign tool itself said of the run, and what an export needs to know of it.
ORIGIN_FILE = "origin.json"


def check_new(out: Path) -> None:
    """Raise UsageError where `out` is there already."""
    if out.exists():
        raise UsageError(f"run directory {out} exists already")


def write_run_dir(
    out: Path,
    run: ledger.RunInfo,
    ops: Iterable[Mapping[str, Any]],
    events: Iterable[Mapping[str, Any]],
    origin: Mapping[str, Any],
) -> Path:
    """Write a whole run directory and return it; rows lack run_id and clock, which are `run`'s and its only clock's.

    Raises UsageError where `out` exists, InfrastructureError where the disk does not take it; nothing is left then.
    """
    check_new(out)
    common = {"run_id": run.run_id, "clock": next(iter(run.clocks))}
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True)
        for folder, rows, columns in (
            (ledger.OPS_DIR, ops, ledger.OP_COLUMNS),
            (ledger.EVENTS_DIR, events, ledger.EVENT_COLUMNS),
        ):
            (temporary / folder).mkdir()
            with (temporary / folder / "imported.jsonl").open("wb") as file:
                file.writelines(ledger.json_line(common | dict(row), columns) for row in rows)
        (temporary / ORIGIN_FILE).write_text(json.dumps(origin, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        ledger.write_run(temporary, run)
        temporary.rename(out)
    except OSError as error:
        raise InfrastructureError(f"run directory {out} cannot be written: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(temporary)
    return out


def read_origin(run_dir: Path) -> dict[str, Any]:
    """Return the origin that `write_run_dir` was told; empty for a run of our own. Raises UsageError: unreadable."""
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
