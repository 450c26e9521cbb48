"""Seeded small random ledgers: valid input that together reaches every class and every verdict of every promise.

A ledger is told like a run (stores with two instances, a load, faults, takeovers, a drain), but each message's fate is
drawn, not simulated: what a broker must never do is the interesting part. How wild it gets differs from ledger to
ledger, so that kept promises are as common as broken ones. In a third of the ledgers all times are whole ticks, so few
that it is common for two things to have one time; in the others times are to the nanosecond. Not drawn, because the
contract does not say what they mean: a transaction with both a commit and a rollback that are ok, a subscription that
is made again after its end, a drained address in a run whose drain has no end.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from brokerdrill.ledger.contract import PROMISES, RunInfo, ScenarioText
from tests.analysis.generate.addresses import draw_address
from tests.analysis.generate.asked import asked, draw_promises, named_addresses
from tests.analysis.generate.clients import connect, draw_keys
from tests.analysis.generate.deliveries import strangers
from tests.analysis.generate.doubtful import draw_doubtful
from tests.analysis.generate.draft import MS, Draft, Row
from tests.analysis.generate.events import draw_alerts, draw_endings, draw_phases, draw_rounds
from tests.analysis.generate.given_back import draw_given_back
from tests.analysis.generate.in_flight import draw_in_flight
from tests.analysis.generate.seen import draw_seen
from tests.analysis.generate.sends import draw_sends
from tests.analysis.generate.stores import draw_stores
from tests.analysis.generate.written import finish
from tests.analysis.oracle import judge

# Of each third ledger, in turn: a coarse clock, and one that is coarser than most operations are long.
TICKS = (50 * MS, 250 * MS)

_DURABLE: list[list[bool | None]] = [[True], [True, None], [False], [True, False]]


def generate(seed: int) -> tuple[RunInfo, list[Row], list[Row]]:
    """Return a run with its promises, its ops rows (10 to 120 operations, rows in any order) and its events."""
    rng = random.Random(seed)
    tick = TICKS[seed // 3 % len(TICKS)] if seed % 3 == 0 else 1
    while True:
        run, ops, events = draw(Draft(rng, f"generated-{seed}", tick))
        if 10 <= len({(row["client"], row["op_id"]) for row in ops}) <= 120:
            return run, ops, events


def coverage(seeds: Iterable[int]) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """Return how many units of each class, and how often each (promise, verdict), the ledgers of `seeds` have."""
    classes: Counter[str] = Counter()
    verdicts: Counter[tuple[str, str]] = Counter()
    for seed in seeds:
        run, ops, events = generate(seed)
        result = judge(run, ops, events, run.promises)
        classes.update(result["messages"])
        verdicts.update((promise["name"], promise["verdict"]) for promise in result["promises"])
    assert set(PROMISES) >= {name for name, _ in verdicts}
    return classes, verdicts


def draw(draft: Draft) -> tuple[RunInfo, list[Row], list[Row]]:
    """Draw one ledger, whatever its size."""
    rng = draft.rng
    draw_stores(draft)
    sticky = draw_keys(draft)
    mapped = draft.chance(0.7)
    expiring = draft.chance(0.25)
    durable = rng.choice(_DURABLE)
    producers = [f"producer-{n}" for n in range(rng.choice((1, 2)))]
    for producer in producers:
        connect(draft, producer, rng.choice((0, 0, 1)))
    addresses: list[str] = []
    for number in range(rng.choice((1, 1, 2))):
        topic = draft.chance(0.45)
        addresses.append(f"{'topic' if topic else 'queue'}-{number}")
        draw_address(draft, addresses[-1], topic, mapped)
        for producer in producers if not draft.silent else ():
            draw_sends(draft, addresses[-1], producer, rng.randint(1, 8), expiring, durable)
        if not topic and not draft.silent and draft.chance(0.6):
            draw_given_back(draft, addresses[-1])
        if not topic and not draft.silent:
            draw_in_flight(draft, addresses[-1])
        strangers(draft, addresses)
    drain_ended = draw_phases(draft)
    draw_endings(draft)
    draw_rounds(draft)
    draw_alerts(draft)
    draw_seen(draft, addresses, mapped)
    draw_doubtful(draft, sorted({instance for named in draft.stores.values() for instance in named}))
    drained = {}
    for address in addresses:
        word = rng.choice((True, True, True, False, None))
        if word is not None:
            drained[address] = word and drain_ended
    run = RunInfo(
        run_id=draft.run_id,
        scenario=ScenarioText("generated"),
        outcome=rng.choice(("completed",) * 7 + ("aborted", "crashed", "running")),
        stores=draft.stores,
        dead_letters=dict.fromkeys(addresses, "DLQ") if mapped else {},
        drained=drained,
        clocks=draft.clocks,
        addresses=named_addresses(draft, addresses),
        **asked(draft),
    )
    ops, events = finish(draft)
    promises = draw_promises(draft, sticky, run, ops, events)
    expect = {p.name: rng.choice(("kept", "kept", "violated")) for p in promises if draft.chance(0.6)}
    return replace(run, promises=promises, expect=expect), ops, events
