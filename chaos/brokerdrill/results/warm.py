"""A Spark session that starts and warms up while a drill runs, so that its verdict follows in seconds."""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.ledger import contract

# The load comes first: what warms up takes what the drill leaves of the controller's cores.
_NICE = 10
_S = 1_000_000_000
_MESSAGES = 20


def warm_up(master: str | None = None) -> None:
    """Start the session of the analysis on `master` in the background and judge a small ledger there; `judge` in this
    process then uses it as it is, warm or still warming.

    Raises nothing: a Spark that does not start is reported by the judgement.
    """
    thread = threading.Thread(target=_warm, args=(master,), name="warm-up", daemon=True)
    thread.start()
    atexit.register(_end, thread)


def _end(thread: threading.Thread) -> None:
    """End the work at the process's end: a thread that is inside a library in C++ then would abort the process."""
    while thread.is_alive():
        # Imported by the thread, or being imported, or not at all.
        if stop := getattr(sys.modules.get("brokerdrill.analysis.spark"), "stop", None):
            stop()
        thread.join(0.1)


def _process_ends() -> bool:
    return not threading.main_thread().is_alive()


def _warm(master: str | None) -> None:
    # Linux counts niceness by thread, and what a thread starts has its own.
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
    try:
        # Slow to import, and only needed when the run is over.
        import brokerdrill.report  # noqa: F401
        from brokerdrill.analysis.analyze import analyze_with_series

        with tempfile.TemporaryDirectory(prefix="brokerdrill-warm-") as folder:
            if not _process_ends():
                analyze_with_series([small_run(Path(folder) / "warm")], master=master)
    except InfrastructureError:
        pass
    except Exception:
        if not _process_ends():
            raise


def small_run(run_dir: Path) -> Path:
    """Write a run of some messages of one client, a fault and a takeover to the new folder `run_dir`; return it."""
    promises = (
        contract.PromiseSpec("no_loss"),
        contract.PromiseSpec("ordered", scope="key"),
        contract.PromiseSpec("single_active"),
        contract.PromiseSpec("failover_within", bound_ms=5000),
        contract.PromiseSpec("available", bound_ms=5000, side="send"),
    )
    info = contract.new_run(
        run_dir.name,
        scenario=contract.ScenarioText("warm"),
        topology="none",
        started_at="1970-01-01T00:00:00Z",
        promises=promises,
        stores={"store": ("a", "b")},
        clocks={"controller": contract.Clock("controller")},
    )
    common = {"run_id": run_dir.name, "clock": "controller"}
    operations = []
    for number in range(_MESSAGES):
        row: dict[str, Any] = common | {
            "client": "client",
            "session": 0,
            "outcome": "ok",
            "address": "q",
            "message_id": str(number),
        }
        at = number * _S
        row |= {"start_ns": at, "key": "k", "instance": "a" if number < _MESSAGES // 2 else "b"}
        sent = {"op": "send", "attempt": 0, "producer_seq": number, "durable": True, "end_ns": at + 1}
        taken = {"delivery": str(number), "end_ns": at + 2}
        operations += [
            row | sent | {"op_id": 3 * number},
            row | taken | {"op": "receive", "op_id": 3 * number + 1},
            row | taken | {"op": "ack", "op_id": 3 * number + 2},
        ]
    half, end = _MESSAGES // 2 * _S, _MESSAGES * _S
    events = [
        {"t_ns": 0, "kind": "role", "instance": "a", "store": "store", "value": "active"},
        {"t_ns": 0, "kind": "role", "instance": "b", "store": "store", "value": "passive"},
        {"t_ns": 0, "kind": "phase", "name": "load", "value": "begin"},
        {"t_ns": half - 3, "kind": "fault", "instance": "a", "store": "store", "name": "kill", "target": "a"},
        {"t_ns": half - 2, "kind": "role", "instance": "a", "store": "store", "value": "down"},
        {"t_ns": half - 1, "kind": "role", "instance": "b", "store": "store", "value": "active"},
        {"t_ns": end, "kind": "phase", "name": "load", "value": "end"},
    ]
    for folder, rows, columns in (
        (contract.OPS_DIR, operations, contract.OP_COLUMNS),
        (contract.EVENTS_DIR, [common | event for event in events], contract.EVENT_COLUMNS),
    ):
        (run_dir / folder).mkdir(parents=True)
        (run_dir / folder / "all.jsonl").write_bytes(b"".join(contract.json_line(row, columns) for row in rows))
    contract.write_run(run_dir, contract.finished(info, "completed", drained={"q": True}))
    return run_dir
