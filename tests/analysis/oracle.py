"""A naive oracle of the ledger's contract: what a run's verdict must be, in dicts and loops over lists.

Written from the contract's text alone, to hold the Spark analysis against. Every comment quotes the sentence that its
rule comes from. Speed does not matter here; a ledger of a few hundred rows is judged in milliseconds.

Where the contract leaves a choice, this is the one made:

 #  where                                     choice
--  ----------------------------------------  ------------------------------------------------------------------------
 1  rows of one operation that disagree       earliest start, latest end, of other columns the smallest text
 2  a clock that run.json does not name       offset 0, uncertainty 0
 3  run time of op times                      the clock's offset is added to start_ns, end_ns and expires_ns; its
                                              uncertainty is used for events only
 4  "every commit invoked is fail"            needs one commit: a prepare alone is unknown
 5  attempt in a transaction with both a      the rollback: fail comes first in the sentence
    rollback ok and a commit
 6  delivery in a transaction with both a     the rollback: neither, as for attempts
    rollback ok and a commit
 7  delivery whose transaction was prepared,  "no commit is neither"
    no commit
 8  delivery with a txn and an ack row that   "only the commit decides"
    is fail
 9  latest expires_ns where one attempt has   never
    none
10  no drain end event                        nothing is expired
11  corrupted where a payload_sha is null on  not compared; the sends' are a set
    either side
12  subscribe "was ok before"                 its end is before the attempt's start
13  unsubscribe, close "ended before the      not fail, its end (else start) before drain begin; without that event
    drain"                                    every one is
14  which close ends a non-durable            one of the client of that subscribe row, after it; another client's
    subscription                              subscribe of the same name stands on its own
15  a failed or never attempted message on a  nothing is expected and nothing allowed: each delivery of it has a class
    topic
16  "another subscription that existed at     a delivery to it is proof enough that it existed
    some time"
17  dead-letter evidence of a topic's         of its row's subscription, of all units of the message where that is
    message                                   null
18  dead-letter evidence whose message no     another application's: of no unit
    mapped address knows
19  which addresses a dead-letter address     all mapped to it that have attempts or deliveries of the message
    stands for
20  "nothing was sent"                        no attempt that may have taken effect (for no_phantoms: no send row at
                                              all); then the class promises are unknown
21  no_dead_letters "without a mapped         nothing was sent to an address that run.json's dead_letters maps
    address"
22  ordered: first delivery                   the first of the unit in the whole run; scope session compares those of
                                              one (client, session)
23  ordered: count                            late units, so one message late on two subscriptions counts twice;
                                              excused ones are counted apart
24  ordered: "gave back in between"           strictly between, of *any* overtaking message; of a rollback or a
                                              commit its begin or its end
25  ordered: a session's end                  its close's end (not fail), else the start of the client's next connect;
                                              else it does not end
26  ordered: sessions of a subscription       those with a subscribe, receive or ack there
27  ordered: times in a transaction           an attempt is its send row: that row's start and end
28  sticky: time of a connect                 its end; the window is from the previous one's minus check_period to
                                              this one's plus it
29  sticky: a connect without instance or     it stays in the sequence, both comparisons with it are unknown
    store
30  sticky: pool state before an instance's   not not_ready
    first pool event
31  store of an op                            that of the epoch that served it (as in 38), else the only store that
                                              lists the instance
32  single_active: "ok send"                  a send row that is ok (elsewhere the contract says *acknowledged*)
33  single_active: within one epoch           begin ≤ start and end ≤ epoch's end, without uncertainty
34  single_active: count                      sends in between, plus overlapping pairs of epochs
35  single_active: no evidence                no epoch at all, or an ok send without instance or store
36  end of an acknowledged send in a          the end of its first ok commit
    transaction
37  failover: next epoch                      the first on that store that begins after the fault, of whatever
                                              instance
38  failover: served by an epoch              the send ended in it, give or take the epoch's uncertainty, by its
                                              instance; an epoch after the next one does as well
39  failover: clients                         all that are measured, but for one that first connected after the fault
40  failover: "tries on past the bound        a send, connect, prepare or commit that ended after fault + bound; one
    without success"                          that began after the fault and never returned lasts to the run's end
41  failover: served before the fault         an acknowledged send on that store ended before it
42  failover: a null instance                 on an acknowledged send after the fault that ended before the measured
                                              one (or there is none): that client is unknown
43  failover: a fault without failover        an epoch that serves on after it, and is hit again before the next one
                                              begins, or never ends and has no next: adds nothing
44  failover: detection                       a `detected` note or health, the next one's `starting`, else the end of
                                              the epoch that was hit; first delivery: the first receive ok after the
                                              fault that an epoch after it served, of any client
45  failover, failback: measured              worst finite value in ms; without success there is none
46  failback: original instance               that of the store's first epoch
47  failback: heal of a fault                 a heal with name and instance of an earlier fault; one that finds the
                                              instance active as before the fault is no failback
48  available: ends of the load               count like successes, so a service that never comes back is an outage;
                                              no load end: the end of the run; no load begin, no success: unknown
49  available: addresses                      those with a send (or receive) row that began in the load, dead-letter
                                              addresses never on side receive
50  the fault of an outage                    the last one before its end that was not healed before its start
51  a promise that expect does not name       is expected to be kept; an expectation of a promise that is not checked
                                              is ignored; one name with several entries: merged
52  end of the run                            the latest time in the ledger
53  a torn line                               in ops: no pass stands; in events: none of sticky, single_active,
                                              failover, failback, available, no_loss,
                                              no_nonpersistent_loss, stays_up
54  sticky: a store without any pool or role  nothing is known before the first such event, so nothing is excused by it
    event
55  failback: "that instance's next epoch"    the next after the heal, on whatever store
56  topics: a message without any expected    no unit, no class
    subscription, and not processed
57  ordered: a null key                       a key like others: null equals null
58  a connect, send or receive without end    its start stands for its end (but an attempt without end precedes nothing)
59  atomic: a committed transaction           one with an attempt in it that is not fail: committed, or perhaps so
60  atomic: seen                              delivered, whatever became of the delivery, or found on the dead-letter
                                              address
61  atomic: not seen                          told only of a durable message that has not expired by the drain's end, on
                                              a drained address; on another address it may still be there: unknown
62  atomic: a message tried more than once    seen, it speaks for a transaction only where every attempt that is not
                                              fail is in that one; not seen, it speaks against each
63  atomic: units                             all units of a transaction's messages together, of all addresses and
                                              subscriptions
64  atomic: no evidence                       no transaction with two units that are seen or certainly not
65  stays_up: an end without an instance      adds nothing
66  ordered: "the session had connected"      the end of its first ok connect; of a session without one at all times
67  sticky: the fault that explains           its time as recorded, its uncertainty aside; at the
                                              very begin or end of the time in which the
                                              store was ready it counts
68  sticky: connects that ended together      in the order of their starts, then of client and op_id
69  faults at one time                        in the order of name, instance and target
70  missing operations                        a client's numbers begin with 0 or 1; where no two clients begin with the
                                              same one, the run's operations are numbered as a whole: nothing follows
71  a call that never returned                lasts on if its client began nothing after it (coverage: has no later
                                              op_id), else it had ended when it began
72  a clock's offset between two readings     interpolated in floating point, rounded down
73  available: a span that may be too long    as long as the bound, give or take twice the worst clock's uncertainty
74  sticky, ordered: uncertainty              of the clocks of the operations compared, none among those of one clock
75  coverage: what a fault hit                the stores of its instance, of its `toward`, its own; of none: everything
76  busy hosts                                of each host and kind of pressure the sum of what lies within the time, no
                                              more of each reading than fits into the part that lies there
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from math import floor
from typing import Any

from brokerdrill.ledger.contract import CLASSES_SHOWN, PromiseSpec, RunInfo
from brokerdrill.promises.catalogue import NO_PHANTOMS

Row = dict[str, Any]
MessageKey = tuple[str, str]
UnitKey = tuple[str, str, str | None]

MS = 1_000_000
NEVER = float("inf")
_RANK = {"pass": 0, "unknown": 1, "fail": 2}


def merge(verdicts: Iterable[str]) -> str:
    """ "Verdicts merge by fail > unknown > pass." """
    return max(verdicts, key=lambda verdict: _RANK[verdict], default="unknown")


# --- rows of one operation, clocks ----------------------------------------------------------------------------------


def merge_rows(ops: Iterable[Row]) -> list[Row]:
    """Return one dict an operation. Raises ValueError for ok against fail."""
    groups: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in ops:
        groups[row["client"], row["op_id"]].append(row)
    merged = []
    for who, rows in groups.items():
        whole: Row = {}
        # "other columns keep what is not null"
        for name in sorted({name for row in rows for name in row}):
            values = [row[name] for row in rows if row.get(name) is not None]
            if not values:
                whole[name] = None
            elif name == "end_ns":
                whole[name] = max(values)  # "a set end beats null"
            elif name != "outcome":
                whole[name] = min(values)
        # "ok or fail beats unknown", "ok against fail is bad input"
        outcomes = {row["outcome"] for row in rows} - {"unknown"}
        if len(outcomes) == 2:
            raise ValueError(f"operation {who} is ok and fail")
        whole["outcome"] = outcomes.pop() if outcomes else "unknown"
        merged.append(whole)
    return merged


@dataclass
class Watch:
    """One clock: points (its own time, its offset then, uncertainty) by time, and by how much its times may be off."""

    points: list[tuple[int, int, int]]
    uncertainty: int = 0

    def offset(self, t: int) -> int:
        """ "between two it is interpolated, before the first and after the last it stays" """
        if t < self.points[0][0]:
            return self.points[0][1]
        for (since, was, _), (until, became, _) in pairwise(self.points):
            if since <= t < until:
                return was + floor((t - since) * ((became - was) / (until - since)))
        return self.points[-1][1]


def watches(run: RunInfo, events: Sequence[Row]) -> dict[str, Watch]:
    """Each clock of run.json, with what was read of it: "Clocks" """

    def roughly(event: Row) -> int:  # "when it was read is as run.json alone places it"
        return int(event["t_ns"] + (run.clocks[event["clock"]].offset_ns if event["clock"] in run.clocks else 0))

    last = max([0, *map(roughly, events)])
    found = {}
    for name, clock in run.clocks.items():
        told = {(-clock.offset_ns, clock.uncertainty_ns, clock.offset_ns)}  # "at run time 0 as run.json says"
        for event in events:
            if event["kind"] == "clock" and event.get("name") == name and detail(event, "offset_ns") is not None:
                offset = int(detail(event, "offset_ns") or 0)
                told.add((roughly(event) - offset, int(detail(event, "uncertainty_ns") or 0), offset))
        kept: list[tuple[int, int, int]] = []
        for at, off_by, offset in sorted(told):
            if kept:
                # "says less than the one before it still does: its uncertainty and 100 ppm of the time since"
                since, was, by = kept[-1]
                still = by + (at - since) // 10_000
                if at == since or (off_by > still and was - off_by - still <= offset <= was + off_by + still):
                    continue
            kept.append((at, offset, off_by))
        # "of more than 16 beside run.json's each n-th and the last"
        n = 1
        while len(kept) - 1 > 16 * n:
            n += 1
        points = [point for place, point in enumerate(kept) if place % n == 0 or place == len(kept) - 1]
        one = Watch(points)
        doubts = [abs(one.offset(at) - offset) + off_by for at, offset, off_by in kept]
        for place in range(len(points) - 1):
            four = [points[k] if 0 <= k < len(points) else None for k in range(place - 1, place + 3)]
            (since, was, by), (until, became, then_by) = points[place], points[place + 1]
            differ = abs(became - was)
            steady = differ <= (until - since) // 10_000 + by + then_by
            for three in (four[:3], four[1:]):
                if None not in three:
                    steady |= straight(*three)  # type: ignore[arg-type]
            if not steady:
                doubts.append(differ + max(by, then_by))
        if len(points) > 1 or clock.uncertainty_ns:
            at, offset, by = points[-1]
            doubts.append(by + max(0, last - (at + offset)) // 10_000)
        one.uncertainty = max(doubts)
        found[name] = one
    return found


def straight(a: tuple[int, int, int], b: tuple[int, int, int], c: tuple[int, int, int]) -> bool:
    """ "as in the stretch before or after": whether b lies between a and c, give or take all three's uncertainties."""
    return abs(Watch([a, c]).offset(b[0]) - b[1]) <= a[2] + b[2] + c[2]


def on_run_time(row: Row, clocks: Mapping[str, Watch], names: Sequence[str]) -> Row:
    """ "adding that clock's offset gives run time", of all times of a row that of its begin"""
    begin = row["t_ns"] if "t_ns" in row else row["start_ns"]
    offset = clocks[row["clock"]].offset(begin) if row["clock"] in clocks else 0
    return {**row, **{name: row[name] + offset for name in names if row.get(name) is not None}}


def ended(op: Row) -> int:
    """When the operation had ended; its start where the ledger has no end."""
    return op["end_ns"] if op.get("end_ns") is not None else op["start_ns"]


# --- what the promises look at --------------------------------------------------------------------------------------


@dataclass
class Epoch:
    """One uninterrupted time for which `instance` is active on `store`; `end` None: open."""

    instance: str
    store: str
    begin: int
    begin_uncertainty: int
    end: int | None = None
    end_uncertainty: int = 0
    # "no vaguer than what else is known of its instance's role"
    earliest: float = -NEVER
    latest: float = NEVER

    def covers(self, t: float) -> bool:
        return self.begin <= t and (self.end is None or t < self.end)


@dataclass
class Unit:
    """One (message, subscription): what is known about it."""

    key: UnitKey
    state: str  # acknowledged | unknown | failed | never (attempted)
    attempts: list[Row]
    deliveries: list[Row]
    dead: bool = False
    # Whether it had to be got for certain, whatever the clocks were off by.
    sure: bool = True


@dataclass
class Facts:
    """The merged ledger on run time, and what is derived from it once."""

    run: RunInfo
    ops: list[Row]
    events: list[Row]
    end: int
    txns: dict[str, list[Row]]
    attempts: dict[MessageKey, list[Row]]
    deliveries: dict[MessageKey, list[Row]]
    epochs: list[Epoch]
    units: list[Unit] = field(default_factory=list)
    missing: bool = False
    clocks: Mapping[str, Watch] = field(default_factory=dict)

    def of(self, *names: str) -> list[Row]:
        return [op for op in self.ops if op["op"] in names]


def gather(run: RunInfo, ops: Sequence[Row], events: Sequence[Row]) -> Facts:
    """Return the facts of a ledger."""
    clocks = watches(run, events)
    rows = [on_run_time(row, clocks, ("start_ns", "end_ns", "expires_ns")) for row in ops]
    merged = merge_rows(rows)
    happened = []
    for event in events:
        row = on_run_time(event, clocks, ("t_ns",))
        # "The uncertainty of an event is its own plus its clock's."
        clock = clocks[row["clock"]].uncertainty if row["clock"] in clocks else 0
        told = {**row, "uncertainty_ns": (row.get("uncertainty_ns") or 0) + clock}
        # "Rows that are there twice count once", of the same values however they are spelled.
        if told not in happened:
            happened.append(told)
    # Roles that were told at one time: in the order of their values, and of one told twice what is more certain.
    happened.sort(
        key=lambda event: (
            event["t_ns"],
            *(
                (event.get("value") or "", event.get("store") or "", event["uncertainty_ns"])
                if event["kind"] == "role"
                else ("", "", 0)
            ),
        )
    )
    txns: dict[str, list[Row]] = defaultdict(list)
    for op in merged:
        if op.get("txn") is not None and op["op"] in ("prepare", "commit", "rollback"):
            txns[op["txn"]].append(op)
    facts = Facts(
        run=run,
        ops=merged,
        events=happened,
        end=max([ended(op) for op in merged] + [event["t_ns"] for event in happened], default=0),
        txns=txns,
        attempts=defaultdict(list),
        deliveries=defaultdict(list),
        epochs=find_epochs(run, happened),
        clocks=clocks,
    )
    acks: dict[str, list[Row]] = defaultdict(list)
    for op in facts.of("ack"):
        if op.get("delivery") is not None:
            acks[op["delivery"]].append(op)
    for op in merged:
        if op.get("address") is None or op.get("message_id") is None:
            continue
        message = (op["address"], op["message_id"])
        if op["op"] == "send":
            # "An attempt is a send row."
            facts.attempts[message].append({**op, "result": attempt_result(op, txns)})
        elif op["op"] == "receive" and op["outcome"] == "ok" and op["address"] not in run.dead_letters.values():
            # "A delivery is a receive that is ok."; on a dead-letter address it is "never its delivery"
            facts.deliveries[message].append(
                {**op, "result": delivery_result(op, acks[op.get("delivery") or ""], txns)}
            )
    facts.units = find_units(facts)
    facts.missing = operations_are_missing(run, merged, events)
    return facts


def operations_are_missing(run: RunInfo, ops: Sequence[Row], events: Sequence[Row]) -> bool:
    """ "each worker's clock present, `op_id`s without holes" """
    if set(run.clocks) - {row["clock"] for row in (*ops, *events)}:
        return True
    numbers: dict[str, list[int]] = defaultdict(list)
    for op in ops:
        numbers[op["client"]].append(op["op_id"])
    firsts = [min(own) for own in numbers.values()]
    if len(numbers) > 1 and len(set(firsts)) == len(firsts):
        # "and there are no more operations than numbers"
        every = [number for own in numbers.values() for number in own]
        if len(every) <= len(range(min(every), max(every) + 1)):
            return False
    return any(set(range(min(own) if min(own) <= 1 else 0, max(own) + 1)) - set(own) for own in numbers.values())


def detail(event: Row, name: str) -> str | None:
    return (event.get("detail") or {}).get(name)


def uncertain(facts: Facts, clock: str) -> int:
    """By how much a clock's times may be off."""
    return facts.clocks[clock].uncertainty if clock in facts.clocks else 0


def between(facts: Facts, one: Row, other: Row) -> int:
    """How far the times of two operations may be off from each other."""
    if one["clock"] == other["clock"]:
        return 0
    return uncertain(facts, one["clock"]) + uncertain(facts, other["clock"])


def waited(facts: Facts, begin: float, end: float) -> int:
    """For how long of a time something waited on the busiest host."""
    by_kind: dict[tuple[Any, Any], int] = defaultdict(int)
    for event in facts.events:
        if event["kind"] != "pressure" or event.get("name") is None:
            continue
        since, stalled = detail(event, "since_ns"), detail(event, "stalled_ns")
        if since is None or stalled is None:
            continue
        inside = int(min(event["t_ns"], end) - max(int(since), begin))
        # "at least half of its time"
        if inside > 0 and 2 * int(stalled) >= event["t_ns"] - int(since) > 0:
            by_kind[event.get("target"), event["name"]] += min(int(stalled), inside)
    return max(by_kind.values(), default=0)


def attempt_result(send: Row, txns: Mapping[str, list[Row]]) -> str:
    """ok, fail or unknown, by "An attempt is a send row. …" """
    # "Outside a transaction it has its row's outcome."
    if send.get("txn") is None:
        return send["outcome"]
    ends = txns.get(send["txn"], [])
    commits = [op for op in ends if op["op"] == "commit"]
    # "In one it is fail if its row is fail, …"
    if send["outcome"] == "fail":
        return "fail"
    # "… a rollback is ok, …"
    if any(op["op"] == "rollback" and op["outcome"] == "ok" for op in ends):
        return "fail"
    # "… neither prepare nor commit was ever invoked, …"
    if not any(op["op"] in ("prepare", "commit") for op in ends):
        return "fail"
    # "… or every commit invoked is fail"
    if commits and all(op["outcome"] == "fail" for op in commits):
        return "fail"
    # "ok if its row and some commit are ok; else unknown"
    if send["outcome"] == "ok" and any(op["outcome"] == "ok" for op in commits):
        return "ok"
    return "unknown"


def delivery_result(receive: Row, acks: Sequence[Row], txns: Mapping[str, list[Row]]) -> str:
    """processed, possibly or neither, by "With a txn on the receive or the ack, only the commit decides …" """
    names = {op["txn"] for op in (receive, *acks) if op.get("txn") is not None}
    if names:
        ends = [op for name in names for op in txns.get(name, [])]
        # "a rollback that is ok or no commit is neither"
        if any(op["op"] == "rollback" and op["outcome"] == "ok" for op in ends):
            return "neither"
        deciding = [op for op in ends if op["op"] == "commit"]
    else:
        deciding = list(acks)  # "Without a txn the ack decides in the same way."
    # "ok is processed, unknown or without end possibly processed"
    if any(op["outcome"] == "ok" for op in deciding):
        return "processed"
    if any(op["outcome"] == "unknown" for op in deciding):
        return "possibly"
    return "neither"


def find_epochs(run: RunInfo, events: Sequence[Row]) -> list[Epoch]:
    """Return all epochs of known stores by begin; `events` are sorted by time."""
    epochs: list[Epoch] = []
    current: dict[str, Epoch] = {}
    # "an event without a store is of the instance's only one, else of the one that it named last"
    stores: dict[int, str] = {}
    named: dict[str, str] = {}
    for event in events:
        if event["kind"] != "role" or event.get("instance") is None:
            continue
        instance = event["instance"]
        store = event.get("store") or only_store(run, instance) or named.get(instance, "")
        stores[id(event)] = named[instance] = store
        active = event.get("value") == "active"
        running = current.get(instance)
        if running is not None:
            if active and running.store == store:
                continue  # "repeats continue it"
            # "ends at that instance's next other value or store"
            running.end, running.end_uncertainty = event["t_ns"], event["uncertainty_ns"]
            del current[instance]
        if active:
            # "it begins at a role active"; "another instance's active does not end it"
            current[instance] = Epoch(instance, store, event["t_ns"], event["uncertainty_ns"])
            epochs.append(current[instance])
    for epoch in epochs:
        own = [e for e in events if e["kind"] == "role" and e.get("instance") == epoch.instance]
        # "not before any earlier change of that instance's role"
        begin = next(
            place
            for place, e in enumerate(own)
            if e["t_ns"] == epoch.begin and e.get("value") == "active" and stores[id(e)] == epoch.store
        )
        before: tuple[Any, Any] | None = None
        for e in own[: begin + 1]:
            role = e.get("value"), stores[id(e)]
            if role != before:  # a change, no repetition
                epoch.earliest = max(epoch.earliest, e["t_ns"] - e["uncertainty_ns"])
            before = role
        # "not before a line of its log that says active, which the poll may have come after"
        polled = own[begin]
        for e in own[begin:]:
            if e.get("value") != "active":
                break
            if e.get("name") == "log":
                if e["t_ns"] - e["uncertainty_ns"] <= polled["t_ns"] + polled["uncertainty_ns"]:
                    epoch.earliest = max(epoch.earliest, e["t_ns"] - e["uncertainty_ns"])
                break
        # "over by any other role before the instance is active again"
        if epoch.end is not None:
            bounds = [epoch.end + epoch.end_uncertainty]
            ended_it = next(
                place
                for place, e in enumerate(own)
                if place > begin and (e["t_ns"], e["uncertainty_ns"]) == (epoch.end, epoch.end_uncertainty)
            )
            for e in own[ended_it:]:
                if e.get("value") == "active":
                    break
                bounds.append(e["t_ns"] + e["uncertainty_ns"])
            epoch.latest = min(bounds)
    return [epoch for epoch in epochs if epoch.store]  # "an open end runs to the end of the run"


def only_store(run: RunInfo, instance: str) -> str | None:
    """The one store that lists `instance`, None where none or several do."""
    names = [store for store, instances in run.stores.items() if instance in instances]
    return names[0] if len(names) == 1 else None


def store_of(facts: Facts, op: Row) -> str | None:
    """The store for which the op's instance served it; None where that cannot be told."""
    if op.get("instance") is None:
        return None
    epoch = epoch_of(facts, op)
    return epoch.store if epoch else only_store(facts.run, op["instance"])


def epoch_of(facts: Facts, op: Row) -> Epoch | None:
    """The epoch that served an operation: the instance's last one that had begun by the operation's end, if it had not
    ended before the operation began (each give or take its uncertainty)."""
    begun = [e for e in facts.epochs if e.instance == op.get("instance") and e.earliest <= ended(op)]
    if not begun:
        return None
    last = begun[-1]
    until = facts.end if last.end is None else last.latest
    return last if op["start_ns"] <= until else None


def phase(facts: Facts, name: str, value: str) -> int | None:
    """When a phase began (its first such event) or ended (its last), None where that is not recorded."""
    times = [e["t_ns"] for e in facts.events if (e["kind"], e.get("name"), e.get("value")) == ("phase", name, value)]
    if not times:
        return None
    return min(times) if value == "begin" else max(times)


# --- units ----------------------------------------------------------------------------------------------------------


def message_state(attempts: Sequence[Row]) -> str:
    """acknowledged, unknown, failed, or never (attempted)."""
    results = {attempt["result"] for attempt in attempts}
    if not results:
        return "never"
    # "acknowledged when some attempt is ok, unknown when none is ok and some is unknown, failed when all are fail"
    if "ok" in results:
        return "acknowledged"
    return "unknown" if "unknown" in results else "failed"


def expected_subscriptions(facts: Facts, address: str, attempts: Sequence[Row]) -> dict[str, bool]:
    """The subscriptions of a topic that must get a message, or perhaps had to (False): "On a topic those subscriptions
    are expected …" """
    began = [attempt["start_ns"] for attempt in attempts if attempt["result"] != "fail"]
    if not began:
        return {}
    off = 2 * max((clock.uncertainty for clock in facts.clocks.values()), default=0)
    drain = phase(facts, "drain", "begin")
    before_drain = [op for op in facts.of("unsubscribe", "close") if drain is None or ended(op) < drain]
    before_drain = [op for op in before_drain if op["outcome"] != "fail"]
    expected: dict[str, bool] = {}
    for row in facts.of("subscribe"):
        # "whose subscribe was ok before the first attempt that is not fail began"
        if row.get("address") != address or row.get("subscription") is None or row["outcome"] != "ok":
            continue
        if ended(row) - off >= min(began):
            continue
        # "and which no unsubscribe ended before the drain"
        if any(
            op["op"] == "unsubscribe" and (op.get("address"), op.get("subscription")) == (address, row["subscription"])
            for op in before_drain
        ):
            continue
        # "(nor a close, for one whose subscribe row says durable = false)"
        if row.get("durable") is False and any(
            op["op"] == "close" and op["client"] == row["client"] and op["start_ns"] > row["start_ns"]
            for op in before_drain
        ):
            continue
        expected[row["subscription"]] = expected.get(row["subscription"], False) or ended(row) + off < min(began)
    return expected


def find_units(facts: Facts) -> list[Unit]:
    """Return every unit that gets a class, dead-letter evidence included."""
    # "An address is a topic if any row there has a subscription"
    topics = {op["address"] for op in facts.ops if op.get("address") and op.get("subscription") is not None}
    # "A browse or receive on a dead-letter address … is evidence for the original unit"
    evidence: dict[MessageKey, list[str | None]] = defaultdict(list)
    for op in facts.of("browse", "receive"):
        if op["outcome"] != "ok" or op.get("message_id") is None:
            continue
        if op.get("address") not in facts.run.dead_letters.values():
            continue
        mapped = [a for a, dead in facts.run.dead_letters.items() if dead == op["address"]]
        for message in ((a, op["message_id"]) for a in mapped):
            # "one that the run has neither attempted nor been delivered is another application's"
            if message in facts.attempts or message in facts.deliveries:
                evidence[message].append(op.get("subscription"))

    units = []
    for message in sorted({*facts.attempts, *facts.deliveries, *evidence}):
        address, message_id = message
        attempts = facts.attempts.get(message, [])
        state = message_state(attempts)
        by_subscription: dict[str | None, list[Row]] = defaultdict(list)
        for delivery in facts.deliveries.get(message, []):
            by_subscription[delivery.get("subscription")].append(delivery)
        names: set[str | None]
        expected: dict[str, bool] = {}
        if address not in topics:
            names = {None}  # "on a queue there is one unit a message"
        else:
            expected = expected_subscriptions(facts, address, attempts)
            names = set(expected)
            # "a delivery to another subscription … gets a class only if it is processed"
            for name, deliveries in by_subscription.items():
                # … "allowed" is said of what was sent: of a failed or unknown message every delivery counts
                if state in ("failed", "never") or any(d["result"] == "processed" for d in deliveries):
                    names.add(name)
            if message in evidence and not names and state in ("failed", "never"):
                names = {None}  # "If the message failed it is a phantom"
        for name in names:
            unit = Unit((address, message_id, name), state, attempts, by_subscription.get(name, []))
            unit.sure = address not in topics or expected.get(name or "", False)
            unit.dead = any(which is None or which == name or name is None for which in evidence.get(message, []))
            units.append(unit)
    return units


def classify(facts: Facts, unit: Unit) -> str:
    """The class of a unit: "exactly one: the first that applies"."""
    state, deliveries = unit.state, unit.deliveries
    processed = [d for d in deliveries if d["result"] == "processed"]
    possibly = [d for d in deliveries if d["result"] == "possibly"]
    untouched = not processed and not possibly
    sent = {a["payload_sha"] for a in unit.attempts if a.get("payload_sha") is not None}
    got = {d["payload_sha"] for d in deliveries if d.get("payload_sha") is not None}
    # "It is durable if any attempt is durable or null"
    durable = any(a.get("durable") is not False for a in unit.attempts)
    # "it expires at its latest expires_ns", "null: never"
    expires = max((NEVER if a.get("expires_ns") is None else a["expires_ns"] for a in unit.attempts), default=NEVER)
    drain_end = phase(facts, "drain", "end")
    # "A run whose drain is not recorded is taken as not drained."
    drained = facts.run.drained.get(unit.key[0], False) and unit.sure
    # "acknowledged, or unknown and delivered; no delivery processed or possibly processed"
    missing = (state == "acknowledged" or (state == "unknown" and bool(deliveries))) and untouched

    # "a delivery's payload_sha is not the send's"
    if sent and got - sent:
        return "corrupted"
    # "failed, yet delivered"; "if the message failed it is a phantom"
    if state == "failed" and (deliveries or unit.dead):
        return "phantom"
    # "delivered, never attempted"
    if state == "never":
        return "unexpected"
    # "processed more than once"
    if len(processed) > 1:
        return "duplicated"
    # "acknowledged or unknown, never processed or possibly processed, found on the dead-letter address"
    if state in ("acknowledged", "unknown") and untouched and unit.dead:
        return "dead_lettered"
    # "acknowledged, never (possibly) processed, expires_ns before the drain's end"
    if state == "acknowledged" and untouched and drain_end is not None and expires < drain_end:
        return "expired"
    # "as lost, but not durable"
    if missing and drained and not durable:
        return "lost_nonpersistent"
    # "…; drained"
    if missing and drained:
        return "lost"
    # "as lost, not drained"
    if missing:
        return "unseen"
    # "delivered more than once, processed at most once"
    if len(deliveries) > 1:
        return "redelivered"
    # "unknown, delivered"
    if state == "unknown" and deliveries:
        return "recovered"
    # "unknown, never delivered"
    if state == "unknown":
        return "unresolved"
    # "failed, never delivered"
    if state == "failed":
        return "rejected"
    # "acknowledged, processed or possibly processed"
    assert state == "acknowledged" and not untouched, unit
    return "ok"


# --- promises by class ----------------------------------------------------------------------------------------------


def entry(
    spec: PromiseSpec,
    verdict: str,
    count: int = 0,
    excused: int = 0,
    measured: float | None = None,
    witnesses: Sequence[Row] = (),
) -> Row:
    """One object of the verdict's `promises`."""
    return {
        "name": spec.name,
        "verdict": verdict,
        "count": count,
        "excused": excused,
        "bound": spec.bound_ms,
        "measured": measured,
        "witnesses": list(witnesses),
    }


# The column "breaks" of the table of classes.
BREAKING = {
    "no_phantoms": ("corrupted", "phantom", "unexpected"),
    "no_duplicates": ("duplicated",),
    "no_dead_letters": ("dead_lettered",),
    "no_loss": ("lost",),
    "no_nonpersistent_loss": ("lost_nonpersistent",),
}


def by_class(facts: Facts, spec: PromiseSpec) -> Row:
    """no_phantoms, no_loss, no_nonpersistent_loss, no_duplicates, no_dead_letters: "by class"."""
    classes = [(unit, classify(facts, unit)) for unit in facts.units]
    bad = [unit for unit, name in classes if name in BREAKING[spec.name]]
    verdicts = ["fail" if bad else "pass"]
    if not any(could_break(spec.name, unit, name) for unit, name in classes):
        verdicts.append("unknown")
    if spec.name == "no_dead_letters" and not looked_everywhere(facts):
        verdicts.append("unknown")
    # "unseen … makes no_loss and no_nonpersistent_loss unknown"
    if spec.name in ("no_loss", "no_nonpersistent_loss") and any(name == "unseen" for _, name in classes):
        verdicts.append("unknown")
    witnesses = [dict(zip(("address", "message_id", "subscription"), unit.key, strict=True)) for unit in bad]
    for witness, unit in zip(witnesses, bad, strict=True):
        # "its first attempt or, if that came first, its first delivery"
        witness["at"] = min((op["start_ns"] for op in [*unit.attempts, *unit.deliveries]), default=None)
        witness["class"] = classify(facts, unit)
    return entry(spec, merge(verdicts), len(bad), witnesses=witnesses)


def could_break(promise: str, unit: Unit, name: str) -> bool:
    """Whether a unit is evidence: whether it could have broken the promise."""
    if promise == "no_phantoms":  # "something was delivered, or found on a dead-letter address"
        return bool(unit.deliveries) or name in ("phantom", "dead_lettered")
    if promise == "no_duplicates":  # "something was processed for certain"
        return any(delivery["result"] == "processed" for delivery in unit.deliveries)
    if (
        promise == "no_loss"
    ):  # "a durable message was acknowledged, or is unknown and was delivered, and did not expire"
        taken = unit.state == "acknowledged" or (unit.state == "unknown" and bool(unit.deliveries))
        return taken and name != "expired" and any(a.get("durable") is not False for a in unit.attempts)
    if promise == "no_nonpersistent_loss":  # "a message that is not durable was acknowledged, or is unknown and was …"
        taken = unit.state == "acknowledged" or (unit.state == "unknown" and bool(unit.deliveries))
        durable = any(a.get("durable") is not False for a in unit.attempts)
        return taken and name != "expired" and not durable
    return True


def transparent(facts: Facts, spec: PromiseSpec) -> Row:
    """ "each send, acknowledgement, prepare, commit and rollback that is fail or unknown breaks it" """
    calls = facts.of("send", "ack", "prepare", "commit", "rollback")
    bad = [op for op in calls if op["outcome"] in ("fail", "unknown")]
    witnesses = [{"at": op["start_ns"], "client": op["client"], "op": op["op"]} for op in bad]
    verdict = "fail" if bad else "pass" if calls else "unknown"
    return entry(spec, verdict, len(bad), witnesses=witnesses)


def looked_everywhere(facts: Facts) -> bool:
    """ "each dead-letter address of an address to which something was sent was looked at after the load's end, and no
    look was refused after which none succeeded there" """
    live = {
        address
        for (address, _), attempts in facts.attempts.items()
        if any(attempt["result"] != "fail" for attempt in attempts)
    }
    if not live <= {*facts.run.dead_letters}:
        return False  # "an address of which it is not said where its dead letters go"
    wanted = {facts.run.dead_letters[address] for address in live}
    ends = [end for _, end in load_phases(facts)]
    looks = [
        op
        for op in facts.of("browse", "receive")
        if op.get("address") in wanted
        and (op["op"] == "browse" or op["outcome"] == "ok")
        and (not ends or op["start_ns"] >= max(ends))
    ]
    for address in wanted:
        # "and not before the last delivery on an address whose dead letters are there"
        delivered = [
            ended(delivery)
            for (source, _), deliveries in facts.deliveries.items()
            if facts.run.dead_letters.get(source) == address
            for delivery in deliveries
        ]
        of = [look for look in looks if look["address"] == address and look["start_ns"] >= max([0, *delivered])]
        if not any(look["outcome"] == "ok" for look in of):
            return False
        for look in of:
            where = look.get("instance") or look.get("broker")
            later = [
                other["start_ns"]
                for other in of
                if other["outcome"] == "ok" and (other.get("instance") or other.get("broker")) == where
            ]
            if look["outcome"] != "ok" and look["start_ns"] >= max(later, default=-1):
                return False
    return bool(wanted)


def load_phases(facts: Facts) -> list[tuple[int, int]]:
    """Each load from its begin to the next event of a load, or to the run's end."""
    marks = sorted(
        (event["t_ns"], event.get("value") != "begin")
        for event in facts.events
        if event["kind"] == "phase" and event.get("name") == "load"
    )
    found = []
    for place, (at, is_end) in enumerate(marks):
        if not is_end:
            found.append((at, marks[place + 1][0] if place + 1 < len(marks) else facts.end))
    return found


# --- atomic ---------------------------------------------------------------------------------------------------------


def atomic(facts: Facts, spec: PromiseSpec) -> Row:
    """ "all or none of a transaction's messages seen" """
    drain_end = phase(facts, "drain", "end")
    names = {
        a["txn"] for attempts in facts.attempts.values() for a in attempts if a["result"] != "fail" and a.get("txn")
    }
    witnesses: list[Row] = []
    judged, open_ones = 0, 0
    for name in sorted(names):
        seen, proving, missing, waiting = [], [], [], []
        begins: list[int] = []
        for unit in facts.units:
            effective = [a for a in unit.attempts if a["result"] != "fail"]
            if not any(a.get("txn") == name for a in effective):
                continue
            begins += [a["start_ns"] for a in effective]
            if unit.deliveries or unit.dead:
                seen.append(unit)
                if all(a.get("txn") == name for a in effective):
                    proving.append(unit)
                continue
            never = any(a.get("expires_ns") is None for a in unit.attempts)
            gone = not never and drain_end is not None and max(a["expires_ns"] for a in unit.attempts) < drain_end
            if gone or all(a.get("durable") is False for a in unit.attempts):
                continue
            if facts.run.drained.get(unit.key[0], False) and unit.sure:
                missing.append(unit)
            else:
                waiting.append(unit)
        if proving and missing:
            # "the first attempt of its messages that may have taken effect"
            witnesses.append({"txn": name, "seen": len(seen), "missing": len(missing), "at": min(begins)})
        if proving and waiting:
            open_ones += 1
        if len(seen) + len(missing) > 1:
            judged += 1
    verdict = "fail" if witnesses else "unknown" if open_ones or not judged else "pass"
    return entry(spec, verdict, len(witnesses), witnesses=witnesses)


# --- ordered --------------------------------------------------------------------------------------------------------


def session_ends(facts: Facts) -> dict[tuple[str, int], int]:
    """When each consumer or producer session was seen to end."""
    ends: dict[tuple[str, int], int] = {}
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
    return ends


def given_back(facts: Facts) -> dict[tuple[str, int], list[int]]:
    """When each session gave back what it had not taken: "it ended, or a rollback of it, or a commit of it that was not
    ok, began or ended"."""
    moments: dict[tuple[str, int], list[int]] = defaultdict(list)
    for who, at in session_ends(facts).items():
        moments[who].append(at)
    for op in facts.of("rollback", "commit"):
        if op["outcome"] not in (("fail",) if op["op"] == "rollback" else ("ok",)):
            moments[op["client"], op["session"]] += [at for at in (op["start_ns"], op.get("end_ns")) if at is not None]
    return moments


def connected(facts: Facts) -> dict[tuple[str, int], int]:
    """When each session had connected."""
    times: dict[tuple[str, int], int] = {}
    for op in facts.of("connect"):
        who = op["client"], op["session"]
        if op["outcome"] == "ok":
            times[who] = min(ended(op), times.get(who, ended(op)))
    return times


def explained(m1: Row, overtaking: Sequence[Row], giver: str, at: int, since: float, scope: str | None) -> bool:
    """Whether what a session of the client `giver` gave back `at` that time explains that m1 was delivered after
    `overtaking`, which it precedes; m1's own session had connected at `since`."""
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


def ordered(facts: Facts, spec: PromiseSpec) -> Row:
    """ "First deliveries, by end_ns, must follow." """
    back = given_back(facts)
    begins = connected(facts)
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
            if spec.scope != "key":
                line = (*line, delivery["client"], delivery["session"])
            lines[line].append(
                {
                    "message_id": message_id,
                    "began": began["start_ns"],
                    "ended": max(NEVER if a.get("end_ns") is None else a["end_ns"] for a in effective),
                    "at": ended(delivery),
                    "delivery": delivery,
                }
            )
    pairs, excused, open_ones = 0, 0, 0
    witnesses = []
    for (address, subscription, *_), messages in lines.items():
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
                # "if the clocks of two consumers were off, it may have been"
                if spec.scope == "key" and not m1["delivery"].get("redelivered"):
                    for m2 in followers:
                        off = between(facts, m1["delivery"], m2["delivery"])
                        if off > 0 and m2["at"] - off < m1["at"] and known_clocks(facts, m1, m2):
                            open_ones += 1
                continue
            # "for certain: whatever the clocks were off by"
            sure = any(m2["at"] + between(facts, m1["delivery"], m2["delivery"]) < m1["at"] for m2 in overtaking)
            # "excused … if it is flagged redelivered or another session of that subscription gave back in between"
            own = (m1["delivery"]["client"], m1["delivery"]["session"])
            others = [(who[0], at) for who in readers if who != own for at in back.get(who, ())]
            since = begins.get(own, -NEVER)
            if m1["delivery"].get("redelivered") or any(
                explained(m1, overtaking, giver, at, since, spec.scope) for giver, at in others
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


# --- sticky ---------------------------------------------------------------------------------------------------------


def ready_changes(facts: Facts, store: str) -> list[tuple[float, bool]]:
    """When the store was ready and when not, as (from, ready), by time; each differs from the one before it."""
    members = set(facts.run.stores.get(store, ()))
    pool = [e for e in facts.events if e["kind"] == "pool" and e.get("instance") in members]
    latest = dict.fromkeys((e["instance"] for e in pool), "ready")
    states: list[tuple[float, bool]] = []
    roles = [
        e["t_ns"] for e in facts.events if e["kind"] == "role" and (e["instance"] in members or e.get("store") == store)
    ]
    # The state only changes at events.
    for moment in sorted({-NEVER, *(e["t_ns"] for e in facts.events)}):
        for event in pool:
            if event["t_ns"] == moment:
                latest[event["instance"]] = event["value"]
        # "all its instances in the pool are not_ready", "where no pool event names them, none of them is active, from
        # the first role on that the events tell of them"
        if pool:
            ready = any(value != "not_ready" for value in latest.values())
        else:
            ready = moment < min(roles, default=NEVER) or any(
                epoch.store == store and epoch.covers(moment) for epoch in facts.epochs
            )
        if not states or states[-1][1] != ready:
            states.append((moment, ready))
    return states


def not_ready_between(facts: Facts, store: str, begin: float, end: float) -> bool:
    """Whether the target was not ready at some time of [begin, end], or was on its way there by a fault."""
    members = set(facts.run.stores.get(store, ()))
    states = ready_changes(facts, store)
    for (since, ready), (until, _) in pairwise([*states, (NEVER, True)]):
        if not ready and since <= end and begin < until:
            return True
        # "Such a time counts from the fault that explains it"
        if not ready or until == NEVER or until < begin or since > end:
            continue
        explains = -NEVER
        for fault in facts.events:
            toward = ((fault.get("detail") or {}).get("toward") or "").split(", ")
            there = fault.get("store") == store or {fault.get("instance"), *toward} & members
            if fault["kind"] != "fault" or not there or not since <= fault["t_ns"] <= until:
                continue
            healed = [
                heal["t_ns"]
                for heal in facts.events
                if heal["kind"] == "heal"
                and all(heal.get(name) == fault.get(name) for name in ("name", "instance", "target"))
                and heal["t_ns"] > fault["t_ns"]
            ]
            if min(healed, default=NEVER) > until:
                explains = max(explains, fault["t_ns"])
        if -NEVER < explains <= end:
            return True
    return False


def sticky(facts: Facts, spec: PromiseSpec) -> Row:
    """ "Each ok connect of a key is compared with the key's previous one; both must reach the same store" """
    by_key: dict[str, list[Row]] = defaultdict(list)
    # "What has the same time": connects by their start, then client and op_id
    for op in sorted(facts.of("connect"), key=lambda op: (ended(op), op["start_ns"], op["client"], op["op_id"])):
        if op["outcome"] == "ok" and op.get("key") is not None:
            by_key[op["key"]].append(op)
    period = (spec.check_period_ms or 0) * MS
    timeout = (spec.cache_timeout_ms or 0) * MS
    pairs, blind, excused, open_ones = 0, 0, 0, 0
    witnesses = []
    for key, connects in by_key.items():
        for old, new in pairwise(connects):
            old_store, new_store = store_of(facts, old), store_of(facts, new)
            if old_store is None or new_store is None:
                blind += 1  # "a null broker where one is needed"
                continue
            pairs += 1
            if old_store == new_store:
                continue
            # "the cache entry had expired (cache_timeout_ms since the previous connect; absent or 0: never)"
            was_off, is_off = uncertain(facts, old["clock"]), uncertain(facts, new["clock"])
            lasted = ended(new) - ended(old)
            # "the old target was not ready at some time since the previous connect (± check_period_ms)"
            begin, over = ended(old) - period, ended(new) + period
            certain = (timeout > 0 and lasted - was_off - is_off > timeout) or (
                begin + was_off <= over - is_off and not_ready_between(facts, old_store, begin + was_off, over - is_off)
            )
            possible = (timeout > 0 and lasted + was_off + is_off > timeout) or not_ready_between(
                facts, old_store, begin - was_off, over + is_off
            )
            # "with moves never nothing excuses a move"
            if certain and spec.moves != "never":
                excused += 1
            elif possible and spec.moves != "never":
                open_ones += 1  # "what is excused only if a clock was off may be"
            else:
                witnesses.append({"key": key, "from": old_store, "to": new_store, "at": ended(new)})
    # "with some there must be one, else the verdict is unknown"
    proof = excused if spec.moves == "some" else pairs
    verdict = "fail" if witnesses else "unknown" if blind or open_ones or not proof else "pass"
    return entry(spec, verdict, len(witnesses), excused, witnesses=witnesses)


# --- single_active --------------------------------------------------------------------------------------------------


def single_active(facts: Facts, spec: PromiseSpec) -> Row:
    """At most one instance serves a store."""
    witnesses: list[Row] = []
    open_ones = 0
    sends = [{**op, "served": store_of(facts, op)} for op in facts.of("send") if op["outcome"] == "ok"]
    # "an ok send served by Y lies wholly between two ok sends served by X for the same store within one epoch of X"
    for y in sends:
        if y["served"] is None:
            continue
        for epoch in facts.epochs:
            if epoch.store != y["served"] or epoch.instance == y["instance"]:
                continue
            until = facts.end if epoch.end is None else epoch.end
            of_x = [x for x in sends if x.get("instance") == epoch.instance and x["served"] == epoch.store]
            of_x = [x for x in of_x if epoch.begin <= x["start_ns"] and ended(x) <= until]
            off = {id(x): between(facts, x, y) for x in of_x}
            if any(ended(x) + off[id(x)] < y["start_ns"] for x in of_x) and any(
                ended(y) + off[id(x)] < x["start_ns"] for x in of_x
            ):
                intruder = {"message_id": y.get("message_id"), "address": y.get("address"), "store": epoch.store}
                witnesses.append({**intruder, "at": y["start_ns"]})
                break
            if any(ended(x) - off[id(x)] < y["start_ns"] for x in of_x) and any(
                ended(y) - off[id(x)] < x["start_ns"] for x in of_x
            ):
                open_ones += 1  # "if the clocks were off, it may be one"

    # "two instances' certain active intervals (epochs shrunk by their uncertainty) on one store overlap"
    def active(epoch: Epoch, at: float, sign: int) -> bool:
        """Whether the epoch's instance was active at that moment: for certain (sign 1), or perhaps (-1)."""
        until = facts.end if epoch.end is None else epoch.end
        if sign > 0 and not epoch.begin + epoch.begin_uncertainty < at < until - epoch.end_uncertainty:
            return False
        if sign < 0 and not epoch.earliest < at < min(epoch.latest, facts.end if epoch.end is None else NEVER):
            return False
        # "while a kill, a stop or a pause on it is in effect an instance is not active"
        for fault in facts.events:
            if fault["kind"] == "fault" and fault.get("name") in ("kill", "stop", "pause"):
                heal, off = healed_at(facts, fault), sign * fault["uncertainty_ns"]
                halted = fault["t_ns"] - off <= at and (heal is None or at <= heal + off)
                # "an epoch that began after it is of a process that was started anew"
                anew = epoch.begin - epoch.begin_uncertainty > fault["t_ns"] + fault["uncertainty_ns"]
                if halted and not anew and fault.get("instance") == epoch.instance:
                    return False
        return True

    marks = sorted(
        {
            time + sign * off
            for epoch in facts.epochs
            for time, off in (
                (epoch.begin, epoch.begin_uncertainty),
                (facts.end if epoch.end is None else epoch.end, epoch.end_uncertainty),
            )
            for sign in (1, -1)
        }
        | {time for epoch in facts.epochs for time in (epoch.earliest, epoch.latest) if abs(time) < NEVER}
        | {
            time + sign * fault["uncertainty_ns"]
            for fault in facts.events
            if fault["kind"] == "fault"
            for time in (fault["t_ns"], healed_at(facts, fault))
            if time is not None
            for sign in (1, -1)
        }
    )
    # Between two marks nothing changes.
    spans = [(sooner, (sooner + later) / 2) for sooner, later in pairwise(marks)]
    for one, other in combinations(facts.epochs, 2):
        if one.store != other.store or one.instance == other.instance:
            continue
        certain = [begin for begin, at in spans if active(one, at, 1) and active(other, at, 1)]
        if certain:
            both = sorted({one.instance, other.instance})
            witnesses.append({"store": one.store, "instances": both, "at": certain[0]})
        # "widened by them they do: they may"
        elif any(active(one, at, -1) and active(other, at, -1) for _, at in spans):
            open_ones += 1
    open_ones += sum(unseen_beside_another(facts, *span) for span in not_watched(facts))
    # "a null broker where one is needed"
    blind = not facts.epochs or any(send["served"] is None for send in sends)
    # "of several that may serve a store nobody knew any role"
    told = {event.get("instance") for event in facts.events if event["kind"] == "role"}
    blind |= any(len(set(named)) > 1 and not told & set(named) for named in facts.run.stores.values())
    verdict = "fail" if witnesses else "unknown" if blind or open_ones else "pass"
    return entry(spec, verdict, len(witnesses), witnesses=witnesses)


def not_watched(facts: Facts) -> list[tuple[str, int, int]]:
    """ "from `silent` to `answers`, and the gaps of polls" """
    spans = []
    for instance in sorted({e["instance"] for e in facts.events if e.get("instance") is not None}):
        since = None
        for event in facts.events:
            if event.get("instance") != instance:
                continue
            if event["kind"] == "health" and event.get("value") == "silent" and since is None:
                since = event["t_ns"]
            elif event["kind"] == "health" and event.get("value") == "answers" and since is not None:
                spans.append((instance, since, event["t_ns"]))
                since = None
            elif event["kind"] == "polls" and detail(event, "gaps"):
                for gap in str(detail(event, "gaps")).split(", "):
                    begin, end = gap.split("-")
                    spans.append((instance, int(begin), int(end)))
        if since is not None:
            spans.append((instance, since, facts.end))
    # "in the load before the first role that is told of it"
    begin = min((begin for begin, _ in load_phases(facts)), default=None)
    for instance in sorted({one for named in facts.run.stores.values() if len(set(named)) > 1 for one in named}):
        roles = [e for e in facts.events if e["kind"] == "role" and e.get("instance") == instance]
        first = min((role["t_ns"] - role["uncertainty_ns"] for role in roles), default=facts.end)
        if begin is not None:
            spans.append((instance, begin, first))
    return [span for span in spans if span[1] < span[2]]


def unseen_beside_another(facts: Facts, instance: str, begin: int, end: int) -> bool:
    """Whether nobody can tell that the instance was not active as another one of its store was."""
    own = {store for store, named in facts.run.stores.items() if instance in named}
    own |= {epoch.store for epoch in facts.epochs if epoch.instance == instance}
    if not any(
        epoch.store in own
        and epoch.instance != instance
        and epoch.begin < end
        and begin < (facts.end if epoch.end is None else epoch.end)
        for epoch in facts.epochs
    ):
        return False
    # "a process that a fault has halted serves nobody"
    for fault in facts.events:
        if fault["kind"] != "fault" or fault.get("instance") != instance:
            continue
        heal = healed_at(facts, fault)
        if fault.get("name") in ("kill", "stop", "pause") and fault["t_ns"] <= begin and (heal is None or end <= heal):
            return False
    # "or its log tells its roles, and was read of that time, whole"
    if not any(e["kind"] == "role" and e.get("instance") == instance and e.get("name") == "log" for e in facts.events):
        return True
    return not log_tells_all(facts, instance, begin, end)


def logs_read(facts: Facts) -> list[Row]:
    return [
        note
        for note in facts.events
        if note["kind"] == "note" and note.get("name") == "log read" and note.get("instance") is not None
    ]


def log_tells_all(facts: Facts, instance: str, begin: int | None, over: int | None) -> bool:
    """ "A log was read whole where nothing of it was lost, from the load's begin to the drain's end" """
    own = [note for note in logs_read(facts) if instance in read_with(note)]
    if not own or any(int(detail(note, "lost") or 0) for note in own):
        return False
    known: list[tuple[float, float]] = []
    for note in own:
        begins, ends_at = detail(note, "from_ns"), detail(note, "until_ns")
        known.append((-NEVER if begins is None else int(begins), NEVER if ends_at is None else int(ends_at)))
    # "between a `restart_host` of that instance and ... its heal at the latest, nothing can be read, and nothing ran"
    for fault in facts.events:
        if (fault["kind"], fault.get("name"), fault.get("instance")) == ("fault", "restart_host", instance):
            heal = healed_at(facts, fault)
            if heal is not None:
                known.append((fault["t_ns"] - fault["uncertainty_ns"], heal))
    # A moment that is in none of them is in the gap behind the end of one.
    wanted = min(begins for begins, _ in known) if begin is None else begin
    last = wanted if over is None else over
    moments = [wanted, *(end for _, end in known if wanted <= end < last)]
    return all(any(begins <= at and (at < end or end >= last) for begins, end in known) for at in moments)


def read_with(note: Row) -> set[str]:
    """The instances whose log a note says was read."""
    return {note["instance"], *str(detail(note, "instances") or "").split("\n")} - {""}


def healed_at(facts: Facts, fault: Row) -> int | None:
    """When a fault was healed: at its heal, or, where its host did that by itself, when that was due."""
    heals = [
        heal
        for heal in facts.events
        if heal["kind"] == "heal"
        and all((heal.get(name) or "") == (fault.get(name) or "") for name in ("name", "instance", "target"))
        and heal["t_ns"] > fault["t_ns"]
    ]
    if not heals:
        return None
    first = min(heals, key=lambda heal: heal["t_ns"])
    ttl = detail(fault, "ttl_s")
    if detail(first, "by") == "time-to-live" and ttl is not None:
        return int(min(first["t_ns"], fault["t_ns"] + round(float(ttl) * 1e9)))
    return int(first["t_ns"])


def healed_by_itself(facts: Facts, fault: Row) -> bool:
    """Whether its host healed a fault, and it is not said after how long."""
    heals = [
        heal
        for heal in facts.events
        if heal["kind"] == "heal"
        and all((heal.get(name) or "") == (fault.get(name) or "") for name in ("name", "instance", "target"))
        and heal["t_ns"] > fault["t_ns"]
    ]
    first = min(heals, key=lambda heal: heal["t_ns"], default=None)
    return first is not None and detail(first, "by") == "time-to-live" and detail(fault, "ttl_s") is None


# --- failover_within, failback_within -------------------------------------------------------------------------------


def acknowledged_sends(facts: Facts) -> list[Row]:
    """The sends that are acknowledged ("commit ok in a transaction"), with `acked_ns`, when they were."""
    sends = []
    for attempts in facts.attempts.values():
        for attempt in attempts:
            if attempt["result"] != "ok":
                continue
            at = ended(attempt)
            if attempt.get("txn") is not None:
                commits = [op for op in facts.txns[attempt["txn"]] if op["op"] == "commit" and op["outcome"] == "ok"]
                at = min(ended(op) for op in commits)
            sends.append({**attempt, "acked_ns": at})
    return sorted(sends, key=lambda send: send["acked_ns"])


def in_ms(ns: float) -> float:
    return ns / MS


def hits_on_active(facts: Facts) -> list[tuple[Row, Epoch]]:
    """ "each fault on an instance that is active", with the epoch that it hit."""
    hits = []
    for fault in facts.events:
        if fault["kind"] != "fault" or fault.get("instance") is None:
            continue
        own = [e for e in facts.epochs if e.instance == fault["instance"] and e.begin <= fault["t_ns"]]
        own = [e for e in own if fault.get("store") in (None, e.store)]
        during = [epoch for epoch in own if epoch.covers(fault["t_ns"])]
        # "Where an epoch ended before the fault, and not if times were off, it is the fault that ended it"
        just_over = [epoch for epoch in own[-1:] if fault["t_ns"] - fault["uncertainty_ns"] < epoch.latest]
        hits += [(fault, epoch) for epoch in during or just_over]
    return hits


def failover_within(facts: Facts, spec: PromiseSpec) -> tuple[Row, list[Row]]:
    """Return the promise's entry and the rows of `failover`."""
    acked = acknowledged_sends(facts)
    bound = NEVER if spec.bound_ms is None else round(spec.bound_ms * MS)
    parts: list[Row] = []
    witnesses: list[Row] = []
    blind, doubt = False, False
    hits = hits_on_active(facts)
    for fault, hit in hits:
        t = fault["t_ns"]
        after = t + fault["uncertainty_ns"]  # "began after the fault plus its uncertainty"
        following = [e for e in facts.epochs if e.store == hit.store and e.begin > t]
        successor = min(following, key=lambda e: e.begin, default=None)  # "the next epoch on that store"
        until = NEVER if successor is None else successor.begin
        begun = [send for send in acked if send["start_ns"] > after]
        served_on = any(epoch_of(facts, send) is hit for send in begun)
        again = any(other is not fault and epoch is hit and t < other["t_ns"] < until for other, epoch in hits)
        # "no failover happened"
        if served_on and (again or (hit.end is None and successor is None)):
            continue
        # "an epoch that outlasted the fault and its heal, before the next one began: something else may have ended it"
        heal = healed_at(facts, fault)
        outlasted = (
            heal is not None
            and successor is not None
            and hit.end is not None
            and heal < hit.end - hit.end_uncertainty
            and heal < successor.begin - successor.begin_uncertainty
        )
        tried = False
        for client in sorted({op["client"] for op in facts.of("send")}):
            own = [send for send in begun if send["client"] == client]
            clocks = {op["clock"] for op in facts.of("send", "connect", "prepare", "commit") if op["client"] == client}
            off = fault["uncertainty_ns"] + max(uncertain(facts, clock) for clock in clocks)
            # "a client whom that store served last before the fault, as far as is known: a send was acknowledged, or a
            # connect that was ok reached it"
            joined = [op for op in facts.of("connect") if op["client"] == client and op["outcome"] == "ok"]
            reached = [(ended(op), store_of(facts, op)) for op in joined]
            reached += [(send["acked_ns"], store_of(facts, send)) for send in acked if send["client"] == client]
            known = [(at, store) for at, store in reached if store is not None and at <= t]
            before = bool(known) and max(known)[1] == hit.store
            connects = [op["start_ns"] for op in facts.of("connect") if op["client"] == client]
            if not before and connects and min(connects) > t:
                continue
            served = [send for send in own if epoch_of(facts, send) in following]
            first = served[0] if served else None
            # "served by another store meanwhile, it does not wait for this one"
            away = [send for send in own if store_of(facts, send) not in (None, hit.store)]
            elsewhere = bool(away) and (first is None or away[0]["acked_ns"] < first["acked_ns"])
            first = away[0] if elsewhere else first
            nameless = [send for send in own if store_of(facts, send) is None]
            if any(first is None or send["acked_ns"] < first["acked_ns"] for send in nameless):
                blind = True  # "a null broker where one is needed"
                tried |= not elsewhere
                continue
            if elsewhere and not before:
                continue
            tried |= not elsewhere and (first is not None or (before and hanging_until(facts, client, t) > t + off))
            if first is None:
                # "… and tries on past the bound without success breaks it"
                last = hanging_until(facts, client, t)
                if before and last > t + off:
                    in_vain = last - t
                    if in_vain + off <= bound or in_vain - off <= bound or outlasted or busy(facts, t, in_vain, bound):
                        doubt = True
                    else:
                        witnesses.append({"client": client, "at": t})
                continue
            took = first["acked_ns"] - t
            # "broken if it is longer whatever the clocks were off by, and busy hosts do not explain it"
            if took - off <= bound < took + off or (took > bound and (outlasted or busy(facts, t, took, bound))):
                doubt = True
            elif took > bound:
                witnesses.append({"client": client, "at": t})
            if elsewhere:
                continue
            deliveries = [
                ended(d)
                for received in facts.deliveries.values()
                for d in received
                if ended(d) > after and epoch_of(facts, d) in following
            ]
            seen = detected_at(facts, t, hit, successor)
            parts.append(
                {
                    "fault": fault.get("name"),
                    "t_ns": t,
                    "client": client,
                    "detection_ms": None if seen is None else in_ms(seen - t),
                    "activation_ms": None if successor is None else in_ms(successor.begin - t),
                    "first_send_ms": in_ms(took),
                    "first_delivery_ms": in_ms(min(deliveries) - t) if deliveries else None,
                }
            )
        doubt |= not tried  # "a fault after which nobody tried to send"
    # "measured is the worst client's"
    measured = max((part["first_send_ms"] for part in parts), default=None)
    # "no failover happened"
    verdict = "fail" if witnesses else "unknown" if blind or doubt or not parts else "pass"
    return entry(spec, verdict, len(witnesses), measured=measured, witnesses=witnesses), parts


def delivered_within(facts: Facts, spec: PromiseSpec) -> Row:
    """ "What a broker had acknowledged and not delivered when a fault hit it" """
    bound = NEVER if spec.bound_ms is None else round(spec.bound_ms * MS)
    acked = acknowledged_sends(facts)
    longest: list[float] = []
    witnesses: list[Row] = []
    doubt = False
    for fault, hit in hits_on_active(facts):
        t, own = fault["t_ns"], fault["uncertainty_ns"]
        there = {
            (send["address"], send["message_id"])
            for send in acked
            if (send.get("instance") or send.get("broker")) == hit.instance
            if send["acked_ns"] < t - own - uncertain(facts, send["clock"])  # "acknowledged before for certain"
        }
        late, waits = [], []
        for unit in facts.units:
            if unit.key[:2] not in there:
                continue
            durable = any(a.get("durable") is not False for a in unit.attempts)
            if not durable or all(a.get("expires_ns") is not None for a in unit.attempts):
                continue
            first = min(unit.deliveries, key=lambda d: (ended(d), d["client"], d["op_id"]), default=None)
            if first is None and classify(facts, unit) not in ("lost", "unseen"):
                continue
            took = (facts.end if first is None else ended(first)) - t
            if took <= 0:
                continue
            off = own + (0 if first is None else uncertain(facts, first["clock"]))
            waits.append(took)
            if took - off > bound:
                late.append({"message_id": unit.key[1], "at": t})
            elif first is None or took + off > bound:
                doubt = True
        longest += waits
        # "of a fault the longest wait decides whether busy hosts explain"
        if late and busy(facts, t, max(waits), bound):
            doubt = True
        else:
            witnesses += late
    measured = in_ms(max(longest)) if longest else None
    verdict = "fail" if witnesses else "unknown" if doubt or not longest else "pass"
    return entry(spec, verdict, len(witnesses), measured=measured, witnesses=witnesses)


def hanging_until(facts: Facts, client: str, t: int) -> int:
    """Until when a client tried to be served by a broker; "a call that never returned lasts to the run's end, if it
    began after the fault or the client began nothing after it"."""
    own = [op for op in facts.of("send", "connect", "prepare", "commit") if op["client"] == client]
    newest = max(op["start_ns"] for op in own)
    lasts = []
    for op in own:
        hanging = op.get("end_ns") is None and (op["start_ns"] > t or op["start_ns"] == newest)
        lasts.append(facts.end if hanging else ended(op))
    return max(lasts)


def busy(facts: Facts, begin: int, took: float, bound: float) -> bool:
    """Whether something waited on a host for as long as the bound was missed by."""
    return waited(facts, begin, begin + took) >= took - bound


def detected_at(facts: Facts, t: int, hit: Epoch, successor: Epoch | None) -> int | None:
    """When the first sign says that the fault at `t` was noticed."""
    if successor is None:
        return None
    for event in facts.events:
        if not t <= event["t_ns"] <= successor.begin:
            continue
        there = event.get("store") == hit.store or event.get("instance") == successor.instance
        if event["kind"] in ("note", "health") and event.get("name") == "detected" and there:
            return event["t_ns"]
        if event["kind"] == "role" and event["value"] == "starting" and event["instance"] == successor.instance:
            return event["t_ns"]
    return max(t, hit.end) if hit.end is not None and hit.end <= successor.begin else None


@dataclass
class Failback:
    """A heal "of a fault on the original instance": when it was as far as is known, its first and its last possible
    moment, and when "that instance's next epoch" began, give or take; None: never."""

    heal: int
    earliest: int
    latest: int
    back: int | None
    give_or_take: int


def failbacks(facts: Facts) -> list[Failback]:
    originals: dict[str, str] = {}
    for epoch in facts.epochs:
        originals.setdefault(epoch.store, epoch.instance)
    found = []
    for heal in facts.events:
        if heal["kind"] != "heal" or heal.get("instance") not in originals.values():
            continue
        faults = [
            fault
            for fault in facts.events
            if fault["kind"] == "fault"
            and (fault.get("name"), fault.get("instance")) == (heal.get("name"), heal["instance"])
            and fault["t_ns"] < heal["t_ns"]
        ]
        own = [epoch for epoch in facts.epochs if epoch.instance == heal["instance"]]
        if not faults:
            continue
        last = max(faults, key=lambda fault: fault["t_ns"])
        at, off = heal["t_ns"], heal["uncertainty_ns"]
        there = [epoch for epoch in own if epoch.covers(at)]
        if any(epoch.begin <= last["t_ns"] for epoch in there):
            continue
        again = there or [epoch for epoch in own if epoch.begin > at]
        back = min(again, key=lambda epoch: epoch.begin, default=None)
        one = Failback(at, at - off, at + off, back and back.begin, back.begin_uncertainty if back else 0)
        # "A heal that the host made by itself was at some time since the fault, and so was one before which the
        # instance was already active again"
        if detail(heal, "by") == "time-to-live" or (back is not None and back.begin < at - off):
            due = healed_at(facts, last)
            if due is not None and due < at:
                one.heal, one.earliest, one.latest = due, due, due + off
            else:
                one.earliest = last["t_ns"]
        # "while another fault on it is in effect it need not be back"
        until = NEVER if back is None else back.begin
        for other in facts.events:
            if other["kind"] != "fault" or other is last or other.get("name") == "arm" or other["t_ns"] >= until:
                continue
            on_it = heal["instance"] in {other.get("instance"), *str(detail(other, "toward") or "").split(", ")}
            on_host = other.get("instance") is None and other.get("target") is not None
            if on_it or (on_host and other.get("target") == last.get("target")):
                over = healed_at(facts, other)
                if over is None or over > at:
                    one.latest = max(one.latest, min(NEVER if over is None else over, until))
        found.append(one)
    return found


def failback_within(facts: Facts, spec: PromiseSpec) -> Row:
    """ "From the heal of a fault on the original instance to that instance's next epoch" """
    acked = [send["acked_ns"] for send in acknowledged_sends(facts)]
    bound = NEVER if spec.bound_ms is None else round(spec.bound_ms * MS)
    times: list[float] = []
    witnesses: list[Row] = []
    judged, doubt = 0, False
    for one in failbacks(facts):
        judged += 1
        until = facts.end if one.back is None else one.back
        least = max(0, until - one.give_or_take - one.latest)
        most = until + one.give_or_take - one.earliest
        if one.back is not None:
            times.append(in_ms(max(0, one.back - one.heal)))
        if least <= bound:
            # "not active again by the end of the run", when the bound was not over
            doubt |= one.back is None or most > bound
        elif waited(facts, one.heal, until) >= least - bound:
            doubt = True
        elif one.back is None:
            witnesses.append({"at": one.heal, "client_gap_ms": None})
        else:
            # "the client gap is the longest span in it without an acknowledged send"
            marks = [one.heal, *(at for at in acked if one.heal < at < until), until]
            gap = max(later - sooner for sooner, later in pairwise(marks))
            witnesses.append({"at": one.heal, "client_gap_ms": in_ms(gap)})
    verdict = "fail" if witnesses else "pass" if judged and not doubt else "unknown"
    return entry(spec, verdict, len(witnesses), measured=max(times, default=None), witnesses=witnesses)


# --- available ------------------------------------------------------------------------------------------------------


def fault_over(facts: Facts, begin: int, end: int) -> str | None:
    """ "with the fault it falls under": the last one before the span's end that was not healed before its begin."""
    name = None
    # "What has the same time": faults by name, instance and target
    known = [(e["t_ns"], *(e.get(word) or "" for word in ("name", "instance", "target"))) for e in facts.events]
    for _, fault in sorted(zip(known, facts.events, strict=True), key=lambda pair: pair[0]):
        if fault["kind"] != "fault" or fault["t_ns"] > end:
            continue
        heal = healed_at(facts, fault)
        if heal is None or heal >= begin:
            name = fault.get("name")
    return name


def available(facts: Facts, spec: PromiseSpec) -> tuple[Row, list[Row]]:
    """Return the promise's entry and its rows of `outages`."""
    bound = NEVER if spec.bound_ms is None else round(spec.bound_ms * MS)
    side = spec.side or "send"
    loads = load_phases(facts)
    off = 2 * max((uncertain(facts, clock) for clock in facts.run.clocks), default=0)
    successes: dict[str, list[int]] = defaultdict(list)
    if side == "send":
        for send in acknowledged_sends(facts):
            successes[send["address"]].append(send["acked_ns"])
    else:
        for (address, _), deliveries in facts.deliveries.items():
            successes[address] += [ended(delivery) for delivery in deliveries]
    dead = set(facts.run.dead_letters.values()) if side == "receive" else set()
    faults = [event for event in facts.events if event["kind"] == "fault" and event.get("name") != "arm"]
    doubt, seen = False, False
    spans, outages = [], []
    # "a load that stops and goes on is several"
    for begin, end in loads:
        # "a send (or receive) was under way there in the load: one that never returned still is"
        tried = {
            op["address"]
            for op in facts.of(side)
            if op.get("address") and op["start_ns"] <= end and (op.get("end_ns") is None or begin <= op["end_ns"])
        } - dead
        doubt |= bool({*facts.run.addresses, *facts.run.drained} - tried)
        for address in sorted(tried):
            # "no span between the ends of successive acknowledged sends"
            inside = sorted(at for at in successes[address] if begin <= at <= end)
            seen |= bool(inside)
            marks = [begin, *inside, end]
            for sooner, later in pairwise(marks):
                spans.append(later - sooner)
                if later - sooner > bound + off:
                    if waited(facts, sooner, later) >= later - sooner - bound:
                        doubt = True
                        continue
                    fault = fault_over(facts, sooner, later)
                    one = {"start_ns": sooner, "end_ns": later, "fault": fault, "address": address, "side": side}
                    outages.append(one)
                elif off and later - sooner > bound - off:
                    doubt = True
            # "what began with a fault was cut off by the load's end"
            cut = end - marks[-2] <= bound + off
            doubt |= cut and any(marks[-2] <= fault["t_ns"] < end for fault in faults)
    verdict = "fail" if outages else "pass" if seen and not doubt else "unknown"
    measured = in_ms(max(spans)) if spans else None
    return entry(
        spec, verdict, len(outages), measured=measured, witnesses=[{**row, "at": row["start_ns"]} for row in outages]
    ), outages


# --- stays_up -------------------------------------------------------------------------------------------------------


def stays_up(facts: Facts, spec: PromiseSpec) -> Row:
    """ "an `ended` breaks it, unless a fault … is in effect … or an operation is under way" """
    of_kind: dict[str, list[Row]] = defaultdict(list)
    for event in facts.events:
        of_kind[event["kind"]].append(event)

    def mark(note: Row) -> str | None:
        return (note.get("detail") or {}).get("operation")

    # "All uncertainties speak for the excuse": each span is widened by them.
    def covers(begin: Row, end: Row | None, ended_: Row) -> bool:
        at, u = ended_["t_ns"], ended_["uncertainty_ns"]
        widened = begin["uncertainty_ns"] if begin["kind"] == "fault" else 0
        return begin["t_ns"] - widened <= at + u and (end is None or at - u <= end["t_ns"])

    spans: list[tuple[Row, Row | None]] = []
    for begin in of_kind["note"]:
        if mark(begin) == "begin":
            ends = [
                note
                for note in of_kind["note"]
                if mark(note) == "end" and note.get("name") == begin.get("name") and note["t_ns"] >= begin["t_ns"]
            ]
            spans.append((begin, ends[0] if ends else None))
    faults = sorted(
        of_kind["fault"], key=lambda e: (e["t_ns"], *(e.get(word) or "" for word in ("name", "instance", "target")))
    )
    spent: dict[int, int] = defaultdict(int)
    broken, excused, open_ones = [], 0, 0
    for one in sorted(of_kind["ended"], key=lambda e: (e["t_ns"], e.get("instance") or "")):
        if one.get("instance") is None:
            continue
        within = {one["instance"], *str(detail(one, "with") or "").split("\n")}
        how, status = one.get("value"), detail(one, "status")
        explained = maybe = False
        # "a crash is explained by nothing"
        crash = how in ("dumped", "killed for memory") or status in CRASHES
        if not crash and not (how == "out of memory" and status != "KILL"):
            for place, fault in enumerate(faults):
                own = fault.get("instance") in within
                if not own and not (fault.get("instance") is None and fault.get("target") == one.get("target")):
                    continue
                heal = healed_at(facts, fault)
                if not covers(fault, None if heal is None else {"t_ns": heal}, one):
                    continue
                # "a kill and a stop end a process once"
                if fault.get("name") in ("kill", "stop"):
                    if spent[place]:
                        continue
                    spent[place] += 1
                explained = True
                break
            if not explained:
                for begin, end in spans:
                    if not covers(begin, end, one):
                        continue
                    works_on = detail(begin, "instances")
                    if works_on is not None:
                        explained |= bool(set(works_on.split("\n")) & within)
                    elif status is None or status in ORDERLY:
                        explained = True
                    else:
                        maybe = True
        if explained:
            excused += 1
        elif maybe:
            open_ones += 1
        else:
            broken.append({"instance": one["instance"], "at": one["t_ns"]})
    notes = logs_read(facts)
    loads = load_phases(facts)
    over = phase(facts, "drain", "end")
    if over is None and loads:
        over = loads[-1][1]  # "to the drain's end, without one to the load's"
    whole = {
        one
        for one in {name for note in notes for name in read_with(note)}
        if log_tells_all(facts, one, loads[0][0] if loads else None, over)
    }
    # "each instance that may serve a store, has a role or was hit"
    named = {instance for instances in facts.run.stores.values() for instance in instances}
    named |= {event["instance"] for event in (*of_kind["role"], *of_kind["fault"]) if event.get("instance")}
    open_ones += restarts(facts, spans)
    verdict = "fail" if broken else "pass" if notes and named <= whole and not open_ones else "unknown"
    return entry(spec, verdict, len(broken), excused=excused, witnesses=broken)


def restarts(facts: Facts, playbooks: Sequence[tuple[Row, Row | None]]) -> int:
    """How often a host of instances was started anew by nobody's doing: "a `restart_host` there explains one, a
    playbook any while it runs"."""
    hosts = {event.get("target") for event in facts.events if event.get("instance")} - {None}
    causes = {
        (event.get("target"), event["t_ns"] - event["uncertainty_ns"])
        for event in facts.events
        if (event["kind"], event.get("name")) == ("fault", "restart_host")
    }
    found = 0
    for event in facts.events:
        if (event["kind"], event.get("value")) != ("health", "restarted"):
            continue
        of = [
            one for one in causes if one[0] == event.get("target") and one[1] <= event["t_ns"] + event["uncertainty_ns"]
        ]
        if of:
            causes.remove(min(of))
            continue
        running = any(
            begin["t_ns"] <= event["t_ns"] and (end is None or event["t_ns"] <= end["t_ns"]) for begin, end in playbooks
        )
        found += event.get("target") in hosts and not running
    return found


CRASHES = ("ABRT", "BUS", "FPE", "ILL", "SEGV", "SYS", "TRAP", "132", "133", "134", "135", "136", "139", "159")
ORDERLY = ("0", "129", "130", "137", "143", "HUP", "INT", "KILL", "TERM")


# --- alerted_within -------------------------------------------------------------------------------------------------


def alerted_within(facts: Facts, spec: PromiseSpec) -> Row:
    """ "from each fault until the alert fires, and from its heal until no such alert does" """
    bound = 0 if spec.bound_ms is None else round(spec.bound_ms * MS)
    of_kind: dict[str, list[Row]] = defaultdict(list)
    for event in sorted(facts.events, key=lambda e: (e["t_ns"], e.get("value") or "")):
        of_kind[event["kind"]].append(event)

    def same(a: Row, b: Row, names: Sequence[str]) -> bool:
        return all(a.get(name) == b.get(name) for name in names)

    def firing(alert: Row, at: float) -> bool:
        """Whether the last that was said of this alert up to `at` is that it fires."""
        said = [e for e in of_kind["alert"] if same(e, alert, ("name", "instance", "store")) and e["t_ns"] <= at]
        return bool(said) and said[-1]["value"] == "firing"

    def begins(alert: Row) -> bool:
        """Whether it did not fire yet just before that was said; what says so at the same time is not before."""
        place = of_kind["alert"].index(alert)
        said = [e for e in of_kind["alert"][:place] if same(e, alert, ("name", "instance", "store"))]
        said = [e for e in said if not same(e, alert, ("t_ns", "value"))]
        return alert["value"] == "firing" and not (said and said[-1]["value"] == "firing")

    def watched(begin: float, end: float) -> bool:
        marks = [e for e in of_kind["note"] if e.get("name") == "alerts watched"]
        for place, mark in enumerate(marks):
            until = marks[place + 1]["t_ns"] if place + 1 < len(marks) else facts.end
            if mark.get("value") == "begin" and mark["t_ns"] <= begin and end <= until:
                return True
        return False

    judged, doubt, times, broken = 0, False, [], []
    for fault in of_kind["fault"]:
        if fault.get("name") == "arm":
            continue
        at = fault["t_ns"]
        mine = [
            alert
            for alert in of_kind["alert"]
            if alert.get("name") == spec.alert
            and all(alert.get(n) is None or fault.get(n) is None or alert[n] == fault[n] for n in ("instance", "store"))
        ]
        raised = [alert for alert in mine if begins(alert)]

        def ends(alert: Row, mine: list[Row] = mine) -> float:
            of_same = [e for e in mine if same(e, alert, ("name", "instance", "store"))]
            later = of_same[of_same.index(alert) + 1 :]
            return min((e["t_ns"] for e in later if e["value"] != "firing"), default=NEVER)

        earlier = [a for a in raised if a["t_ns"] + a["uncertainty_ns"] < at - fault["uncertainty_ns"]]
        if any(ends(alert) >= at for alert in earlier):
            doubt = True
            continue
        still = [alert for alert in raised if ends(alert) >= at]
        fired = min((max(alert["t_ns"] - at, 0) for alert in still), default=None)
        if fired is not None:
            first = min(alert["t_ns"] for alert in still)
            off = fault["uncertainty_ns"] + max(a["uncertainty_ns"] for a in still if a["t_ns"] == first)
            # "whatever the clocks were off by", "busy hosts"
            if fired - off <= bound < fired + off or (bound < fired and waited(facts, at, at + fired) >= fired - bound):
                doubt = True
                continue
        healed = healed_at(facts, fault)
        witness = {"fault": fault.get("name"), "instance": fault.get("instance"), "at": at}
        if fired is None or fired > bound:
            if (healed is not None and healed < at + bound) or not watched(at, at + bound):
                doubt = True
                continue
            broken.append(witness)
        elif not watched(at, at):
            doubt = True  # it may have fired before the fault
            continue
        elif healed_by_itself(facts, fault):
            doubt = True  # "nobody knows when"
            continue
        elif healed is not None:
            moments = sorted({healed, *(e["t_ns"] for e in mine if e["t_ns"] > healed)})
            quiet = [t for t in moments if not any(firing(alert, t) for alert in mine)]
            took = min(quiet) - healed if quiet else None
            if took is None or took > bound:
                if not watched(healed, healed + bound):
                    doubt = True
                    continue
                broken.append(witness)
            elif not watched(healed, healed + took):
                doubt = True
                continue
            times += [] if took is None else [in_ms(took)]
        judged += 1
        times += [] if fired is None else [in_ms(fired)]
    verdict = "fail" if broken else "pass" if judged and not doubt else "unknown"
    return entry(spec, verdict, len(broken), measured=max(times, default=None), witnesses=broken)


# --- the whole ------------------------------------------------------------------------------------------------------

_BY_EVENTS = (
    "atomic",
    "sticky",
    "single_active",
    "failover_within",
    "delivered_within",
    "failback_within",
    "available",
    "no_loss",
    "no_nonpersistent_loss",
    "stays_up",
    "alerted_within",
)


def judge(
    run: RunInfo,
    ops: Sequence[Row],
    events: Sequence[Row],
    promises: Sequence[PromiseSpec],
    torn: Collection[str] = (),
) -> dict[str, Any]:
    """Return the JSON object of the contract for one run.

    `ops` and `events` are the ledger's rows (dicts by column, absent keys null) in any order; `promises` those to check
    (no_phantoms is added where it is missing); `torn` names the files (`ops`, `events`) whose last line was torn.
    `witnesses` holds all, in no promised order. Raises ValueError for an operation that is both ok and fail.
    """
    facts = gather(run, ops, events)
    counts = dict.fromkeys(CLASSES_SHOWN, 0)
    for unit in facts.units:
        counts[classify(facts, unit)] += 1
    specs = list(promises)
    if all(spec.name != NO_PHANTOMS for spec in specs):
        specs.insert(0, PromiseSpec(NO_PHANTOMS))  # "no_phantoms is always checked."
    entries, failover, outages = [], [], []
    for spec in specs:
        if spec.name in BREAKING:
            one = by_class(facts, spec)
        elif spec.name == "atomic":
            one = atomic(facts, spec)
        elif spec.name == "ordered":
            one = ordered(facts, spec)
        elif spec.name == "sticky":
            one = sticky(facts, spec)
        elif spec.name == "single_active":
            one = single_active(facts, spec)
        elif spec.name == "failover_within":
            one, parts = failover_within(facts, spec)
            failover += parts
        elif spec.name == "failback_within":
            one = failback_within(facts, spec)
        elif spec.name == "delivered_within":
            one = delivered_within(facts, spec)
        elif spec.name == "transparent":
            one = transparent(facts, spec)
        elif spec.name == "stays_up":
            one = stays_up(facts, spec)
        elif spec.name == "alerted_within":
            one = alerted_within(facts, spec)
        else:
            one, spans = available(facts, spec)
            outages += spans
        entries.append(one)
    told = coverage(facts)
    vacuous = is_vacuous(facts, told)
    for one in entries:
        if facts.missing:
            without_the_missing(one)
        # "A torn last line … makes any pass that it could affect unknown.", "of a vacuous run none passes"
        torn_one = "ops" in torn or ("events" in torn and one["name"] in _BY_EVENTS)
        if one["verdict"] == "pass" and (torn_one or vacuous):
            one["verdict"] = "unknown"
    return {
        "run_id": run.run_id,
        "verdict": run_verdict(run, entries),
        "as_expected": as_expected(run, entries) and not vacuous,
        "messages": counts,
        "promises": entries,
        "failover": failover,
        "outages": outages,
        "rounds": rounds(facts, entries, failover, outages),
        "coverage": told,
    }


def without_the_missing(one: Row) -> None:
    """ "Where operations are missing, no promise passes that is judged from them, and none is broken by what is not
    there" """
    if one["name"] in ("failback_within", "stays_up", "alerted_within"):
        return
    if one["name"] in BREAKING:
        one["witnesses"] = [w for w in one["witnesses"] if w["class"] in ("corrupted", "duplicated")]
    elif one["name"] in ("atomic", "ordered", "failover_within", "available", "transparent", "delivered_within"):
        one["witnesses"] = []
    one["count"] = len(one["witnesses"])
    one["verdict"] = "fail" if one["count"] else "unknown"


def coverage(facts: Facts) -> list[Row]:
    """ "What the load met of each fault" """
    found = []
    faults = [e for e in facts.events if e["kind"] == "fault" and e.get("name") != "arm"]
    for fault in sorted(
        faults, key=lambda e: (e["t_ns"], *(e.get(word) or "" for word in ("name", "instance", "target")))
    ):
        at = fault["t_ns"] - fault["uncertainty_ns"]  # "its moment is the earliest"
        heal = healed_at(facts, fault)
        named = {fault.get("instance"), *str(detail(fault, "toward") or "").split(", ")} - {None, ""}
        hit = {fault.get("store")} - {None}
        hit |= {store for store, instances in facts.run.stores.items() if named & {*instances}}
        hit |= {epoch.store for epoch in facts.epochs if epoch.instance in named}
        members = {instance for store in hit for instance in facts.run.stores.get(store, ())}
        members |= {epoch.instance for epoch in facts.epochs if epoch.store in hit}
        members |= named & routers_of(facts)
        clients = flying = meeting = 0
        for client in {op["client"] for op in facts.ops} - routers_of(facts):
            own = [op for op in facts.ops if op["client"] == client]
            last = max(op["op_id"] for op in own)
            near = []
            for op in own:
                over = op.get("end_ns")
                if over is None:
                    over = NEVER if op["op_id"] == last else op["start_ns"]
                idle = op["op"] in ("receive", "browse") and op["outcome"] != "ok"
                if op["op"] == "close" or idle or op["start_ns"] > (NEVER if heal is None else heal):
                    continue
                if over >= at - 5_000 * MS:
                    near.append((op, over))
            if members:
                # "served it in the 5 s before the fault, and since then was neither served elsewhere nor refused"
                there = any(op["start_ns"] <= at < over and served_by(facts, op, members) for op, over in near)
                past = [
                    (over, op["op_id"], not refused(op) and served_by(facts, op, members))
                    for op, over in near
                    if over <= at and (refused(op) or server_of(facts, op) is not None)
                ]
                there |= bool(past) and max(past)[2]
            else:
                there = any(op["start_ns"] <= at for op, _ in near)
            # "the client's last connect": whether that is known to have failed, or reached one
            connects = [op for op in own if op["op"] == "connect" and op["outcome"] != "unknown" and ended(op) <= at]
            newest = max(connects, key=lambda op: (ended(op), op["op_id"]), default=None)
            if newest is not None and not refused(newest) and (not members or served_by(facts, newest, members)):
                there |= not any(
                    op["op"] == "close" and ended(newest) <= op["start_ns"] and ended(op) <= at for op in own
                )
            if there:
                clients += 1
                flying += sum(op["start_ns"] <= at < over for op, over in near)
                meeting += sum(over > at for _, over in near)
        found.append(
            {
                "fault": fault.get("name"),
                "step": fault.get("value"),
                "instance": fault.get("instance"),
                "target": fault.get("target"),
                "t_ns": fault["t_ns"],
                "clients": clients,
                "in_flight": flying,
                "operations": meeting,
            }
        )
    return found


def refused(op: Row) -> bool:
    return (op["op"], op["outcome"]) == ("connect", "fail")


def served_by(facts: Facts, op: Row, members: Collection[str]) -> bool:
    """ "by the router as well" """
    return server_of(facts, op) in members or (op.get("instance") or op.get("broker")) in members & routers_of(facts)


def routers_of(facts: Facts) -> set[str]:
    return {event["name"] for event in facts.events if event["kind"] == "routed" and event.get("name")}


def server_of(facts: Facts, op: Row) -> str | None:
    """ "From a `routed` of a client until its next the instance that it names serves what the client ends then" """
    led = [
        (event["t_ns"] - event["uncertainty_ns"], event["instance"])
        for event in facts.events
        if event["kind"] == "routed" and event.get("instance") and event.get("target") == op["client"]
        if event["t_ns"] - event["uncertainty_ns"] <= ended(op)
    ]
    return max(led)[1] if led else op.get("instance") or op.get("broker")


def is_vacuous(facts: Facts, told: Sequence[Row]) -> bool:
    """ "Less than the minimum", "a planned fault that was never injected", "nothing was done to it" """
    steps = set()
    for row in told:
        step = str(row["step"] or "").split(" (round ")[0]
        steps.add(step)
        least = facts.run.minimum.get(step)
        asked = least.to_json() if least else {"operations": 1}
        if any(row[name] < asked.get(name, 0) for name in ("clients", "in_flight", "operations")):
            return True
        counted: dict[str, int] = defaultdict(int)
        known = set()
        # "of all effects of the step together", but what was stored is of its own
        effects = [
            one
            for one in told
            if one is not row and step and (one["fault"], one["step"]) == (row["fault"], row["step"])
        ]
        for effect in [row, *effects]:
            for event in facts.events:
                if event["kind"] != "met" or event.get("name") != effect["fault"] or event["t_ns"] < effect["t_ns"]:
                    continue
                if (event.get("instance"), event.get("target")) != (effect["instance"], effect["target"]):
                    continue
                if event.get("value") is not None and effect["step"] is not None and event["value"] != effect["step"]:
                    continue
                for name in ("packets", "connections", "closed", *(("messages",) if effect is row else ())):
                    if detail(event, name) is not None:
                        known.add(name)
                        counted[name] += int(detail(event, name) or 0)
        if known - {"messages"} and counted["packets"] + counted["connections"] + counted["closed"] < asked.get(
            "packets", 0
        ):
            return True
        if "messages" in known and counted["messages"] < asked.get("messages", 0):
            return True
    if set(facts.run.planned) - steps:
        return True
    # "a planned fault that was never injected", of a method that is repeated: in each round that came to its end
    injected = {row["step"] for row in told}
    for note in facts.events:
        if note["kind"] != "note" or detail(note, "round") != "end":
            continue
        for planned in facts.run.planned:
            named = [step for step in injected if step and step.split(" (round ")[0] == planned and step != planned]
            if named and f"{planned} (round {note.get('name')})" not in injected:
                return True
    worked = any(e["kind"] == "note" and detail(e, "operation") is not None for e in facts.events)
    return facts.run.outcome != "completed" and not told and not worked and not facts.run.planned


def rounds(facts: Facts, entries: Sequence[Row], failover: Sequence[Row], outages: Sequence[Row]) -> list[Row]:
    """ "What happened from a round's begin to the next one's is of that round" """
    marks = []
    for event in facts.events:
        edge = (event.get("detail") or {}).get("round")
        if edge is not None:
            marks.append((event["t_ns"], event.get("name") or "", edge))
    begins = sorted((at, name) for at, name, edge in marks if edge == "begin")
    rows = []
    for place, (begin, name) in enumerate(begins):
        following = begins[place + 1][0] if place + 1 < len(begins) else NEVER
        ends = [at for at, of, edge in marks if edge == "end" and of == name and begin <= at <= following]

        def within(at: int | None, begin: int = begin, following: int = following) -> bool:
            return at is not None and begin <= at < following

        broken: dict[str, int] = defaultdict(int)
        for one in entries:
            for witness in one["witnesses"]:
                if within(witness["at"]):
                    broken[one["name"]] += 1
        backs = [
            in_ms(max(0, one.back - one.heal)) for one in failbacks(facts) if within(one.heal) and one.back is not None
        ]
        rows.append(
            {
                "round": name,
                "start_ns": begin,
                "end_ns": min([*ends, following, facts.end]),
                "faults": sum(
                    e["kind"] == "fault" and e.get("name") != "arm" and within(e["t_ns"]) for e in facts.events
                ),
                "failover_ms": max((row["first_send_ms"] for row in failover if within(row["t_ns"])), default=None),
                "failback_ms": max(backs, default=None),
                "outages": sum(within(row["start_ns"]) for row in outages),
                "broken": dict(broken),
            }
        )
    return rows


def run_verdict(run: RunInfo, entries: Sequence[Row]) -> str:
    """ "a run that did not complete passes never" """
    found = merge(one["verdict"] for one in entries)
    if found == "pass" and run.outcome != "completed":
        return "unknown"
    return found


def as_expected(run: RunInfo, entries: Sequence[Row]) -> bool:
    """ "as_expected holds it against expect"; `only` and `known` are tried by hand (test_expectation)"""
    if run.outcome != "completed" and run_verdict(run, entries) != "fail":
        return False
    for name in {one["name"] for one in entries}:
        verdict = merge(one["verdict"] for one in entries if one["name"] == name)
        expectation = run.expect.get(name, "kept")
        if verdict != {"kept": "pass", "violated": "fail"}[expectation]:
            return False
    return True
