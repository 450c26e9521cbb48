"""Approvals: of one run, as it is, by another account, until then."""

from __future__ import annotations

import datetime
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from brokerdrill.base.errors import UsageError
from brokerdrill.inventory.topology import Topology
from brokerdrill.runner import approval
from brokerdrill.runner.request import RunRequest, approved
from brokerdrill.scenario.drill import load_drill, resolve
from brokerdrill.scenario.radius import reached
from tests.unit.worlds import LOAD, PAIR, ZOOKEEPER

NOW = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.UTC)
LATER = NOW + datetime.timedelta(hours=1)
SYSTEM = [*PAIR, *ZOOKEEPER, LOAD]
RUNNER = 54321


def asked(drill: str = "lost_reply", **changes: str) -> approval.ApprovalRequest:
    loaded = resolve(load_drill(drill), SYSTEM, "pair", changes)
    place = Topology("pair", Path("/pair"), (), True, "0" * 64, {})
    return approval.asked(loaded, place, reached(loaded.scenario, SYSTEM))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def as_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is of another account than the one whose files it made."""
    monkeypatch.setattr("os.geteuid", lambda: RUNNER)


def refused(runs: Path, what: approval.ApprovalRequest, now: datetime.datetime = NOW) -> str:
    with pytest.raises(UsageError) as raised:
        approval.take(runs, what, "run", now)
    return str(raised.value)


def test_it_is_for_one_run(runs: Path, as_runner: None) -> None:
    what = asked()
    assert "nobody has approved it" in refused(runs, what)
    approval.approve(runs, what, LATER)
    given = approval.take(runs, what, "run-1", NOW)
    assert (given.sha256, given.by, given.until) == (what.sha256, approval.account(os.getuid()), LATER.isoformat())
    assert "was for one run, which was made" in refused(runs, what)
    # Each one more allows one more.
    approval.approve(runs, what, LATER)
    assert approval.take(runs, what, "run-2", NOW).id != given.id


def test_it_is_for_what_was_seen(runs: Path, as_runner: None) -> None:
    what = asked()
    approval.approve(runs, what, LATER)
    others = [
        asked("lost_reply_undetected"),
        asked(**{"load.rate": "17"}),
        replace(what, targets=(*what.targets, "one more")),
        replace(what, code="another"),
        replace(what, inventory_sha256="1" * 64),
        replace(what, text=what.text + "\n"),
    ]
    for other in others:
        assert "nobody has approved it" in refused(runs, other)
    assert approval.take(runs, what, "run", NOW)


def test_who_allows_a_drill_does_not_allow_to_empty_its_addresses(runs: Path, as_runner: None) -> None:
    """What waits there may be somebody else's."""
    loaded = resolve(load_drill("lost_reply"), SYSTEM, "pair", {})
    place = Topology("pair", Path("/pair"), (), True, "0" * 64, {})
    reach = reached(loaded.scenario, SYSTEM)
    request = RunRequest(load_drill("lost_reply"), place, runs / "one", 1, purge=True)
    wanted: list[approval.ApprovalRequest] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(approval, "asks", lambda _: True)
        patch.setattr(approval, "take", lambda _runs, what, *_: wanted.append(what))
        for one in (request, replace(request, purge=False)):
            approved(one, loaded, reach)
    assert wanted[0].sha256 != wanted[1].sha256
    assert wanted[0].targets[-1] == "--purge removes all that waits in the drill's addresses, whosever it is"


def test_it_ends(runs: Path, as_runner: None) -> None:
    approval.approve(runs, asked(), NOW)
    assert "ended at 2026-11-29T12:00:00+00:00" in refused(runs, asked(), LATER)


def test_who_runs_it_cannot_approve_it(runs: Path) -> None:
    approval.approve(runs, asked(), LATER)
    assert "who runs it, has approved it: another account has to" in refused(runs, asked())
    approval.request(runs, asked())
    with pytest.raises(UsageError, match="asks for it: another account has to approve it"):
        approval.chosen(runs, asked().id)


@pytest.mark.parametrize("kind", ["link", "for all", "no json", "no id", "path as id", "list"])
def test_a_file_that_others_may_have_written_is_no_approval(runs: Path, as_runner: None, kind: str) -> None:
    path = approval.approve(runs, asked(), LATER)
    content = json.loads(path.read_text())
    if kind == "link":
        path.rename(runs / "elsewhere")
        path.symlink_to(runs / "elsewhere")
    elif kind == "for all":
        path.chmod(0o666)
    elif kind == "no json":
        path.write_text("{")
    elif kind == "no id":
        path.write_text(json.dumps({key: value for key, value in content.items() if key != "id"}))
    elif kind == "path as id":
        path.write_text(json.dumps(content | {"id": "../../x"}))
    else:
        path.write_text("[]")
    assert "nobody has approved it" in refused(runs, asked())


def test_what_is_asked_for_can_be_read_and_allowed(runs: Path, as_runner: None) -> None:
    what = asked()
    said = refused(runs, what)
    assert f"brokerdrill approve {what.id}" in said
    assert list(approval.requests(runs).values()) == [what]
    approval.approve(runs, approval.chosen(runs, what.id), LATER)
    assert approval.take(runs, what, "run", NOW)
    with pytest.raises(UsageError, match="no request is called"):
        approval.chosen(runs, "ffff")


def test_who_allowed_it_cannot_be_made_up(runs: Path, as_runner: None) -> None:
    path = approval.approve(runs, asked(), LATER)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"by": "mara"}))
    assert approval.take(runs, asked(), "run", NOW).by == approval.account(os.getuid())


def test_others_may_add_to_the_folder_and_take_nothing_away(runs: Path) -> None:
    approval.request(runs, asked())
    assert (runs / approval.FOLDER).stat().st_mode & 0o7777 == 0o1777


def test_the_code_counts() -> None:
    assert len(approval.code_version()) == 64


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"drill": 1}', "\xff"])
def test_a_file_that_is_no_request_keeps_nobody_from_the_others(runs: Path, as_runner: None, text: str) -> None:
    what = asked()
    path = approval.request(runs, what)
    odd = path.with_name("0.request.json")
    odd.write_bytes(text.encode("latin-1"))
    renamed = path.with_name(f"{'1' * 16}.request.json")
    renamed.write_bytes(path.read_bytes())
    assert approval.requests(runs) == {odd: None, renamed: None, path: what}
    assert approval.chosen(runs, what.id) == what
