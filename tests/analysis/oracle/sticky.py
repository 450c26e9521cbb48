"""sticky: connects of a key reach the same store."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from brokerdrill.ledger.contract import PromiseSpec
from tests.analysis.oracle.facts import Facts, store_of, uncertain
from tests.analysis.oracle.faults import of_one_step
from tests.analysis.oracle.rows import MS, NEVER, Row, ended, entry


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
                and of_one_step(fault, heal)
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
            # "a key connected twice, and moved, or its entry had not expired, not even perhaps"
            expired = 0 < timeout < lasted + was_off + is_off and spec.moves != "never"
            pairs += old_store != new_store or not expired
            if old_store == new_store:
                continue
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
