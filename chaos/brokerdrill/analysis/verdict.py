"""From counted evidence to verdicts: fail > unknown > pass, held against what the scenario expects. Typed values
(`ledger.verdict`), no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from brokerdrill.base.errors import EXIT_BROKEN, EXIT_KEPT, EXIT_UNKNOWN, UsageError
from brokerdrill.ledger.contract import PromiseSpec, RunInfo, check_promise
from brokerdrill.ledger.verdict import FAIL, PASS, UNKNOWN, PromiseVerdict, RunVerdict, Verdict
from brokerdrill.ledger.witness import Witness
from brokerdrill.promises.catalogue import NO_PHANTOMS, PROMISES, doubted_by
from brokerdrill.promises.definition import Doubt

WITNESSES = 10
# What a drill may expect of a promise besides that it is kept.
VIOLATED, KNOWN = "violated", "known"

# The promises' definitions say what forbids that they pass.
DOUBTED_BY_OPS = doubted_by(Doubt.TORN_OPERATIONS)
DOUBTED_BY_EVENTS = doubted_by(Doubt.TORN_EVENTS)
DOUBTED_BY_CLOCKS = doubted_by(Doubt.UNPLACED_CLOCK)
DOUBTED_BY_MISSING = doubted_by(Doubt.MISSING_OPERATIONS)


def merged(verdicts: Iterable[str]) -> str:
    """Return the worst of `verdicts` (fail > unknown > pass); of none: unknown."""
    found = set(verdicts)
    return next((verdict for verdict in (FAIL, UNKNOWN, PASS) if verdict in found), UNKNOWN)


def decided(count: int, evidence: bool, doubt: bool) -> str:
    """Return how it stands with one promise: `count` breaks, `evidence` that there was something to check, `doubt` that
    forbids a pass."""
    if count:
        return FAIL
    return PASS if evidence and not doubt else UNKNOWN


def of_run(run: RunInfo, verdicts: Iterable[str]) -> str:
    """Return the verdict of a run from its promises': of one that ended early, or has not ended, it is not known what
    more it would have seen, so that it is never a pass."""
    found = merged(verdicts)
    return UNKNOWN if found == PASS and run.outcome != "completed" else found


def checked(run: RunInfo, given: Sequence[PromiseSpec] | None, where: str) -> tuple[PromiseSpec, ...]:
    """Return the promises to check: `given` if not None, else run.json's with those that only its `expect` names;
    no_phantoms always. Raises UsageError where a promise lacks its bound, also one that `expect` names and
    `promises` does not."""
    specs = [check_promise(spec, where) for spec in (run.promises if given is None else given)]
    names = {spec.name for spec in specs}
    if given is None:
        for name in sorted(set(run.expect) - names):
            if PROMISES[name].bound:
                raise UsageError(f"{where}: expect names {name}, but promises gives it no bound")
            specs.append(PromiseSpec(name))
            names.add(name)
    if NO_PHANTOMS not in names:
        specs.insert(0, PromiseSpec(NO_PHANTOMS))
    return tuple(specs)


def of_promise(
    spec: PromiseSpec,
    expectation: str,
    *,
    count: int = 0,
    excused: int = 0,
    evidence: bool = False,
    doubt: bool = False,
    measured: float | None = None,
    witnesses: Iterable[Mapping[str, Any]] = (),
    why: Sequence[str] = (),
    judged_from: Mapping[str, Any] | None = None,
) -> PromiseVerdict:
    """Return the verdict on a promise, of which the scenario expects `expectation`; `why` it cannot pass, a sentence
    each. Its fields that are a choice or a name (scope, side, alert) are its `values`."""
    verdict = decided(count, evidence, doubt)
    return PromiseVerdict(
        name=spec.name,
        verdict=verdict,
        count=count,
        excused=excused,
        bound=spec.bound_ms,
        measured=measured,
        witnesses=tuple(map(Witness, witnesses)),
        expected=expectation,
        reason="; ".join(why) if verdict == UNKNOWN else "",
        values={field.name: getattr(spec, field.name) for field in PROMISES[spec.name].fields if field.shown},
        judged_from=judged_from or {},
    )


def concluded(run: RunInfo, found: RunVerdict, not_met: Mapping[str, str]) -> RunVerdict:
    """Return what was found of a run with its verdict, and whether it is as expected; `not_met` says why promises are
    not as the drill asks for, by name ("": their own verdict says it)."""
    promises = tuple(
        replace(
            promise,
            # Of several entries of a promise with a known defect one may be unknown.
            as_expected=promise.name not in not_met and not (promise.expected == KNOWN and promise.verdict == UNKNOWN),
            beyond=not_met.get(promise.name, ""),
        )
        for promise in found.promises
    )
    verdict = of_run(run, (promise.verdict for promise in promises))
    # What broke, as it was to, is seen however the run ended; how far more a known defect would have gone is not.
    broken = {promise.expected for promise in promises if promise.verdict == FAIL}
    seen = run.outcome == "completed" or (VIOLATED in broken and KNOWN not in broken)
    as_expected = seen and all(promise.as_expected for promise in promises) and not found.vacuous
    return replace(found, run_id=run.run_id, verdict=verdict, as_expected=as_expected, promises=promises)


def unreadable(run_dir: str, error: str) -> RunVerdict:
    """Return the verdict on a run that cannot be read, among several runs."""
    return RunVerdict(run_dir=run_dir, error=error)


def together(runs: Sequence[RunVerdict]) -> Verdict:
    """Return the verdict on several runs: the worst of theirs, and whether all are as expected."""
    return Verdict(tuple(runs), merged(run.verdict for run in runs), all(run.as_expected for run in runs))


def exit_status(result: Verdict) -> int:
    """Return the exit status that follows from whether runs are as expected: 0 they are, 1 a promise is broken that
    should be kept or kept that should be violated, 2 what is expected is not known."""
    if result.as_expected:
        return EXIT_KEPT
    wrong = [promise.verdict != UNKNOWN for run in result.runs for promise in run.promises if not promise.as_expected]
    return EXIT_BROKEN if any(wrong) else EXIT_UNKNOWN
