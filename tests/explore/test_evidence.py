"""What a run's directory tells an exploration."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from brokerdrill.campaigns.execute import DONE, FAILED, Ended
from brokerdrill.explore.evidence import came
from brokerdrill.explore.finds import named
from brokerdrill.ledger import contract
from tests.campaigns.series import run_info, verdict


def test_what_broke_before_the_first_fault_is_none_of_the_trials(tmp_path: Path) -> None:
    run_dir = tmp_path / "a run"
    run_dir.mkdir()
    contract.write_run(run_dir, run_info(run_dir.name, datetime.datetime.now(datetime.UTC)))
    (run_dir / "verdict.json").write_text(json.dumps(verdict(run_dir.name, None, broken=["no_loss"])))
    assert [one.promise for one in came(Ended(DONE, run_dir.name), tmp_path, 1.0).broke] == ["no_loss"]
    early = came(Ended(FAILED, run_dir.name, "no steady state"), tmp_path, 1.0)
    assert (early.broke, early.judged, early.error) == ((), frozenset(), "no steady state")


def test_finds_of_two_explorations_of_one_seed_have_two_names() -> None:
    def name(run_dir: str) -> str:
        find: Any = SimpleNamespace(
            topology="pair", broke=SimpleNamespace(promise="no_loss"), number=1, run_dir=run_dir
        )
        return named(find, cast(Any, SimpleNamespace(seed=1)))

    assert name("20261129T145339-explored_1_0037-pair-1") != name("20261130T080000-explored_1_0002-pair-1")
