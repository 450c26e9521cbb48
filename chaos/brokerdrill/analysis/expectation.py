"""Whether what a run shows is what its drill asks for: kept, violated, or broken no further than a known defect."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brokerdrill.analysis.checks.finding import Finding
from brokerdrill.ledger.known import Known

# What `only` of run.json says may violate a promise: what concerns what a fault hit.
TARGET = "target"


@dataclass(frozen=True)
class Asked:
    """What a drill asks of a promise: `word` (kept, violated, known), the defects that are `known` of it, and `only`
    (None: whatever) what may violate it."""

    word: str = "kept"
    known: tuple[Known, ...] = ()
    only: str | None = None


def not_met(
    verdicts: Collection[str],
    findings: Sequence[Finding],
    asked: Asked,
    moved: Iterable[tuple[str, str, int]],
    targets: Collection[str],
) -> str | None:
    """Return why a promise is not as asked, in words ("": its verdict says it); None: it is.

    `verdicts` and `findings` are those of all entries of the promise; `moved` (from_store, to_store, n) are moves that
    break it, `targets` the stores that faults hit.
    """
    broken, unknown = "fail" in verdicts, "unknown" in verdicts
    if asked.word == "violated":
        if not broken:
            return ""
        others = sum(n for source, to, n in moved if not {source, to} & {*targets})
        return f"{others} of the moves are of keys that no fault concerned" if asked.only == TARGET and others else None
    if asked.word != "known" or not broken:
        return "" if broken or unknown else None
    beyond = [_beyond(findings, one) for one in asked.known]
    return None if None in beyond else next(iter(beyond), "")


def _beyond(findings: Sequence[Finding], known: Known) -> str | None:
    """Return how breaks go beyond a known defect; None: they do not."""
    count = sum(one.n for one in findings)
    limit = known.at_most
    if "count" in limit and count > limit["count"]:
        return f"{count} breaks are more than the {limit['count']:g} that are known ({known.finding})"
    if "rate" in limit:
        judged = sum(one.judged or 0 for one in findings)
        if not judged or count / judged > limit["rate"]:
            return f"{count} of {judged} are more than the share of {limit['rate']:g} that is known ({known.finding})"
    if "ms" in limit:
        worst = max((one.measured or 0.0 for one in findings), default=0.0)
        if worst > limit["ms"] or any(_endless(row) for one in findings for row in one.witnesses):
            return f"it took longer than the {limit['ms']:g} ms that are known ({known.finding})"
    if any(_differs(row, known.only) for one in findings for row in one.witnesses):
        return f"it is broken in another way than is known ({known.finding})"
    return None


def _endless(witness: Mapping[str, Any]) -> bool:
    """Whether what a witness waited for never came: it has no time of its end."""
    ends = {"t_ns": "first_send_ms", "healed_ns": "active_ns"}
    return any(begin in witness and end not in witness for begin, end in ends.items())


def _differs(witness: Mapping[str, Any], only: Mapping[str, Any]) -> bool:
    return any(witness.get(name) != value for name, value in only.items())
