"""JUnit XML as a CI server reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from brokerdrill.base.errors import InfrastructureError

from . import sample


def suites(path: Path) -> list[Any]:
    root = etree.parse(str(path)).getroot()
    assert root.tag == "testsuites"
    for suite in root:
        cases = suite.findall("testcase")
        assert int(suite.get("tests")) == len(cases)
        assert int(suite.get("failures")) == len(suite.findall("testcase/failure"))
        assert int(suite.get("errors")) == len(suite.findall("testcase/error"))
    assert int(root.get("tests")) == sum(len(suite.findall("testcase")) for suite in root)
    return list(root)


def test_one_case_a_promise(tmp_path: Path) -> None:
    (suite,) = suites(sample.write_junit(sample.result(), tmp_path / "junit.xml"))
    assert [case.get("name") for case in suite] == [promise["name"] for promise in sample.result()["promises"]]
    assert suite.get("failures") == suite.get("errors") == "0"


def test_failures_name_their_witnesses(tmp_path: Path) -> None:
    (suite,) = suites(sample.write_junit(sample.broken(), tmp_path / "deep" / "junit.xml"))
    problems = {case.get("name"): case[0] for case in suite if case[0].tag in ("failure", "error")}
    assert {name: problem.tag for name, problem in problems.items()} == {
        "no_loss": "failure",
        "no_duplicates": "failure",
        "failback_within": "error",
    }
    assert problems["no_duplicates"].get("message") == "3 messages were processed more than once."
    assert "message_id=4711-producer-2-000242" in problems["no_duplicates"].text


def expected_violation() -> dict[str, Any]:
    result = sample.result(verdict="fail")
    for promise in result["promises"]:
        if promise["name"] == "no_duplicates":
            promise |= {"verdict": "fail", "count": 1, "expected": "violated", "as_expected": True}
    return result


def test_an_expected_violation_passes_and_says_so(tmp_path: Path) -> None:
    result = expected_violation()
    (suite,) = suites(sample.write_junit(result, tmp_path / "junit.xml"))
    assert suite.get("failures") == suite.get("errors") == "0"
    told = suite.find("testcase[@name='no_duplicates']/system-out").text
    assert told.startswith("broken, as expected")
    # The contract's plain object, without the analysis' word on each promise, judges the same.
    for promise in result["promises"]:
        del promise["expected"]
    (suite,) = suites(sample.write_junit(result, tmp_path / "junit.xml"))
    assert suite.get("failures") == "0"


@pytest.mark.parametrize("with_expect", [True, False])
def test_a_violation_that_was_not_caught_fails(tmp_path: Path, with_expect: bool) -> None:
    result = sample.result(as_expected=False)
    for promise in result["promises"]:
        del promise["expected"]
    expect = {"no_duplicates": "violated"} if with_expect else None
    (suite,) = suites(sample.write_junit(result, tmp_path / "junit.xml", expect))
    failed = [case.get("name") for case in suite.findall("testcase") if case.find("failure") is not None]
    assert failed == (["no_duplicates"] if with_expect else ["as_expected"])


def test_several_runs_and_one_that_cannot_be_read(tmp_path: Path) -> None:
    gone = {"run_id": None, "run_dir": "runs/gone", "verdict": "unknown", "as_expected": False, "error": "no run.json"}
    result = {"verdict": "fail", "as_expected": False, "runs": [sample.result(), sample.broken(), gone]}
    found = suites(sample.write_junit(result, tmp_path / "junit.xml"))
    assert [suite.get("name") for suite in found][2] == "gone"
    assert found[2].find("testcase/error").get("message") == "no run.json"


def test_what_xml_forbids_is_replaced(tmp_path: Path) -> None:
    result = sample.broken("run \x00\x1b]]>\ud800 <&>")
    result["promises"][1]["witnesses"] = [{"message_id": "\x07]]><x>\uffff", "error": "é ü"}]
    (suite,) = suites(sample.write_junit(result, tmp_path / "junit.xml"))
    assert suite.get("name") == "run \ufffd\ufffd]]>\ufffd <&>"
    assert "\ufffd]]><x>\ufffd" in suite.find("testcase[@name='no_loss']/failure").text


def test_a_disk_that_does_not_take_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match=r"junit\.xml cannot be written"):
        sample.write_junit(sample.result(), tmp_path / "file" / "junit.xml")
