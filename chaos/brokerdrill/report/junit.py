"""JUnit XML of verdicts, for CI servers: one test case a promise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

from brokerdrill.base.atomic import write
from brokerdrill.ledger.verdict import PromiseVerdict, RunVerdict, Verdict
from brokerdrill.report import format as fmt
from brokerdrill.report import words

WITNESSES = 50


def _witnesses(promise: PromiseVerdict) -> str:
    lines = [
        ", ".join(f"{key}={fmt.value(str(key), item)}" for key, item in witness.fields.items() if item is not None)
        for witness in promise.witnesses[:WITNESSES]
    ]
    if len(promise.witnesses) > WITNESSES:
        lines.append(f"and {len(promise.witnesses) - WITNESSES} more")
    return "\n".join(lines)


def _case(suite: ET.Element, class_name: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", {"classname": fmt.clean(class_name), "name": fmt.clean(name), "time": "0"})


def _problem(case: ET.Element, kind: str, message: str, text: str) -> None:
    problem = ET.SubElement(case, kind, {"message": fmt.clean(message), "type": "promise"})
    problem.text = fmt.clean(text) or None


def _add_promise(case: ET.Element, promise: PromiseVerdict, expectation: str | None, as_expected: bool) -> None:
    verdict = promise.verdict
    meaning = words.meaning(promise)
    numbers = (("bound", promise.bound), ("measured", promise.measured))
    measures = "".join(f"; {name} {fmt.milliseconds(value)}" for name, value in numbers if value is not None)
    text = "\n".join(part for part in (f"count {fmt.number(promise.count)}{measures}", _witnesses(promise)) if part)
    # Without a word on this promise, the verdict as a whole says whether a broken one was meant to break.
    met = words.expectation_met(promise, expectation) if expectation else verdict == "pass" or as_expected
    if met:
        state = {"fail": "broken, as expected: ", "unknown": "unknown, and allowed to be: "}.get(verdict, "")
        ET.SubElement(case, "system-out").text = fmt.clean(f"{state}{meaning}\n{text}")
    elif verdict == "fail":
        _problem(case, "failure", meaning, text)
    elif verdict == "pass":
        _problem(case, "failure", f"should be broken, and is kept: {meaning}", text)
    else:
        _problem(case, "error", meaning, text)


def _coverage(result: RunVerdict) -> str:
    return "\n".join(
        f"{met.fault} of {met.instance or met.target} at {fmt.seconds(met.t_ns)}: {met.clients} clients, "
        f"{met.in_flight} operations in flight, {met.operations} until the heal"
        for met in result.coverage
    )


def _suite(root: ET.Element, result: RunVerdict, expect: Mapping[str, str]) -> None:
    run_id = words.run_name(result)
    as_expected = result.as_expected
    suite = ET.SubElement(root, "testsuite", {"name": run_id})
    if result.error:
        _problem(_case(suite, run_id, "readable"), "error", result.error, "")
    if result.vacuous:
        # First of all: what no promise was held against says nothing about any.
        _problem(_case(suite, run_id, "vacuous"), "error", "; ".join(result.vacuous), _coverage(result))
    for promise in result.promises:
        expectation = expect.get(promise.name) or promise.expected
        _add_promise(_case(suite, run_id, promise.name), promise, expectation, as_expected)
    counts = {kind: len(suite.findall(f"testcase/{kind}")) for kind in ("failure", "error")}
    if not as_expected and not any(counts.values()):
        # A violation that should have been caught was not: the run fails though each of its promises passes.
        _problem(_case(suite, run_id, "as_expected"), "failure", f"the verdict is {words.headline(result)}", "")
        counts["failure"] = 1
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("failures", str(counts["failure"]))
    suite.set("errors", str(counts["error"]))
    suite.set("skipped", "0")


def junit(result: Verdict, expect: Mapping[str, str] | None = None) -> bytes:
    """Return the XML document; see `write_junit`."""
    root = ET.Element("testsuites", {"name": "brokerdrill"})
    for run in result.runs:
        _suite(root, run, expect or {})
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    ET.indent(root)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def write_junit(result: Verdict, path: Path, expect: Mapping[str, str] | None = None) -> Path:
    """Write `result` as JUnit XML to `path`, and return that.

    One test suite a run, one test case a promise. A promise that is broken is a failure with its witnesses, one that is
    unknown an error; where the scenario expects just that (`expect`, run.json's map, else the promise's own `expected`,
    else the verdict's `as_expected`), it passes and says so. A suite fails whenever its run is not as expected. Raises
    InfrastructureError when the file cannot be written.
    """
    return write(path, junit(result, expect))
