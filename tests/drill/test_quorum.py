"""A lost majority of the ensemble under load, on real brokers: the fault met the load, and what the verdict says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.inventory.topology import Topology
from tests.drill.conftest import BROKERDRILL, ROOT

pytestmark = pytest.mark.long


def held(drill: str, topology: Topology, runs: Path) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """Run the drill, which is as expected; return run.json, the events in the order of their time, and the verdict."""
    verdict = runs / "verdict.json"
    command = [*BROKERDRILL, "run", drill, topology.name, "--runs", str(runs), "--json", str(verdict)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (info,) = runs.glob("*/run.json")
    lines = [line for path in (info.parent / "events").glob("*.jsonl") for line in path.read_text().splitlines()]
    events = sorted((json.loads(line) for line in lines), key=lambda event: event["t_ns"])
    return json.loads(info.read_text()), events, json.loads(verdict.read_text())


@pytest.mark.parametrize("drill", ["majority_killed", "majority_killed_backlog"])
def test_a_lost_majority_stops_the_active_broker_under_load(topology: Topology, tmp_path: Path, drill: str) -> None:
    info, events, verdict = held(drill, topology, tmp_path)
    faults = [event for event in events if event["kind"] == "fault"]
    assert len({event["instance"] for event in faults}) == 2
    assert {event["store"] for event in faults} == {"zookeeper"}
    begin, end = faults[0]["t_ns"], min(event["t_ns"] for event in events if event["kind"] == "heal")
    assert end - begin > 9e9, "away for longer than a session"
    roles = [event for event in events if event["kind"] == "role" and event["store"] == "orders_pair1"]
    before = {event["instance"]: event["value"] for event in roles if event["t_ns"] < begin}
    assert sorted(before.values()) == ["active", "passive"], "it met a pair in sync"
    (active,) = (name for name, value in before.items() if value == "active")
    # No broker may be active without consensus, and one is when there is a majority again
    left = [event["t_ns"] for event in roles if event["instance"] == active and event["value"] in ("down", "starting")]
    again = [event["t_ns"] for event in roles if event["value"] == "active" and event["t_ns"] > begin]
    assert left and begin < min(time for time in left if time > begin) < end < again[0]
    assert info["drained"] and all(info["drained"].values())
    assert verdict["messages"]["ok"] > 0
    promises = {promise["name"]: promise["verdict"] for promise in verdict["promises"]}
    assert promises["single_active"] == promises["no_phantoms"] == promises["atomic"] == "pass"
    # Whether something is lost is a race between the two brokers (FINDINGS.md), but never unknown
    assert promises["no_loss"] in ("pass", "fail")
