"""What a synthesized run is made of: its clients, its timeline, where its anomalies are, and the verdict they must get.

Plain arithmetic on a few numbers, so that `rows` can make any number of operations of it with Spark expressions only.
Producers take turns: transaction k is of producer k mod P, has BATCH messages and is consumed by one consumer in one
transaction. Times are run time in nanoseconds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from brokerdrill.base.errors import UsageError, unknown_name
from brokerdrill.ledger.contract import CLASSES_SHOWN, Clock, PromiseSpec

MS, S = 1_000_000, 1_000_000_000
BATCH = 10
PER_TRANSACTION = 2 * (BATCH + 1)
STORES = 2
DEAD_LETTERS = "DLQ"
# All operations of a transaction, the consumer's commit included, are over this long after its first send.
SPAN = 60 * MS
LOAD_BEGIN = 2 * S
WINDOW = 45 * S
MOST_PER_SECOND = 20_000
# A producer's turn comes at least this often, or bounds in seconds mean nothing.
LONGEST_TURN = 2 * S
FAILOVER_MS, FAILBACK_MS, AVAILABLE_MS = 5_000, 20_000, 12_000
PAUSE, LATE_PAUSE, HANDOVER, OUTAGE = 1200 * MS, 8 * S, 300 * MS, 20 * S
VISITS = 5
LEAST_USERS = 20
MOST_IN_TIME = 50

# Anomalies of one message, by the class that it gets (None: it stays ok and breaks another promise).
MESSAGE_KINDS: Mapping[str, str | None] = {
    "lost": "lost",
    "duplicated": "duplicated",
    "phantom": "phantom",
    "unexpected": "unexpected",
    "corrupted": "corrupted",
    "dead_lettered": "dead_lettered",
    "expired": "expired",
    "lost_nonpersistent": "lost_nonpersistent",
    "unseen": "unseen",
    "redelivered": "redelivered",
    "recovered": "recovered",
    "unresolved": "unresolved",
    "rejected": "rejected",
    "out_of_order": None,
    "intruder": None,
}
# Anomalies of the run as a whole.
RUN_KINDS = ("two_active", "late_failover", "late_failback", "outage", "sticky_move")
KINDS = (*MESSAGE_KINDS, *RUN_KINDS)
# The place in its transaction of the message that an anomaly befalls.
_PLACE = 4
_LATE_PLACE = BATCH - 2


@dataclass(frozen=True)
class ClientPause:
    """All clients pause for `pause` ns before transaction `at`; with a `store`, its active instance changes meanwhile
    and its clients connect anew."""

    at: int
    pause: int
    store: int | None = None


@dataclass(frozen=True)
class Site:
    """The message that an anomaly befalls: `index` counts all messages of the run."""

    kind: str
    index: int


@dataclass(frozen=True)
class SynthesisPlan:
    """A run to be made: see the module. `step` is the time (ns) from one transaction to the next."""

    seed: int
    transactions: int
    producers: int
    addresses: int
    step: int
    breaks: tuple[ClientPause, ...]
    events: tuple[Mapping[str, Any], ...]
    sites: tuple[Site, ...]
    anomalies: Mapping[str, int]
    users: int
    load_end: int
    late_clients: int
    clocks: Mapping[str, Clock] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        return self.transactions * BATCH

    @property
    def drain_end(self) -> int:
        return self.load_end + 3 * S

    def address(self, number: int) -> str:
        return f"synth.q{number}"

    def message(self, index: int) -> tuple[str, str]:
        """Return the (message_id, address) of the message `index`."""
        turn, producer = divmod(index // BATCH, self.producers)
        return f"producer-{producer}-{turn * BATCH + index % BATCH}", self.address(producer % self.addresses)


def instance(store: int, number: int) -> str:
    """The name of a store's instance; 0 is the original primary."""
    return f"broker{store}{'ab'[number]}"


def parse_anomalies(text: str) -> dict[str, int]:
    """Return how many of each kind `lost=3,duplicated=2,...` asks for; `all` and `all=N` ask for N (1) of every kind.

    Raises UsageError for an unknown kind or a number that is none.
    """
    found: dict[str, int] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = word.partition("=")
        if number and not re.fullmatch(r"\d{1,9}", number):
            raise UsageError(f"--anomalies {word}: {number!r} is no number")
        if name != "all" and name not in KINDS:
            raise unknown_name("anomaly", name, KINDS)
        for kind in KINDS if name == "all" else (name,):
            found[kind] = int(number or 1)
    return {kind: number for kind, number in found.items() if number}


def plan(operations: int, anomalies: Mapping[str, int], seed: int = 0, clients: int | None = None) -> SynthesisPlan:
    """Return the plan of a run of about `operations` operations with `anomalies` (`parse_anomalies`).

    `clients` is how many producers and consumers there are in all (default: up to 100, as many as the run's length
    lets take turns). Raises UsageError where the operations are too few for the anomalies.
    """
    in_time = {kind: anomalies.get(kind, 0) for kind in RUN_KINDS}
    if any(number > MOST_IN_TIME for kind, number in in_time.items() if kind != "sticky_move"):
        raise UsageError(f"--anomalies: at most {MOST_IN_TIME} each of {', '.join(RUN_KINDS[:-1])}")
    faults = max(2, in_time["late_failover"], in_time["late_failback"])
    windows = 2 + faults + in_time["outage"] + in_time["two_active"]
    wanted = max(1, operations // PER_TRANSACTION)
    step = max(windows * WINDOW // wanted, BATCH * S // MOST_PER_SECOND)
    most = LONGEST_TURN // step
    producers = min(clients // 2 if clients else 50, most)
    addresses = next((n for n in (8, 4, 2) if n <= producers), 0)
    if not addresses or (clients and clients // 2 > most):
        needed = (2 if not clients else clients // 2) * windows * WINDOW // LONGEST_TURN * PER_TRANSACTION
        raise UsageError(f"--ops {operations} is too few for these anomalies and clients; {needed} are enough")
    producers -= producers % addresses
    transactions = -(-wanted // producers) * producers
    breaks, events, load_end, late = _timeline(step, transactions, producers, addresses, faults, in_time)
    return SynthesisPlan(
        seed=seed,
        transactions=transactions,
        producers=producers,
        addresses=addresses,
        step=step,
        breaks=breaks,
        events=events,
        sites=_sites(random.Random(seed), transactions, producers, addresses, anomalies),
        anomalies=dict(anomalies),
        users=max(LEAST_USERS, in_time["sticky_move"]),
        load_end=load_end,
        late_clients=late,
        clocks={
            "controller": Clock("controller", 0, 0),
            "load1": Clock("load1", 40 * MS, 100_000),
            "load2": Clock("load2", -25 * MS, 200_000),
        },
    )


def _sites(
    rng: random.Random, transactions: int, producers: int, addresses: int, anomalies: Mapping[str, int]
) -> tuple[Site, ...]:
    """Draw a transaction of its own for each anomaly of a message; `unseen` ones alone are on the last address, which
    is then not drained."""
    undrained = anomalies.get("unseen", 0)
    asked = [kind for kind in MESSAGE_KINDS for _ in range(anomalies.get(kind, 0))]
    if len(asked) * 4 > transactions:
        raise UsageError(f"{len(asked)} anomalies of messages need at least {len(asked) * 4 * PER_TRANSACTION} --ops")
    per_address = transactions // addresses
    turns = producers // addresses

    def transaction(address: int, number: int) -> int:
        turn, place = divmod(number, turns)
        return turn * producers + place * addresses + address

    others = addresses - 1 if undrained else addresses
    last = iter(rng.sample(range(per_address), undrained) if undrained <= per_address else ())
    rest = iter(rng.sample(range(per_address * others), len(asked) - undrained))
    found = []
    for kind in asked:
        if kind == "unseen":
            chosen = transaction(addresses - 1, next(last))
        else:
            number = next(rest)
            chosen = transaction(number % others, number // others)
        found.append(Site(kind, chosen * BATCH + (_LATE_PLACE if kind == "out_of_order" else _PLACE)))
    return tuple(found)


def _role(at: int, store: int, number: int, value: str, uncertainty: int = MS) -> dict[str, Any]:
    name = instance(store, number)
    return {
        "kind": "role",
        "t_ns": at,
        "target": name,
        "instance": name,
        "store": f"store{store}",
        "value": value,
        "uncertainty_ns": uncertainty,
    }


def _timeline(
    step: int, transactions: int, producers: int, addresses: int, faults: int, in_time: Mapping[str, int]
) -> tuple[tuple[ClientPause, ...], tuple[Mapping[str, Any], ...], int, int]:
    """Return the breaks, the events, when load ends, and how many (fault, client) pairs are served too late."""
    window = max(WINDOW, -(-transactions * step // (2 + faults + in_time["outage"] + in_time["two_active"])))
    events: list[dict[str, Any]] = []
    for store in range(STORES):
        events += [_role(LOAD_BEGIN - S, store, 0, "active"), _role(LOAD_BEGIN - S, store, 1, "passive")]
    breaks: list[ClientPause] = []
    paused = 0

    def at(nominal: int) -> int:
        """The first transaction, at the begin of a round of turns, of the nominal time."""
        return nominal // step // producers * producers

    def pause(first: int, length: int, store: int | None = None) -> int:
        """Add a break and return when all that went before it is over."""
        nonlocal paused
        begun = LOAD_BEGIN + first * step + paused
        breaks.append(ClientPause(first, length, store))
        paused += length
        return begun + SPAN

    late = 0
    for number in range(faults):
        begin, store = (1 + number) * window, number % STORES
        slow = number < in_time["late_failover"]
        late += producers * len(range(store, addresses, STORES)) // addresses if slow else 0
        length = LATE_PAUSE if slow else PAUSE
        hit = pause(at(begin + 10 * S), length, store)
        target = instance(store, 0)
        fields = {"name": "kill", "target": target, "instance": target, "store": f"store{store}", "uncertainty_ns": MS}
        healed = hit + length + (S if number < in_time["late_failback"] else 12 * S)
        back = pause(at(begin + 36 * S), HANDOVER, store)
        events += [
            {"kind": "fault", "t_ns": hit + MS, **fields},
            _role(hit + 2 * MS, store, 0, "down"),
            _role(hit + length // 2, store, 1, "starting"),
            _role(hit + length - SPAN - 50 * MS, store, 1, "active"),
            {"kind": "heal", "t_ns": healed, **fields},
            _role(healed + S, store, 0, "passive"),
            _role(back + MS, store, 1, "passive"),
            _role(back + 50 * MS, store, 0, "active"),
        ]
    for number in range(in_time["outage"]):
        pause(at((1 + faults + number) * window + 20 * S), OUTAGE)
    for number in range(in_time["two_active"]):
        begun = LOAD_BEGIN + (1 + faults + in_time["outage"] + number) * window + paused + 20 * S
        store = number % STORES
        events += [_role(begun, store, 1, "active"), _role(begun + 2 * S, store, 1, "passive")]
    load_end = LOAD_BEGIN + transactions * step + paused + SPAN
    for name, begin, end in (("load", LOAD_BEGIN - S // 2, load_end), ("drain", load_end + S, load_end + 3 * S)):
        events += [{"kind": "phase", "name": name, "value": "begin", "t_ns": begin}]
        events += [{"kind": "phase", "name": name, "value": "end", "t_ns": end}]
    return tuple(breaks), tuple(sorted(events, key=lambda e: e["t_ns"])), load_end, late


def promises() -> tuple[PromiseSpec, ...]:
    """Every promise there is, with bounds that the anomalies in time overstep."""
    plain = ("no_phantoms", "no_loss", "no_duplicates", "no_dead_letters", "single_active")
    return (
        *(PromiseSpec(name) for name in plain),
        PromiseSpec("ordered", scope="session"),
        PromiseSpec("sticky", check_period_ms=500),
        PromiseSpec("failover_within", bound_ms=FAILOVER_MS),
        PromiseSpec("failback_within", bound_ms=FAILBACK_MS),
        PromiseSpec("available", bound_ms=AVAILABLE_MS, side="send"),
        PromiseSpec("available", bound_ms=AVAILABLE_MS, side="receive"),
    )


def truth(made: SynthesisPlan) -> dict[str, Any]:
    """Return what the analysis must find: `classes` (units of each), `counts` (breaks of each promise) and `placed`
    (where each anomaly of a message is)."""
    asked = {kind: made.anomalies.get(kind, 0) for kind in KINDS}
    classes = dict.fromkeys(CLASSES_SHOWN, 0)
    for kind, name in MESSAGE_KINDS.items():
        if name:
            classes[name] += asked[kind]
    classes["ok"] = made.messages - sum(classes.values())
    placed: dict[str, list[dict[str, str]]] = {}
    for site in made.sites:
        message_id, address = made.message(site.index)
        placed.setdefault(site.kind, []).append({"message_id": message_id, "address": address})
    return {
        "seed": made.seed,
        "messages": made.messages,
        "classes": classes,
        "counts": {
            "no_phantoms": asked["corrupted"] + asked["phantom"] + asked["unexpected"],
            "no_loss": asked["lost"],
            "no_duplicates": asked["duplicated"],
            "no_dead_letters": asked["dead_lettered"],
            "ordered": asked["out_of_order"],
            "single_active": asked["two_active"] + asked["intruder"],
            "sticky": asked["sticky_move"],
            "failover_within": made.late_clients,
            "failback_within": asked["late_failback"],
            # Both sides of each address see a pause of all clients.
            "available": 2 * asked["outage"] * made.addresses,
        },
        "placed": placed,
    }


def expectations(made: SynthesisPlan) -> dict[str, str]:
    """Return run.json's `expect`: what the planted anomalies make of each promise."""
    counts: Mapping[str, int] = truth(made)["counts"]
    return {name: "violated" if count else "kept" for name, count in counts.items()}


def cumulative(breaks: Sequence[ClientPause], store: int | None = None) -> list[tuple[int, int]]:
    """Return, for each break (of `store`: those that change its instance), its transaction and the sum of the pauses
    (the number of changes) from there on, the last one first."""
    total, found = 0, []
    for one in breaks:
        if store is None or one.store == store:
            total += one.pause if store is None else 1
            found.append((one.at, total))
    return found[::-1]
