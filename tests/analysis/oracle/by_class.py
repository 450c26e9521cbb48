"""no_phantoms, no_loss, no_nonpersistent_loss, no_duplicates, no_dead_letters: by the classes of units."""

from __future__ import annotations

from brokerdrill.ledger.contract import PromiseSpec
from tests.analysis.oracle.facts import Facts, Unit, between, uncertain
from tests.analysis.oracle.rows import Row, ended, entry, merge
from tests.analysis.oracle.units import classify

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
    looks = [
        op
        for op in facts.of("browse", "receive")
        if op.get("address") in wanted and (op["op"] == "browse" or op["outcome"] == "ok")
    ]
    for address in wanted:
        of = [look for look in looks if look["address"] == address]
        if not any(look["outcome"] == "ok" and counts(facts, look) for look in of):
            return False
        for look in of:
            # "after which none succeeded at that instance", for certain
            if look["outcome"] != "ok" and not any(
                other["outcome"] == "ok"
                and place(other) == place(look)
                and other["start_ns"] > look["start_ns"] + between(facts, other, look)
                for other in of
            ):
                return False
    return bool(wanted)


def place(look: Row) -> str | None:
    """Where somebody looked."""
    return look.get("instance") or look.get("broker")


def counts(facts: Facts, look: Row) -> bool:
    """ "after the load's end, and not before the last delivery on such an address was over", for certain"""
    marks = [e for e in facts.events if e["kind"] == "phase" and e.get("name") == "load"]
    # "nobody says when it was over"
    if not marks or max(marks, key=lambda e: (e["t_ns"], e.get("value") == "end")).get("value") != "end":
        return False
    over = max(e["t_ns"] + e["uncertainty_ns"] for e in marks if e["t_ns"] == max(m["t_ns"] for m in marks))
    if look["start_ns"] - uncertain(facts, look["clock"]) < over:
        return False
    return all(
        look["start_ns"] >= ended(delivery) + between(facts, look, delivery)
        for (source, _), deliveries in facts.deliveries.items()
        if facts.run.dead_letters.get(source) == look["address"]
        for delivery in deliveries
    )
