"""What is counted of sessions: over all, and by vhost, backend and source address. A clean close is no failure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from amqp_session_router.base.model import FAILURES, End, Phase, Session
from amqp_session_router.base.paced import Steps, strides

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds of the histogram of handshake times."""

DIMENSIONS = ("overall", "vhost", "backend", "source")
_MOST = 4096
"""Values of a dimension that are counted apart; beyond, the one that was seen first goes, and counts anew if it comes
back."""


@dataclass(slots=True)
class Counts:
    """What is counted of sessions, whoever looks."""

    accepted: int = 0
    opened: int = 0
    attempts: int = 0
    failed_attempts: int = 0
    bytes_from_client: int = 0
    bytes_from_broker: int = 0
    handshake_seconds: float = 0.0
    handshakes: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))


@dataclass(slots=True)
class Tally(Counts):
    """Totals: of sessions that are over, of live ones until they were last added up, and what events count at once."""

    ended: dict[End, int] = field(default_factory=dict)


@dataclass(slots=True)
class Snapshot(Counts):
    """One dimension's value now: totals, and gauges."""

    ended: dict[str, int] = field(default_factory=dict)
    failures: int = 0
    active: int = 0
    paused: int = 0
    handshaking: int = 0


class Statistics:
    """The counts of one router process."""

    def __init__(self) -> None:
        self._tallies: dict[str, dict[str, Tally]] = {dimension: {} for dimension in DIMENSIONS}
        self._tallies["overall"][""] = Tally()
        self._from_client: dict[str, int] = {}
        """Live session's id → its bytes from the client that are in the tallies already."""
        self._from_broker: dict[str, int] = {}
        """The same of those from the broker."""
        self._opened: set[str] = set()
        """Ids of the live sessions that a broker opened."""
        self.by_source = True
        """Whether source addresses are counted apart."""
        self._found: dict[tuple[str | None, str | None, str], list[Tally]] = {}
        """Tallies of the sessions of one vhost, backend and source, as long as all of them are kept."""

    def _of(self, session: Session) -> list[Tally]:
        identity, backend = session.identity, session.backend
        place = (
            identity.vhost if identity is not None and session.id in self._opened else None,
            None if backend is None else backend.name,
            identity.source_ip if identity is not None and self.by_source else "",
        )
        found = self._found.get(place)
        if found is None:
            found = [self._tally(dimension, value) for dimension, value in self._values(session)]
            if len(self._found) >= _MOST:
                self._found.clear()
            self._found[place] = found
        return found

    def _values(self, session: Session) -> list[tuple[str, str]]:
        """Return the dimensions' values of a session. A vhost counts once a broker opened it: clients make names up."""
        values = [("overall", "")]
        if session.id in self._opened and session.identity is not None:
            values.append(("vhost", session.identity.vhost))
        if session.backend is not None:
            values.append(("backend", session.backend.name))
        if self.by_source and session.identity is not None and session.identity.source_ip:
            values.append(("source", session.identity.source_ip))
        return values

    def _tally(self, dimension: str, value: str) -> Tally:
        tallies = self._tallies[dimension]
        found = tallies.get(value)
        if found is None:
            if len(tallies) >= _MOST:
                del tallies[next(iter(tallies))]
                self._found.clear()
            found = tallies[value] = Tally()
        return found

    def accepted(self, session: Session) -> None:
        """A connection came in."""
        self._tallies["overall"][""].accepted += 1

    def attempted(self, backend: str, ok: bool) -> None:
        """An attempt at `backend` ended."""
        for tally in (self._tallies["overall"][""], self._tally("backend", backend)):
            tally.attempts += 1
            tally.failed_attempts += not ok

    def opened(self, session: Session) -> None:
        """Open-Ok went to the client."""
        self._opened.add(session.id)
        seconds = session.counters.handshake_seconds
        bucket = None if seconds is None else bisect_left(BUCKETS, seconds)
        for tally in self._of(session):
            tally.opened += 1
            if seconds is not None and bucket is not None:
                tally.handshake_seconds += seconds
                tally.handshakes[bucket] += 1

    def closed(self, session: Session, how: End) -> None:
        """The session is over: what it counted since it was last added up is added up."""
        for tally in self._add_up(session):
            tally.ended[how] = tally.ended.get(how, 0) + 1
        self._from_client.pop(session.id, None)
        self._from_broker.pop(session.id, None)
        self._opened.discard(session.id)

    def _add_up(self, session: Session) -> list[Tally]:
        """Add to the tallies what `session` counted since the last time; return them."""
        tallies = self._of(session)
        counters, name = session.counters, session.id
        from_client = counters.bytes_from_client - self._from_client.get(name, 0)
        from_broker = counters.bytes_from_broker - self._from_broker.get(name, 0)
        if from_client:
            self._from_client[name] = counters.bytes_from_client
        if from_broker:
            self._from_broker[name] = counters.bytes_from_broker
        for tally in tallies:
            tally.bytes_from_client += from_client
            tally.bytes_from_broker += from_broker
        return tallies

    def forget_sources(self) -> None:
        """Drop what is counted by source address."""
        self._tallies["source"].clear()
        self._found.clear()

    def look(self, sessions: Mapping[str, Session]) -> Steps[Look]:
        """Return the counts with those of the live `sessions`.

        Sessions may come and go between two steps: counts only grow, whoever looks and when.
        """
        gauges = Gauges()
        for stride in strides(sessions):
            for name in stride:
                session = sessions.get(name)
                if session is None:
                    continue
                if name in self._opened:
                    self._add_up(session)
                paused = session.phase is Phase.PAUSED
                active = paused or session.phase in (Phase.OPEN, Phase.CLOSING)
                for place in self._values(session):
                    gauges.count(place, active, paused)
            yield
        return Look(self._tallies, gauges)


class Gauges:
    """Live sessions of each dimension's values by their phase."""

    def __init__(self) -> None:
        # Plain numbers, in no container of their own: a look makes nothing that the garbage collector has to go through
        # with all sessions.
        self.active: dict[str, dict[str, int]] = {dimension: {} for dimension in DIMENSIONS}
        self.paused: dict[str, dict[str, int]] = {dimension: {} for dimension in DIMENSIONS}
        self.handshaking: dict[str, dict[str, int]] = {dimension: {} for dimension in DIMENSIONS}

    def count(self, place: tuple[str, str], active: bool, paused: bool) -> None:
        """Count a session at a dimension's value."""
        dimension, value = place
        for numbers, counts in ((self.active, active), (self.paused, paused), (self.handshaking, not active)):
            if counts:
                numbers[dimension][value] = numbers[dimension].get(value, 0) + 1


class Look:
    """The counts as they are asked for: gauges of one moment, totals of each that follows."""

    def __init__(self, tallies: Mapping[str, Mapping[str, Tally]], gauges: Gauges) -> None:
        self._tallies = tallies
        self._gauges = gauges

    def values(self, dimension: str) -> list[str]:
        """Return the values that something was counted for."""
        gauges = self._gauges
        return [*{**self._tallies[dimension], **gauges.active[dimension], **gauges.handshaking[dimension]}]

    def of(self, dimension: str, value: str = "") -> Snapshot:
        """Return what was counted for one of them; zeroes for another one."""
        tally = self._tallies[dimension].get(value)
        snapshot = Snapshot() if tally is None else _snapshot_of(tally)
        gauges = self._gauges
        snapshot.active = gauges.active[dimension].get(value, 0)
        snapshot.paused = gauges.paused[dimension].get(value, 0)
        snapshot.handshaking = gauges.handshaking[dimension].get(value, 0)
        return snapshot


def _snapshot_of(tally: Tally) -> Snapshot:
    return Snapshot(
        accepted=tally.accepted,
        opened=tally.opened,
        attempts=tally.attempts,
        failed_attempts=tally.failed_attempts,
        bytes_from_client=tally.bytes_from_client,
        bytes_from_broker=tally.bytes_from_broker,
        ended={how.value: count for how, count in tally.ended.items()},
        failures=sum(count for how, count in tally.ended.items() if how in FAILURES),
        handshakes=list(tally.handshakes),
        handshake_seconds=tally.handshake_seconds,
    )
