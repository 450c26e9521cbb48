"""What is counted of sessions: over all, and by vhost, backend and source address. A clean close is no failure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from amqp_session_router.model import FAILURES, End, Phase, Session

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
    """Totals of sessions that are over, plus what events count at once."""

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
        self.by_source = True
        """Whether source addresses are counted apart."""

    def _of(self, session: Session) -> list[Tally]:
        return [self._tally(dimension, value) for dimension, value in self._values(session)]

    def _values(self, session: Session) -> list[tuple[str, str]]:
        """Return the dimensions' values of a session. A vhost counts once a rule took it: clients make names up."""
        values = [("overall", "")]
        if session.route is not None and session.identity is not None:
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
        seconds = session.counters.handshake_seconds
        for tally in self._of(session):
            tally.opened += 1
            if seconds is not None:
                tally.handshake_seconds += seconds
                tally.handshakes[bisect_left(BUCKETS, seconds)] += 1

    def closed(self, session: Session, how: End) -> None:
        """The session is over: what it counted is added up."""
        counters = session.counters
        for tally in self._of(session):
            tally.ended[how] = tally.ended.get(how, 0) + 1
            tally.bytes_from_client += counters.bytes_from_client
            tally.bytes_from_broker += counters.bytes_from_broker

    def forget_sources(self) -> None:
        """Drop what is counted by source address."""
        self._tallies["source"].clear()

    def snapshot(self, sessions: Iterable[Session]) -> Mapping[str, Mapping[str, Snapshot]]:
        """Return the counts with those of the live `sessions` added: dimension → value → Snapshot."""
        shown = {
            dimension: {
                value: Snapshot(
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
                for value, tally in tallies.items()
            }
            for dimension, tallies in self._tallies.items()
        }
        for session in sessions:
            counters = session.counters
            for dimension, value in self._values(session):
                snapshot = shown[dimension].setdefault(value, Snapshot())
                snapshot.bytes_from_client += counters.bytes_from_client
                snapshot.bytes_from_broker += counters.bytes_from_broker
                if session.phase is Phase.PAUSED:
                    snapshot.paused += 1
                if session.phase in (Phase.OPEN, Phase.PAUSED, Phase.CLOSING):
                    snapshot.active += 1
                else:
                    snapshot.handshaking += 1
        return shown
