"""Whether what a run shows is what its drill asks for: kept, violated, or broken no further than a known defect."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from brokerdrill.analysis.checks.finding import Finding
from brokerdrill.ledger.known import Known

# What `only` of run.json says may violate a promise: what concerns what a fault hit.
TARGET = "target"
# Of witnesses with the first field: what they have, where what they waited for came.
_ENDS = {
    "last_try_ms": {"first_send_ms"},
    "healed_ns": {"active_ns"},
    "waited_ms": {"delivered_ns"},
    "alert": {"fired_ms", "cleared_ms"},
}


@dataclass(frozen=True)
class Asked:
    """What a drill asks of a promise: `word` (kept, violated, known), the defects that are `known` of it by their
    places in the run's list, and `only` (None: whatever) what may violate it."""

    word: str = "kept"
    known: Mapping[int, Known] = field(default_factory=dict)
    only: str | None = None


class Moves(NamedTuple):
    """How many keys moved from a store to another one and broke `sticky` by it, and until when the first one had, at
    the latest (ns)."""

    from_store: str
    to_store: str
    n: int
    first: int


def not_met(
    verdicts: Collection[str],
    findings: Sequence[Finding],
    asked: Asked,
    moved: Iterable[Moves],
    targets: Mapping[str, int],
) -> str | None:
    """Return why a promise is not as asked, in words ("": its verdict says it); None: it is.

    `verdicts` and `findings` are those of all entries of the promise; `moved` are moves that break it, `targets`
    the stores that faults hit, with when the first one began at the earliest (ns).
    """
    broken, unknown = "fail" in verdicts, "unknown" in verdicts
    if asked.word == "violated":
        if not broken:
            return ""
        return _elsewhere(moved, targets) if asked.only == TARGET else None
    if asked.word != "known" or not broken:
        return "" if broken or unknown else None
    beyond = [_beyond(findings, number, one) for number, one in asked.known.items()]
    if beyond and (doubted := next((one for one in findings if one.doubt), None)):
        # What was not seen may be worse than that.
        return (
            f"how far it goes beyond what is known was not seen: {'; '.join(doubted.why) or 'the ledger is not whole'}"
        )
    return None if None in beyond else next(iter(beyond), "")


def _elsewhere(moved: Iterable[Moves], targets: Mapping[str, int]) -> str | None:
    """Return why not all moves are what a fault may have done; None: they are."""
    others = early = 0
    for one in moved:
        hit = [targets[store] for store in (one.from_store, one.to_store) if store in targets]
        others += 0 if hit else one.n
        early += bool(hit) and one.first < min(hit)
    if others:
        return f"{others} of the moves are of keys that no fault concerned"
    return "keys moved before any fault concerned them" if early else None


def _beyond(findings: Sequence[Finding], number: int, known: Known) -> str | None:
    """Return how breaks go beyond a known defect, which has that number; None: they do not."""
    count = sum(one.n for one in findings)
    limit = known.at_most
    if "count" in limit and count > limit["count"]:
        return f"{count} breaks are more than the {limit['count']:g} that are known ({known.finding})"
    if "rate" in limit:
        judged = sum(one.judged or 0 for one in findings)
        if not judged or count / judged > limit["rate"]:
            return f"{count} of {judged} are more than the share of {limit['rate']:g} that is known ({known.finding})"
    if "ms" in limit:
        worst = max((one.measured for one in findings if one.measured is not None), default=None)
        if worst is None or worst > limit["ms"] or any(_endless(row) for one in findings for row in one.witnesses):
            return f"it took longer than the {limit['ms']:g} ms that are known ({known.finding})"
    others = sum(n for one in findings for (_, of), n in one.otherwise.items() if of == number)
    if others or any(_differs(row, known.only) for one in findings for row in (*one.rows, *one.witnesses)):
        return f"it is broken in another way than is known ({known.finding})"
    return None


def _endless(witness: Mapping[str, Any]) -> bool:
    """Whether what a witness waited for never came: it has no time of its end. Of a promise's witnesses such are the
    worst."""
    return any(begin in witness and not ends <= {*witness} for begin, ends in _ENDS.items())


def _differs(witness: Mapping[str, Any], only: Mapping[str, Any]) -> bool:
    return any(witness.get(name) != value for name, value in only.items())
