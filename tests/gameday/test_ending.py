"""How long a game day may take to end: never shorter than the heals and the drain of any drill that it may hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from brokerdrill.cli.app import app
from brokerdrill.faults.executor import HEAL_DEADLINE_S
from brokerdrill.gameday.ending import stop_s
from brokerdrill.scenario.drill import drills


@pytest.mark.parametrize("drill", drills(), ids=lambda drill: drill.name)
def test_heals_and_drain_fit_in(drill: object) -> None:
    scenario = drill.scenario  # type: ignore[attr-defined]
    faults = sum(step.type == "action" for step in scenario.method)
    # The producers stop, the queues are emptied, the clients close: each may take as long as the drain.
    assert stop_s([scenario]) > 2 * faults * HEAL_DEADLINE_S + 3 * scenario.abort.drain


def test_the_slowest_counts() -> None:
    found = [drill.scenario for drill in drills()]
    assert stop_s(found) == max(stop_s([one]) for one in found)


def test_the_command_counts_only_what_may_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "weekly.yml"
    path.write_text("title: T\ntopologies: [nowhere]\ndrills: {names: [kill_active]}\n")
    done = CliRunner().invoke(app, ["gameday", "stop-time", str(path)])
    assert done.exit_code == 0
    assert int(done.stdout) == stop_s(drill.scenario for drill in drills() if drill.name == "kill_active")
