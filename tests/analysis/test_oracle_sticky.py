"""The oracle on ledgers small enough to judge by eye: where the connects of a key lead."""

from __future__ import annotations

import pytest

from brokerdrill.ledger.contract import (
    Clock,
    PromiseSpec,
)
from tests.analysis.by_hand import BOTH_ACTIVE, MS, Row, changed, connect, event, promised, role

STICKY = PromiseSpec("sticky")


def pool(instance: str, value: str, at: float) -> Row:
    return event("pool", at, instance=instance, value=value)


LATE = [pool("a", "not_ready", 240), pool("b", "not_ready", 250)]


@pytest.mark.parametrize(
    ("spec", "connects", "events", "verdict", "count", "excused"),
    [
        # the pair is the target
        (STICKY, [connect(100, "a", 0), connect(200, "b", 1)], BOTH_ACTIVE, "pass", 0, 0),
        (STICKY, [connect(100, "a", 0), connect(200, "x", 1)], BOTH_ACTIVE, "fail", 1, 0),
        # moving back is a move
        (STICKY, [connect(100, "a", 0), connect(200, "x", 1), connect(300, "a", 2)], BOTH_ACTIVE, "fail", 2, 0),
        (STICKY, [connect(100, "a", 0), connect(200, "x", 1, "l")], BOTH_ACTIVE, "unknown", 0, 0),
        (STICKY, [connect(100, "a", 0), connect(200, "x", 1, outcome="fail")], BOTH_ACTIVE, "unknown", 0, 0),
        (STICKY, [connect(100, "a", 0), connect(200, None, 1)], BOTH_ACTIVE, "unknown", 0, 0),
        # nobody was active meanwhile
        (
            STICKY,
            [connect(100, "a", 0), connect(200, "x", 1)],
            [*BOTH_ACTIVE, role("a", "down", 150), role("b", "active", 160)],
            "pass",
            0,
            1,
        ),
        (
            PromiseSpec("sticky", moves="never"),
            [connect(100, "a", 0), connect(200, "x", 1)],
            [*BOTH_ACTIVE, role("a", "down", 150), role("b", "active", 160)],
            "fail",
            1,
            0,
        ),
        (
            PromiseSpec("sticky", moves="some"),
            [connect(100, "a", 0), connect(200, "x", 1)],
            [*BOTH_ACTIVE, role("a", "down", 150), role("b", "active", 160)],
            "pass",
            0,
            1,
        ),
        (
            PromiseSpec("sticky", moves="some"),
            [connect(100, "a", 0), connect(200, "b", 1)],
            BOTH_ACTIVE,
            "unknown",
            0,
            0,
        ),
        # … only after the connect, and only the period reaches there
        (STICKY, [connect(100, "a", 0), connect(200, "x", 1)], [*BOTH_ACTIVE, role("a", "down", 250)], "fail", 1, 0),
        (
            PromiseSpec("sticky", check_period_ms=60),
            [connect(100, "a", 0), connect(200, "x", 1)],
            [*BOTH_ACTIVE, role("a", "down", 250)],
            "pass",
            0,
            1,
        ),
        # with the connect, less or plus the period, and just beside it
        *(
            (
                PromiseSpec("sticky", check_period_ms=20),
                [connect(100, "a", 0), connect(200, "x", 1)],
                [*BOTH_ACTIVE, role("a", "down", down)],
                *(("pass", 0, 1) if excused else ("fail", 1, 0)),
            )
            for down, excused in ((220, True), (220.1, False))
        ),
        *(
            (
                PromiseSpec("sticky", check_period_ms=20),
                [connect(100, "a", 0), connect(200, "x", 1)],
                [*BOTH_ACTIVE, role("a", "down", 50), role("a", "active", up)],
                *(("pass", 0, 1) if excused else ("fail", 1, 0)),
            )
            for up, excused in ((80.1, True), (80, False))
        ),
        # nothing is known before the first role
        *(
            (
                STICKY,
                [connect(100, "a", 0), connect(200, "x", 1)],
                [role("x", "active", 1, "z"), *roles],
                *(("pass", 0, 1) if excused else ("fail", 1, 0)),
            )
            for roles, excused in (
                ([], False),
                ([role("a", "active", 300)], False),
                ([role("b", "down", 300)], False),
                ([role("b", "down", 150)], True),
            )
        ),
        # the pool knows better than roles: one of the two was ready all the time, then none
        (
            STICKY,
            [connect(100, "a", 0), connect(200, "x", 1)],
            [pool("a", "ready", 1), pool("b", "not_ready", 2), role("a", "down", 150)],
            "fail",
            1,
            0,
        ),
        (
            STICKY,
            [connect(100, "a", 0), connect(200, "x", 1)],
            [*BOTH_ACTIVE, pool("a", "not_ready", 50), pool("b", "not_ready", 120), pool("b", "ready", 130)],
            "pass",
            0,
            1,
        ),
        # "from the fault that explains it": one on the target, in effect when it is taken for not ready
        *(
            (STICKY, [connect(100, "a", 0), connect(200, "x", 1)], [*faults, *LATE], verdict, count, 1 - count)
            for faults, verdict, count in (
                ([event("fault", 150, name="kill", instance="a")], "pass", 0),
                ([event("fault", 150, name="cut", detail={"toward": "q, a"})], "pass", 0),
                ([event("fault", 150, name="kill", store="s")], "pass", 0),
                # on another, without an end that is known, after the move, or healed by then
                ([event("fault", 150, name="kill", instance="x")], "fail", 1),
                ([event("fault", 150, name="cut")], "fail", 1),
                ([event("fault", 210, name="kill", instance="a")], "fail", 1),
                ([event("fault", 150, name="cut", detail={"toward": "a"}), event("heal", 230, name="cut")], "fail", 1),
                # an earlier time without the target is what it explains; what comes later needs one of its own
                (
                    [
                        event("fault", 20, name="kill", instance="a"),
                        *(pool(who, "not_ready", 30) for who in "ab"),
                        pool("a", "ready", 90),
                    ],
                    "fail",
                    1,
                ),
            )
        ),
        (
            PromiseSpec("sticky", cache_timeout_ms=90),
            [connect(100, "a", 0), connect(200, "x", 1)],
            BOTH_ACTIVE,
            "pass",
            0,
            1,
        ),
        # What stayed after that shows nothing, but where nothing excuses a move
        *(
            (
                PromiseSpec("sticky", cache_timeout_ms=timeout, moves=moves),
                [connect(100, "a", 0), connect(200, "a", 1), *more],
                BOTH_ACTIVE,
                verdict,
                0,
                0,
            )
            for timeout, moves, more, verdict in (
                (90, None, [], "unknown"),
                (100, None, [], "pass"),
                (90, None, [connect(280, "a", 2)], "pass"),
                (90, "never", [], "pass"),
                (90, "some", [], "unknown"),
            )
        ),
        (
            PromiseSpec("sticky", cache_timeout_ms=100),
            [connect(100, "a", 0), connect(200, "x", 1)],
            BOTH_ACTIVE,
            "fail",
            1,
            0,
        ),
        (
            PromiseSpec("sticky", cache_timeout_ms=110),
            [connect(100, "a", 0), connect(200, "x", 1)],
            BOTH_ACTIVE,
            "fail",
            1,
            0,
        ),
        (
            PromiseSpec("sticky", cache_timeout_ms=0),
            [connect(100, "a", 0), connect(200, "x", 1)],
            BOTH_ACTIVE,
            "fail",
            1,
            0,
        ),
    ],
)
def test_sticky(
    spec: PromiseSpec, connects: list[Row], events: list[Row], verdict: str, count: int, excused: int
) -> None:
    result = promised(spec, *connects, events=[*events, event("note", 1000)])
    assert (result["verdict"], result["count"], result["excused"]) == (verdict, count, excused)


def test_what_excuses_a_move_for_certain_counts_whichever_connect_came_first() -> None:
    """The clocks leave open which of two connects came first, and the period is longer than that."""
    run = changed(clocks={"c": Clock("host", uncertainty_ns=10 * MS)})
    spec = PromiseSpec("sticky", check_period_ms=60)
    events = [*BOTH_ACTIVE, role("a", "down", 120), event("note", 1000)]
    result = promised(spec, connect(150, "a", 0), connect(155, "x", 1), events=events, run=run)
    assert (result["verdict"], result["excused"]) == ("pass", 1)
