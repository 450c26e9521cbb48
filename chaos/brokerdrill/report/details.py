"""What explains a verdict, as text: stories of witnesses, quantiles by phase, whom breaks hit, redeliveries.

Pure functions of the verdict, in which every part may be missing, as in one that an older version wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from brokerdrill.ledger.series import Routes, Spread
from brokerdrill.ledger.verdict import Numbers, Outage, RunVerdict
from brokerdrill.ledger.witness import FAULT, HEAL, OP, ROLE, Step
from brokerdrill.report import format as fmt
from brokerdrill.report import words
from brokerdrill.report.shown import Band

# A page shows so many ways in which something broke; the verdict's JSON has more.
MOST_ROWS = 24
# A fault of the verdict and a band of the pictures are the same if they are this near.
SAME_NS = 1_000_000_000


def mark(bands: Sequence[Band], fault: str | None, at_ns: int | None, healed: bool = False) -> str:
    """Return the mark (F1, F2, …) of the fault of that type that was injected (or `healed`) at that time; empty where
    the pictures have none."""
    if fault is None or at_ns is None:
        return ""
    away = {band: abs((band.end_ns if healed else band.start_ns) - int(at_ns)) for band in bands if band.name == fault}
    near = min(away, key=lambda band: away[band], default=None)
    return near.mark if near is not None and away[near] < SAME_NS else ""


def fault_words(fault: str | None, fault_ns: int | None, target: str | None, bands: Sequence[Band]) -> str:
    """Return the fault that a row of the verdict names, with its mark: `F1 kill artemis1`; none: `no fault`."""
    if fault is None:
        return "no fault"
    return " ".join(fmt.clean(part) for part in (mark(bands, fault, fault_ns), fault, target) if part)


# --- stories --------------------------------------------------------------------------------------------------------

_OUTCOME_TONES = {"ok": "good", "fail": "bad", "unknown": "doubt"}


def _what(step: Step, bands: Sequence[Band]) -> str:
    if step.kind == ROLE:
        return f"is {step.value}"
    if step.kind in (FAULT, HEAL):
        healed = step.kind == HEAL
        which = mark(bands, step.name, step.t_ns, healed)
        return " ".join(filter(None, (which, step.name, "healed" if healed else "injected")))
    tried = f", attempt {step.attempt + 1}" if step.op == "send" and step.attempt is not None else ""
    flagged = ", flagged as redelivered" if step.redelivered else ""
    return f"{step.op}{tried}{flagged}"


@dataclass(frozen=True)
class StoryRow:
    """A step of a story as a reader sees it; `about` are its ids."""

    kind: str
    time: str
    took: str
    who: str
    what: str
    outcome: str
    tone: str
    where: str
    about: str
    error: str


def story_rows(story: Sequence[Step], bands: Sequence[Band] = ()) -> list[StoryRow]:
    """Return a story's steps as rows."""
    rows = []
    for step in story:
        outcome = step.outcome or ""
        took = ""
        if step.kind == OP:
            took = "no answer" if step.end_ns is None else fmt.milliseconds((step.end_ns - step.t_ns) / 1e6)
        ids = (("txn", step.txn), ("delivery", step.delivery), ("session", step.session))
        about = [f"{name} {fmt.value(name, one)}" for name, one in ids if one is not None]
        if step.kind == OP and step.message_id is not None:
            about.insert(0, fmt.clean(step.message_id))
        rows.append(
            StoryRow(
                kind=step.kind,
                time=fmt.seconds(step.t_ns),
                took=took,
                who=fmt.clean(step.client or step.instance or step.target or ""),
                what=fmt.clean(_what(step, bands)),
                outcome=outcome,
                tone=_OUTCOME_TONES.get(outcome, ""),
                where=fmt.clean((step.instance if step.kind == OP else step.store) or ""),
                about=", ".join(about),
                error=fmt.clean(step.error or ""),
            )
        )
    return rows


# --- quantiles by phase ---------------------------------------------------------------------------------------------

_KINDS = (("send", "send"), ("commit", "commit"), ("receive", "end-to-end"))


@dataclass(frozen=True)
class PhaseRow:
    """One kind of operation in one phase; the phase's `first` row has its name over all `span` rows of it."""

    phase: str
    meaning: str
    first: bool
    span: int
    seconds: str
    kind: str
    count: str
    per_s: str
    p50: str
    p95: str
    p99: str
    max: str


def phase_rows(result: RunVerdict) -> list[PhaseRow]:
    """Return the table of phases: one row a phase and kind of operation, the phase's own words on its first."""
    rows = []
    for phase in result.phases:
        name, meaning = words.PHASE_WORDS.get(phase.phase, (fmt.clean(phase.phase), ""))
        kinds = [(label, phase.kinds[kind]) for kind, label in _KINDS if kind in phase.kinds]
        for place, (label, numbers) in enumerate(kinds or [("", Numbers())]):
            rows.append(
                PhaseRow(
                    phase=name,
                    meaning=meaning,
                    first=place == 0,
                    span=len(kinds) or 1,
                    seconds=fmt.span(phase.seconds * 1e9),
                    kind=label,
                    count=fmt.number(numbers.count),
                    per_s=fmt.rate(numbers.per_s),
                    p50=fmt.milliseconds(numbers.p50_ms),
                    p95=fmt.milliseconds(numbers.p95_ms),
                    p99=fmt.milliseconds(numbers.p99_ms),
                    max=fmt.milliseconds(numbers.max_ms),
                )
            )
    return rows


# --- whom it hit ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AttributionRow:
    """A way in which messages broke."""

    kind: str
    breaks: str
    fault: str
    broker: str
    client: str
    count: str


def attribution_rows(result: RunVerdict, bands: Sequence[Band]) -> list[AttributionRow]:
    """Return the ways in which messages broke."""
    return [
        AttributionRow(
            kind=fmt.clean(row.kind),
            breaks=words.breaks(row.kind),
            fault=fault_words(row.fault, row.fault_ns, row.target, bands),
            broker=fmt.clean(row.instance or fmt.NOTHING),
            client=fmt.clean(row.client or fmt.NOTHING),
            count=fmt.number(row.count),
        )
        for row in result.attribution[:MOST_ROWS]
    ]


def _last_over(outage: Outage, bands: Sequence[Band]) -> int | None:
    """When the outage's fault was injected: the last of its type that was in effect in it."""
    over = [
        band.start_ns
        for band in bands
        if band.name == outage.fault
        and band.end_ns >= outage.start_ns
        and (outage.end_ns is None or band.start_ns <= outage.end_ns)
    ]
    return max(over, default=None)


@dataclass(frozen=True)
class OutageRow:
    """An outage: address, side, begin, length, fault, and who was served before and after."""

    address: str
    side: str
    start: str
    length: str
    fault: str
    before: str
    after: str


def outage_rows(result: RunVerdict, bands: Sequence[Band]) -> list[OutageRow]:
    """Return the outages."""
    return [
        OutageRow(
            address=fmt.clean(row.address or fmt.NOTHING),
            side="deliveries" if row.side == "receive" else "acknowledged sends",
            start=fmt.seconds(row.start_ns),
            length=fmt.span(row.end_ns - row.start_ns) if row.end_ns is not None else fmt.NOTHING,
            fault=fault_words(row.fault, _last_over(row, bands), row.target, bands),
            before=" at ".join(fmt.clean(one) for one in (row.client, row.instance) if one) or fmt.NOTHING,
            after=" at ".join(fmt.clean(one) for one in (row.next_client, row.next_instance) if one) or fmt.NOTHING,
        )
        for row in result.outages[:MOST_ROWS]
    ]


@dataclass(frozen=True)
class RoundRow:
    """A round of the method as a reader sees it; `kept`: no promise broke there."""

    round: str
    start: str
    lasted: str
    faults: str
    failover: str
    failback: str
    outages: str
    broken: str
    kept: bool


def round_rows(result: RunVerdict) -> list[RoundRow]:
    """Return the rounds of a method that was repeated, side by side."""
    return [
        RoundRow(
            round=fmt.clean(row.round),
            start=fmt.seconds(row.start_ns),
            lasted=fmt.span(row.end_ns - row.start_ns),
            faults=fmt.number(row.faults),
            failover=fmt.milliseconds(row.failover_ms),
            failback=fmt.milliseconds(row.failback_ms),
            outages=fmt.number(row.outages),
            broken=", ".join(f"{fmt.clean(name)} {fmt.number(count)}" for name, count in row.broken.items())
            or fmt.NOTHING,
            kept=not row.broken,
        )
        for row in result.rounds
    ]


@dataclass(frozen=True)
class CoverageRow:
    """What the load met of a fault, as a reader sees it; `enough`: no less than the drill asks for."""

    fault: str
    target: str
    role: str
    at: str
    clients: str
    in_flight: str
    operations: str
    measured: str
    lacking: str
    enough: bool


def coverage_rows(result: RunVerdict) -> list[CoverageRow]:
    """Return what the load met of each fault, by time."""
    return [
        CoverageRow(
            fault=fmt.clean(row.fault or "fault"),
            target=fmt.clean(row.instance or row.target or fmt.NOTHING),
            role=fmt.clean(row.role or fmt.NOTHING),
            at=fmt.seconds(row.t_ns),
            clients=fmt.number(row.clients),
            in_flight=fmt.number(row.in_flight),
            operations=fmt.number(row.operations),
            measured=", ".join(f"{fmt.number(n)} {fmt.clean(name)}" for name, n in row.measured.items())
            or "not measured",
            lacking=fmt.clean("; ".join(row.lacking)),
            enough=not row.lacking,
        )
        for row in result.coverage
    ]


@dataclass(frozen=True)
class RedeliveryRow:
    """A way in which messages were delivered again."""

    flagged: str
    in_doubt: str
    client: str
    broker: str
    fault: str
    count: str


def redelivery_rows(result: RunVerdict, bands: Sequence[Band]) -> list[RedeliveryRow]:
    """Return the ways in which messages were delivered again."""
    return [
        RedeliveryRow(
            flagged="flagged" if row.flagged else "not flagged",
            in_doubt="in doubt" if row.in_doubt else "not in doubt",
            client=fmt.clean(row.client or fmt.NOTHING),
            broker=fmt.clean(row.instance or fmt.NOTHING),
            fault=fault_words(row.fault, row.fault_ns, row.target, bands),
            count=fmt.number(row.count),
        )
        for row in result.redeliveries[:MOST_ROWS]
    ]


# --- routes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RouteRow:
    """A store that routing keys were led to, in words, with its colour in the picture."""

    store: str
    colour: str
    keys: str
    share: str
    connects: str
    moves: str


def route_rows(routes: Routes, colours: Mapping[str, str]) -> list[RouteRow]:
    """Return a row for each store."""
    return [
        RouteRow(
            fmt.clean(row.store or "unknown"),
            colours[row.store],
            fmt.number(row.keys),
            fmt.percent(row.keys / routes.keys if routes.keys else None),
            fmt.number(row.connects),
            fmt.number(row.moves),
        )
        for row in routes.stores
    ]


def route_words(routes: Routes | None) -> str:
    """Return in some sentences how often and how many keys moved, and how evenly they were led; empty where nobody
    was led."""
    if routes is None or not routes.connects:
        return ""
    again = routes.connects - routes.keys
    moved = f", {fmt.percent(routes.moves / again)}" if again else ""
    text = (
        f"{fmt.number(routes.keys)} keys connected {fmt.number(routes.connects)} times; "
        f"{fmt.number(routes.moves)} times a key reached another store than before{moved}."
    )
    if routes.keys and routes.moves:
        text += (
            f" Of the keys {fmt.percent(routes.excused / routes.keys)} moved, each move excused, and "
            f"{fmt.percent(routes.unexcused / routes.keys)} without an excuse."
        )
    spread = routes.spread or Spread()
    if spread.chi_square is not None:
        text += (
            f" First choices against an even one: chi-square {spread.chi_square:.1f} with {len(routes.stores)} stores, "
            f"p {fmt.p_text(spread.p)}"
        )
        text += f"; the fullest store has {spread.most:.2f} times its even part." if spread.most is not None else "."
    drawn = len({stay.key for stay in routes.stays})
    return text if drawn == routes.keys else f"{text} Drawn are {fmt.number(drawn)} keys, those that moved most first."
