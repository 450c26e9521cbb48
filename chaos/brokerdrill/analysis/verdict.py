"""From counted evidence to verdicts: fail > unknown > pass, held against what the scenario expects. Plain values, no
Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from brokerdrill.base.errors import EXIT_BROKEN, EXIT_KEPT, EXIT_UNKNOWN, UsageError
from brokerdrill.ledger.contract import PromiseSpec, RunInfo, check_promise
from brokerdrill.promises.catalogue import NO_PHANTOMS, PROMISES, doubted_by
from brokerdrill.promises.definition import Doubt

WITNESSES = 10

# The promises' definitions say what forbids that they pass.
DOUBTED_BY_OPS = doubted_by(Doubt.TORN_OPERATIONS)
DOUBTED_BY_EVENTS = doubted_by(Doubt.TORN_EVENTS)
DOUBTED_BY_CLOCKS = doubted_by(Doubt.UNPLACED_CLOCK)
DOUBTED_BY_MISSING = doubted_by(Doubt.MISSING_OPERATIONS)


def merged(verdicts: Iterable[str]) -> str:
    """Return the worst of `verdicts` (fail > unknown > pass); of none: unknown."""
    found = set(verdicts)
    return next((verdict for verdict in ("fail", "unknown", "pass") if verdict in found), "unknown")


def promise_verdict(count: int, evidence: bool, doubt: bool) -> str:
    """Return the verdict of one promise: `count` breaks, `evidence` that there was something to check, `doubt` that
    forbids a pass."""
    if count:
        return "fail"
    return "pass" if evidence and not doubt else "unknown"


def of_run(run: RunInfo, verdicts: Iterable[str]) -> str:
    """Return the verdict of a run from its promises': of one that ended early, or has not ended, it is not known what
    more it would have seen, so that it is never a pass."""
    found = merged(verdicts)
    return "unknown" if found == "pass" and run.outcome != "completed" else found


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


def promise_json(
    spec: PromiseSpec,
    expectation: str,
    *,
    count: int = 0,
    excused: int = 0,
    evidence: bool = False,
    doubt: bool = False,
    measured: float | None = None,
    witnesses: Sequence[Mapping[str, Any]] = (),
    why: Sequence[str] = (),
    judged_from: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a promise's object of the verdict's JSON; its fields that are a choice or a name (scope, side, alert) are
    there, too, `expected` and `as_expected` say what the scenario asks for, `reason` why it is unknown, `judged_from`
    how much was seen."""
    verdict = promise_verdict(count, evidence, doubt)
    result: dict[str, Any] = {
        "name": spec.name,
        "verdict": verdict,
        "count": count,
        "excused": excused,
        "bound": spec.bound_ms,
        "measured": measured,
        "witnesses": [dict(witness) for witness in witnesses],
        "expected": expectation,
        "judged_from": dict(judged_from or {}),
    }
    if why and verdict == "unknown":
        result["reason"] = "; ".join(why)
    return result | {field.name: getattr(spec, field.name) for field in PROMISES[spec.name].fields if field.told}


def run_json(
    run: RunInfo,
    promises: Sequence[Mapping[str, Any]],
    *,
    messages: Mapping[str, int],
    redelivered: Mapping[str, int],
    failover: Sequence[Mapping[str, Any]],
    outages: Sequence[Mapping[str, Any]],
    rounds: Sequence[Mapping[str, Any]],
    notes: Sequence[str],
    not_met: Mapping[str, str],
    vacuous: Sequence[str] = (),
    coverage: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return a run's object of the verdict's JSON. `redelivered` splits that class by the broker's flag and by
    whether an acknowledgement was in doubt; `notes` are sentences on what the reader should know of the input;
    `not_met` says why promises are not as the drill asks for, by name; `vacuous` why the run says nothing about its
    drill; `coverage` has what the load met of each fault."""
    told = [{**promise, "as_expected": promise["name"] not in not_met} for promise in promises]
    for promise in told:
        if why := not_met.get(promise["name"]):
            promise["beyond"] = why
    verdict = of_run(run, (promise["verdict"] for promise in promises))
    # What broke, as it was to, is seen however the run ended.
    seen = run.outcome == "completed" or verdict == "fail"
    return {
        "run_id": run.run_id,
        "verdict": verdict,
        "as_expected": seen and all(promise["as_expected"] for promise in told) and not vacuous,
        "vacuous": list(vacuous),
        "coverage": [dict(row) for row in coverage],
        "messages": dict(messages),
        "redelivered": dict(redelivered),
        "promises": told,
        "failover": [dict(row) for row in failover],
        "outages": [dict(row) for row in outages],
        "rounds": [dict(row) for row in rounds],
        "notes": list(notes),
    }


def unreadable(run_dir: str, error: str) -> dict[str, Any]:
    """Return the object of a run that cannot be read, among several runs."""
    return {"run_id": None, "run_dir": run_dir, "verdict": "unknown", "as_expected": False, "error": error}


def several(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the JSON of several runs: the merged verdict, whether all are as expected, and each run's object."""
    return {
        "verdict": merged(run["verdict"] for run in runs),
        "as_expected": all(run["as_expected"] for run in runs),
        "runs": list(runs),
    }


def exit_status(result: Mapping[str, Any]) -> int:
    """Return the exit status that follows `as_expected` of an analysis' JSON: 0 as expected, 1 a promise is broken that
    should be kept or kept that should be violated, 2 what is expected is not known."""
    if result["as_expected"]:
        return EXIT_KEPT
    runs = result.get("runs", [result])
    wrong = [
        promise["verdict"] != "unknown"
        for run in runs
        for promise in run.get("promises", [])
        if not promise["as_expected"]
    ]
    return EXIT_BROKEN if any(wrong) else EXIT_UNKNOWN
