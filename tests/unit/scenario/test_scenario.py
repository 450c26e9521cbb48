"""A scenario's YAML: what is wrong in it is told with file, line and field."""

import json
from pathlib import Path
from typing import get_args

import pytest
import yaml
from jsonschema import Draft202012Validator

from brokerdrill.base.errors import UsageError
from brokerdrill.scenario.drill import DRILLS, drill_paths, drills, load_drill, schema
from brokerdrill.scenario.model import Tamper, parse
from brokerdrill.workload.tampering import HOWS

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


def test_every_drill_of_the_repository_is_valid() -> None:
    assert {item.name for item in drills()} >= {"kill_active", "lost_reply"}
    assert {item.breaks for item in drills()} <= {
        "process", "host", "link", "quorum", "router", "database", "store", "clock", "operation", "client", "routing",
        "load", "control",
    }  # fmt: skip


def test_each_way_to_tamper_can_be_written_and_done() -> None:
    assert set(get_args(Tamper.model_fields["how"].annotation)) == set(HOWS)


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
        ("    target: active\n", "", r"line 7: method.0: action 'kill': give one of target and of"),
        ("    target: active", "    target: active\n    of: kill", r"line 7: method.0: .*give one of target and of"),
        ("    target: active", "    of: over", r"step 'kill': no action before it is called 'over'"),
        ("target: active", "target: all brokers", r"line 7: method.0: .*is no target"),
        ("until: failed_over", "until: dinner", r"line 13: method.1.until: "),
        ("of: kill", "of: other", r"line 1: the scenario: step 'over': no action before it is called 'other'"),
        ("target: active", "target: link load→active", "'kill' hits a link, and only an instance can be failed_over"),
        ("bound_ms: 6000", "limit: 6000", r"line 17: promises.1: failover_within has no field limit"),
        ("bound_ms: 6000", "bound: {times: 2}", r"line 17: promises.1.bound.of: Field required"),
        ("bound_ms: 6000", "bound_ms: 1, bound: {of: session_ms}", r"line 17: promises.1: .*give one of them"),
        ("{name: failover_within, bound_ms: 6000}", "failover_within", r"line 17: promises.1: .*needs a bound"),
        ("expect_violation: [no_loss]", "expect_violation: [sticky]", "not among the promises"),
        ("title: A title", "title: [A", "not YAML"),
        ("title: A title", "title: 2026-99-99", "line 1: not YAML: '2026-99-99' is no timestamp"),
        ("title: A title", "title: !!int x", "line 1: not YAML: 'x' is no int"),
        ("title: A title", "title: !!bool x", "line 1: not YAML: 'x' is no bool"),
        ("title: A title", f"title: {'[' * 5000}", "more is within one another than a file has"),
        ("title: A title", f"title: {'[' * 300_000}", "more is within one another than a file has"),
        ("title: A title\n", "", "line 1: title: Field required"),
        ("load:", "needs: [standbi]\nload:", r"line 4: needs.0: no need is called 'standbi'; did you mean 'standby'"),
        ("name: over", "name: kill", "two steps are called 'kill'"),
        ("load:", "links: [a→b]\nload:", r"line 4: links: .*a link is written `link FROM→TO`"),
        ("load:", "links: [link load→one of artemis]\nload:", r"line 4: links: .*a step may draw another one"),
    ],
)
def test_a_broken_scenario_names_file_line_and_field(old: str, new: str, expected: str, tmp_path: Path) -> None:
    assert old in GOOD
    path = tmp_path / "s.yml"
    path.write_text(GOOD.replace(old, new))
    for read in (lambda: parse(path.read_text(), path), lambda: load_drill(str(path))):
        with pytest.raises(UsageError, match=expected) as caught:
            read()
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)


def test_an_unknown_drill_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="no drill is called 'kill_activ'; did you mean 'kill_active'"):
        load_drill("kill_activ")


def test_the_published_schema_is_the_one_that_is_checked() -> None:
    """`brokerdrill schema > chaos/scenarios/drill.schema.json` publishes it."""
    published = json.loads((DRILLS / "drill.schema.json").read_text())
    assert published == schema()
    checker = Draft202012Validator(published)
    for path in drill_paths().values():
        assert [error.message for error in checker.iter_errors(yaml.safe_load(path.read_text()))] == [], path
    wrong = {"title": "t", "description": "d", "promises": [{"name": "available", "bound": {"times": 2}}]}
    assert not checker.is_valid(wrong)


def test_an_operation_names_a_playbook_that_there_is() -> None:
    step = "  - {type: operation, name: restart, playbook: rolling_restart, variables: {a: 1}}\npromises:"
    (*_, operation) = parse(GOOD.replace("promises:", step), Path("s.yml")).method
    assert (operation.type, operation.name) == ("operation", "restart")
    with pytest.raises(UsageError, match="no playbook is called 'rolling_restat'; did you mean 'rolling_restart'"):
        parse(GOOD.replace("promises:", step.replace("restart, var", "restat, var")), Path("s.yml"))


def test_consumers_begin_later_only_with_a_backlog() -> None:
    text = GOOD.replace("promises:", "  - {type: consume, name: take}\npromises:")
    with pytest.raises(UsageError, match="step 'take': consumers begin with the load unless that has a backlog"):
        parse(text, Path("s.yml"))
    (*_, step) = parse(text.replace("load:\n", "load:\n  backlog: true\n"), Path("s.yml")).method
    assert step.type == "consume"


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ("consumers: 0", "subscriptions: there is no consumer to have one"),
        ("consumers: 1\n  backlog: true", "subscriptions: the consumers subscribe first, which backlog"),
        ("consumers: 1\n  through: r", "subscriptions: the consumers subscribe first, which through"),
    ],
)
def test_whoever_subscribes_does_so_before_anything_is_sent(load: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse(GOOD.replace("load:\n", f"load:\n  subscriptions: true\n  {load}\n"), Path("s.yml"))


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ("transaction: 10", "window: in a transaction the commit answers for all: set transaction to 0"),
        ("transaction: 0\n  confirms: false", "window: without confirms nothing that is sent is answered"),
    ],
)
def test_only_what_is_answered_by_itself_is_in_flight_with_others(load: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse(GOOD.replace("load:\n", f"load:\n  window: 2\n  {load}\n"), Path("s.yml"))


def test_clients_with_subscriptions_of_their_own_are_not_killed() -> None:
    step = "  - {type: action, name: kill-clients, fault: client_killed, target: load}\npromises:"
    text = GOOD.replace("promises:", step)
    assert parse(text, Path("s.yml")).method[-1].name == "kill-clients"
    with pytest.raises(UsageError, match="step 'kill-clients': nobody takes over the subscriptions of clients"):
        parse(text.replace("load:\n", "load:\n  subscriptions: true\n"), Path("s.yml"))


def test_an_operation_is_no_fault_to_wait_for() -> None:
    step = (
        "  - {type: operation, name: restart, playbook: verify}\n  - {type: heal, name: undo, of: restart}\npromises:"
    )
    with pytest.raises(UsageError, match="no action before it is called 'restart'"):
        parse(GOOD.replace("promises:", step), Path("s.yml"))
