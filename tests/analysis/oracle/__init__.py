"""A naive oracle of the ledger's contract: what a run's verdict must be, in dicts and loops over lists.

Written from the contract's text alone, to hold the Spark analysis against. Every comment quotes the sentence that its
rule comes from. Speed does not matter here; a ledger of a few hundred rows is judged in milliseconds.

From the bottom up: `rows`, `clocks` and `epochs`; the `facts` of a ledger, its `faults`, `logs` and `units`, and how
they are gathered (`gathering`); a module for each promise; `coverage`; and the `whole`.

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
76  delivered_within: who asks                whoever has a receive of the address and subscription, whatever came of
                                              it; a client's operations are in the order of their op_id; a last call
                                              that never returned asks on
77  busy hosts                                of each host and kind of pressure the sum of what lies within the time, no
                                              more of each reading than fits into the part that lies there
"""

from tests.analysis.oracle.epochs import find_epochs
from tests.analysis.oracle.failover import failover_within
from tests.analysis.oracle.gathering import gather
from tests.analysis.oracle.rows import merge
from tests.analysis.oracle.whole import judge, rounds

__all__ = ["failover_within", "find_epochs", "gather", "judge", "merge", "rounds"]
