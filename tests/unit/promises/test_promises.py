"""A promise is one definition: all that names promises or speaks of them follows from it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from brokerdrill.analysis import verdict
from brokerdrill.base.errors import UsageError
from brokerdrill.cli import reference
from brokerdrill.cli.judging import parse_promises
from brokerdrill.ledger import contract
from brokerdrill.ledger.contract import PromiseSpec
from brokerdrill.ledger.verdict import Verdict
from brokerdrill.promises.catalogue import PROMISES, broken_by_class, doubted_by, promise
from brokerdrill.promises.definition import BOUND, Doubt, Field, Promise, Words
from brokerdrill.report import junit, view, words
from brokerdrill.scenario.model import Scenario, parse

SCENARIO = """\
title: A title
description: What it is for
topology: artemis_quorum
load: {addresses: [drill.q0]}
method: [{type: action, name: kill, fault: kill, target: active}]
promises: [no_loss, PROMISE]
"""
TOY = Promise(
    "fresh",
    Words(
        promise="No message is older than the bound when it is delivered.",
        breaks="a message that is delivered later than the bound after its send",
        kept="Every message was fresh: {measured} at worst.",
        broken="{messages} stale: {measured} at worst.",
        unknown="Nothing was delivered.",
        excused="stale, but after a fault",
    ),
    fields=(
        Field(BOUND, "the time from a message's send to its delivery", unit="ms", required=True),
        # A field named like a word of Python, and one like something that every object here has.
        Field("from", "what the time counts from", choices={"send": "from the send", "commit": "from the commit"}),
        Field("name_ms", "how long a name is remembered", unit="ms", default=5),
    ),
    breaking=("expired",),
    doubts=frozenset({Doubt.UNPLACED_CLOCK}),
)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Promise:
    """One more promise than there are."""
    monkeypatch.setitem(PROMISES, TOY.name, TOY)
    return TOY


def test_every_promise_has_its_check() -> None:
    modules = {name: importlib.util.find_spec(f"brokerdrill.analysis.checks.{name}") for name in PROMISES}
    assert not [name for name, found in modules.items() if found is None]


def test_every_class_that_a_promise_names_is_one_and_has_one_promise() -> None:
    named = [kind for one in PROMISES.values() for kind in (*one.breaking, *one.doubtful)]
    assert set(named) <= set(contract.CLASSES)
    assert len(named) == len(set(named)) == len(broken_by_class())


def test_every_sentence_is_one() -> None:
    for one in PROMISES.values():
        for text in (one.words.promise, one.words.kept, one.words.broken, one.words.unknown):
            assert text.endswith("."), (one.name, text)
        assert not one.words.breaks.endswith(".")


def test_the_pages_are_what_the_code_says() -> None:
    """`brokerdrill reference` writes them."""
    for name, page in reference.PAGES.items():
        assert (reference.FOLDER / name).read_text(encoding="utf-8") == page(), name


def test_doubts_are_those_of_the_contract() -> None:
    timed = {"sticky", "single_active", "failover_within", "failback_within", "available", "stays_up"}
    timed |= {"alerted_within", "delivered_within"}
    assert doubted_by(Doubt.TORN_OPERATIONS) == set(PROMISES)
    assert doubted_by(Doubt.TORN_EVENTS) == timed | {"no_loss", "no_nonpersistent_loss", "atomic"}
    assert doubted_by(Doubt.UNPLACED_CLOCK) == timed | {"ordered"}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("{name: no_los}", "no promise is called 'no_los'; did you mean 'no_loss'"),
        ("{name: no_duplicates, bound_ms: 5}", r"no_duplicates has no field bound_ms \(its fields: none\)"),
        ("{name: ordered, scope: world}", "ordered's scope is 'world', none of session, key"),
        ("{name: sticky, check_period_ms: -1}", "sticky's check_period_ms is negative"),
        ("{name: sticky, check_period_ms: soon}", "sticky's check_period_ms must be a number of milliseconds"),
        ("available", "available needs a bound in milliseconds"),
    ],
)
def test_a_wrong_value_gets_one_sentence(given: str, problem: str) -> None:
    with pytest.raises(UsageError, match=rf"s.yml, line 6: promises.1(\.name)?: {problem}"):
        parse(SCENARIO.replace("PROMISE", given), Path("s.yml"))


def test_a_field_that_is_not_given_has_its_default() -> None:
    assert PromiseSpec("ordered").scope == "session"
    assert PromiseSpec("ordered", scope="key").scope == "key"
    assert PromiseSpec("available", 5).side == "send"
    assert PromiseSpec("no_loss").side is None
    assert PromiseSpec("no_loss").to_json() == {"name": "no_loss"}
    with pytest.raises(AttributeError, match="no promise has a field 'skope'"):
        _ = PromiseSpec("ordered").skope


def test_a_bound_where_there_is_none_is_refused_on_the_command_line() -> None:
    assert parse_promises(["available=5", "no_loss"]) == [PromiseSpec("available", 5), PromiseSpec("no_loss")]
    for words_given, problem in (
        ("no_loss=5", "no_loss has no field bound_ms"),
        ("available", "available needs a bound"),
        ("available=soon", "'soon' is no number of milliseconds"),
        ("availabel=5", "did you mean 'available'"),
    ):
        with pytest.raises(UsageError, match=problem):
            parse_promises([words_given])


def test_a_new_promise_is_one_definition(toy: Promise) -> None:
    given = "{name: fresh, bound_ms: 100, from: commit}"
    assert "fresh" not in SCENARIO
    (_, own) = parse(SCENARIO.replace("PROMISE", given), Path("s.yml")).promises
    spec = own.spec()
    assert spec.to_json() == {"name": "fresh", "bound_ms": 100, "from": "commit"}
    assert (spec.bound_ms, getattr(spec, "from"), spec.name_ms) == (100, "commit", 5)
    with pytest.raises(UsageError, match="fresh's from is 'birth', none of send, commit"):
        parse(SCENARIO.replace("PROMISE", given.replace("commit", "birth")), Path("s.yml"))

    schemas = {one.get("title"): one for one in Scenario.model_json_schema()["$defs"]["ExpectedPromise"]["oneOf"]}
    assert schemas["fresh"]["required"] == ["name"] and {"required": ["bound_ms"]} in schemas["fresh"]["oneOf"]
    assert schemas["fresh"]["properties"]["from"]["enum"] == ["send", "commit"]
    assert parse_promises(["fresh=7"]) == [PromiseSpec("fresh", 7)]
    assert promise("fresh") is toy

    run = contract.new_run("r1", promises=(spec,), expect={"fresh": "kept"})
    assert contract.run_from_json(run.to_json(), "run.json").promises == (spec,)
    assert [one.name for one in verdict.checked(run, None, "run.json")] == ["no_phantoms", "fresh"]
    assert "fresh" in doubted_by(Doubt.UNPLACED_CLOCK) and "fresh" not in doubted_by(Doubt.TORN_EVENTS)
    assert words.breaks("expired") == "fresh"

    told = verdict.of_promise(spec, "kept", count=2, measured=120.0).to_json()
    assert (told["bound"], told["from"], told["name"]) == (100, "commit", "fresh")
    found = Verdict.from_json({"run_id": "r1", "verdict": "fail", "promises": [told]})
    (result,) = found.runs
    assert words.meaning(result.promises[0]) == "2 messages were stale: 120 ms at worst."
    (row,) = view.promise_rows(result, None)
    assert (row.promise, row.details, row.excused_for) == (toy.words.promise, "from the commit", toy.words.excused)
    xml = junit.junit(found).decode()
    assert '<testcase classname="r1" name="fresh"' in xml and "2 messages were stale" in xml
    assert "| `fresh` | a message that is delivered later than the bound after its send |" in reference.promises()
