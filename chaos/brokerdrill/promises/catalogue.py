"""All promises. A new one is an entry here and the module of the same name in `analysis/checks/` that checks it."""

from __future__ import annotations

from brokerdrill.base.errors import unknown_name
from brokerdrill.promises.definition import ALL, BOUND, Doubt, Field, Promise, Words

# Always checked, also where a scenario does not list it.
NO_PHANTOMS = "no_phantoms"
AVAILABLE = "available"

# Judged by events: the drain's begin and end, roles, faults and heals.
_EVENTS = frozenset({Doubt.TORN_EVENTS})
# Compares the times of different recorders.
_CLOCKS = frozenset({Doubt.UNPLACED_CLOCK})

_STILL_THERE = (
    "messages that were acknowledged and not delivered: {count}; their queues were not seen empty at the end, so that "
    "they may still be there"
)

_ALL = (
    Promise(
        NO_PHANTOMS,
        Words(
            promise="What is delivered is what was sent: nothing invented, nothing altered, nothing that had certainly "
            "failed.",
            breaks="a delivery that was never sent, had certainly failed, or is not what was sent",
            kept="Everything delivered had been sent, and arrived unaltered.",
            broken="{messages} altered, never sent, or delivered although the send had certainly failed.",
            unknown="Nothing was delivered that could be compared with what was sent.",
        ),
        breaking=("corrupted", "phantom", "unexpected"),
        by_absence=("phantom", "unexpected"),
    ),
    Promise(
        "no_loss",
        Words(
            promise="A message whose send was acknowledged is delivered and processed.",
            breaks="a durable message that was acknowledged and never delivered, its address drained",
            kept="Every message that was acknowledged was delivered.",
            broken="{messages} acknowledged, yet never delivered although the queues were drained.",
            unknown="No message was acknowledged that had to arrive.",
            doubtful=_STILL_THERE,
        ),
        breaking=("lost",),
        by_absence=("lost",),
        doubtful=("unseen",),
        doubts=_EVENTS,
    ),
    Promise(
        "no_nonpersistent_loss",
        Words(
            promise="A message that was sent as not persistent and acknowledged is delivered and processed.",
            breaks="a message that was not durable, was acknowledged and never delivered, its address drained",
            kept="Every message that was acknowledged and not durable was delivered.",
            broken="{messages} not durable and acknowledged, yet never delivered although the queues were drained.",
            unknown="No message was acknowledged that was not durable.",
            doubtful=_STILL_THERE,
        ),
        breaking=("lost_nonpersistent",),
        by_absence=("lost_nonpersistent",),
        doubts=_EVENTS,
    ),
    Promise(
        "transparent",
        Words(
            promise="No client sees a failure: each send, acknowledgement, commit and rollback succeeds.",
            breaks="a send, acknowledgement, prepare, commit or rollback that fails or ends in doubt",
            kept="No client's call failed, and none ended in doubt.",
            broken="{times} a client's call failed or ended in doubt.",
            unknown="No client made a call that could fail.",
        ),
        by_absence=ALL,
    ),
    Promise(
        "no_duplicates",
        Words(
            promise="No message is processed twice.",
            breaks="a message processed more than once",
            kept="No message was processed twice.",
            broken="{messages} processed more than once.",
            unknown="No processed message could be checked.",
        ),
        breaking=("duplicated",),
    ),
    Promise(
        "no_dead_letters",
        Words(
            promise="No message ends on a dead-letter address instead of at its consumer.",
            breaks="a message on its dead-letter address that nobody processed",
            kept="No message ended on a dead-letter address.",
            broken="{messages} found on a dead-letter address and never processed.",
            unknown="Not every dead-letter address was looked at when the load was over.",
        ),
        breaking=("dead_lettered",),
        by_absence=("dead_lettered",),
    ),
    Promise(
        "atomic",
        Words(
            promise="Of a transaction's messages all are seen, or none.",
            breaks="a transaction of which some messages were seen and others never, though they had to be",
            kept="Every transaction's messages were seen all together, or none of them.",
            broken="{transactions} seen in part: some messages were delivered, others never.",
            unknown="No transaction with two messages could be judged, or some of its messages may still be on their "
            "queues.",
        ),
        by_absence=ALL,
        doubts=_EVENTS,
    ),
    Promise(
        "ordered",
        Words(
            promise="Messages of one producer (and key) arrive in the order in which they were sent.",
            breaks="a message delivered after one that its producer sent later",
            kept="Messages arrived in the order in which their producers sent them.",
            broken="{messages} delivered after a message that was sent later.",
            unknown="No two messages could be compared.",
            excused="late, but flagged as redelivered, or possibly given back to the queue by another consumer, which "
            "ended, rolled back or failed to commit meanwhile",
        ),
        fields=(
            Field(
                "scope",
                "within what messages are compared: one consumer session, or across the sessions of a subscription",
                choices={"session": "per session", "key": "per key"},
                default="session",
            ),
        ),
        by_absence=ALL,
        doubts=_CLOCKS,
    ),
    Promise(
        "sticky",
        Words(
            promise="A routing key keeps reaching the same broker pair while that pair is ready.",
            breaks="a routing key that reaches another pair while its own is ready",
            kept="Every key kept reaching the same broker pair.",
            broken="{times} a key reached another broker pair although its own was ready.",
            unknown="No key connected twice, or none moved where the promise asks for a move: nothing was proven.",
            excused="moves while the old pair was not ready, or after the cached choice had expired",
        ),
        fields=(
            Field(
                "check_period_ms",
                "how far apart a router's pools learn that a broker is back, or gone without a fault: the period of "
                "the health check",
                unit="ms",
                default=0,
            ),
            Field(
                "cache_timeout_ms",
                "how long the router remembers a key's choice after its last connect (0: always)",
                unit="ms",
                default=0,
            ),
            Field(
                "moves",
                "which moves of a key are kept to",
                choices={
                    "excused": "moves away from what is not ready excused",
                    "never": "no move excused: served where it was, or nowhere",
                    "some": "at least one excused move, so that the load met the fault",
                },
                default="excused",
            ),
        ),
        doubts=_EVENTS | _CLOCKS,
    ),
    Promise(
        "single_active",
        Words(
            promise="Of the brokers that share one store, at most one serves at any time.",
            breaks="two brokers that serve one store at once",
            kept="Never did two brokers serve the same store at once.",
            broken="{times} two brokers served the same store at once (split brain).",
            unknown="Too little is known about who was active when.",
        ),
        doubts=_EVENTS | _CLOCKS,
    ),
    Promise(
        "failover_within",
        Words(
            promise="After a fault on the active broker each client's next send is acknowledged by its successor in "
            "time.",
            breaks="a client whose next send the successor does not acknowledge within the bound",
            kept="After each fault on the active broker, sends were acknowledged by its successor in time: {measured} "
            "at worst.",
            broken="{times} a client waited longer than the bound for an acknowledgement by the successor: {measured} "
            "at worst.",
            unknown="No fault hit an active broker, or no successor was seen.",
        ),
        fields=(
            Field(
                BOUND,
                "the time from the fault to the end of the first send that the successor acknowledges, for each client",
                unit="ms",
                required=True,
            ),
        ),
        by_absence=ALL,
        doubts=_EVENTS | _CLOCKS,
    ),
    Promise(
        "delivered_within",
        Words(
            promise="What a broker had acknowledged and not delivered when a fault hit it is delivered in time.",
            breaks="a message that waited at the broker which was hit, and is not delivered within the bound",
            kept="What waited at each broker that was hit was delivered in time: {measured} at worst.",
            broken="{messages} held at a broker that was hit for longer than the bound: {measured} at worst.",
            unknown="No fault hit an active broker at which a message waited.",
        ),
        fields=(Field(BOUND, "the time from the fault to the message's first delivery", unit="ms", required=True),),
        by_absence=ALL,
        doubts=_EVENTS | _CLOCKS,
    ),
    Promise(
        "failback_within",
        Words(
            promise="After its fault is healed the original broker is active again in time.",
            breaks="an original broker that is not active again within the bound",
            kept="The original broker was active again in time: {measured} at worst.",
            broken="{times} the original broker was not active again in time: {measured} at worst.",
            unknown="No fault on an original broker was healed, or its return could not be seen.",
        ),
        fields=(
            Field(BOUND, "the time from the heal to the moment when it is active again", unit="ms", required=True),
        ),
        of_events=True,
        doubts=_EVENTS | _CLOCKS,
    ),
    Promise(
        AVAILABLE,
        Words(
            promise="No address goes longer than the bound without a success.",
            breaks="an address without an acknowledged send (or a delivery) for longer than the bound",
            kept="No address went longer than the bound without a success: {measured} at worst.",
            broken="{times} an address went longer than the bound without a success: {measured} at worst.",
            unknown="No acknowledged operation lies within the load, or an address was not used at all.",
        ),
        fields=(
            Field(BOUND, "the time between the ends of successive successes on one address", unit="ms", required=True),
            Field(
                "side",
                "whose successes count: acknowledged sends, or deliveries",
                choices={"send": "of sends", "receive": "of deliveries"},
                default="send",
            ),
        ),
        by_absence=ALL,
        doubts=_EVENTS | _CLOCKS,
    ),
    Promise(
        "stays_up",
        Words(
            promise="No process of a broker, database, ZooKeeper or router ends but by the drill's own doing.",
            breaks="a process that ends while no fault on it or its host is in effect and no playbook runs",
            kept="No process ended but by the drill's own doing.",
            broken="{times} a process ended that no fault had touched.",
            unknown="The logs that record ended processes could not be read.",
            excused="ended by a fault, or while a playbook ran",
        ),
        of_events=True,
        doubts=_EVENTS | _CLOCKS,
    ),
    Promise(
        "alerted_within",
        Words(
            promise="Who watches the brokers is notified of each fault in time, and in time that it is over.",
            breaks="an alert that does not fire within the bound of the fault, or does not clear within the bound of "
            "its heal",
            kept="The alert fired after each fault, and cleared after its heal, in time: {measured} at worst.",
            broken="{times} the alert did not fire or did not clear in time: {measured} at worst.",
            unknown="No fault lasted long enough to be judged, the alert fired before it, or Prometheus was not "
            "watched for long enough.",
        ),
        fields=(
            Field("alert", "the name of the alert that has to fire", text=True, required=True),
            Field(
                BOUND,
                "the time from the fault until the alert fires, and from the heal until it no longer does",
                unit="ms",
                required=True,
            ),
        ),
        of_events=True,
        doubts=_EVENTS | _CLOCKS,
    ),
)
# By name, in the order in which they are listed everywhere.
PROMISES: dict[str, Promise] = {promise.name: promise for promise in _ALL}


def promise(name: str) -> Promise:
    """Return the promise `name`. Raises UsageError with the nearest name."""
    if name not in PROMISES:
        raise unknown_name("promise", name, PROMISES)
    return PROMISES[name]


def doubted_by(doubt: Doubt) -> frozenset[str]:
    """Return the names of the promises that cannot pass on a ledger with that fault."""
    return frozenset(name for name, promise in PROMISES.items() if promise.doubted_by(doubt))


def broken_by_class() -> dict[str, str]:
    """Return the promise that a unit of each class puts at risk: class → name; classes that break none are left out."""
    return {kind: name for name, promise in PROMISES.items() for kind in (*promise.breaking, *promise.doubtful)}
