"""ordered: first deliveries follow the order of sends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from brokerdrill.ledger.contract import PromiseSpec
from tests.analysis.oracle.facts import Facts, between, deaths
from tests.analysis.oracle.rows import NEVER, Row, ended, entry


def session_ends(facts: Facts) -> dict[tuple[str, int], int]:
    """When each consumer or producer session was seen to end."""
    ends: dict[tuple[str, int], int] = {}
    dead = deaths(facts)
    sessions = {(op["client"], op["session"]) for op in facts.ops}
    for client, session in sessions:
        closes = [
            ended(op)
            for op in facts.of("close")
            if (op["client"], op["session"]) == (client, session) and op["outcome"] != "fail"
        ]
        nexts = [op["start_ns"] for op in facts.of("connect") if op["client"] == client and op["session"] > session]
        if closes:
            ends[client, session] = min(closes)
        elif nexts:
            ends[client, session] = min(nexts)
        elif client in dead:
            ends[client, session] = dead[client]
    return ends


def given_back(facts: Facts) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """From when to when each session gave back what it had not taken: "it ended, or a rollback of it that is not
    `fail`, or a commit of it that is not `ok`"."""
    spans: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    ends = session_ends(facts)
    for who, at in ends.items():
        closes = [
            op["start_ns"]
            for op in facts.of("close")
            if (op["client"], op["session"]) == who and op["outcome"] != "fail"
        ]
        spans[who].append((min(closes, default=at), at))
    for op in facts.of("rollback", "commit"):
        if op["outcome"] not in (("fail",) if op["op"] == "rollback" else ("ok",)):
            who = op["client"], op["session"]
            over = op.get("end_ns")
            if over is None:  # "without an end it lasts to its session's end"
                over = max(ends.get(who, NEVER), op["start_ns"])
            spans[who].append((op["start_ns"], over))
    return spans


def connected(facts: Facts) -> dict[tuple[str, int], int]:
    """When each session had connected."""
    times: dict[tuple[str, int], int] = {}
    for op in facts.of("connect"):
        who = op["client"], op["session"]
        if op["outcome"] == "ok":
            times[who] = min(ended(op), times.get(who, ended(op)))
    return times


def explained(
    m1: Row, overtaking: Sequence[Row], giver: str, span: tuple[float, float], since: float, scope: str | None
) -> bool:
    """Whether what a session of the client `giver` gave back in that time explains that m1 was delivered after
    `overtaking`, which it precedes; m1's own session had connected at `since`."""
    begun, at = span
    # "another client was giving back as the late message was delivered"
    if giver != m1["delivery"]["client"] and begun < m1["at"] <= at:
        return True
    # "before the late message was delivered"
    if at >= m1["at"]:
        return False
    for m2 in overtaking:
        # "and after one that it precedes was"
        if m2["at"] < at:
            return True
        # "In scope session, where another client gave back, that one need only have been sent by then, to a session
        # that had connected": for both were delivered to one session
        if scope != "key" and giver != m1["delivery"]["client"] and m2["began"] < at and since < at:
            return True
    return False


def over(facts: Facts, effective: Sequence[Row]) -> float:
    """When a message counts as handed over, by the attempts that may have taken effect."""
    last = max(NEVER if attempt.get("end_ns") is None else attempt["end_ns"] for attempt in effective)
    # "if it is the only attempt of its message that may have taken effect, is ok"
    if len(effective) > 1 or effective[0]["result"] != "ok" or effective[0].get("txn") is not None:
        return last
    (one,) = effective
    own = [op for op in facts.ops if op["client"] == one["client"]]
    # "in flight with others (outside a transaction, another send of its session … began while it was under way)"
    others = [
        op
        for op in own
        if op["op"] == "send" and op["session"] == one["session"] and op.get("txn") is None
        if one["start_ns"] < op["start_ns"] < last
    ]
    # "and ended before its client began a later session"
    left = [op for op in own if op["session"] > one["session"] and op["start_ns"] <= last]
    return one["start_ns"] if others and not left else last


def lines_of(facts: Facts, scope: str | None) -> dict[tuple[Any, ...], list[Row]]:
    """The messages that are to come in order, each with its first delivery, by address, subscription and the rest."""
    lines: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for (address, message_id), attempts in facts.attempts.items():
        # "m1's last attempt that may have taken effect", "m2's first such attempt"
        effective = [attempt for attempt in attempts if attempt["result"] != "fail"]
        if not effective:
            continue
        first: dict[str | None, Row] = {}
        for delivery in facts.deliveries.get((address, message_id), []):
            subscription = delivery.get("subscription")
            if subscription not in first or ended(delivery) < ended(first[subscription]):
                first[subscription] = delivery
        began = min(effective, key=lambda attempt: attempt["start_ns"])
        for subscription, delivery in first.items():
            # "same address, same producer, same key"; "scope: session … within one consumer session"
            line: tuple[Any, ...] = (address, subscription, began["client"], began.get("key"))
            if scope != "key":
                line = (*line, delivery["client"], delivery["session"])
            lines[line].append(
                {
                    "message_id": message_id,
                    "began": began["start_ns"],
                    "ended": over(facts, effective),
                    "at": ended(delivery),
                    "delivery": delivery,
                }
            )
    return lines


def may_be_late(facts: Facts, m1: Row, followers: Sequence[Row]) -> int:
    """Over how many that it precedes a message may be late: "if the clocks of two consumers were off, it may have
    been" """
    if m1["delivery"].get("redelivered"):
        return 0
    found = 0
    for m2 in followers:
        off = between(facts, m1["delivery"], m2["delivery"])
        found += off > 0 and m2["at"] - off < m1["at"] and known_clocks(facts, m1, m2)
    return found


def ordered(facts: Facts, spec: PromiseSpec) -> Row:
    """ "First deliveries, by end_ns, must follow." """
    back = given_back(facts)
    begins = connected(facts)
    pairs, excused, open_ones = 0, 0, 0
    witnesses = []
    for (address, subscription, *_), messages in lines_of(facts, spec.scope).items():
        readers = {
            (op["client"], op["session"])
            for op in facts.of("subscribe", "receive", "ack")
            if op.get("address") == address and op.get("subscription") == subscription
        }
        for m1 in messages:
            followers = [m2 for m2 in messages if m1["ended"] < m2["began"]]  # "m1 precedes m2"
            pairs += len(followers)
            # "a message is late when one that it precedes was delivered before it"
            overtaking = [m2 for m2 in followers if m2["at"] < m1["at"]]
            if not overtaking:
                open_ones += may_be_late(facts, m1, followers) if spec.scope == "key" else 0
                continue
            # "for certain: whatever the clocks were off by"
            sure = any(m2["at"] + between(facts, m1["delivery"], m2["delivery"]) < m1["at"] for m2 in overtaking)
            # "excused … if it is flagged redelivered or another session of that subscription gave back in between"
            own = (m1["delivery"]["client"], m1["delivery"]["session"])
            others = [(who[0], span) for who in readers if who != own for span in back.get(who, ())]
            since = begins.get(own, -NEVER)
            if m1["delivery"].get("redelivered") or any(
                explained(m1, overtaking, giver, span, since, spec.scope) for giver, span in others
            ):
                excused += 1
            elif not sure:
                open_ones += 1
            else:
                late = {"address": address, "message_id": m1["message_id"], "subscription": subscription}
                witnesses.append({**late, "at": m1["at"]})
    # "no pair to compare"
    verdict = "fail" if witnesses else "pass" if pairs and not open_ones else "unknown"
    return entry(spec, verdict, len(witnesses), excused, witnesses=witnesses)


def known_clocks(facts: Facts, *messages: Row) -> bool:
    return all(message["delivery"]["clock"] in facts.run.clocks for message in messages)
