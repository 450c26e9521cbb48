"""The words of a report: what promises, classes, roles and measures mean, said to somebody who runs brokers.

The meanings are those of the ledger's contract (classes of a unit, promises); here they are sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from brokerdrill.ledger import contract
from brokerdrill.ledger.verdict import FAIL, PASS, UNKNOWN, PromiseVerdict, RunVerdict, Verdict
from brokerdrill.promises.catalogue import PROMISES, broken_by_class
from brokerdrill.report import format as fmt

# --- verdicts -------------------------------------------------------------------------------------------------------

# verdict -> (word, sign): the sign carries the verdict where colour cannot.
VERDICT_WORDS = {"pass": ("kept", "✓"), "fail": ("broken", "✗"), "unknown": ("unknown", "?")}
AS_EXPECTED = {True: "as expected", False: "not as expected"}


def verdict_word(verdict: str) -> str:
    """Return kept, broken or unknown for a verdict of the analysis."""
    return VERDICT_WORDS.get(verdict, VERDICT_WORDS["unknown"])[0]


def expectation_met(promise: PromiseVerdict, expectation: str | None) -> bool:
    """Return whether a promise is what the scenario expects: as the analysis says, else by its verdict and run.json's
    `expect`, kept where that is silent."""
    if promise.as_expected is not None and expectation in (None, promise.expected):
        return promise.as_expected
    return promise.verdict == ("fail" if expectation == "violated" else "pass")


# --- promises -------------------------------------------------------------------------------------------------------


def _plural(count: int, one: str, many: str) -> str:
    return f"{fmt.number(count)} {one if count == 1 else many}"


def meaning(promise: PromiseVerdict) -> str:
    """Return the sentence on what the verdict on one promise means.

    The analysis' own reason is appended, which knows better why a promise is unknown, and what was excused.
    """
    known = PROMISES.get(promise.name)
    if known is None:
        sentence = f"The promise {promise.name} is {verdict_word(promise.verdict)}."
    elif promise.verdict == PASS:
        sentence = known.words.kept
    elif promise.verdict == FAIL:
        sentence = known.words.broken
    else:
        sentence = known.words.unknown
    if promise.measured is None:
        sentence = sentence.replace(": {measured} at worst", "")
    sentence = sentence.replace("{measured}", fmt.milliseconds(promise.measured))
    sentence = sentence.replace("{messages}", _plural(promise.count, "message was", "messages were"))
    sentence = sentence.replace("{transactions}", _plural(promise.count, "transaction was", "transactions were"))
    sentence = sentence.replace("{times}", _plural(promise.count, "time", "times"))
    reason = fmt.clean(promise.reason).strip()
    if reason:
        explained = f"{reason[:1].upper()}{reason[1:]}{'' if reason.endswith('.') else '.'}"
        sentence = explained if promise.verdict == UNKNOWN else f"{sentence} {explained}"
    if promise.beyond:
        sentence += f" Not as expected: {fmt.clean(promise.beyond)}."
    if promise.excused and known and known.words.excused:
        sentence += f" {fmt.number(promise.excused)} excused: {known.words.excused}."
    return sentence


def tone(result: RunVerdict | Verdict) -> str:
    """Return the tone of a verdict: good when as expected, else bad, or doubt when unknown."""
    if result.as_expected:
        return "good"
    return "bad" if result.verdict == FAIL else "doubt"


def run_name(result: RunVerdict) -> str:
    """Return what to call the run of a verdict: its id, else (it could not be read) its directory's name."""
    return fmt.clean(result.run_id or Path(result.run_dir or "run").name)


def headline(result: RunVerdict) -> str:
    """Return the verdict of one run in one line."""
    word = verdict_word(result.verdict)
    expected = AS_EXPECTED[result.as_expected]
    if result.error:
        return f"unknown: the run could not be read – {fmt.clean(result.error)}"
    if result.verdict == PASS and not result.vacuous:
        return f"kept, {expected}: all {len(result.promises)} promises hold"
    if result.vacuous:
        # What broke did so, whether or not it had to do with the drill.
        broken = ", ".join(dict.fromkeys(one.name for one in result.promises if one.verdict == FAIL))
        whys = [*result.vacuous, f"broken all the same: {broken}"] if broken else result.vacuous
        return f"vacuous, {expected}: it says nothing about its drill – {fmt.clean('; '.join(whys))}"
    if (
        result.promises
        and not any(promise.verdict == UNKNOWN for promise in result.promises)
        and (result.verdict == UNKNOWN)
    ):
        return f"{word}, {expected}: it ended early, and broke none of {len(result.promises)} promises until then"
    # What nobody expected is what a reader looks for; what is a known defect may be of the same verdict.
    of_verdict = [promise for promise in result.promises if promise.verdict == result.verdict]
    surprising = [promise for promise in result.promises if promise.as_expected is False]
    both = [promise for promise in of_verdict if promise in surprising]
    chosen = [promise.name for promise in both or surprising or of_verdict]
    names = ", ".join(dict.fromkeys(chosen)) or "no promise was checked"
    return f"{word}, {expected}: {fmt.clean(names)}"


# --- classes --------------------------------------------------------------------------------------------------------


class ClassWords(NamedTuple):
    """A class of messages: what it means, and its tone (good, neutral, bad, doubt)."""

    meaning: str
    tone: str


CLASS_WORDS: Mapping[str, ClassWords] = {
    "ok": ClassWords("acknowledged, and delivered and processed once", "good"),
    "recovered": ClassWords("the sender never learned the outcome, yet it was delivered", "neutral"),
    "redelivered": ClassWords("delivered more than once, processed at most once", "neutral"),
    "rejected": ClassWords("the send certainly failed, and nothing was delivered", "neutral"),
    "unresolved": ClassWords("the sender never learned the outcome, and nothing was delivered", "neutral"),
    "expired": ClassWords("its time to live ended before anybody processed it", "neutral"),
    "lost_nonpersistent": ClassWords("lost, but sent as not persistent: the broker may", "neutral"),
    "unseen": ClassWords("not delivered, but its queue was not drained either", "doubt"),
    "lost": ClassWords("acknowledged, never delivered, the queue drained", "bad"),
    "duplicated": ClassWords("processed more than once", "bad"),
    "dead_lettered": ClassWords("found on the dead-letter address, never processed", "bad"),
    "corrupted": ClassWords("delivered with another payload than was sent", "bad"),
    "phantom": ClassWords("the send certainly failed, yet it was delivered", "bad"),
    "unexpected": ClassWords("delivered, though nobody ever tried to send it", "bad"),
}
assert set(CLASS_WORDS) == set(contract.CLASSES)


def breaks(kind: str) -> str:
    """Return the promise that a message of this class breaks, or leaves unknown; "" for none."""
    return broken_by_class().get(kind, "")


# --- roles, parts of a failover, terms ------------------------------------------------------------------------------

ROLE_WORDS: Mapping[str, str] = {
    "active": "serves clients",
    "passive": "up and in step, waits to take over",
    "syncing": "copies the active broker's data, cannot take over yet",
    "starting": "its process runs, its role is not known yet",
    "failed": "its process runs, but it cannot serve",
    "down": "no process",
}
assert set(ROLE_WORDS) == set(contract.ROLES)

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
