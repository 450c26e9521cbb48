"""What is asked of a run: addresses, what the load has to meet, promises."""

from __future__ import annotations

from brokerdrill.ledger.contract import PromiseSpec, RunInfo
from brokerdrill.ledger.coverage import Minimum
from tests.analysis.generate.draft import Draft, Row
from tests.analysis.oracle import judge


def named_addresses(draft: Draft, addresses: list[str]) -> tuple[str, ...]:
    """The addresses that run.json names: none, those that are used, or another one, too."""
    if draft.seen.random() < 0.5:
        return ()
    return (*addresses, "nobody's") if draft.seen.random() < 0.2 else tuple(addresses)


def asked(draft: Draft) -> Row:
    """What the load has to meet, and which faults were planned: fields of run.json."""
    rng = draft.seen
    found: Row = {}
    if rng.random() < 0.1:
        least = {name: rng.choice((0, 1, 3)) for name in ("clients", "in_flight", "operations", "packets")}
        found["minimum"] = {"": Minimum(**least)}
    if rng.random() < 0.03:
        found["planned"] = ("step",)
    return found


def draw_promises(
    draft: Draft, sticky: list[PromiseSpec], run: RunInfo, ops: list[Row], events: list[Row]
) -> tuple[PromiseSpec, ...]:
    """Draw promises, bounds around the true values."""
    drawn = [
        PromiseSpec(n)
        for n in (
            *("no_phantoms", "no_loss", "no_nonpersistent_loss", "no_duplicates", "no_dead_letters"),
            *("single_active", "stays_up", "transparent"),
        )
    ]
    drawn += [
        PromiseSpec("atomic"),
        PromiseSpec("ordered", scope=draft.rng.choice((None, "session", "key"))),
        *sticky,
    ]
    bounded = [
        PromiseSpec(name, bound_ms=1e9)
        for name in ("failover_within", "failback_within", "available", "delivered_within")
    ]
    bounded.append(PromiseSpec("available", bound_ms=1e9, side="receive"))
    bounded.append(PromiseSpec("alerted_within", bound_ms=1e9, alert="BrokerDown"))
    for spec, true in zip(bounded, judge(run, ops, events, bounded)["promises"][1:], strict=True):
        measured = true["measured"] or draft.rng.choice((500.0, 3000.0))
        factor = draft.rng.choice((0.3, 0.9, 1.0, 1.1, 2.0))
        # As long as it took, to the nanosecond, or about as long as people say.
        bound_ms = measured if factor == 1.0 else round(measured * factor, 3)
        drawn.append(PromiseSpec(spec.name, **{**spec.values, "bound_ms": bound_ms}))
    kept = [spec for spec in drawn if draft.chance(0.8)]
    draft.rng.shuffle(kept)
    return tuple(kept)
