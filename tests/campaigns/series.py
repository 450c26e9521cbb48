"""Made-up tables of results: weeks of runs of one or more scenarios, in which something changes or nothing does."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from brokerdrill.ledger import contract
from brokerdrill.ledger.verdict import RunVerdict
from brokerdrill.results.table import append_rows, rows_of

START = datetime.datetime(2026, 9, 1, 8, tzinfo=datetime.UTC)
BOUND = 8000.0


def verdict(
    run_id: str, failover_ms: float | None, broken: Sequence[str] = (), unknown: Sequence[str] = ()
) -> dict[str, Any]:
    """A run's verdict as the analysis writes it: one failover of two clients, the slower one with `failover_ms`."""

    def promise(name: str, **values: Any) -> dict[str, Any]:
        word = "fail" if name in broken else "unknown" if name in unknown else "pass"
        own = {
            "name": name,
            "verdict": word,
            "count": int(word == "fail"),
            "excused": 0,
            "bound": None,
            "measured": None,
        }
        return own | {"witnesses": [], "expected": "kept", "as_expected": word == "pass"} | values

    promises = [
        promise("no_loss"),
        promise("no_phantoms"),
        promise("failover_within", bound=BOUND, measured=failover_ms),
    ]
    clients = [("producer-0", None if failover_ms is None else failover_ms * 0.9), ("producer-1", failover_ms)]
    return {
        "run_id": run_id,
        "verdict": "fail" if broken else "unknown" if unknown else "pass",
        "as_expected": not broken and not unknown,
        "vacuous": [],
        "messages": {"ok": 1000, "lost": int("no_loss" in broken)},
        "promises": promises,
        "failover": [
            {"fault": "kill", "instance": "artemis1", "t_ns": 8_000_000_000, "client": client, "detection_ms": 100.0,
             "activation_ms": 200.0, "first_send_ms": time, "first_delivery_ms": time}
            for client, time in clients
        ],
    }  # fmt: skip


def run_info(run_id: str, started: datetime.datetime, **values: Any) -> contract.RunInfo:
    fields: dict[str, Any] = {
        "scenario": contract.ScenarioText("kill_active", "title: x", "0" * 64),
        "topology": "artemis_quorum",
        "versions": {"artemis": "2.56.0"},
        "started_at": started.isoformat(),
        "outcome": "completed",
    }
    return contract.new_run(run_id, **(fields | values))


def rows(
    times: Sequence[float | None], broken: Sequence[int] = (), scenario: str = "kill_active", **values: Any
) -> list[dict[str, Any]]:
    """The table's rows of one series: a run a day; the runs at places `broken` lose a message."""
    found: list[dict[str, Any]] = []
    for place, time in enumerate(times):
        started = START + datetime.timedelta(days=place)
        run_id = f"{scenario}-{place:03d}"
        run = run_info(run_id, started, scenario=contract.ScenarioText(scenario, "title: x", "0" * 64), **values)
        result = verdict(run_id, time, ("no_loss",) if place in broken else ())
        found += rows_of(run, RunVerdict.from_json(result), started, started)
    return [row | {name: dict(row[name]) for name in ("versions", "settings")} for row in found]


def failovers(rng: np.random.Generator, count: int, median: float = 4000.0, spread: float = 0.2) -> list[float]:
    """Failover times as they are: skewed, never negative."""
    return [float(value) for value in median * np.exp(spread * rng.standard_normal(count))]


def write(runs: Path, found: Sequence[dict[str, Any]]) -> None:
    """Append rows to the table of `runs`, a file a run."""
    for run_id in dict.fromkeys(row["run_id"] for row in found):
        own = [
            row | {name: list(row[name].items()) for name in ("versions", "settings")}
            for row in found
            if row["run_id"] == run_id
        ]
        append_rows(runs, run_id, own)
