"""Trends: false alarms at the stated rate over simulated series, real changes found, the table through crashes."""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from brokerdrill.base.errors import InfrastructureError, UsageError
from brokerdrill.cli.app import app
from brokerdrill.ledger import contract
from brokerdrill.ledger.verdict import RunVerdict
from brokerdrill.results.regression import ComparedSeries, exit_status, judged, series_of
from brokerdrill.results.table import TABLE, append, read
from brokerdrill.results.trends import coverage_rows

from .series import START, failovers, rows, run_info, verdict, write

ALPHA = 0.05


def look(found: list[dict[str, object]], **words: object) -> list[ComparedSeries]:
    return judged(series_of(found), ALPHA, **words)  # type: ignore[arg-type]


# --- false alarms and real changes ----------------------------------------------------------------------------------


def test_with_nothing_changed_the_chance_of_any_alarm_is_at_most_alpha() -> None:
    """Each look is at three series whose runs are alike, one of them breaking a promise in every tenth run."""
    rng, looks, alarms = np.random.default_rng(1), 300, 0
    for _ in range(looks):
        found = [
            row
            for name in ("a", "b", "c")
            for row in rows(
                failovers(rng, 24), [i for i in range(24) if name == "c" and rng.random() < 0.1], scenario=name
            )
        ]
        alarms += exit_status(look(found), ALPHA) == 1
    # Three standard errors of the simulation above what is promised.
    assert alarms / looks <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / looks)


def test_a_slowdown_is_found() -> None:
    rng, looks, hits = np.random.default_rng(2), 60, 0
    for _ in range(looks):
        found = rows(failovers(rng, 20) + failovers(rng, 5, median=6500))
        found += rows(failovers(rng, 25), scenario="other")
        (slow, other) = look(found)
        hits += [test.what for test in slow.regressions(ALPHA)] == ["failover"]
        assert exit_status([slow], ALPHA) == (1 if slow.regressions(ALPHA) else 0)
        assert other.series.scenario == "other"
    assert hits / looks >= 0.9


def test_violations_that_came_are_found_and_those_that_went_are_not() -> None:
    steady = failovers(np.random.default_rng(3), 25)
    (came,) = look(rows(steady, broken=[21, 22, 24]))
    assert [test.what for test in came.regressions(ALPHA)] == ["violations"]
    (went,) = look(rows(steady, broken=range(15)))
    assert went.regressions(ALPHA) == [] and exit_status([went], ALPHA) == 0


def test_faster_is_no_regression() -> None:
    rng = np.random.default_rng(4)
    (found,) = look(rows(failovers(rng, 20) + failovers(rng, 5, median=1500)))
    assert found.regressions(ALPHA) == [] and found.tested


def test_a_client_that_was_never_served_is_slower_than_any() -> None:
    rng = np.random.default_rng(5)
    times: list[float | None] = [*failovers(rng, 20), None, None, None, None, None]
    (found,) = look(rows(times))
    assert "failover" in [test.what for test in found.regressions(ALPHA)]


def test_too_few_runs_say_nothing() -> None:
    found = look(rows([4000, 4100, 3900]))
    assert exit_status(found, ALPHA) == 2
    assert not found[0].tested and exit_status(look([]), ALPHA) == 2
    # 5 new against 1 old: even the clearest order of them has p = 1/6.
    assert exit_status(look(rows([1, 50, 51, 52, 53, 54])), ALPHA) == 2


def test_other_settings_are_another_series_and_since_splits_by_time() -> None:
    rng = np.random.default_rng(6)
    found = rows(failovers(rng, 12), settings={"session_ms": "2000"}, scenario="s")
    found += [row | {"run_id": f"x{row['run_id']}"} for row in rows(failovers(rng, 12, median=9000), scenario="s")]
    series = series_of(found)
    assert [one.settings for one in series] == ["", "session_ms 2000"]
    (one,) = judged(series[:1], ALPHA, since=START + datetime.timedelta(days=9))
    assert (len(one.baseline), len(one.recent)) == (9, 3)


def test_an_unknown_verdict_is_neither_kept_nor_broken(tmp_path: Path) -> None:
    run = tmp_path / "r1"
    run.mkdir()
    contract.write_run(run, run_info("r1", START))
    append(run, RunVerdict.from_json(verdict("r1", 4000.0, unknown=("no_loss",))))
    ((point,),) = [one.runs for one in series_of(read(tmp_path))]
    assert point.violated is None and point.slowest == 4000.0


# --- the table ------------------------------------------------------------------------------------------------------


def test_a_run_is_in_the_table_once_and_the_newest_analysis_counts(tmp_path: Path) -> None:
    run = tmp_path / "r1"
    run.mkdir()
    contract.write_run(run, run_info("r1", START, settings={"load.rate": "400"}, seed=7))
    append(run, RunVerdict.from_json(verdict("r1", 4000.0)))
    append(run, RunVerdict.from_json(verdict("r1", None, broken=("no_loss",))))
    found = read(tmp_path)
    assert [(row["kind"], row["name"], row["verdict"], row["measured"]) for row in found] == [
        ("promise", "no_loss", "fail", None),
        ("promise", "no_phantoms", "pass", None),
        ("promise", "failover_within", "pass", None),
        ("failover", "kill artemis1", None, None),
    ]
    assert found[0]["settings"] == {"load.rate": "400"} and found[0]["lost"] == 1 and found[0]["seed"] == 7


def test_what_a_crash_left_is_not_read_and_spoils_nothing(tmp_path: Path) -> None:
    write(tmp_path, rows([4000.0, 4100.0]))
    (tmp_path / TABLE / ".kill_active-002.parquet.17.tmp").write_bytes(b"PAR1 half a file")
    assert len({row["run_id"] for row in read(tmp_path)}) == 2


def test_the_table_is_plain_parquet(tmp_path: Path) -> None:
    write(tmp_path, rows([4000.0, None]))
    table = pq.read_table(tmp_path / TABLE)
    assert table.num_rows == 8 and table.schema.field("versions").type == pa.map_(pa.string(), pa.string())


@pytest.mark.parametrize("content", [b"", b"PAR1nonsense", b'{"a": 1}'])
def test_a_file_that_is_no_parquet_is_named(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, rows([4000.0]))
    (tmp_path / TABLE / "bad.parquet").write_bytes(content)
    with pytest.raises(UsageError, match=r"bad\.parquet cannot be read"):
        read(tmp_path)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    (tmp_path / TABLE).mkdir()
    pq.write_table(pa.table({"run_id": ["r"]}), tmp_path / TABLE / "r.parquet")
    with pytest.raises(UsageError, match=r"r\.parquet: column started_at is missing"):
        read(tmp_path)


def test_no_table_and_no_room(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no table of results"):
        read(tmp_path)
    run = tmp_path / "r1"
    run.mkdir()
    contract.write_run(run, run_info("r1", START))
    (tmp_path / TABLE).write_text("a file where the table should be")
    with pytest.raises(InfrastructureError, match="cannot be written"):
        append(run, RunVerdict.from_json(verdict("r1", 4000.0)))


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command_says_what_got_worse(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    write(tmp_path, rows(failovers(rng, 20) + failovers(rng, 5, median=7000), broken=[22, 23, 24]))
    done = CliRunner().invoke(app, ["trends", str(tmp_path)])
    assert done.exit_code == 1, done.output
    assert "failover became slower" in done.output
    told = json.loads((tmp_path / "trends.json").read_text())
    assert len(told["regressions"]) == 2 and told["series"][0]["baseline_runs"] == 20
    page = (tmp_path / "trends.html").read_text()
    assert "2 regressions" in page and "kill_active" in page and "sync_stalled" in page
    assert "scale_down_stop" not in page, "it does not apply there"
    assert CliRunner().invoke(app, ["trends", str(tmp_path), "--alpha", "2"]).exit_code != 0
    # Against itself nothing is worse, and three runs say nothing.
    since = (START + datetime.timedelta(days=400)).date().isoformat()
    assert CliRunner().invoke(app, ["trends", str(tmp_path), "--since", since]).exit_code == 2


def test_coverage_names_what_was_never_drilled() -> None:
    found = coverage_rows(
        rows([4000.0, 4100.0], broken=[1]), [("kill_active", "artemis_quorum"), ("pause", "artemis_quorum")]
    )
    drilled, never = found
    assert (drilled["scenario"], drilled["runs"], drilled["verdict"], drilled["as_expected"]) == (
        "kill_active",
        2,
        "fail",
        False,
    )
    assert drilled["last"] == START + datetime.timedelta(days=1) and drilled["versions"] == "artemis 2.56.0"
    assert (never["scenario"], never["runs"], never["last"]) == ("pause", 0, None)
