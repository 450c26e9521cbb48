"""A game day from its first line to its last: what it refuses, when it stops, what it writes down and tells.

Runs, their judgement and the look at the hosts are made up here; tests/bench and the bench itself have them real.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.base.locks import held
from brokerdrill.base.progress import Progress
from brokerdrill.gameday import hold
from brokerdrill.gameday.history import Day
from brokerdrill.gameday.model import GameDay
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.topology import Host, Topology
from brokerdrill.ledger import contract
from brokerdrill.ledger.verdict import Verdict
from brokerdrill.runner import approval
from brokerdrill.runner.guards.stop_files import STOP_FILE, ask_to_abort
from brokerdrill.runner.recording import Interrupted

from .pair import PAIR, topology

CONSOLE = Console(quiet=True)
DEPLOYED = [*PAIR, Descriptor(schema=1, product="load", instance="load1", host="load1")]


@dataclass
class Stage:
    """The hosts, as this test wants them. `ends` says of each drill how its run ends: None, an error, or what to do."""

    folder: Path
    topologies: dict[str, Topology] = field(default_factory=lambda: {"pair": topology()})
    ends: dict[str, Any] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    unsteady: list[list[str]] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    looked: list[tuple[str, ...]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    healed: list[str] = field(default_factory=list)

    # What the hosts say of themselves; an error: they cannot be asked.
    deployed: list[Descriptor] | InfrastructureError = field(default_factory=lambda: DEPLOYED)

    async def said(self, _: Topology) -> list[Descriptor]:
        if isinstance(self.deployed, InfrastructureError):
            raise self.deployed
        return self.deployed

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    def load(self, **more: Any) -> hold.Loaded:
        data = {
            "title": "T",
            "topologies": [*self.topologies],
            "drills": {"names": ["kill_active", "lost_reply"]},
            **more,
        }
        path = self.folder / "weekly.yml"
        path.write_text(yaml.safe_dump(data))
        return hold.load(path, self.runs)

    def hold(self, **more: Any) -> Day:
        return hold.hold(self.load(**more), CONSOLE, seed=1)

    def record(self, drill: Any, where: Topology, runs: Path, seeds: list[int], *rest: Any, **_: Any) -> None:
        run_dir: Path = rest[1]
        run_dir.mkdir(parents=True)
        info = contract.new_run(run_dir.name, scenario=contract.ScenarioText(drill.name), topology=where.name)
        contract.write_run(run_dir, info)
        self.ran.append(f"{drill.name}@{where.name}")
        end = self.ends.get(drill.name)
        if callable(end):
            end(run_dir)
        elif end is not None:
            raise end
        contract.write_run(run_dir, contract.finished(info, "completed"))

    def judge(self, run_dirs: list[Path], *_: Any, **__: Any) -> tuple[Verdict, list[Path]]:
        name = contract.read_run(run_dirs[0]).scenario.name
        verdict = self.verdicts.get(name, "pass")
        promises = [{"name": "no_loss", "verdict": verdict}]
        result = {"verdict": verdict, "as_expected": verdict == "pass", "promises": promises}
        return Verdict.from_json(result), []

    async def steady(self, where: Topology, guard: Any, runs: Path, progress: Any, empty: Any = ()) -> list[str]:
        self.looked.append((where.name, *empty))
        return self.unsteady.pop(0) if self.unsteady else []


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage(tmp_path)

    def tell(name: str, plan: GameDay, day: Day) -> list[str]:
        made.told.append(day.state)
        return []

    async def bundle(where: Topology, run_dir: Path) -> Path:
        return run_dir

    monkeypatch.setattr(hold, "find_topology", lambda name: made.topologies[Path(name).name])
    monkeypatch.setattr(hold, "deployed", lambda *_: PAIR)
    monkeypatch.setattr(hold, "_said", made.said)
    monkeypatch.setattr(hold, "record", made.record)
    monkeypatch.setattr(hold, "judge", made.judge)
    monkeypatch.setattr(hold, "steady", made.steady)
    monkeypatch.setattr(hold, "notify", tell)
    monkeypatch.setattr(hold, "bundle", bundle)
    return made


def states(day: Day) -> list[tuple[str, str]]:
    return [(one.drill, one.state) for one in day.drills]


def test_a_day_as_expected(stage: Stage) -> None:
    day = stage.hold(publish={"folder": "www"})
    assert (day.state, day.why) == ("expected", "")
    assert states(day) == [("lost_reply", "expected"), ("kill_active", "expected")]
    assert stage.ran == ["lost_reply@pair", "kill_active@pair"]
    # Before and after each drill; after it its queues are looked at, too.
    assert [len(look) > 1 for look in stage.looked] == [False, True, False, True]
    assert stage.told == ["expected"]
    assert (stage.folder / "www" / "weekly" / "index.html").is_file()


def test_a_broken_promise_is_the_days_and_the_rest_is_held(stage: Stage) -> None:
    stage.verdicts["lost_reply"] = "fail"
    day = stage.hold()
    assert (day.state, states(day)) == ("unexpected", [("lost_reply", "unexpected"), ("kill_active", "expected")])
    assert day.drills[0].why == "verdict fail: no_loss"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"blackouts": [{"first": "2000-01-01", "last": "2999-01-01", "why": "freeze"}]}, "blackout"),
        ({"radius": {"groups": ["zookeeper"]}, "drills": {"names": ["kill_active"]}}, "reaches too far"),
    ],
)
def test_what_is_not_begun(stage: Stage, more: dict[str, Any], why: str) -> None:
    day = stage.hold(**more)
    assert day.state == "refused" and why in day.why
    assert stage.ran == [] and stage.looked == []


def test_a_stop_file_lets_nothing_begin(stage: Stage) -> None:
    stage.runs.mkdir()
    (stage.runs / STOP_FILE).touch()
    day = stage.hold()
    assert day.state == "refused" and "STOP says that nothing runs" in day.why


def test_approval(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = stage.topologies["pair"]
    hosts = tuple(Host(**{**vars(host), "vars": {"drill_approval": True}}) for host in plain.hosts)
    stage.topologies["pair"] = Topology(**{**vars(plain), "hosts": hosts})
    why = stage.hold().why
    assert why.count("asks for approval") == 2 and why.count("nobody has approved it") == 2
    with Progress(CONSOLE) as progress:
        chosen, _ = hold.choose(stage.load(), progress)
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    for one in chosen:
        assert one.wanted
        approval.approve(stage.runs, one.wanted, until)
    assert "another account has to" in stage.hold().why
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    assert stage.hold().state == "expected"
    assert stage.ran == ["lost_reply@pair", "kill_active@pair"]


def test_what_is_chosen_is_what_the_hosts_say(stage: Stage) -> None:
    """Brokers that something else deployed are not what the inventory's roles would make."""
    stage.deployed = [one.model_copy(update={"features": ("failback", "shared_store")}) for one in DEPLOYED]
    assert states(stage.hold()) == [("kill_active", "expected")]


def test_hosts_that_cannot_be_asked_are_drilled_by_the_inventory_or_not_at_all(stage: Stage) -> None:
    stage.deployed = InfrastructureError("no way there")
    stage.unsteady = [["no way there"]]
    day = stage.hold()
    assert (day.state, stage.ran) == ("failed", []) and "no way there" in day.why


def test_what_is_not_steady_before_is_not_drilled(stage: Stage) -> None:
    stage.unsteady = [["artemis1 has an unhealed fault (f1)"]]
    day = stage.hold()
    assert (day.state, stage.ran) == ("failed", [])
    assert states(day) == [("lost_reply", "failed")]
    assert "unhealed fault" in day.why


def test_what_is_not_steady_afterwards_is_left_alone_and_others_go_on(stage: Stage) -> None:
    stage.topologies["other"] = topology("other")
    stage.unsteady = [[], ["not healthy"]]
    day = stage.hold(drills={"names": ["kill_active", "lost_reply"], "most": 4})
    assert stage.ran == ["lost_reply@pair", "lost_reply@other", "kill_active@other"]
    assert day.state == "failed" and "pair: not steady afterwards: not healthy" in day.why


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (InfrastructureError("host artemis1 is lost"), "failed"),
        (lambda run_dir: _aborted(run_dir), "stopped"),
        (Interrupted("interrupted by SIGTERM; every fault is healed"), "stopped"),
    ],
)
def test_a_run_that_ends_early(stage: Stage, end: Any, state: str) -> None:
    stage.ends["lost_reply"] = end
    stage.verdicts["lost_reply"] = "unknown"
    day = stage.hold()
    assert day.state == state
    assert states(day)[0] == ("lost_reply", state)
    # A day that is stopped holds nothing more; one drill that failed does not stop it.
    assert stage.ran == (["lost_reply@pair", "kill_active@pair"] if state == "failed" else ["lost_reply@pair"])


def test_what_a_signal_ended_is_judged(stage: Stage) -> None:
    stage.ends["lost_reply"] = Interrupted("interrupted by SIGTERM; every fault is healed")
    stage.verdicts["lost_reply"] = "fail"
    day = stage.hold()
    assert day.state == "unexpected"
    assert day.why == "verdict fail: no_loss; interrupted by SIGTERM; every fault is healed"
    assert stage.ran == ["lost_reply@pair"]


def test_who_ends_the_judging_too_is_told_of_a_stopped_day(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(hold, "judge", judge)
    stage.ends["lost_reply"] = Interrupted("interrupted by SIGINT; every fault is healed")
    day = stage.hold()
    assert (day.state, states(day), stage.told) == ("stopped", [("lost_reply", "stopped")], ["stopped"])


def _aborted(run_dir: Path) -> None:
    ask_to_abort(run_dir, "the phone rings")
    raise InfrastructureError("abort: asked to abort: the phone rings")


def test_no_drill_begins_with_too_little_time(stage: Stage) -> None:
    day = stage.hold(guard={"time_limit_s": 100, "reserve_s": 200})
    assert day.state == "over_window" and day.why.startswith("2 drills left out")
    assert stage.ran == []


def test_one_at_a_time(stage: Stage) -> None:
    with held(stage.load().record.lock, "busy"), pytest.raises(InfrastructureError, match="another game day goes on"):
        stage.hold()


def test_two_days_of_one_second_are_two(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.datetime.now(datetime.UTC)
    monkeypatch.setattr(hold, "_now", lambda: now)
    first, second = stage.hold(), stage.hold()
    assert first.id != second.id
    assert [day.id for day in stage.load().record.days()] == [first.id, second.id]


def test_a_killed_runners_day_is_reported_by_the_next_or_by_tidy(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    healed: list[set[str]] = []
    monkeypatch.setattr(hold, "_heal", lambda begun, *_: healed.append(begun))
    record = stage.load().record

    def killed(day: str) -> None:
        record.write(day, "begin")
        record.write(day, "drill", drill="kill_active", topology="pair", run=f"run-{day}")

    killed("1")
    assert [day.id for day in hold.tidy(stage.load(), CONSOLE)] == ["1"]
    assert hold.tidy(stage.load(), CONSOLE) == []
    killed("2")
    assert stage.hold().state == "expected"
    assert healed == [{"run-1"}, {"run-2"}]
    assert stage.told == ["crashed", "crashed", "expected"]
    assert [day.state for day in record.days()] == ["crashed", "crashed", "expected"]
    assert states(record.days()[0]) == [("kill_active", "crashed")]


def test_what_a_crash_left_and_cannot_be_healed_is_said(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise InfrastructureError("host artemis1 does not answer")

    monkeypatch.setattr(hold, "_heal", fails)
    record = stage.load().record
    record.write("1", "begin")
    hold.tidy(stage.load(), CONSOLE)
    assert "is not healed: host artemis1 does not answer" in record.days()[0].why


def test_a_missed_day_is_told_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def at(hours: float) -> Callable[[], datetime.datetime]:
        return lambda: datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours)

    assert stage.hold(due_every_h=24).state == "expected"
    monkeypatch.setattr(hold, "_now", at(25))
    assert (
        stage.hold(due_every_h=24, blackouts=[{"first": "2000-01-01", "last": "2999-01-01", "why": "x"}]).state
        == "refused"
    )
    monkeypatch.setattr(hold, "_now", at(26))
    assert stage.hold(due_every_h=24).state == "expected"
    assert stage.told == ["expected", "missed", "refused", "expected"]
