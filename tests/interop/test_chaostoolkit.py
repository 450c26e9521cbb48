"""Chaos Toolkit's journals: faults, rollbacks, probes and steady states, and the way back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from brokerdrill.base.errors import UsageError
from brokerdrill.cli.app import app
from brokerdrill.interop.chaostoolkit import export_chaostoolkit, import_chaostoolkit
from brokerdrill.interop.folder import read_origin
from brokerdrill.ledger import contract
from brokerdrill.ledger.events import EventWriter

JOURNAL = Path(__file__).parent / "histories" / "journal.json"
MS = 1_000_000


def events(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted((run_dir / "events").iterdir()) for line in path.open()]


def test_a_journals_faults_probes_and_steady_states(tmp_path: Path) -> None:
    counts = import_chaostoolkit(JOURNAL, tmp_path / "run")
    assert counts == {"fault": 2, "heal": 2, "probe": 3, "note": 1}
    told = [(row["kind"], row["name"], row["t_ns"] // MS, row.get("value")) for row in events(tmp_path / "run")]
    assert told == [
        ("probe", "orders-flow", 200, "met"),
        ("fault", "stop-broker", 1200, "stop-broker"),
        ("fault", "slow-link", 2000, "slow-link"),
        ("probe", "one-active", 6000, "met"),
        ("note", "kill-peer", 7050, "failed"),
        # Called like a declared rollback, with the same arguments as the fault.
        ("heal", "stop-broker", 10500, "stop-broker"),
        ("probe", "orders-flow", 20500, "not met"),
        # The last rollback ends what is in effect.
        ("heal", "slow-link", 21100, "slow-link"),
    ]
    run = contract.read_run(tmp_path / "run")
    assert (run.outcome, run.scenario.name) == ("completed", "Orders survive a broker")
    assert run.started_at == "2026-03-01T10:00:00+00:00" and run.versions == {"chaostoolkit-lib": "1.44.0"}
    assert read_origin(tmp_path / "run")["steady_state"] == {"before": True, "after": False}


def test_what_is_exported_is_read_again(tmp_path: Path) -> None:
    import_chaostoolkit(JOURNAL, tmp_path / "first")
    export_chaostoolkit(tmp_path / "first", tmp_path / "out.json")
    import_chaostoolkit(tmp_path / "out.json", tmp_path / "second")

    def kept(run_dir: Path) -> list[tuple[Any, ...]]:
        names = ("kind", "name", "target", "t_ns", "uncertainty_ns", "value")
        return [tuple(row.get(name) for name in names) for row in events(run_dir) if row["kind"] != "note"]

    assert kept(tmp_path / "second") == kept(tmp_path / "first")
    first, second = (read_origin(tmp_path / name) for name in ("first", "second"))
    assert {**first, "sha256": "", "file": ""} == {**second, "sha256": "", "file": ""}


def test_a_run_of_ours_goes_there_and_back(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    run = contract.new_run("run", started_at="2026-11-21T10:00:00+00:00", outcome="completed",
                         clocks={"controller": contract.Clock("controller")})  # fmt: skip
    contract.write_run(run_dir, run)
    writer = EventWriter(run_dir, "run", 0)
    pair = [
        {"target": name, "instance": name, "store": "pair1", "name": "pause", "value": "hold"} for name in ("a", "b")
    ]
    for kind, at in (("fault", 2_000), ("heal", 9_000)):
        for place, row in enumerate(pair):
            writer.write(kind, at_ns=(at + place) * MS, uncertainty_ns=5 * MS, **row)
    writer.write("probe", at_ns=5_000 * MS, name="failover", value="failed_over")
    writer.write("phase", at_ns=1_000 * MS, name="load", value="begin")
    writer.close()
    assert export_chaostoolkit(run_dir, tmp_path / "j.json") == 5
    import_chaostoolkit(tmp_path / "j.json", tmp_path / "again")
    names = ("kind", "name", "target", "instance", "store", "t_ns", "uncertainty_ns")
    before, after = (
        {tuple(row.get(name) for name in names) for row in events(folder) if row["kind"] in ("fault", "heal")}
        for folder in (run_dir, tmp_path / "again")
    )
    assert before == after


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("{", "line 1: not JSON"),
        ("[]", "no journal of Chaos Toolkit"),
        ('{"experiment": {}, "run": []}', "start: Field required"),
        ('{"experiment": {}, "run": [{}], "start": "2026-03-01T10:00:00"}', "run.0.activity: Field required"),
        ('{"experiment": {}, "run": [{"activity": {"type": "fix", "name": "x"}, "start": "2026-03-01T10:00:00"}], '
         '"start": "2026-03-01T10:00:00"}', "run.0.activity.type: Input should be 'action' or 'probe'"),
        ('{"experiment": {}, "run": [], "start": "soon"}', "start: Input should be a valid datetime"),
    ],
)  # fmt: skip
def test_bad_journals_are_refused_with_line_or_field(change: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "j.json"
    path.write_text(change)
    with pytest.raises(UsageError) as caught:
        import_chaostoolkit(path, tmp_path / "run")
    assert str(path) in str(caught.value) and sentence in str(caught.value)
    assert sorted(tmp_path.iterdir()) == [path]


def test_the_commands(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["import", "chaostoolkit", str(JOURNAL), "--out", str(tmp_path / "run")])
    assert done.exit_code == 0 and "2 faults, 2 heals, 3 probes, 1 note" in done.output
    done = CliRunner().invoke(app, ["export", "chaostoolkit", str(tmp_path / "run"), "--out", str(tmp_path / "j.json")])
    assert done.exit_code == 0 and json.loads((tmp_path / "j.json").read_text())["deviated"] is True


@pytest.mark.parametrize(
    ("dry", "counts", "steady"),
    [
        ("actions", {"fault": 0, "heal": 0, "probe": 3, "note": 3}, True),
        ("activities", {"fault": 0, "heal": 0, "probe": 0, "note": 6}, None),
    ],
)
def test_what_was_gone_through_dry_is_no_fault(
    tmp_path: Path, dry: str, counts: dict[str, int], steady: bool | None
) -> None:
    journal = JOURNAL.parent / f"dry_{dry}.json"
    odd = {"fault": 1, "note": counts["note"] - 1}
    # An activity's own `dry`, which that version does not follow: it has brought something.
    assert import_chaostoolkit(journal, tmp_path / "run") == counts | odd
    assert {row["value"] for row in events(tmp_path / "run") if row["kind"] == "note"} == {"dry"}
    origin = read_origin(tmp_path / "run")
    assert origin["dry"] == dry and origin["steady_state"] == {"before": steady, "after": steady}
    told = CliRunner().invoke(app, ["import", "chaostoolkit", str(journal), "--out", str(tmp_path / "told")])
    assert f"--dry {dry}: what it names was not done" in told.output


@pytest.mark.parametrize("dry", ["pause", None, True])
def test_other_words_of_dry(tmp_path: Path, dry: str | bool | None) -> None:
    journal = json.loads(JOURNAL.read_text())
    journal["experiment"]["dry"] = dry
    (tmp_path / "journal.json").write_text(json.dumps(journal))
    counts = import_chaostoolkit(tmp_path / "journal.json", tmp_path / "run")
    assert counts["fault"] == (0 if dry is True else 2)
