"""Hold a game day: choose, guard, run and judge each drill, write down every step, publish, notify.

Every step is on the disk before it is taken, so that a game day whose runner was killed is seen as crashed: by the next
one, by `brokerdrill gameday tidy`, and by the systemd unit that the role `gameday` installs.
"""

from __future__ import annotations

import datetime
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from brokerdrill.base import json_lines
from brokerdrill.base.errors import BrokerdrillError, InfrastructureError, UsageError
from brokerdrill.base.exposition import write
from brokerdrill.base.locks import held
from brokerdrill.base.progress import Progress
from brokerdrill.gameday import history, pages, windows
from brokerdrill.gameday.exposition import exposition
from brokerdrill.gameday.guards import Watching, steady
from brokerdrill.gameday.history import Day, GameDayLog
from brokerdrill.gameday.model import GameDay, load_gameday
from brokerdrill.gameday.notify import beat, notify
from brokerdrill.gameday.plan import Planned, PlannedTopology, last_held, planned
from brokerdrill.gameday.support import bundle
from brokerdrill.hosts.connection import connected
from brokerdrill.hosts.descriptors import read_all
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.planned import load_hosts
from brokerdrill.inventory.planned import planned as deployed
from brokerdrill.inventory.topology import Topology, find_topology
from brokerdrill.ledger import contract
from brokerdrill.ledger.verdict import FAIL, PASS, RunVerdict
from brokerdrill.products.registry import DESCRIPTORS
from brokerdrill.report.words import headline
from brokerdrill.results import table
from brokerdrill.results.judging import judge
from brokerdrill.runner import approval
from brokerdrill.runner.evidence.run_dir import new_run_dir
from brokerdrill.runner.guards.stop_files import asked, refuse_stopped
from brokerdrill.runner.healing import INTERRUPTED, heal_run, unfinished
from brokerdrill.runner.recording import Interrupted, record, run_async
from brokerdrill.scenario.drill import drills


@dataclass(frozen=True)
class Loaded:
    """A game day's file, read: its name, what it says, and its topologies."""

    file: Path
    name: str
    plan: GameDay
    topologies: tuple[Topology, ...]
    runs: Path

    @property
    def record(self) -> GameDayLog:
        return GameDayLog(self.runs, self.name)


def unapproved(runs: Path, chosen: Sequence[Planned], now: datetime.datetime) -> str | None:
    """Return why an approval that is asked for is missing; None: it is there, or none is asked for."""
    return approval.refusal(runs, [one.wanted for one in chosen if one.wanted], now)


def load(file: Path, runs: Path) -> Loaded:
    """Return a game day's file, read. Raises UsageError for what is wrong with it or its topologies."""
    name, plan = load_gameday(file)
    return Loaded(file, name, plan, tuple(find_topology(one) for one in plan.topologies), runs)


Known = Callable[[Topology, Progress], Sequence[Descriptor]]


def by_inventory(topology: Topology, progress: Progress) -> Sequence[Descriptor]:
    """Return what the inventory says would be deployed on `topology`. Touches no host."""
    return [*deployed(topology, progress), *load_hosts(topology)]


async def _said(topology: Topology) -> Sequence[Descriptor]:
    async with connected(topology.hosts) as connections:
        return await read_all(connections.values(), DESCRIPTORS)


def choose(loaded: Loaded, progress: Progress, known: Known = by_inventory) -> tuple[list[Planned], list[Planned]]:
    """Return (the drills that would be held now, in their order; those that are refused); `known` says what is deployed
    on a topology.

    Raises UsageError where the choice fits nothing.
    """
    places = [PlannedTopology(one, known(one, progress)) for one in loaded.topologies]
    rows = table.read(loaded.runs) if (loaded.runs / table.TABLE).is_dir() else []
    return planned(loaded.plan.drills, loaded.plan.radius, drills(), places, last_held(rows))


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def hold(
    loaded: Loaded, console: Console, seed: int | None = None, master: str | None = None, wait_s: float = 0
) -> Day:
    """Hold the game day now; return how it ended, which is written down, published and announced.

    Raises InfrastructureError while another game day of the same folder of runs goes on, after `wait_s` seconds.
    """
    record_ = loaded.record
    with held(record_.lock, "another game day goes on", wait_s):
        _tidy(loaded, console)
        _note_missed(loaded, console)
        begun = _now()
        day = _new_id(begun, {one.id for one in record_.days()})
        record_.write(day, "begin", process=os.getpid(), title=loaded.plan.title)
        try:
            state, why = _Held(loaded, console, day, begun, seed, master).carry_out()
        except Interrupted as error:
            state, why = history.STOPPED, str(error)
        except KeyboardInterrupt:
            state, why = history.STOPPED, "interrupted while a run was judged; every fault is healed"
        except BrokerdrillError as error:
            state, why = history.FAILED, str(error)
        record_.write(day, "end", state=state, why=why)
        return _report(loaded, day, console)


def _new_id(begun: datetime.datetime, known: set[str]) -> str:
    day = stamp = f"{begun:%Y%m%dT%H%M%S}"
    number = 1
    while day in known:
        number += 1
        day = f"{stamp}-{number}"
    return day


def tidy(loaded: Loaded, console: Console, wait_s: float = 0) -> list[Day]:
    """Heal, report and announce what game days whose runner was killed left; return those days.

    Raises InfrastructureError while a game day goes on, after `wait_s` seconds.
    """
    with held(loaded.record.lock, "a game day goes on", wait_s):
        return _tidy(loaded, console)


def _tidy(loaded: Loaded, console: Console) -> list[Day]:
    record_ = loaded.record
    ended = {entry.get("day") for entry in json_lines.entries(record_.path) if entry.get("phase") == "end"}
    crashed = [
        day
        for day in history.days(json_lines.entries(record_.path), alive=False)
        if day.state == history.CRASHED and day.id not in ended
    ]
    for day in crashed:
        why = day.why
        try:
            _heal({one.run for one in day.drills if one.run}, loaded.runs, console)
        except BrokerdrillError as error:
            why = f"{why}; what it left is not healed: {error}"
        if day.drills and day.drills[-1].state == history.CRASHED:
            record_.write(day.id, "drilled", state=history.CRASHED, run=day.drills[-1].run)
        record_.write(day.id, "end", state=history.CRASHED, why=why)
        _report(loaded, day.id, console)
    return crashed


def _heal(begun: set[str], runs: Path, console: Console) -> None:
    if not runs.is_dir():
        return
    with Progress(console) as progress:
        for item in unfinished(runs):
            if item.run_dir.name in begun:
                progress.step(f"heal what {item.run_dir.name} left")
                run_async(heal_run(item, progress), console, INTERRUPTED)


def _note_missed(loaded: Loaded, console: Console) -> None:
    """Write down and announce a game day that was due and not held."""
    record_ = loaded.record
    found = record_.days()
    due = windows.missed_since(loaded.plan, history.last_begun(found), _now())
    if due is None:
        return
    day = f"missed-{due:%Y%m%dT%H%M%S}"
    if any(one.id == day for one in found):
        return
    record_.write(day, "begin")
    why = f"none was held since {history.last_begun(found):%Y-%m-%d %H:%M} UTC; it was due at {due:%Y-%m-%d %H:%M} UTC"
    record_.write(day, "end", state=history.MISSED, why=why)
    _report(loaded, day, console)


def _report(loaded: Loaded, day_id: str, console: Console) -> Day:
    """Publish the game days and announce this one; what does not work is said, and changes nothing else."""
    found = loaded.record.days()
    day = next(one for one in found if one.id == day_id)
    plan = loaded.plan
    if plan.publish:
        try:
            page = pages.publish(loaded.name, plan.title, found, loaded.runs, plan.publish.folder)
            console.print(f"published: {page}", markup=False)
        except BrokerdrillError as error:
            console.print(f"not published: {error}", markup=False)
    for problem in (*notify(loaded.name, plan, day), beat(loaded.name, plan, day), _measured(loaded, found)):
        if problem:
            console.print(problem, markup=False)
    loaded.record.write(day_id, "announced")
    return day


def _measured(loaded: Loaded, found: Sequence[Day]) -> str | None:
    """Write the metrics of the days where the plan says to which file; return what did not work."""
    try:
        if loaded.plan.metrics_file:
            write(loaded.plan.metrics_file, exposition(loaded.name, found))
    except InfrastructureError as error:
        return f"no metrics: {error}"
    return None


@dataclass
class _Held:
    """One game day under way."""

    loaded: Loaded
    console: Console
    day: str
    begun: datetime.datetime
    seed: int | None
    master: str | None
    # A signal asked for the end: what was recorded is judged, and nothing more is held.
    interrupted: bool = False

    def carry_out(self) -> tuple[str, str]:
        """Hold the day; return how it ended and why."""
        plan, runs = self.loaded.plan, self.loaded.runs
        if why := self._refusal():
            return history.REFUSED, why
        if problem := beat(self.loaded.name, plan, Day(self.day, self.begun.isoformat(timespec="seconds"))):
            self._say(problem)
        until = windows.ends_at(plan, self.begun)
        with Progress(self.console) as progress:
            chosen, refused = choose(self.loaded, progress, self._deployed)
        for one in refused:
            self._say(f"{one.drill.name} on {one.topology.name} is not held: {'; '.join(one.refused)}")
        if not chosen:
            return history.REFUSED, "each drill that applies reaches too far, or is not allowed"
        if why := unapproved(runs, chosen, self.begun):
            return history.REFUSED, why
        states: list[str] = []
        unsteady: dict[str, str] = {}
        first = self.seed if self.seed is not None else random.SystemRandom().randrange(1_000_000)
        runs.mkdir(parents=True, exist_ok=True)
        for number, one in enumerate(chosen):
            left = (until - _now()).total_seconds()
            if left < plan.guard.reserve_s:
                why = f"{left:.0f} s are left, and no drill begins with fewer than {plan.guard.reserve_s:.0f} s"
                return history.worst([*states, history.OVER_WINDOW]), f"{len(chosen) - number} drills left out: {why}"
            if one.topology.name in unsteady:
                continue
            state, why, steady_after = self._one(one, first + number, until)
            states.append(state)
            if self.interrupted or state in (history.STOPPED, history.OVER_WINDOW):
                return history.worst(states), why
            if not steady_after:
                unsteady[one.topology.name] = why
        return history.worst(states), "; ".join(f"{name}: {why}" for name, why in unsteady.items())

    def _deployed(self, topology: Topology, progress: Progress) -> Sequence[Descriptor]:
        """Return what is deployed on `topology`, as its hosts say, since that is what a run will find and what has to
        be approved: brokers that something else deployed are not what the roles would make of the inventory. What the
        inventory says where they cannot be asked; why, the look before each drill will say."""
        progress.step(f"read what is deployed on {topology.name}")
        try:
            found = run_async(_said(topology), self.console)
        except InfrastructureError as error:
            progress.step(f"not read: {error}")
            found = []
        return found or by_inventory(topology, progress)

    def _refusal(self) -> str | None:
        """Return why the day may not begin."""
        try:
            refuse_stopped(self.loaded.runs)
        except UsageError as error:
            return str(error)
        return windows.closed(self.loaded.plan, self.begun)

    def _say(self, sentence: str) -> None:
        self.console.print(sentence, markup=False)

    def _steady(self, topology: Topology, empty: Sequence[str] = ()) -> list[str]:
        with Progress(self.console) as progress:
            progress.step(f"steady state of {topology.name}")
            return run_async(steady(topology, self.loaded.plan.guard, self.loaded.runs, progress, empty), self.console)

    def _one(self, one: Planned, seed: int, until: datetime.datetime) -> tuple[str, str, bool]:
        """Hold one drill; return how it ended, why, and whether its topology is steady after it."""
        runs, topology = self.loaded.runs, one.topology
        run_dir = new_run_dir(runs, one.drill.name, topology.name, seed)
        write: Callable[..., None] = self.loaded.record.write
        write(self.day, "drill", drill=one.drill.name, topology=topology.name, run=run_dir.name)
        problems = self._steady(topology)
        if problems:
            why = "not begun: " + "; ".join(problems)
            self._say(f"{one.drill.name} on {topology.name}: {why}")
            write(self.day, "drilled", state=history.FAILED, why=why)
            return history.FAILED, why, False
        watching = Watching(self.loaded.plan.guard, until)
        guards = (watching.over_time, watching.too_deep, watching.too_high, watching.stray, watching.broken)
        state, why, silent_s = history.EXPECTED, "", self.loaded.plan.guard.controller_silent_s
        try:
            record(
                one.drill,
                topology,
                runs,
                [seed],
                self.console,
                run_dir,
                guards=guards,
                radius=self.loaded.plan.radius,
                silent_s=silent_s,
            )
        except Interrupted as error:
            self.interrupted, state, why = True, history.STOPPED, str(error)
        except BrokerdrillError as error:
            stopped = history.STOPPED if asked(run_dir) else None
            state, why = stopped or watching.ended or history.FAILED, str(error)
            self._say(f"{one.drill.name} on {topology.name} ended early: {error}")
        made = (run_dir / contract.RUN_FILE).exists()
        harm = ""
        if self.interrupted:
            # Judging takes its time, and whoever ends a day may end that too.
            write(self.day, "drilled", state=state, why=why, run=run_dir.name if made else None)
        if made:
            state, why, harm = self._judged(run_dir, state, why)
        write(self.day, "drilled", state=state, why=why, harm=harm, run=run_dir.name if made else None)
        if self.interrupted:
            return state, why, False
        if made and state != history.EXPECTED:
            self._bundle(topology, run_dir)
        # What broke off leaves messages, which the next drill takes away.
        problems = self._steady(topology, one.drill.scenario.load.addresses if _completed(run_dir) else ())
        if problems:
            unsteady = "not steady afterwards: " + "; ".join(problems)
            self._say(f"{topology.name}: {unsteady}")
            state, why = history.worst([state, history.FAILED]), "; ".join(filter(None, (why, unsteady)))
            write(self.day, "drilled", state=state, why=why, harm=harm, run=run_dir.name)
            return state, unsteady, False
        return state, why, True

    def _bundle(self, topology: Topology, run_dir: Path) -> None:
        """Keep what helps to find out why; what cannot be had is said."""
        try:
            path = run_async(bundle(topology, run_dir), self.console)
            self._say(f"support bundle: {path}")
        except InfrastructureError as error:
            self._say(f"no support bundle: {error}")

    def _judged(self, run_dir: Path, state: str, why: str) -> tuple[str, str, str]:
        """Judge a run; return how the drill ended, why (a broken promise is worse than an early end), and what was lost
        or came twice, whatever the drill expects."""
        try:
            result, _ = judge([run_dir], self.console, master=self.master)
        except BrokerdrillError as error:
            return history.worst([state, history.FAILED]), why or str(error), ""
        (run,) = result.runs
        harm = harm_of(run)
        if run.as_expected:
            return state, why, harm
        if run.verdict != FAIL and state != history.EXPECTED:
            return state, why, harm
        broken = [one.name for one in run.promises if one.verdict != PASS]
        said = headline(run) if run.vacuous else f"verdict {run.verdict}: {', '.join(broken)}"
        return history.UNEXPECTED, "; ".join(filter(None, (said, why))), harm


def harm_of(result: RunVerdict) -> str:
    """Return in words how many messages a run's verdict says were lost or processed twice; "": none."""
    broken = [(result.count("lost"), "lost"), (result.count("duplicated"), "processed more than once")]
    return ", ".join(f"{n} messages {what}" for n, what in broken if n)


def _completed(run_dir: Path) -> bool:
    try:
        return contract.read_run(run_dir).outcome == "completed"
    except UsageError:
        return False
