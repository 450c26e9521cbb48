"""A made-up run as the parts hand it to the report: run.json, journal, verdict and series that fit each other."""

from __future__ import annotations

import copy
import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from brokerdrill import report
from brokerdrill.ledger import contract
from brokerdrill.ledger.journal import Journal
from brokerdrill.ledger.series import Series
from brokerdrill.ledger.verdict import RunVerdict, Verdict
from brokerdrill.report import markdown as markdown_report
from brokerdrill.report.shown import Shown

S = 1_000_000_000
MS = 1_000_000

SCENARIO = """\
title: Kill the active broker under load
description: kill -9 of the active Artemis broker, failover, restart, failback, drain.
topology: artemis_quorum
"""
END = 56 * S
BUCKET = 100 * MS
KILL, DOWN, ACTIVE_AGAIN, HEAL, BACK = 15_204 * MS, 15_217 * MS, 18_871 * MS, 30_012 * MS, 36_540 * MS
PARTITION, PARTITION_HEALED = 42_100 * MS, 44_600 * MS

PROMISES = (
    contract.PromiseSpec("no_loss"),
    contract.PromiseSpec("no_duplicates"),
    contract.PromiseSpec("ordered", scope="key"),
    contract.PromiseSpec("single_active"),
    contract.PromiseSpec("failover_within", bound_ms=6000),
    contract.PromiseSpec("failback_within", bound_ms=15000),
    contract.PromiseSpec("available", bound_ms=6000, side="send"),
)


def run_info(run_id: str = "20251121T100000Z-kill_active-artemis_quorum-4711", **changes: Any) -> contract.RunInfo:
    """The run's description; `changes` replace fields."""
    fields: dict[str, Any] = {
        "scenario": contract.ScenarioText("kill_active", SCENARIO, hashlib.sha256(SCENARIO.encode()).hexdigest()),
        "topology": "artemis_quorum",
        "inventory_sha256": "5c" * 32,
        "versions": {"artemis": "2.56.0", "zookeeper": "3.9.4", "toxiproxy": "2.12.0"},
        "seed": 4711,
        "started_at": "2025-11-21T10:00:00Z",
        "outcome": "completed",
        "expect": {spec.name: "kept" for spec in PROMISES} | {"no_phantoms": "kept"},
        "promises": PROMISES,
        "stores": {"orders_pair1": ("artemis1", "artemis2")},
        "drained": {"drill.q0": True, "drill.q1": True},
        "clocks": {
            "controller": contract.Clock("controller"),
            "load1/worker-0": contract.Clock("load1", -1_204_331, 84_000),
            "load1/worker-1": contract.Clock("load1", -1_204_331, 91_000),
        },
    }
    return contract.new_run(run_id, **(fields | changes))


def write_run(run_dir: Path, **changes: Any) -> Path:
    """Make `run_dir` with run.json and a journal of two faults (a kill, and a partition of two links)."""
    run_dir.mkdir(parents=True, exist_ok=True)
    contract.write_run(run_dir, run_info(**changes))
    journal = Journal(run_dir)
    faults = (
        ("4711-1", "kill active", "kill", {"signal": "KILL"}, "active", "artemis1", "artemis1", KILL, HEAL),
        ("4711-2", "cut the pair", "partition", {"how": "drop"}, "link active→passive", "link artemis1→artemis2",
         None, PARTITION, PARTITION_HEALED),
        ("4711-2-1", "cut the pair", "partition", {"how": "drop"}, "link active→passive", "link artemis2→artemis1",
         None, PARTITION + 3 * MS, PARTITION_HEALED + 2 * MS),
    )  # fmt: skip
    for fault_id, step, fault, params, asked, resolved, instance, at, healed in faults:
        journal.write(
            "intent", fault_id, at_ns=at - 40 * MS, name=step, fault=fault, params=params, asked=asked,
            resolved=resolved, instance=instance, host=resolved.split()[-1].split("→")[0], ttl_s=120.0,
            verify_heal="true",
        )  # fmt: skip
        journal.write("injected", fault_id, at_ns=at, uncertainty_ns=1_400_000)
        journal.write("verified", fault_id, at_ns=at + 61 * MS)
        journal.write("heal_intent", fault_id, at_ns=healed - 20 * MS)
        journal.write("healed", fault_id, at_ns=healed, by="runner")
    journal.close()
    return run_dir


def result(run_id: str = "20251121T100000Z-kill_active-artemis_quorum-4711", **changes: Any) -> dict[str, Any]:
    """A verdict: everything kept. `changes` replace keys."""

    def promise(name: str, **values: Any) -> dict[str, Any]:
        base: dict[str, Any] = {
            "verdict": "pass", "count": 0, "excused": 0, "bound": None, "measured": None, "witnesses": [],
            "expected": "kept", "as_expected": True,
        }  # fmt: skip
        return {"name": name} | base | values

    slowest = 4127.31
    verdict: dict[str, Any] = {
        "run_id": run_id,
        "verdict": "pass",
        "as_expected": True,
        "messages": dict.fromkeys(contract.CLASSES_SHOWN, 0)
        | {"ok": 20_412, "redelivered": 38, "recovered": 4, "rejected": 11},
        "promises": [
            promise("no_phantoms"),
            promise("no_loss"),
            promise("no_duplicates"),
            promise("ordered", excused=38, scope="key"),
            promise("single_active"),
            promise("failover_within", bound=6000, measured=slowest),
            promise("failback_within", bound=15000, measured=6528.0),
            promise("available", bound=6000, measured=4188.2, side="send"),
        ],
        "failover": [
            {
                "fault": "kill",
                "instance": "artemis1",
                "store": "orders_pair1",
                "t_ns": KILL,
                "client": f"producer-{index}",
                "detection_ms": 212.4,
                "activation_ms": 3667.0,
                "first_send_ms": round(slowest - 61.7 * index, 2),
                "first_delivery_ms": round(slowest + 48.8 - 31.0 * index, 2),
            }
            for index in range(4)
        ],
        "redelivered": {"flagged": 38, "unflagged": 0, "in_doubt": 5, "not_in_doubt": 33},
        "outages": [],
        "notes": [],
        "phases": [
            phase("before_fault", 14.204, 8_211), phase("during_fault", 14.8, 6_003), phase("after_heal", 18, 0),
        ],
        "attribution": [],
        "redeliveries": [
            {
                "flagged": True, "in_doubt": bool(index), "client": f"consumer-{index}", "instance": "artemis2",
                "fault": "kill", "fault_ns": KILL, "target": "artemis1", "count": 33 - 28 * index,
            }
            for index in range(2)
        ],
    }  # fmt: skip
    return verdict | changes


def rounds() -> list[dict[str, Any]]:
    """The rounds of a method that was repeated: the second one lost a message, and its broker did not come back."""
    return [
        {"round": "1", "start_ns": 5 * S, "end_ns": 40 * S, "faults": 1, "failover_ms": 4127.31, "failback_ms": 6528.0,
         "outages": 0, "broken": {}},
        {"round": "2", "start_ns": 40 * S, "end_ns": END, "faults": 2, "failover_ms": 3901.5, "failback_ms": None,
         "outages": 3, "broken": {"failback_within": 1, "no_loss": 2}},
    ]  # fmt: skip


# --- the report of a verdict that is given as JSON -------------------------------------------------------------------


def write_report(run_dir: Path, result: Mapping[str, Any], series: Mapping[str, Any], out: Path) -> Path:
    return report.write_report(run_dir, RunVerdict.from_json(result), shown(series, result).series, out)


def write_index(runs: Sequence[tuple[Path, Mapping[str, Any]]], out: Path) -> Path:
    return report.write_index([(run_dir, RunVerdict.from_json(result)) for run_dir, result in runs], out)


def write_junit(result: Mapping[str, Any], path: Path, expect: Mapping[str, str] | None = None) -> Path:
    return report.write_junit(Verdict.from_json(result), path, expect)


def write_markdown(result: Mapping[str, Any], path: Path) -> Path:
    return report.write_markdown(Verdict.from_json(result), path)


def markdown(result: Mapping[str, Any]) -> str:
    return markdown_report.markdown(Verdict.from_json(result))


def print_verdict(result: Mapping[str, Any], console: Console) -> None:
    for one in Verdict.from_json(result).runs:
        report.print_verdict(one, console)


def shown(series: Mapping[str, Any], result: Mapping[str, Any]) -> Shown:
    """The series with the verdict's outages and failovers, as the analysis makes them."""
    return Shown.of(Series.from_json({**{name: result.get(name) for name in ("outages", "failover")}, **series}))


def phase(name: str, seconds: float, count: int) -> dict[str, Any]:
    """A phase of the verdict in which as many messages were sent as received; none: nothing was."""
    numbers = {
        "count": count,
        "per_s": count / seconds,
        "p50_ms": 3.8,
        "p95_ms": 9.4,
        "p99_ms": 17.25,
        "max_ms": 4127.3,
    }
    return {"phase": name, "seconds": seconds} | ({"send": numbers, "receive": numbers} if count else {})


def story(message: str, at: int) -> list[dict[str, Any]]:
    """What happened to a message whose reply was lost."""
    producer = {"kind": "op", "client": "producer-0", "instance": "artemis1", "session": 0}
    consumer = {"kind": "op", "client": "consumer-0", "instance": "artemis2", "session": 1, "outcome": "ok"}
    sent = producer | {"op": "send", "address": "drill.q0", "message_id": message}
    return [
        {"t_ns": S, "kind": "role", "instance": "artemis1", "value": "active", "store": "orders_pair1"},
        sent | {"t_ns": at, "outcome": "unknown", "attempt": 0, "error": "AMQ219014: Timed out"},
        {"t_ns": KILL, "kind": "fault", "name": "kill", "target": "artemis1", "instance": "artemis1"},
        sent | {"t_ns": at + S, "end_ns": at + S + 2 * MS, "outcome": "ok", "attempt": 1},
        consumer | {"t_ns": at + 2 * S, "end_ns": at + 2 * S + MS, "op": "receive", "message_id": message},
        consumer | {"t_ns": at + 3 * S, "end_ns": at + 3 * S + MS, "op": "receive", "message_id": message}
        | {"redelivered": True, "delivery": "d-2"},
        {"t_ns": HEAL, "kind": "heal", "name": "kill", "target": "artemis1", "instance": "artemis1"},
    ]  # fmt: skip


def broken(
    run_id: str = "20251121T101500Z-lost_reply_undetected-artemis_quorum-4711", **changes: Any
) -> dict[str, Any]:
    """A verdict: duplicates, an unknown promise, and witnesses."""
    verdict = result(run_id)
    verdict |= {"verdict": "fail", "as_expected": False}
    verdict["notes"] = ["one torn last line was skipped: ops/worker-1.jsonl"]
    verdict["outages"] = [
        {
            "start_ns": KILL - 20 * MS, "end_ns": ACTIVE_AGAIN + 290 * MS, "fault": "kill", "target": "artemis1",
            "address": "drill.q0", "side": "send", "client": "producer-1", "instance": "artemis1",
            "next_client": "producer-0", "next_instance": "artemis2",
        }
    ]  # fmt: skip
    verdict["attribution"] = [
        {
            "class": "duplicated", "fault": "kill", "fault_ns": KILL, "target": "artemis1", "instance": "artemis2",
            "client": "consumer-0", "count": 3,
        },
        {
            "class": "lost", "fault": None, "fault_ns": None, "target": None, "instance": None, "client": "producer-2",
            "count": 1,
        },
    ]  # fmt: skip
    verdict["messages"] |= {"duplicated": 3, "lost": 1, "unseen": 2}
    for promise in verdict["promises"]:
        if promise["name"] == "no_duplicates":
            promise |= {
                "verdict": "fail",
                "as_expected": False,
                "count": 3,
                "witnesses": [
                    {
                        "class": "duplicated",
                        "message_id": f"4711-producer-{index}-000{index}42",
                        "address": "drill.q0",
                        "subscription": None,
                        "client": f"producer-{index}",
                        "attempts": 2,
                        "deliveries": 2,
                        "first_ns": KILL + index * 311 * MS,
                        "story": story(f"4711-producer-{index}-000{index}42", KILL - 200 * MS),
                    }
                    for index in range(3)
                ],
            }
        if promise["name"] == "no_loss":
            promise |= {
                "verdict": "fail",
                "as_expected": False,
                "count": 1,
                "witnesses": [{"class": "lost", "message_id": "4711-producer-2-00187", "address": "drill.q1"}],
            }
        if promise["name"] == "failback_within":
            promise |= {"verdict": "unknown", "measured": None, "as_expected": False}
    return verdict | changes


def _role(instance: str, value: str, start: int, end: int) -> dict[str, Any]:
    return {
        "instance": instance, "store": "orders_pair1", "value": value, "start_ns": start, "end_ns": end,
        "uncertainty_ns": 12 * MS,
    }  # fmt: skip


_ROLES = [
    _role("artemis1", "active", 0, DOWN),
    _role("artemis1", "down", DOWN, HEAL),
    _role("artemis1", "starting", HEAL, HEAL + 2 * S),
    _role("artemis1", "syncing", HEAL + 2 * S, 34_800 * MS),
    _role("artemis1", "passive", 34_800 * MS, BACK),
    _role("artemis1", "active", BACK, END),
    _role("artemis2", "passive", 0, ACTIVE_AGAIN),
    _role("artemis2", "active", ACTIVE_AGAIN, 35_900 * MS),
    _role("artemis2", "failed", 35_900 * MS, 37_000 * MS),
    _role("artemis2", "syncing", 37_000 * MS, 41 * S),
    _role("artemis2", "passive", 41 * S, END),
]  # fmt: skip
_FAULTS = [
    {"name": "kill", "target": "artemis1", "instance": "artemis1", "start_ns": KILL, "end_ns": HEAL},
    {
        "name": "partition", "target": "link artemis1→artemis2", "instance": None, "start_ns": PARTITION,
        "end_ns": PARTITION_HEALED,
    },
    {
        "name": "partition", "target": "link artemis2→artemis1", "instance": None,
        "start_ns": PARTITION + 3 * MS, "end_ns": PARTITION_HEALED + 2 * MS,
    },
]  # fmt: skip
_CLIENTS = [
    {"client": f"producer-{index}", "value": value, "start_ns": start, "end_ns": end, "failures": failures}
    for index in range(3)
    for value, start, end, failures in (
        ("served", 2 * S, KILL, 0), ("failed", KILL, KILL + 100 * MS, 4), ("served", ACTIVE_AGAIN, 48 * S, 0),
    )
]  # fmt: skip
_ROUTES = {
    "keys": 3, "connects": 60, "moves": 1, "moved": {"excused": 1, "unexcused": 0},
    "spread": {"chi_square": 1 / 3, "p": 0.5637, "most": 4 / 3},
    "stores": [
        {"store": "orders_pair1", "keys": 2, "connects": 30, "moves": 0},
        {"store": "orders_pair2", "keys": 1, "connects": 30, "moves": 1},
    ],
    "spans": [
        {"key": "key-0", "store": "orders_pair1", "start_ns": 2 * S, "end_ns": 48 * S, "connects": 20},
        {"key": "key-1", "store": "orders_pair1", "start_ns": 2 * S, "end_ns": KILL, "connects": 10},
        {"key": "key-1", "store": "orders_pair2", "start_ns": ACTIVE_AGAIN, "end_ns": 48 * S, "connects": 10},
        {"key": "key-2", "store": "orders_pair2", "start_ns": 2 * S, "end_ns": 48 * S, "connects": 20},
    ],
}  # fmt: skip
_PHASES = [
    {"name": "load", "start_ns": S, "end_ns": 48 * S},
    {"name": "drain", "start_ns": 48 * S + 300 * MS, "end_ns": 54 * S},
]  # fmt: skip


def _buckets(seed: int) -> list[dict[str, Any]]:
    """What was sent and delivered in each bucket, and how long that took: drawn from `seed`."""
    rng = random.Random(seed)
    buckets = []
    for index in range(END // BUCKET):
        at = index * BUCKET
        down = KILL <= at < ACTIVE_AGAIN + 200 * MS or 35_900 * MS <= at < BACK
        loaded = 2 * S <= at < 48 * S
        sends = rng.randint(36, 48) if loaded and not down else 0
        catching_up = ACTIVE_AGAIN <= at < ACTIVE_AGAIN + 2 * S or BACK <= at < BACK + S
        deliveries = 0 if down else sends + (rng.randint(20, 40) if catching_up else rng.randint(-4, 4) if sends else 0)
        slow = 6 if catching_up else 1
        median = rng.uniform(3.1, 4.4) * slow
        delivery = median * rng.uniform(1.5, 2.1) + (900 * math.exp(-(at - ACTIVE_AGAIN) / S) if catching_up else 0)
        row: dict[str, Any] = {"start_ns": at, "sends": sends, "deliveries": deliveries}
        if sends:
            tail = rng.uniform(2.2, 5)
            row |= {"send_p50_ms": median, "send_p99_ms": median * tail, "send_max_ms": median * tail * 1.4}
        if deliveries:
            tail = rng.uniform(1.8, 4)
            row |= {
                "delivery_p50_ms": delivery,
                "delivery_p99_ms": delivery * tail,
                "delivery_max_ms": delivery * tail * 1.3,
            }
        buckets.append(row)
    return buckets


def series(seed: int = 1) -> dict[str, Any]:
    """The aggregates of that run in buckets of 100 ms, which the caller may change."""
    return copy.deepcopy(
        {
            "end_ns": END,
            "bucket_ns": BUCKET,
            "buckets": _buckets(seed),
            "roles": _ROLES,
            "faults": _FAULTS,
            "clients": _CLIENTS,
            "client_count": 40,
            "routes": _ROUTES,
            "phases": _PHASES,
        }
    )


if __name__ == "__main__":
    # python -m tests.report.sample DIR: pages to look at.
    import sys

    folder = Path(sys.argv[1])
    good, bad = write_run(folder / "good"), write_run(folder / "bad", run_id="bad", outcome="aborted")
    write_report(good, result(), series(), good)
    write_report(bad, broken(), series(2), bad)
    print(write_index([(good, result()), (bad, broken())], folder / "index.html"))
