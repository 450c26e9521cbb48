"""What is at the same time as what: what a fault did and when it was over, at the borders and one tick beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerdrill.analysis.checks import failback_within, failover_within
from brokerdrill.analysis.checks.available import fault_over
from brokerdrill.analysis.checks.finding import BUSY, CLOCKS
from brokerdrill.analysis.endings import endings, operations
from brokerdrill.analysis.events import NEVER, Event, Failback, Fault, Hit, Pressure, Span
from brokerdrill.analysis.readiness import since_faults
from brokerdrill.analysis.timeline import Timeline, detected, faults, timeline
from brokerdrill.ledger.contract import OPERATION, WITH
from tests.analysis.moments import HIT, KILL, NEXT, kill, role


def ended(at: int, u: int = 0, instance: str = "a", **fields: str) -> Event:
    given = {name: value for name, value in fields.items() if name == "target"}
    detail = {WITH: fields["beside"]} if "beside" in fields else {}
    return Event("ended", at, u, instance=instance, detail=tuple(detail.items()), **given)


def playbook(at: int, name: str, mark: str) -> Event:
    return Event("note", at, name=name, detail=((OPERATION, mark),))


def meant(event: Event, fault: Fault | None = KILL, *playbooks: Event) -> bool:
    (found,) = endings([event, *playbooks], [fault] if fault else [])
    return found.meant


@pytest.mark.parametrize(
    ("at", "u", "expected"),
    [(94, 0, False), (95, 0, True), (93, 2, True), (200, 0, True), (201, 0, False), (203, 3, True), (204, 3, False)],
)
def test_an_end_is_a_faults_from_its_effect_to_its_heal_as_far_as_clocks_tell(at: int, u: int, expected: bool) -> None:
    assert meant(ended(at, u)) is expected


def test_an_end_is_a_faults_that_nobody_healed() -> None:
    assert meant(ended(10_000), KILL._replace(healed_at=None))
    assert not meant(ended(10), KILL._replace(healed_at=None))


def test_an_end_is_of_the_instance_that_the_fault_hit_or_of_one_in_its_process() -> None:
    assert not meant(ended(150, instance="b"))
    assert meant(ended(150, instance="b", beside="a\nc"))
    assert not meant(ended(150, instance="b", beside="c"))
    of_a_host = KILL._replace(instance=None, target="h1")
    assert meant(ended(150, instance="b", target="h1"), of_a_host)
    assert not meant(ended(150, instance="b", target="h2"), of_a_host)
    # Who is named counts, and not where it is.
    assert not meant(ended(150, instance="b", target="h1"), KILL._replace(target="h1"))


@pytest.mark.parametrize(
    ("at", "u", "expected"), [(99, 0, False), (100, 0, True), (98, 2, True), (150, 0, True), (151, 0, False)]
)
def test_an_end_while_a_playbook_runs_is_meant(at: int, u: int, expected: bool) -> None:
    assert meant(ended(at, u), None, playbook(100, "restart", "begin"), playbook(150, "restart", "end")) is expected


def test_a_playbook_lasts_to_its_own_next_end() -> None:
    marks = [
        playbook(10, "one", "begin"),
        playbook(5, "one", "end"),
        playbook(12, "other", "end"),
        playbook(20, "one", "end"),
        playbook(30, "one", "end"),
        playbook(40, "one", "begin"),
        playbook(50, "other", "begin"),
        playbook(50, "other", "end"),
    ]
    assert operations(marks) == [(10, 20, None), (40, NEVER, None), (50, 50, None)]


def detecting(at: int, kind: str = "note", **fields: str) -> int | None:
    given = {"name": "detected", "store": "s", **fields}
    return detected(KILL, HIT, NEXT, [Event(kind, at, **given)])


@pytest.mark.parametrize(
    ("sign", "expected"),
    [
        (detecting(120), 120),
        (detecting(120, "health"), 120),
        (detecting(100), 100),  # with the fault
        (detecting(99), 105),
        (detecting(150), 150),  # with the next epoch
        (detecting(151), 105),
        # Of the store, or of who served next: either will do
        (detecting(120, store="z", instance="b"), 120),
        (detecting(120, store="z", instance="c"), 105),
        (detecting(120, name="else"), 105),
        (detecting(120, "alert"), 105),
        (detecting(120, "role", value="starting", name="", store="", instance="b"), 120),
        (detecting(120, "role", value="starting", name="", store="", instance="a"), 105),
    ],
)
def test_a_fault_is_detected_by_the_first_sign_else_when_the_epoch_ended(sign: int | None, expected: int) -> None:
    assert sign == expected


def test_the_first_of_several_signs_detects() -> None:
    assert detected(KILL, HIT, NEXT, [Event("note", at, name="detected", store="s") for at in (130, 120, 140)]) == 120


@pytest.mark.parametrize(("end", "expected"), [(149, 149), (150, 150), (151, None)])
def test_a_fault_is_detected_when_the_epoch_ended_if_that_was_by_the_next_ones_begin(
    end: int, expected: int | None
) -> None:
    assert detected(KILL, HIT._replace(end=end), NEXT, []) == expected


@pytest.mark.parametrize(("second", "again"), [(100, False), (101, True), (149, True), (150, False)])
def test_an_epoch_is_hit_again_by_a_later_fault_before_the_next_begins(second: int, again: bool) -> None:
    roles = [role(10, "a", "active", "s"), role(150, "b", "active", "s"), role(200, "a", "down", "s")]
    first, *_ = timeline([*roles, kill(100), kill(second)], {"s": ("a", "b")}, 900).hits
    assert (first.fault.at, first.again) == (100, again)


def test_an_epoch_that_no_other_follows_is_hit_again_by_any_later_fault() -> None:
    made = timeline([role(10, "a", "active", "s"), kill(100), kill(120)], {"s": ("a", "b")}, 900)
    assert [(hit.next, hit.again) for hit in made.hits] == [(None, True), (None, False)]


@pytest.mark.parametrize(("begin", "follows"), [(149, False), (150, False), (151, True)])
def test_the_next_epoch_is_one_that_began_after_the_fault(begin: int, follows: bool) -> None:
    roles = [role(10, "a", "active", "s"), role(begin, "b", "active", "s")]
    (hit,) = timeline([*roles, kill(150)], {"s": ("a", "b")}, 900).hits
    assert (hit.next is not None) is follows


@pytest.mark.parametrize(
    ("fault", "heal", "back"),
    [
        # a is active from 10 to 100, and from 200 on
        (90, 120, [(120, 200)]),
        (100, 100, []),  # a heal just then is another fault's
        (99, 100, [(100, 200)]),  # active no longer
        (98, 99, []),  # active still, as before the fault
        (90, 199, [(199, 200)]),
        (90, 200, [(200, 200)]),  # active again already
        (90, 300, [(300, 200)]),  # active again before it
        (200, 300, []),  # active since the fault
        (199, 300, [(300, 200)]),
    ],
)
def test_a_failback_is_due_from_a_heal_unless_it_finds_the_instance_active_as_before(
    fault: int, heal: int, back: list[tuple[int, int]]
) -> None:
    roles = [role(10, "a", "active", "s"), role(100, "a", "down", "s"), role(200, "a", "active", "s")]
    made = timeline([*roles, kill(fault), kill(heal, "heal")], {"s": ("a", "b")}, 900)
    assert [(one.healed_at, one.back_at) for one in made.failbacks] == back


@pytest.mark.parametrize("fields", [{"instance": "b"}, {"name": "cut"}, {"kind": "note"}])
def test_a_failback_is_due_from_the_heal_of_a_fault_on_that_instance_alone(fields: dict[str, str]) -> None:
    roles = [role(10, "a", "active", "s"), role(100, "a", "down", "s"), role(200, "a", "active", "s")]
    made = timeline([*roles, replace(kill(90), **fields), kill(120, "heal")], {"s": ("a", "b")}, 900)
    assert made.failbacks == ()


def test_a_fault_is_healed_by_its_own_first_later_heal() -> None:
    """Of two instances on a host and of two links each has its own, and a fault may be there again."""

    def told(kind: str, at: int, name: str, instance: str | None, target: str) -> Event:
        return Event(kind, at, name=name, instance=instance, target=target)

    who = [("kill", "a", "h"), ("kill", "b", "h"), ("pause", "a", "h"), ("cut", None, "l"), ("cut", None, "m")]
    events = [told("fault", 100, *one) for one in who]
    heals = [told("heal", 110 + place, *one) for place, one in enumerate(who)]
    later = [told("heal", 120 + place, *one) for place, one in enumerate(who)]
    once = [told("heal", at, *one) for at in (90, 100) for one in who]
    found = faults([*later, *heals, *once, *events])
    # In the order of name, instance and target.
    assert [(one.name, one.instance, one.target, one.healed_at) for one in found] == [
        ("cut", None, "l", 113),
        ("cut", None, "m", 114),
        ("kill", "a", "h", 110),
        ("kill", "b", "h", 111),
        ("pause", "a", "h", 112),
    ]
    assert [one.number for one in found] == [1, 2, 3, 4, 5]


def test_of_several_faults_the_last_counts_and_of_several_epochs_the_next() -> None:
    """At the second heal the instance is as it was before the second fault."""
    times = ((10, "active"), (100, "down"), (200, "active"), (400, "down"), (500, "active"))
    told = [role(at, "a", value, "s") for at, value in times]
    told += [kill(90), kill(120, "heal"), kill(250), kill(300, "heal")]
    made = timeline(told, {"s": ("a", "b")}, 900)
    assert [(one.healed_at, one.back_at) for one in made.failbacks] == [(120, 200)]


def test_an_epoch_that_was_over_as_it_began_is_no_return() -> None:
    """The heal is just then: it finds the instance not active, and what counts is the epoch after it."""
    roles = [role(at, "a", value, "s") for at, value in ((10, "active"), (100, "down"), (200, "active"), (200, "down"))]
    made = timeline([*roles, role(300, "a", "active", "s"), kill(90), kill(200, "heal")], {"s": ("a", "b")}, 900)
    assert [(one.healed_at, one.back_at) for one in made.failbacks] == [(200, 300)]


@pytest.mark.parametrize(
    ("faults", "since"),
    [
        # (at, healed at) of faults on the store, which was ready from 100 to 150
        ([(99, None)], 150),
        ([(100, None)], 100),
        ([(120, None)], 120),
        ([(150, None)], 150),
        ([(151, None)], 150),
        ([(120, None), (130, None)], 130),
        ([(120, None), (150, None)], 150),  # the last one
        ([(120, 149)], 150),
        ([(120, 150)], 150),  # healed when that time began
        ([(120, 151)], 120),
    ],
)
def test_a_store_is_not_ready_since_the_last_fault_that_explains_it(
    faults: list[tuple[int, int | None]], since: int
) -> None:
    spans = [Span("s", 50, 100), Span("s", 150, 200), Span("z", 100, 110)]
    given = [Fault(number, "kill", None, None, "s", at, 0, healed) for number, (at, healed) in enumerate(faults)]
    assert since_faults(spans, given, {})[1] == ("s", since, 200)


@pytest.mark.parametrize(("at", "hit"), [(9, False), (10, True), (199, True), (200, False)])
def test_a_fault_hits_who_is_active_from_its_epochs_begin_up_to_its_end(at: int, hit: bool) -> None:
    roles = [role(10, "a", "active", "s"), role(200, "a", "down", "s")]
    assert [one.fault.at for one in timeline([*roles, kill(at)], {"s": ("a",)}, 900).hits] == ([at] if hit else [])


@pytest.mark.parametrize(
    ("at", "u", "end_u", "hit"),
    [
        (200, 0, 0, False),
        (201, 0, 0, False),
        (201, 1, 0, False),
        (201, 2, 0, True),
        (201, 0, 1, False),
        (201, 0, 2, True),
        (205, 3, 3, True),
        (205, 2, 3, False),
    ],
)
def test_an_epoch_that_may_have_ended_after_the_fault_was_ended_by_it(at: int, u: int, end_u: int, hit: bool) -> None:
    """Polls see the end of who is restarted a little before the time that is given for the fault."""
    told = [role(10, "a", "active", "s"), role(200, "a", "starting", "s", end_u), role(300, "b", "active", "s")]
    made = timeline([*told, replace(kill(at), u=u)], {"s": ("a", "b")}, 900)
    assert [(one.epoch.start, one.next and one.next.start, one.detected_at) for one in made.hits] == (
        [(10, 300, at)] if hit else []
    )


def test_the_last_of_the_epochs_before_a_fault_is_the_one_that_it_ended() -> None:
    told = [role(10, "a", "active", "s"), role(20, "a", "down", "s", 500), role(30, "a", "active", "s")]
    told.append(role(200, "a", "down", "s", 9))
    for at, hit in ((205, [30]), (210, [])):
        assert [one.epoch.start for one in timeline([*told, kill(at)], {"s": ("a",)}, 900).hits] == hit


@pytest.mark.parametrize(
    ("at", "healed", "falls"),
    [
        (99, None, True),
        (150, None, True),
        (200, None, True),  # as the span ends
        (201, None, False),
        (90, 99, False),
        (90, 100, True),  # not before the span began
        (90, 101, True),
    ],
)
def test_a_span_falls_under_a_fault_that_was_in_effect_at_some_time_of_it(
    at: int, healed: int | None, falls: bool
) -> None:
    fault = KILL._replace(at=at, healed_at=healed)
    assert fault_over(Timeline(run_end=900, faults=(fault,)), 100, 200) == (fault if falls else None)


def test_a_span_falls_under_the_last_of_several_faults() -> None:
    first, last = KILL._replace(at=50, healed_at=None), KILL._replace(number=1, at=120, healed_at=None)
    assert fault_over(Timeline(run_end=900, faults=(first, last)), 100, 200) == last


def test_an_instance_that_never_came_back_is_worse_than_one_that_was_late() -> None:
    backs = (Failback("kill", "a", "s", 100, 100, 100, 700), Failback("kill", "b", "s", 850, 850, 850, None))
    found = failback_within.find(Timeline(run_end=900, failbacks=backs), {}, 40)
    told = [(one["instance"], one.get("active_ns"), one["client_gap_ms"]) for one in found.witnesses]
    assert told == [("b", None, 50 / 1e6), ("a", 700, 600 / 1e6)]


@pytest.mark.parametrize(
    ("earliest", "latest", "unknown"),
    [
        (90, 110, True),  # at most as late as the bound, and perhaps later
        (90, 109, False),  # later, whenever the heal was
        (110, 110, False),
    ],
)
def test_a_failback_that_is_late_only_perhaps_is_unknown(earliest: int, latest: int, unknown: bool) -> None:
    back = Failback("kill", "a", "s", 100, earliest, latest, 150)
    found = failback_within.find(Timeline(run_end=900, failbacks=(back,)), {}, 40)
    assert bool(found.doubt) == unknown and found.n == (latest < 110)


@pytest.mark.parametrize(
    ("joined", "before", "due"), [(None, False, True), (100, False, True), (101, False, False), (101, True, True)]
)
def test_a_failover_is_due_from_a_client_unless_it_came_after_the_fault(
    joined: int | None, before: bool, due: bool
) -> None:
    times = Timeline(run_end=900, hits=(Hit(KILL, HIT, NEXT, False, None),))
    client = failover_within.ClientAtFault(KILL.number, "p", joined, before, 200, None, None, 200, False)
    assert [one.took for one in failover_within.failovers([client], times)] == ([100] if due else [])


@pytest.mark.parametrize(
    ("took", "u", "stalled", "n", "why"),
    [
        (99, 0, 0, 0, []),
        (100, 0, 0, 0, []),  # exactly the bound keeps it, and there is nothing to explain
        (101, 0, 0, 1, []),
        (110, 0, 9, 1, []),
        (110, 0, 55, 0, [BUSY]),  # as long as it was missed by
        (100, 1, 0, 0, [CLOCKS]),
        (101, 1, 0, 0, [CLOCKS]),
        (99, 1, 0, 0, []),
        (102, 1, 0, 1, []),
    ],
)
def test_a_failover_is_late_where_neither_clocks_nor_busy_hosts_leave_a_doubt(
    took: int, u: int, stalled: int, n: int, why: list[str]
) -> None:
    hit = Hit(KILL._replace(u=0), HIT, NEXT, False, None)
    due = failover_within.DueFailover(hit, "p", True, KILL.at + took, False, took, 900, u)
    found = failover_within.find([due], 100, [Pressure("h", "cpu", 100, 210, stalled)])
    assert (found.n, found.why) == (n, why)
