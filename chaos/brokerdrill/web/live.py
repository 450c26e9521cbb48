"""A run as it stands: from what its runner has written so far to what the page shows. Nothing here asks a broker."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brokerdrill.base.errors import BrokerdrillError
from brokerdrill.faults.link import ARM
from brokerdrill.ledger import contract, journal
from brokerdrill.ledger.events import FILE as EVENTS_FILE
from brokerdrill.promises.catalogue import AVAILABLE
from brokerdrill.runner.evidence.run_dir import live_runs
from brokerdrill.runner.watching.live_file import LIVE_FILE
from brokerdrill.scenario.model import Action, Consume, Heal, Operation, Order, Scenario, Step, Tamper, parse
from brokerdrill.scenario.rounds import in_round
from brokerdrill.web.tail import Tail

# So much of the throughput is kept, and drawn.
KEPT_S = 120
POINT_S = 1.0
NS = 1e9


@dataclass
class Faults:
    """The faults in effect: by id, the entry of the journal that says what it is, and since when (run time, s)."""

    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)

    def take(self, entry: Mapping[str, Any]) -> None:
        """Take in an entry of the journal."""
        key, phase = str(entry.get("fault_id")), entry.get("phase")
        if phase == "intent":
            self.entries[key] = dict(entry)
        elif phase == "injected":
            self.since[key] = float(entry.get("at_ns", 0)) / NS
        elif phase == "healed":
            self.entries.pop(key, None)
            self.since.pop(key, None)

    def rows(self, now_s: float) -> list[dict[str, Any]]:
        """Return each fault with how long it has been in effect and how long its host lets it (s)."""
        found = []
        for key, entry in self.entries.items():
            since = self.since.get(key)
            lasted = None if since is None else max(0.0, now_s - since)
            left = None if lasted is None else max(0.0, float(entry.get("ttl_s", 0)) - lasted)
            found.append(
                {"name": entry.get("name"), "fault": entry.get("fault"), "target": entry.get("resolved"),
                 "armed": entry.get("fault") == ARM.name, "host": entry.get("host"), "for_s": lasted, "left_s": left}
            )  # fmt: skip
        return found


@dataclass
class Throughput:
    """The clients' totals over time: a point a second, and gaps in what is acknowledged (s of run time)."""

    points: deque[tuple[float, float, float]] = field(default_factory=lambda: deque(maxlen=int(KEPT_S / POINT_S)))
    newest: dict[str, Any] = field(default_factory=dict)
    best: int = 0
    best_at: float = 0.0
    longest_gap: float = 0.0
    _last: tuple[float, int, int] | None = None

    def take(self, sample: Mapping[str, Any]) -> None:
        """Take in a sample."""
        now, sent, received = float(sample["t_ns"]) / NS, int(sample.get("sent_ok", 0)), int(sample.get("received", 0))
        self.newest = dict(sample)
        if sent > self.best:
            if self.best:
                self.longest_gap = max(self.longest_gap, now - self.best_at)
            self.best, self.best_at = sent, now
        if self._last is None:
            self._last = (now, sent, received)
        elif now - self._last[0] >= POINT_S:
            took = now - self._last[0]
            sends, deliveries = (sent - self._last[1]) / took, (received - self._last[2]) / took
            self.points.append((round(now, 2), round(max(0.0, sends), 1), round(max(0.0, deliveries), 1)))
            self._last = (now, sent, received)

    @property
    def gap(self) -> float:
        """For how long nothing has been acknowledged, at the newest sample."""
        return float(self.newest["t_ns"]) / NS - self.best_at if self.best else 0.0


def step_words(step: Step) -> str:
    """Return what a step does."""
    if isinstance(step, Action):
        return f"{step.fault} {step.aim}"
    if isinstance(step, Heal):
        return f"heal {step.of}"
    if isinstance(step, Operation):
        return f"playbook {step.playbook}"
    if isinstance(step, Order):
        return f"order {step.words}"
    if isinstance(step, Consume):
        return "consumers begin"
    if isinstance(step, Tamper):
        return f"a stranger: {step.how} {step.count} messages"
    return f"until {step.until.replace('_', ' ')}"


def taken(step: Step, events: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the run's events say that this step is done."""
    if isinstance(step, Action):
        return any(event["kind"] == "fault" and event.get("value") == step.name for event in events)
    if isinstance(step, Heal):
        return any(event["kind"] == "heal" and event.get("value") == step.of for event in events)
    if isinstance(step, Operation):
        done = f"playbook {step.playbook} is done"
        return any(
            event["kind"] == "note" and event.get("name") == step.name and event.get("value") == done
            for event in events
        )
    return any(event["kind"] == "probe" and event.get("name") == step.name for event in events)


def round_of(events: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of the newest round, from 1; before the first has begun that one's."""
    begun = [event["name"] for event in events if (event.get("detail") or {}).get(contract.ROUND) == "begin"]
    return int(begun[-1]) if begun else 1


def steps(scenario: Scenario, events: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the steps with `state` done, now or next; steps are taken in order, so the first that is not done is now,
    once the load counts. Of a method that is repeated they are those of the newest round."""
    begun = any(event["kind"] == "phase" and event.get("name") == "load" for event in events)
    rows = []
    before = True
    for step in in_round(scenario.method, round_of(events)) if scenario.repeated else scenario.method:
        done = before and taken(step, events)
        state = "done" if done else "now" if before and begun else "next"
        before = before and done
        rows.append({"name": step.name, "what": step_words(step), "state": state})
    return rows


def phase(events: Sequence[Mapping[str, Any]]) -> str:
    """Return what the run is at, in words."""
    marks = [(event.get("name"), event.get("value")) for event in events if event["kind"] == "phase"]
    if ("drain", "end") in marks:
        return "collecting the evidence"
    if ("load", "end") in marks:
        return "draining"
    return "drilling" if ("load", "begin") in marks else "waiting for the steady state"


def promise_rows(
    scenario: Scenario, events: Sequence[Mapping[str, Any]], flow: Throughput, two_active: bool
) -> list[dict[str, str]]:
    """Return each promise as it stands, as far as that shows before the ledger is judged: `tone` good, bad or none."""
    rows = []
    for promise in scenario.promises:
        bound = promise.spec().bound_ms
        tone, said = "none", "judged from the ledger, when the run is over"
        if promise.name == AVAILABLE and bound is not None:
            worst = max(flow.longest_gap, flow.gap)
            tone = "bad" if worst * 1000 > bound else "good"
            said = f"longest gap {worst:.1f} s of {bound / 1000:g} s"
        elif promise.name == "single_active":
            tone, said = ("bad", "two were active at once") if two_active else ("good", "never two at once so far")
        elif promise.name == "failover_within" and bound is not None:
            faults = [event["t_ns"] / NS for event in events if event["kind"] == "fault" and event.get("instance")]
            if faults:
                waited = flow.gap if flow.best_at < faults[-1] else max(0.0, flow.best_at - faults[-1])
                pending = flow.best_at < faults[-1]
                over = pending and waited * 1000 > bound
                tone = "bad" if over else "none" if pending else "good"
                said = f"nothing acknowledged for {waited:.1f} s of {bound / 1000:g} s" if pending else "served again"
            else:
                said = "no fault yet"
        rows.append({"name": promise.name, "tone": tone, "said": said})
    return rows


class FollowedRun:
    """One run that goes on, followed."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._journal = Tail(run_dir / journal.JOURNAL)
        self._events = Tail(run_dir / contract.EVENTS_DIR / EVENTS_FILE)
        self._samples = Tail(run_dir / LIVE_FILE)
        self._faults = Faults()
        self._flow = Throughput()
        self._seen: list[dict[str, Any]] = []
        self._two_active = False
        self._info = contract.read_run(run_dir)
        self._scenario = parse(self._info.scenario.text, run_dir)
        # Between the run's clock and ours, as the newest sample showed it.
        self._offset: float | None = None

    def look(self) -> dict[str, Any]:
        """Return what the page shows now."""
        for entry in self._journal.read():
            self._faults.take(entry)
        self._seen += self._events.read()
        for sample in self._samples.read():
            self._flow.take(sample)
            self._offset = time.monotonic() - float(sample["t_ns"]) / NS
            self._two_active |= two_active(self._info.stores, sample["roles"])
        now = time.monotonic() - self._offset if self._offset is not None else 0.0
        newest = self._flow.newest
        return {
            "run": self.run_dir.name,
            "title": self._scenario.title,
            "drill": self._info.scenario.name,
            "topology": self._info.topology,
            "phase": phase(self._seen),
            "t_s": round(now, 2),
            "roles": [{"name": name, "role": role or "silent"} for name, role in newest.get("roles", {}).items()],
            "acknowledged": newest.get("sent_ok", 0),
            "received": newest.get("received", 0),
            "unanswered": {
                "sends": newest.get("sent_unknown", 0),
                "receipts": newest.get("received_unknown", 0),
            },
            "gap_s": round(self._flow.gap, 2),
            "behind_s": round(float(newest.get("behind_s", 0.0)), 2),
            "points": list(self._flow.points),
            "faults": self._faults.rows(now),
            "steps": steps(self._scenario, self._seen),
            "promises": promise_rows(self._scenario, self._seen, self._flow, self._two_active),
            "events": [{"t_s": round(event["t_ns"] / NS, 2), "text": event_words(event)} for event in self._seen[-12:]],
        }


def two_active(stores: Mapping[str, Sequence[str]], roles: Mapping[str, str]) -> bool:
    """Whether two instances of one store are active at once."""
    return any(sum(roles.get(name) == "active" for name in names) > 1 for names in stores.values())


def event_words(event: Mapping[str, Any]) -> str:
    """Return one event in words."""
    kind, where = event["kind"], event.get("instance") or event.get("target") or ""
    if kind in ("role", "health"):
        return f"{where} is {event.get('value')}"
    if kind in ("fault", "heal"):
        return f"{kind} {event.get('value')}: {event.get('name')} {event.get('target')}"
    return " ".join(str(word) for word in (kind, event.get("name"), event.get("value")) if word)


class Stage:
    """What goes on in a folder of runs: the newest run under way, followed from its beginning."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._live: FollowedRun | None = None

    @property
    def run_dir(self) -> Path | None:
        return self._live.run_dir if self._live else None

    def look(self) -> dict[str, Any] | None:
        """Return what the page shows of the run under way; None: there is none."""
        going = live_runs(self._runs)
        if not going:
            self._live = None
            return None
        if self._live is None or self._live.run_dir != going[-1]:
            try:
                self._live = FollowedRun(going[-1])
            except BrokerdrillError:  # its first file is being written
                return None
        try:
            return self._live.look()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return {"run": self._live.run_dir.name, "unreadable": f"its files say what no run writes: {error!r}"}
