"""Runs of which a part was not there to be seen, and what is then said: the promise's verdict."""

from __future__ import annotations

from brokerdrill.ledger.contract import Clock
from brokerdrill.ledger.coverage import Minimum
from tests.analysis.kept_run import ACTIVE_A, FAULT, HEAL, MS, find, kept
from tests.analysis.unseen.case import Case, nothing, without_promises
from tests.analysis.unseen.further import FURTHER, FURTHER_ALSO
from tests.analysis.unseen.instances import (
    a_host_starts_anew,
    active_again_though_not_healed,
    another_fault_lasts,
    ends,
    healed_by,
    hit_when_it_was_down,
    nobody_sends_after_the_second_fault,
    paused_and_later_taken_over,
    roles_without,
    silent_while_its_host_restarts,
)
from tests.analysis.unseen.loads import (
    a_client_comes_from_another_store,
    a_client_goes_to_another_store,
    a_client_waits_and_goes_to_another_store,
    a_hanging_producer_is_killed,
    a_producer_hangs,
    a_producer_hangs_in_its_first_send,
    a_producer_hangs_on,
    a_topics_message_is_not_got,
    acknowledged_by_nobody_knows_whom,
    all_messages_expire,
    an_address_is_used_before_the_load_goes_on,
    another_effect,
    cut_off_by_the_loads_end,
    everybody_had_gone_to_another_store,
    load_is_over_before,
    no_fault_at_all,
    no_message_is_durable,
    no_packet_met_it,
    no_send_is_acknowledged,
    nothing_is_received_there,
    some_packets_met_it,
    the_load_stops_and_goes_on,
    the_store_serves_nobody,
    traffic,
)
from tests.analysis.unseen.overlapping import OVERLAPPING, OVERLAPPING_ALSO
from tests.analysis.unseen.records import (
    a_spool_is_missing,
    another_applications_dead_letter,
    drained,
    holes,
    looked_before_the_last_delivery,
    looked_too_early,
    nobody_looks,
    nobody_looks_but_something_is_acknowledged_there,
    one_of_two_looks_is_refused,
    polls_are_slow,
    read_around,
    read_in_part,
    rounds,
    silent,
    silent_but_its_log_tells,
    the_browse_is_refused,
    the_first_of_one_of_two_clients,
    unread,
    watched,
    without_a_drains_end,
)
from tests.analysis.unseen.times import (
    FINE,
    VAGUE,
    all_but_one_by_a_fast_clock,
    an_intruder,
    an_intruder_among_sends_by_a_vague_clock,
    bounded,
    busy,
    drifted,
    late_by_another_clock,
    read_as,
    roles_are_vague,
    the_end_came_before_the_fault,
    the_end_is_vague,
)
from tests.analysis.unseen.waiting import WAITING, WAITING_ALSO

UNTIMED = without_promises("failover_within", "failback_within", "alerted_within")
CASES: dict[str, Case] = {
    "nothing acknowledged, nothing delivered": Case(
        no_send_is_acknowledged,
        {"no_loss": "unknown", "no_duplicates": "unknown", "no_phantoms": "unknown"},
    ),
    "no message is durable": Case(no_message_is_durable, {"no_loss": "unknown"}),
    "all messages expire": Case(all_messages_expire, {"no_loss": "unknown", "no_phantoms": "unknown"}),
    "the load is over 27 s before the fault": Case(load_is_over_before(27_000), vacuous=True),
    "the load is over a second before the fault": Case(load_is_over_before(0), vacuous=True),
    "the fault hits a store that serves nobody": Case(the_store_serves_nobody, vacuous=True),
    "no packet met the partition": Case(
        no_packet_met_it, vacuous=True, run={"minimum": {"cut off": Minimum(packets=1)}}
    ),
    "some packets met the partition": Case(
        some_packets_met_it, {"alerted_within": "unknown"}, run={"minimum": {"cut off": Minimum(packets=1)}}
    ),
    "packets met another effect of the step": Case(
        another_effect(), {"alerted_within": "unknown"}, run={"minimum": {"cut off": Minimum(packets=1)}}
    ),
    "packets met no effect of the step": Case(
        another_effect(packets="0"), vacuous=True, run={"minimum": {"cut off": Minimum(packets=1)}}
    ),
    "fewer packets met all effects of the step than the drill asks for": Case(
        another_effect(), vacuous=True, run={"minimum": {"cut off": Minimum(packets=13)}}
    ),
    "packets met another step's partition": Case(
        another_effect(step="another"), vacuous=True, run={"minimum": {"cut off": Minimum(packets=1)}}
    ),
    "fewer operations than the drill asks for": Case(
        lambda _, events: find(events, kind="fault").update(value="kill it"),
        vacuous=True,
        run={"minimum": {"kill it": Minimum(operations=100_000)}},
    ),
    "fewer clients than the drill asks for": Case(
        lambda _, events: find(events, kind="fault").update(value="kill it"),
        vacuous=True,
        run={"minimum": {"kill it": Minimum(clients=9)}},
    ),
    "a planned fault that was never injected": Case(nothing, vacuous=True, run={"planned": ("kill it",)}),
    "crashed, and no fault at all": Case(no_fault_at_all, vacuous=True, run={"outcome": "crashed"}),
    "aborted, and no fault at all": Case(no_fault_at_all, vacuous=True, run={"outcome": "aborted"}),
    "running, and no fault at all": Case(no_fault_at_all, vacuous=True, run={"outcome": "running"}),
    "healed by its host, nobody knows when": Case(
        healed_by(6000), {"failback_within": "unknown", "alerted_within": "unknown"}
    ),
    "healed by its host in time": Case(healed_by(6000, ttl_s="2"), {"failback_within": "pass"}),
    "healed by its host too early": Case(
        healed_by(6000, ttl_s="1"), {"failback_within": "fail", "alerted_within": "fail"}
    ),
    "active before its heal": Case(
        lambda _, events: find(events, kind="heal").update(t_ns=(ACTIVE_A + 10) * MS),
        {"failback_within": "unknown", "alerted_within": "pass"},
    ),
    "a producer hangs since 1 ms before the fault": Case(a_producer_hangs(1), {"failover_within": "fail"}),
    "a producer hangs since 900 ms before the fault": Case(a_producer_hangs(900), {"failover_within": "fail"}),
    "a producer hangs, and is killed soon": Case(a_hanging_producer_is_killed(50), {"failover_within": "unknown"}),
    "a producer hangs, and is killed late": Case(a_hanging_producer_is_killed(5000), {"failover_within": "fail"}),
    "a producer hangs in its first send": Case(a_producer_hangs_in_its_first_send, {"failover_within": "fail"}),
    "a producer hangs, and the run ends within the bound": Case(
        a_producer_hangs(1), {"failover_within": "unknown"}, run=bounded(failover_within=60_000)
    ),
    "acknowledged as the fault began, nobody knows by whom": Case(
        acknowledged_by_nobody_knows_whom(0), {"failover_within": "pass"}
    ),
    "acknowledged after the fault, nobody knows by whom": Case(
        acknowledged_by_nobody_knows_whom(0.001), {"failover_within": "unknown"}
    ),
    "the dead broker's log was not read": Case(unread("a"), {"stays_up": "unknown"}),
    "another broker's log was not read": Case(unread("b"), {"stays_up": "unknown"}),
    "no log was read": Case(unread("a", "b", "x"), {"stays_up": "unknown"}),
    "a log was read from the drain on": Case(
        read_in_part(from_ns=str(8_000 * MS), until_ns=str(9_000 * MS)), {"stays_up": "unknown"}
    ),
    "a log was read up to the fault": Case(
        read_in_part(from_ns="0", until_ns=str(FAULT * MS)), {"stays_up": "unknown"}
    ),
    "a log was read up to the load's end": Case(
        read_in_part(from_ns="0", until_ns=str(8_500 * MS)), {"stays_up": "unknown"}
    ),
    "a log had lost lines": Case(
        read_in_part(from_ns="0", until_ns=str(9_000 * MS), lost="17"), {"stays_up": "unknown"}
    ),
    "a log was read but for the time in which its host started anew": Case(
        read_around(FAULT + 50, FAULT + 900, "restart_host"), {"stays_up": "pass"}
    ),
    "a log lacks what came before its host started anew": Case(
        read_around(FAULT - 500, FAULT + 900, "restart_host"), {"stays_up": "unknown"}
    ),
    "a log lacks some time of a kill": Case(read_around(FAULT + 50, FAULT + 900, "kill"), {"stays_up": "unknown"}),
    "a log was read up to the load's end, where nobody knows the drain's": Case(
        without_a_drains_end(8_000), {"stays_up": "pass"}
    ),
    "a log was read up to before the load's end, where nobody knows the drain's": Case(
        without_a_drains_end(7_999), {"stays_up": "unknown"}
    ),
    "a log was read whole": Case(read_in_part(from_ns="0", until_ns=str(9_000 * MS), lost="0"), {"stays_up": "pass"}),
    "a broker crashes during a playbook": Case(ends(("b", 6500, "dumped", "SEGV"), of=""), {"stays_up": "fail"}),
    "a broker aborts during a playbook that works on it": Case(
        ends(("b", 6500, "killed", "ABRT"), instances="b"), {"stays_up": "fail"}
    ),
    "a broker is stopped by a playbook that works on another one": Case(
        ends(("b", 6500, "exited", "143"), instances="a"), {"stays_up": "fail"}
    ),
    "a broker is stopped by a playbook that works on it": Case(
        ends(("b", 6500, "exited", "143"), instances="b"), {"stays_up": "pass"}
    ),
    "a broker exits during a playbook, nobody knows on which it works": Case(
        ends(("b", 6500, "exited", "1"), of=""), {"stays_up": "unknown"}
    ),
    "four crashes under one kill": Case(
        ends(*(("a", FAULT + 200 * n, "dumped", "SEGV") for n in range(1, 5))), {"stays_up": "fail"}
    ),
    "four exits under one kill": Case(
        ends(*(("a", FAULT + 200 * n, "exited", "1") for n in range(1, 5))), {"stays_up": "fail"}
    ),
    "a broker that a shell had started crashes under a kill": Case(
        ends(("a", FAULT + 600, "exited", "139")), {"stays_up": "fail"}
    ),
    "killed for memory under a kill": Case(ends(("a", FAULT + 600, "killed for memory", "KILL")), {"stays_up": "fail"}),
    "the browse was refused": Case(the_browse_is_refused, {"no_dead_letters": "unknown"}),
    "nobody looked at the dead letters": Case(nobody_looks, {"no_dead_letters": "unknown"}),
    "the dead letters were looked at before the load": Case(looked_too_early, {"no_dead_letters": "unknown"}),
    "the dead letters were looked at before the last delivery": Case(
        looked_before_the_last_delivery(1), {"no_dead_letters": "unknown"}
    ),
    "the dead letters were looked at after the last delivery": Case(
        looked_before_the_last_delivery(0), {"no_dead_letters": "pass"}
    ),
    "one of two looks was refused": Case(one_of_two_looks_is_refused, {"no_dead_letters": "unknown"}),
    "nobody looked at the dead letters, of which one was acknowledged": Case(
        nobody_looks_but_something_is_acknowledged_there, {"no_dead_letters": "unknown"}
    ),
    "the dead letters were looked at, and none received": Case(nothing_is_received_there, {"no_dead_letters": "pass"}),
    "nobody could ask a broker beside the active one": Case(silent("b", 6000, 8000), {"single_active": "unknown"}),
    "nobody could ask a broker to the end": Case(silent("b", 6000, None), {"single_active": "unknown"}),
    "a broker was asked too seldom": Case(polls_are_slow, {"single_active": "unknown"}),
    "nobody could ask a broker while it was halted": Case(
        silent("a", FAULT + 100, HEAL - 100), {"single_active": "pass"}
    ),
    "nobody could ask a broker since before it was halted": Case(
        silent("a", FAULT - 100, HEAL - 100), {"single_active": "unknown"}
    ),
    "nobody could ask a broker, but its log tells": Case(silent_but_its_log_tells, {"single_active": "pass"}),
    "nobody could ask the broker of another store": Case(silent("x", 6000, 8000), {"single_active": "pass"}),
    "an address's producer hangs since before the load": Case(
        a_producer_hangs_on("q2", 0), {"available": "fail"}, run=drained("q2")
    ),
    "an address's producer hangs": Case(a_producer_hangs_on("q2", 200), {"available": "fail"}, run=drained("q2")),
    "an address's producer never connected": Case(nothing, {"available": "unknown"}, run=drained("q2")),
    "an address of the load that nobody used": Case(nothing, {"available": "unknown"}, run={"addresses": ("q", "q3")}),
    "holes among the consumer's operations": Case(holes("c", (100, 150), (200, 260)), all_unknown=True, renumber=False),
    "holes among the producer's operations": Case(holes("p", (100, 150), (200, 260)), all_unknown=True, renumber=False),
    "the first operations are missing": Case(holes("c", (0, 40)), all_unknown=True, renumber=False),
    "the first operations of one of two clients are missing": Case(
        the_first_of_one_of_two_clients, all_unknown=True, renumber=False
    ),
    "the producer's spool never came home": Case(
        a_spool_is_missing("p"),
        all_unknown=True,
        run={"clocks": {**kept()[0].clocks, "worker-1": Clock("load2")}},
    ),
    "the consumer's spool never came home": Case(
        a_spool_is_missing("c"),
        all_unknown=True,
        run={"clocks": {**kept()[0].clocks, "worker-1": Clock("load2")}},
    ),
    "an intruder by a vague clock": Case(an_intruder, {"single_active": "unknown"}, run=VAGUE),
    "an intruder among sends by a vague clock": Case(
        an_intruder_among_sends_by_a_vague_clock, {"single_active": "unknown"}, run=VAGUE
    ),
    "a topic's message is not got, and was due by vague clocks": Case(
        a_topics_message_is_not_got(500), {"no_loss": "unknown"}, run=VAGUE | drained("t")
    ),
    "a topic's message is not got, and was not due by vague clocks": Case(
        a_topics_message_is_not_got(-500), {"no_loss": "unknown"}, run=VAGUE | drained("t")
    ),
    "a topic's message is not got, and was due": Case(
        a_topics_message_is_not_got(500), {"no_loss": "fail"}, run=FINE | drained("t")
    ),
    "a topic's message is not got, and was not due": Case(
        a_topics_message_is_not_got(-500), {"no_loss": "pass"}, run=FINE | drained("t")
    ),
    "an intruder by a clock that drifted": Case(
        drifted,
        {"single_active": "unknown"},
        run={"clocks": {**VAGUE["clocks"], "vague": Clock("load2", 0, MS)}},
    ),
    "an intruder by a clock that drifted evenly": Case(
        read_as((2654, 654, 1), (5308, 1308, 1)), {"single_active": "pass"}, run=FINE
    ),
    "an intruder by a clock that was set back and forth": Case(
        read_as((3000, 900, 1), (6000, 0, 1)), {"single_active": "unknown"}, run=FINE
    ),
    "an intruder by a clock that drifted a little": Case(
        read_as((3000, 0.1, 0.1), (9000, 0.3, 0.1)), {"single_active": "fail"}, run=FINE
    ),
    "an intruder by a clock that was read while its host was busy": Case(
        read_as((1000, 0, 1), (5000, 300, 900), (9000, 0, 1)), {"single_active": "fail"}, run=FINE
    ),
    "all by a clock that gains, and is read": Case(all_but_one_by_a_fast_clock, run=FINE),
    "late by a vague clock": Case(late_by_another_clock, {"ordered": "unknown"}, run=VAGUE),
    "active beside another one by vague roles": Case(roles_are_vague, {"single_active": "unknown"}),
    "active beside another one by a vague end": Case(the_end_is_vague(None), {"single_active": "unknown"}),
    "not active beside another one by its log": Case(the_end_is_vague(50), {"single_active": "pass"}),
    "perhaps active beside another one by its log": Case(the_end_is_vague(150), {"single_active": "unknown"}),
    "its end was seen before the fault, vaguely": Case(
        the_end_came_before_the_fault(80, 100), {"failover_within": "pass"}
    ),
    "its end was seen before the fault": Case(the_end_came_before_the_fault(80, 70), {"failover_within": "unknown"}),
    "silent while its host restarts": Case(silent_while_its_host_restarts, {"single_active": "pass"}),
    "the bound is kept or not, by vague clocks": Case(
        nothing,
        {"failover_within": "unknown"},
        run={**bounded(failover_within=400), "clocks": {**kept()[0].clocks, "load": Clock("load1", 0, 50 * MS)}},
    ),
    "too late on a busy host": Case(busy(450), {"failover_within": "unknown"}, run=bounded(failover_within=200)),
    "too late on a host that was at work": Case(
        busy(240), {"failover_within": "fail"}, run=bounded(failover_within=200)
    ),
    "too late on a host that was not that busy": Case(
        busy(50), {"failover_within": "fail"}, run=bounded(failover_within=200)
    ),
    "a client had gone to another store long before": Case(
        a_client_goes_to_another_store(1000), {"failover_within": "pass"}
    ),
    "a client goes to another store when its own is hit": Case(
        a_client_goes_to_another_store(FAULT), {"failover_within": "pass"}
    ),
    "a client comes from another store long after the failover": Case(
        a_client_comes_from_another_store(6000), {"failover_within": "pass"}
    ),
    "a client waits too long and goes to another store": Case(
        a_client_waits_and_goes_to_another_store, {"failover_within": "fail"}
    ),
    "all clients had gone to another store": Case(everybody_had_gone_to_another_store, vacuous=True),
    "a fault on a broker that is down since one that was not healed": Case(
        hit_when_it_was_down(tried=True), vacuous=True, run=UNTIMED
    ),
    "a fault on a broker that is down, and nobody tries": Case(
        hit_when_it_was_down(tried=False), vacuous=True, run=UNTIMED
    ),
    "nobody sends after the second fault": Case(nobody_sends_after_the_second_fault, {"failover_within": "unknown"}),
    "what was active outlasted its fault": Case(
        paused_and_later_taken_over, {"failover_within": "unknown", "alerted_within": "unknown"}
    ),
    "another fault on the original lasts": Case(another_fault_lasts("pause", 7000), {"failback_within": "unknown"}),
    "another fault on the original's host lasts": Case(
        another_fault_lasts("disk_full", 7000, target="host-a"), {"failback_within": "unknown"}
    ),
    "a link of the original is cut for longer": Case(
        another_fault_lasts("partition", 7000, target="db→a", toward="a, b"), {"failback_within": "unknown"}
    ),
    "another fault on the original was over long ago": Case(
        another_fault_lasts("pause", 6300), {"failback_within": "fail"}
    ),
    "a link of another one is cut for longer": Case(
        another_fault_lasts("partition", 7000, target="db→b", toward="b"), {"failback_within": "fail"}
    ),
    "nobody knew the role of one of two": Case(roles_without("b"), {"single_active": "unknown"}),
    "nobody knew the role of one of two for long": Case(roles_without("b", until=6000), {"single_active": "unknown"}),
    "the role of one of two is known from the load's begin on": Case(
        roles_without("b", until=0), {"single_active": "pass"}
    ),
    "nobody knew the role of any instance of a store": Case(roles_without("a", "b"), {"single_active": "unknown"}),
    "nobody knew the role of the only instance of a store": Case(roles_without("x"), {"single_active": "pass"}),
    "active beside another one under a kill that was not healed": Case(
        active_again_though_not_healed, {"single_active": "fail"}
    ),
    "the load ends before the bound is over": Case(
        cut_off_by_the_loads_end(bound_is_over=False), {"available": "unknown", "failover_within": "unknown"}
    ),
    "the load ends after the bound is over": Case(
        cut_off_by_the_loads_end(bound_is_over=True), {"available": "fail", "failover_within": "unknown"}
    ),
    "the load stops and goes on": Case(the_load_stops_and_goes_on, {"available": "pass"}),
    "an address is not used since the load went on": Case(
        an_address_is_used_before_the_load_goes_on, {"available": "unknown"}, run=drained("q2")
    ),
    "a host starts anew by itself": Case(a_host_starts_anew(6500), {"stays_up": "unknown"}),
    "a host starts anew by a fault": Case(
        a_host_starts_anew(6500, 6000), {"stays_up": "pass", "alerted_within": "fail"}
    ),
    "a host starts anew before the fault that does so": Case(
        a_host_starts_anew(6500, 6600), {"stays_up": "unknown", "alerted_within": "fail"}
    ),
    "a host starts anew during a playbook": Case(a_host_starts_anew(6500, instances="x"), {"stays_up": "pass"}),
    "nobody knows where the dead letters of an address go": Case(
        lambda ops, _: traffic(ops, "w", lambda _: "x", range(200, 7900, 100), address="q2"),
        {"no_dead_letters": "unknown"},
        run={"drained": {"q": True, "q2": True}},
    ),
    "nobody watched the alerts when the fault came": Case(
        watched(FAULT + 250, 9000, fired=FAULT + 250), {"alerted_within": "unknown"}
    ),
    "somebody watched the alerts since the fault came": Case(watched(FAULT, 9000), {"alerted_within": "pass"}),
    "nobody watched the alerts when the fault was healed": Case(
        watched(0, HEAL - 1, cleared=4500), {"alerted_within": "unknown"}
    ),
    "an alert is over when the fault is healed": Case(watched(0, HEAL, cleared=4500), {"alerted_within": "pass"}),
    "a planned fault was injected in the first round alone": Case(
        rounds(1, 2, 3), vacuous=True, run={"planned": ("kill it",)}
    ),
    "a planned fault was not injected in a round that did not end": Case(
        rounds(1, begun=2), run={"planned": ("kill it",)}
    ),
    "another application's dead letter": Case(another_applications_dead_letter, {"no_phantoms": "pass"}),
    **WAITING,
    **FURTHER,
    **OVERLAPPING,
}
# What a change says besides, by its nature.
ALSO = {
    "acknowledged as the fault began, nobody knows by whom": {"single_active"},
    "acknowledged after the fault, nobody knows by whom": {"single_active"},
    "nothing acknowledged, nothing delivered": {
        *("available", "failover_within", "atomic", "ordered", "transparent", "no_nonpersistent_loss"),
    },
    "all messages expire": {"no_duplicates", "atomic", "ordered", "no_nonpersistent_loss"},
    "no message is durable": {"atomic"},
    "late by a vague clock": {"no_loss", "atomic", "available", "failover_within"},
    "an intruder by a vague clock": {"failover_within", "failback_within", "available", "ordered"},
    "an intruder among sends by a vague clock": {"failover_within", "available", "no_dead_letters"},
    "an intruder by a clock that drifted": {"failover_within", "failback_within", "available", "ordered"},
    "an intruder by a clock that was set back and forth": {
        "failover_within",
        "failback_within",
        "available",
        "ordered",
    },
    "the bound is kept or not, by vague clocks": {"available", "sticky", "ordered"},
    "active beside another one by vague roles": {"failover_within"},
    "active beside another one under a kill that was not healed": {"failback_within"},
    "what was active outlasted its fault": {"failback_within"},
    "nobody sends after the second fault": {"failback_within", "available", "alerted_within"},
    "a topic's message is not got, and was due by vague clocks": {
        *("available", "failover_within", "ordered", "no_nonpersistent_loss"),
    },
    "a topic's message is not got, and was not due by vague clocks": {
        *("available", "failover_within", "ordered", "no_nonpersistent_loss"),
    },
    "a topic's message is not got, and was due": {"available"},
    "a topic's message is not got, and was not due": {"available"},
}
ALSO |= WAITING_ALSO | FURTHER_ALSO | OVERLAPPING_ALSO
# What b acknowledged out of its turn waited, too.
ALSO |= {
    name: ALSO.get(name, set()) | {"delivered_within"} for name in CASES if name.startswith("an intruder by a clock")
}
ALSO["an intruder by a vague clock"] |= {"delivered_within"}
# Whoever hangs in a call is not answered.
ALSO |= {name: {"transparent"} for name in CASES if name.startswith("the load ends ") or "producer hangs" in name}
ALSO |= {
    name: {"alerted_within"}
    for name, case in CASES.items()
    if "failback_within" in case.told and ("another" in name or "of the original" in name)
}
ALSO |= {
    name: {"failover_within", "failback_within", "alerted_within"}
    for name, case in CASES.items()
    if "knew the role" in name or "is known from the load's begin" in name
}
# What waits at a broker that was hit: nothing was acknowledged there, it is lost, or it is not known that it was hit.
NOTHING_WAITS = (
    *("nothing acknowledged, nothing delivered", "no message is durable", "all messages expire"),
    *("an intruder among sends by a vague clock", "its end was seen before the fault"),
    "what was active outlasted its fault",
)
ALSO |= {
    name: ALSO.get(name, set()) | {"delivered_within"}
    for name in CASES
    if name in NOTHING_WAITS
    or name.startswith(("a topic's message is not got", "nobody knew the role", "the role of one of two"))
}
