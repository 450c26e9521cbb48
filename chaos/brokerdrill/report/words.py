"""The words of a report: what promises, classes, roles and measures mean, said to somebody who runs brokers.

The meanings are those of the ledger's contract (classes of a unit, promises); here they are sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from brokerdrill import ledger
from brokerdrill.report import format as fmt

# --- verdicts -------------------------------------------------------------------------------------------------------

# verdict -> (word, sign): the sign carries the verdict where colour cannot.
VERDICT_WORDS = {"pass": ("kept", "✓"), "fail": ("broken", "✗"), "unknown": ("unknown", "?")}
AS_EXPECTED = {True: "as expected", False: "not as expected"}


def verdict_word(verdict: str) -> str:
    """Return kept, broken or unknown for a verdict of the analysis."""
    return VERDICT_WORDS.get(verdict, VERDICT_WORDS["unknown"])[0]


def expectation_met(verdict: str, expectation: str | None) -> bool:
    """Tell whether a promise's verdict is what the scenario expects: run.json's `expect`, kept where it is silent."""
    if expectation == "investigated":
        return True
    return verdict == ("fail" if expectation == "violated" else "pass")


# --- promises -------------------------------------------------------------------------------------------------------


class PromiseWords(NamedTuple):
    """What is promised, and the sentences when it is kept, broken (`{n}`, `{messages}`, `{measured}`) or unknown."""

    promise: str
    kept: str
    broken: str
    unknown: str
    excused: str = ""


PROMISE_WORDS: Mapping[str, PromiseWords] = {
    "no_phantoms": PromiseWords(
        "What is delivered is what was sent: nothing invented, nothing altered, nothing that had certainly failed.",
        "Everything delivered had been sent, and arrived unaltered.",
        "{messages} altered, never sent, or delivered although the send had certainly failed.",
        "Nothing was delivered that could be compared with what was sent.",
    ),
    "no_loss": PromiseWords(
        "A message whose send was acknowledged is delivered and processed.",
        "Every message that was acknowledged was delivered.",
        "{messages} acknowledged, yet never delivered although the queues were drained.",
        "Nothing was sent, or the queues were not seen empty at the end, so that missing messages may still be there.",
    ),
    "no_duplicates": PromiseWords(
        "No message is processed twice.",
        "No message was processed twice.",
        "{messages} processed more than once.",
        "No processed message could be checked.",
    ),
    "no_dead_letters": PromiseWords(
        "No message ends on a dead-letter address instead of at its consumer.",
        "No message ended on a dead-letter address.",
        "{messages} found on a dead-letter address and never processed.",
        "No dead-letter address was watched.",
    ),
    "atomic": PromiseWords(
        "Of a transaction's messages all are seen, or none.",
        "Every transaction's messages were seen all together, or none of them.",
        "{transactions} seen in part: some messages were delivered, others never.",
        "No transaction with two messages could be judged, or some of its messages may still be on their queues.",
    ),
    "ordered": PromiseWords(
        "Messages of one producer (and key) arrive in the order in which they were sent.",
        "Messages arrived in the order in which their producers sent them.",
        "{messages} delivered after a message that was sent later.",
        "No two messages could be compared.",
        "late, but flagged as redelivered or after another session of the subscription had ended",
    ),
    "sticky": PromiseWords(
        "A routing key keeps reaching the same broker pair while that pair is ready.",
        "Every key kept reaching the same broker pair.",
        "{times} a key reached another broker pair although its own was ready.",
        "No key connected twice, so that nothing could be compared.",
        "moves while the old pair was not ready, or after the cached choice had expired",
    ),
    "single_active": PromiseWords(
        "Of the brokers that share one store, at most one serves at any time.",
        "Never did two brokers serve the same store at once.",
        "{times} two brokers served the same store at once (split brain).",
        "Too little is known about who was active when.",
    ),
    "failover_within": PromiseWords(
        "After a fault on the active broker each client's next send is acknowledged by its successor in time.",
        "After each fault on the active broker, sends were acknowledged by its successor in time: {measured} at worst.",
        "{times} a client waited longer than the bound for an acknowledgement by the successor: {measured} at worst.",
        "No fault hit an active broker, or no successor was seen.",
    ),
    "failback_within": PromiseWords(
        "After its fault is healed the original broker is active again in time.",
        "The original broker was active again in time: {measured} at worst.",
        "{times} the original broker was not active again in time: {measured} at worst.",
        "No fault on an original broker was healed, or its return could not be seen.",
    ),
    "available": PromiseWords(
        "No address goes longer than the bound without a success.",
        "No address went longer than the bound without a success: {measured} at worst.",
        "{times} an address went longer than the bound without a success: {measured} at worst.",
        "No acknowledged operation lies within the load.",
    ),
}


def _plural(count: int, one: str, many: str) -> str:
    return f"{fmt.number(count)} {one if count == 1 else many}"


def meaning(promise: Mapping[str, Any]) -> str:
    """Return the sentence on what one entry of the verdict's `promises` means.

    An entry's own `reason` or `note` is appended: the analysis knows better why a promise is unknown.
    """
    name = str(promise.get("name", ""))
    words = PROMISE_WORDS.get(name)
    verdict = promise.get("verdict")
    count = int(promise.get("count") or 0)
    if words is None:
        sentence = f"The promise {name} is {verdict_word(str(verdict))}."
    elif verdict == "pass":
        sentence = words.kept
    elif verdict == "fail":
        sentence = words.broken
    else:
        sentence = words.unknown
    measured = promise.get("measured")
    if measured is None:
        sentence = sentence.replace(": {measured} at worst", "")
    sentence = sentence.replace("{measured}", fmt.milliseconds(measured) if measured is not None else "")
    sentence = sentence.replace("{messages}", _plural(count, "message was", "messages were"))
    sentence = sentence.replace("{transactions}", _plural(count, "transaction was", "transactions were"))
    sentence = sentence.replace("{times}", _plural(count, "time", "times"))
    reasons = [str(promise[key]) for key in ("reason", "note") if promise.get(key)]
    if reasons:
        reason = fmt.clean(" ".join(reasons)).strip()
        if verdict not in ("pass", "fail"):
            return reason[:1].upper() + reason[1:] + ("" if reason.endswith(".") else ".")
        sentence = f"{sentence} {reason[:1].upper()}{reason[1:]}{'' if reason.endswith('.') else '.'}"
    return sentence


def run_name(result: Mapping[str, Any]) -> str:
    """Return what to call the run of a verdict: its id, else (it could not be read) its directory's name."""
    return fmt.clean(result.get("run_id") or Path(str(result.get("run_dir") or "run")).name)


def headline(result: Mapping[str, Any]) -> str:
    """Return the verdict of one run in one line."""
    word = verdict_word(str(result.get("verdict")))
    expected = AS_EXPECTED[bool(result.get("as_expected"))]
    if result.get("error"):
        return f"unknown: the run could not be read – {fmt.clean(result['error'])}"
    promises = result.get("promises") or []
    if word == "kept":
        return f"kept, {expected}: all {len(promises)} promises hold"
    chosen = [str(p.get("name")) for p in promises if p.get("verdict") == result.get("verdict")]
    names = ", ".join(dict.fromkeys(chosen)) or "no promise was checked"
    return f"{word}, {expected}: {fmt.clean(names)}"


# --- classes --------------------------------------------------------------------------------------------------------


class ClassWords(NamedTuple):
    """A class of messages: what it means, the promise it breaks, and its tone (good, neutral, bad, doubt)."""

    meaning: str
    breaks: str | None
    tone: str


CLASS_WORDS: Mapping[str, ClassWords] = {
    "ok": ClassWords("acknowledged, and delivered and processed once", None, "good"),
    "recovered": ClassWords("the sender never learned the outcome, yet it was delivered", None, "neutral"),
    "redelivered": ClassWords("delivered more than once, processed at most once", None, "neutral"),
    "rejected": ClassWords("the send certainly failed, and nothing was delivered", None, "neutral"),
    "unresolved": ClassWords("the sender never learned the outcome, and nothing was delivered", None, "neutral"),
    "expired": ClassWords("its time to live ended before anybody processed it", None, "neutral"),
    "lost_nonpersistent": ClassWords("lost, but sent as not persistent: the broker may", None, "neutral"),
    "unseen": ClassWords("not delivered, but its queue was not drained either", "no_loss", "doubt"),
    "lost": ClassWords("acknowledged, never delivered, the queue drained", "no_loss", "bad"),
    "duplicated": ClassWords("processed more than once", "no_duplicates", "bad"),
    "dead_lettered": ClassWords("found on the dead-letter address, never processed", "no_dead_letters", "bad"),
    "corrupted": ClassWords("delivered with another payload than was sent", "no_phantoms", "bad"),
    "phantom": ClassWords("the send certainly failed, yet it was delivered", "no_phantoms", "bad"),
    "unexpected": ClassWords("delivered, though nobody ever tried to send it", "no_phantoms", "bad"),
}
assert set(CLASS_WORDS) == set(ledger.CLASSES)

# --- roles, parts of a failover, terms ------------------------------------------------------------------------------

ROLE_WORDS: Mapping[str, str] = {
    "active": "serves clients",
    "passive": "up and in step, waits to take over",
    "syncing": "copies the active broker's data, cannot take over yet",
    "starting": "its process runs, its role is not known yet",
    "failed": "its process runs, but it cannot serve",
    "down": "no process",
}
assert set(ROLE_WORDS) == set(ledger.ROLES)

FAILOVER_PARTS: tuple[tuple[str, str, str], ...] = (
    ("detection_ms", "detection", "until the loss of the active broker was noticed"),
    ("activation_ms", "activation", "until the successor was active"),
    ("first_send_ms", "first send", "until the successor had acknowledged a new send"),
    ("first_delivery_ms", "first delivery", "until the successor had delivered a message"),
)

# phase -> (its name, what it is).
PHASE_WORDS: Mapping[str, tuple[str, str]] = {
    "load": ("under load", "The time under load; no fault was injected."),
    "before_fault": ("before the fault", "Under load, up to the first fault."),
    "during_fault": ("fault in effect", "From a fault's injection to its heal."),
    "after_heal": ("after the heal", "Under load after the first fault, with no fault in effect."),
    "drain": ("drain", "After the load: consumers empty the queues."),
    "outside": ("before and after", "Outside load and drain: clients come and go."),
}

TERMS: Mapping[str, str] = {
    "promise": "A property the brokers are expected to keep while parts of them fail; checked on the record of every "
    "operation.",
    "bound": "The limit that the scenario sets for a promise.",
    "measured": "The worst value seen; it is what the bound is compared with.",
    "count": "How many violations were found.",
    "excused": "Cases that look like a violation but that the promise allows.",
    "witness": "One concrete violation with its identifiers: what to look for in logs and queues.",
    "acknowledged": "The broker confirmed the send (in a transaction: its commit) to the client.",
    "drained": "At the end, after all faults were healed, every queue was seen empty on every broker.",
    "p50": "Half of the operations were at most this slow (median).",
    "p95": "95 of 100 operations were at most this slow.",
    "p99": "99 of 100 operations were at most this slow.",
    "end-to-end": "From the start of a message's send to its delivery to a consumer.",
    "active": ROLE_WORDS["active"].capitalize() + ".",
    "fault": "A failure that the run caused on purpose: a killed process, a cut link, …",
    "healed": "The fault was undone and seen to be undone.",
    "verified": "The effect of the fault was seen on the host.",
    "target": "What the scenario asked to hit; it is resolved when the fault is injected, from who is active then.",
    "store": "The messages that a pair of brokers shares: one broker of the pair serves it at a time.",
    "failover": "The passive broker takes over after the active one failed.",
    "failback": "The original broker becomes active again after it was repaired.",
    "in doubt": "An acknowledgement of the message may or may not have reached the broker before it came again.",
    "flagged": "The broker marked the delivery as a possible repetition.",
    "outage": "A time, longer than the bound of `available`, without an acknowledged send (or delivery).",
    "seed": "The number all random choices of the run come from: the same seed makes the same choices again.",
    "session": "One connection of a client; a reconnect begins a new one.",
    "95 % upper bound": "If the true rate of violations were higher than this, so few would have been seen in fewer "
    "than 5 of 100 such series (Clopper-Pearson, one-sided, exact).",
    "uncertainty": "Clocks of several machines agree only so well; a time is right within plus or minus this.",
    "time-to-live": "After this time the host undoes the fault by itself, even if the runner is gone.",
}
