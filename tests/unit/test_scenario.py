import json
from pathlib import Path

import pytest

from brokerdrill.errors import UsageError
from brokerdrill.scenario import SCENARIOS, Scenario, load_scenario, parse, scenarios

GOOD = """\
title: A title
description: What it is for
topology: artemis_quorum
load:
  addresses: [drill.q0]
method:
  - type: action
    name: kill
    fault: kill
    target: active
  - type: probe
    name: over
    until: failed_over
    of: kill
promises:
  - no_loss
  - {name: failover_within, bound_ms: 6000}
expect_violation: [no_loss]
"""


def test_every_scenario_of_the_repository_is_valid() -> None:
    assert {item.name for item in scenarios()} >= {"artemis_quorum_kill_active", "artemis_lost_reply"}


def test_expectations_cover_each_promise_and_the_phantoms() -> None:
    assert parse(GOOD, Path("s.yml")).expect() == {
        "no_loss": "violated",
        "failover_within": "kept",
        "no_phantoms": "kept",
    }


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("fault: kill", "fault: kil", r"line 9: method.0.fault: no fault is called 'kil'; did you mean 'kill'\?"),
        ("    target: active", "    target: active\n    params: {hard: 1}", r"line 7: method.0: no parameter"),
        ("until: failed_over", "until: dinner", r"line 13: method.1.until: "),
        ("of: kill", "of: other", r"line 1: the scenario: step 'over': no action before it is called 'other'"),
        ("target: active", "target: link load→active", "'kill' hits a link, and only an instance can be failed_over"),
        ("bound_ms: 6000", "bound: 6000", r"line 17: promises.1.bound: Extra inputs"),
        ("{name: failover_within, bound_ms: 6000}", "failover_within", r"line 17: promises.1: .*needs a bound"),
        ("expect_violation: [no_loss]", "expect_violation: [sticky]", "not among the promises"),
        ("title: A title", "title: [A", "not YAML"),
        ("topology: artemis_quorum\n", "", "line 1: topology: Field required"),
    ],
)
def test_a_broken_scenario_names_file_line_and_field(old: str, new: str, expected: str) -> None:
    assert old in GOOD
    with pytest.raises(UsageError, match=expected) as caught:
        parse(GOOD.replace(old, new), Path("s.yml"))
    assert str(caught.value).startswith("s.yml")
    assert "\n" not in str(caught.value)


def test_an_unknown_scenario_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean 'artemis_quorum_kill_active'"):
        load_scenario("artemis_quorum_kill")


def test_the_published_schema_is_the_one_that_is_checked() -> None:
    """`brokerdrill schema > chaos/scenarios/scenario.schema.json` publishes it."""
    assert json.loads((SCENARIOS / "scenario.schema.json").read_text()) == Scenario.model_json_schema()


def test_an_operation_names_a_playbook_that_there_is() -> None:
    step = "  - {type: operation, name: restart, playbook: rolling_restart, variables: {a: 1}}\npromises:"
    (*_, operation) = parse(GOOD.replace("promises:", step), Path("s.yml")).method
    assert (operation.type, operation.name) == ("operation", "restart")
    with pytest.raises(UsageError, match="no playbook is called 'rolling_restat'; did you mean 'rolling_restart'"):
        parse(GOOD.replace("promises:", step.replace("restart, var", "restat, var")), Path("s.yml"))


def test_an_operation_is_no_fault_to_wait_for() -> None:
    step = (
        "  - {type: operation, name: restart, playbook: verify}\n  - {type: heal, name: undo, of: restart}\npromises:"
    )
    with pytest.raises(UsageError, match="no action before it is called 'restart'"):
        parse(GOOD.replace("promises:", step), Path("s.yml"))
