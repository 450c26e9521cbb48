"""What is drawn of a run beside its verdict, of few rows: latencies, phases, clients' spans, breaks, their faults."""

from __future__ import annotations

from typing import Any

from brokerdrill.analysis import clients
from brokerdrill.ledger.contract import Clock, PromiseSpec
from tests.analysis import snapshot
from tests.analysis.by_hand import (
    BEFORE,
    MS,
    Row,
    end,
    event,
    got,
    op,
    phases,
    receive,
    role,
    send,
    sent_in,
)
from tests.analysis.in_process import rows_of
from tests.analysis.side_by_side import ledger

# A clock that began before the run (ms).
EARLIER = 10
CLOCKS = {"c": Clock("host"), "early": Clock("host2", offset_ns=-EARLIER * MS)}


def shown(*ledgers: Any) -> list[dict[str, Any]]:
    """All that is told of ledgers that are judged side by side, what a report draws, too."""
    given = {str(number): one for number, one in enumerate(ledgers)}
    return list(snapshot.told(given, rows_of(given), 1).values())


def phase(told: dict[str, Any], name: str, kind: str) -> tuple[int, float | None] | None:
    found = next((one for one in told["phases"] if one["phase"] == name), {}).get(kind)
    return found and (found["count"], found["max_ms"])


def test_latencies_count_from_when_a_batch_was_due() -> None:
    """Of a message that was tried twice from its first try on; of a transaction its commit's; to the first delivery."""
    rows = [
        send("m", 10, "unknown", late_ns=5 * MS),
        send("m", 30, attempt=1, late_ns=2 * MS),
        receive("m", 50),
        receive("m", 90),
        send("n", 60, txn="x", late_ns=7 * MS),
        end("commit", "x", 70, late_ns=9 * MS),
        end("commit", "y", 75, "unknown", late_ns=90 * MS),
        {**end("commit", "z", 76), "end_ns": None},
        send("failed", 80, "fail", late_ns=90 * MS),
    ]
    told, other = shown(ledger(rows), ledger([send("m", 10), got("m", 20)]))
    assert [phase(told, "load", kind) for kind in ("send", "commit", "receive")] == [(2, 3), (1, 10), (2, 45)]
    assert [phase(other, "load", kind) for kind in ("send", "commit", "receive")] == [(1, 1), None, (1, 10)]


def test_a_phase_has_what_ended_in_it() -> None:
    """Its begin is of it; what ended before the run began is of none. A send that was seen before it began took 0."""
    at = [-0.1, 0, 9.9, 10, 400]
    rows = [sent_in(f"m{one}", one + EARLIER - 1e-6, one + EARLIER, None, clock="early") for one in at]
    early = [{**send("e", 20), "payload_sha": None}, receive("e", 15, payload_sha=None)]
    told, _ = shown(ledger([*rows, *early], phases((10, 400)), clocks=CLOCKS), ledger([], phases((0, 1))))
    assert phase(told, "outside", "send") == (2, 1e-6)
    assert phase(told, "load", "send") == (3, 1)
    assert phase(told, "load", "receive") == (1, 0)


def test_what_ends_as_an_epoch_begins_counts_once() -> None:
    """That epoch served it, and the one before, or the time before the first, did not."""
    roles = [role("b", "active", 150), role("b", "down", 300), role("b", "active", 400), event("note", 1000)]
    sends = [sent_in("m", 100, 150, "b"), sent_in("n", 260, 400, "b")]
    taken = [receive("m", 150, instance="b"), receive("n", 400, instance="b")]
    told, _ = shown(ledger([*sends, *taken], roles), ledger([BEFORE]))
    assert [(phase(told, "outside", kind) or (0,))[0] for kind in ("send", "receive")] == [2, 2]


def spans(told: dict[str, Any]) -> set[tuple[str, str, int]]:
    return {(one["client"], one["value"], one["failures"]) for one in told["series"]["clients"]}


DOES = ("connect", "send", "ack", "commit")


def test_a_client_was_served_or_failed() -> None:
    """A receive that got nothing, and an acknowledgement without an answer, are no failures; a close is no service."""
    kinds = ("connect", "close", "subscribe", "unsubscribe", "send", "receive", "ack", "prepare", "commit", "rollback")
    of = {"address": "q", "message_id": "m", "delivery": "d"}
    ok = [op(kind, kind, 10, 11, **of) for kind in kinds]
    not_ok = [op(kind, kind, 10, 11, outcome, **of) for kind in kinds for outcome in ("fail", "unknown")]
    told = shown(ledger(ok), ledger(not_ok))
    assert spans(told[0]) == {(kind, "served", 0) for kind in ("connect", "send", "receive", "ack", "commit")}
    assert spans(told[1]) == {(kind, "failed", 2) for kind in ("connect", "send", "prepare", "commit", "rollback")}


def test_what_ended_before_the_run_began_is_not_drawn() -> None:
    """Where a clock is placed so."""
    rows = [op(f"c{one}", "connect", 5, EARLIER + one, clock="early") for one in (-0.1, 0)]
    rows.append(op("c", "connect", 5, None, "unknown"))
    assert spans(shown(ledger(rows, clocks=CLOCKS))[0]) == {("c0", "served", 0), ("c", "failed", 1)}


def test_of_many_clients_those_are_drawn_that_failed_most_and_waited_longest() -> None:
    """Of two more than there is room for; another run has its own."""
    names = [f"c{number:02}" for number in range(clients.MOST_CLIENTS + 2)]
    at = dict.fromkeys(names[:-2], (9000, 9400)) | {names[-2]: (10, 200, 5000)}
    rows = [op(name, "connect", one, one + 1) for name in names for one in at.get(name, (10,))]
    # The last two by name: one fails twice, in one bucket, the other waits longest.
    rows += [op(names[-1], "connect", one, one + 1, "fail") for one in (20, 21)]
    several, one = shown(ledger(rows), ledger([op(names[-3], "connect", 10, 11)]))
    drawn = {client for client, *_ in spans(several)}
    assert drawn == {*names} - {names[-3], names[-4]}
    assert (several["series"]["client_count"], one["series"]["client_count"]) == (len(names), 1)
    assert spans(one) == {(names[-3], "served", 0)}


def blamed(told: dict[str, Any], name: str) -> list[tuple[str | None, int]]:
    return sorted(((one["fault"], one["count"]) for one in told[name]), key=str)


def fault(kind: str, at: float, name: str) -> Row:
    return event(kind, at, name=name, target=name)


def test_a_break_falls_under_the_fault_that_was_in_effect_meanwhile() -> None:
    """Of what was delivered the last one by its last delivery that was not healed before its first attempt, of what
    was not the first that was not; of redeliveries the last one by each."""
    twice = [send("m", 10, "unknown"), send("m", 30, attempt=1), *got("m", 40), *got("m", 50)]
    lost = [send("m", 10, "unknown"), send("m", 30, attempt=1)]

    def made(*spans: tuple[float, float, str]) -> list[Row]:
        kinds = [(kind, at, name) for begin, over, name in spans for kind, at in (("fault", begin), ("heal", over))]
        return [*phases(), *(fault(*one) for one in kinds)]

    cases = [
        (twice, made((5, 10, "healed as it was sent")), "healed as it was sent"),
        (twice, made((5, 9.9, "healed before")), None),
        (twice, made((50, 60, "with the last delivery")), "with the last delivery"),
        (twice, made((50.1, 60, "after the last delivery")), None),
        (twice, made((20, 60, "first"), (45, 60, "last")), "last"),
        (twice, made((5, 60, "first"), (5, 60, "last by name")), "last by name"),
        (lost, made((5, 10, "healed as it was sent")), "healed as it was sent"),
        (lost, made((5, 9.9, "healed before")), None),
        (lost, made((20, 60, "first"), (45, 60, "last")), "first"),
        (lost, made((20, 60, "a"), (20, 60, "b")), "a"),
    ]
    told = shown(*(ledger(rows, events) for rows, events, _ in cases))
    assert [blamed(one, "attribution") for one in told] == [[(name, 1)] for *_, name in cases]
    again = [blamed(one, "redeliveries") for one in told]
    assert again == [[(name, 1)] if rows is twice else [] for rows, _, name in cases]


def test_a_break_is_of_the_round_of_its_first_attempt() -> None:
    begins = [event("note", at, name=name, detail={"round": "begin"}) for at, name in ((5, "1"), (20, "2"))]
    rows = [send("m", 10, "unknown"), send("m", 30, attempt=1), send("n", 30)]
    (told,) = shown(ledger(rows, [*phases(), *begins], [PromiseSpec("no_loss")]))
    assert [one["broken"] for one in told["rounds"]] == [{"no_loss": 1}, {"no_loss": 1}]
