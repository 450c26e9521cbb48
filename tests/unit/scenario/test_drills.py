"""Drills: what one becomes on the instances that are deployed, and why it does not apply to others."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from brokerdrill.base import paths
from brokerdrill.base.errors import UsageError
from brokerdrill.inventory.descriptors import Descriptor, Settings
from brokerdrill.inventory.targets import of_store
from brokerdrill.scenario.drill import check_changes, drills, load_drill, resolve
from brokerdrill.scenario.expectations import Defect
from brokerdrill.scenario.facts import facts, settings
from brokerdrill.scenario.model import Scenario, validated
from brokerdrill.scenario.promised import ExpectedPromise
from brokerdrill.scenario.table import KeptResults, applied, markdown, not_applicable
from tests.unit.descriptors import broker, instance

ZOOKEEPER = [instance("zookeeper", f"zk{number}") for number in (1, 2, 3)]
DATABASE = [
    instance(
        "lease_db", name, features=["database"],
        settings={"tcp_keepalives_idle_ms": 2000, "tcp_keepalives_interval_ms": 2000, "tcp_keepalives_count": 3},
    )
    for name in ("db1", "db2")
]  # fmt: skip


def quorum(session_ms: int = 4000, features: Sequence[str] = ("failback",)) -> list[Descriptor]:
    values: dict[str, Any] = {
        "features": ["replicated", "zookeeper_lock", "duplicate_ids", *features],
        "settings": {"session_ms": session_ms, "allow_failback": True},
    }
    return [broker("artemis", "a1", role="primary", **values), broker("artemis", "a2", role="backup", **values),
            *ZOOKEEPER]  # fmt: skip


def classic(*features: str, **values: Any) -> list[Descriptor]:
    values = {"lease_duration_ms": 3000, "lock_acquire_sleep_interval_ms": 500} | values
    return [broker("activemq_classic", name, features=features, settings=values) for name in ("c1", "c2")] + DATABASE


def voting(features: Sequence[str] = ()) -> list[Descriptor]:
    values = {"connection_ttl_ms": 4000, "vote_retries": 4, "vote_retry_wait_ms": 1000}
    return [
        broker("artemis", f"{store}-{role}", store, role=role, features=["replicated", "vote", *features],
               settings=values)
        for store in ("p2", "p1") for role in ("primary", "backup")
    ]  # fmt: skip


def on(name: str, found: Sequence[Descriptor], **changes: Any) -> Scenario:
    return resolve(load_drill(name), found, "here", {key.replace("__", "."): value for key, value in changes.items()}
                   ).scenario  # fmt: skip


def bounds(scenario: Scenario) -> dict[str, float]:
    return {
        spec.name: spec.bound_ms for spec in map(ExpectedPromise.spec, scenario.promises) if spec.bound_ms is not None
    }


def steps(scenario: Scenario) -> list[str]:
    return [step.name for step in scenario.method]


def test_what_is_deployed_answers_needs() -> None:
    assert facts(quorum()) == {
        "artemis", "zookeeper", "standby", "primary", "one_pair", "failback", "replicated", "zookeeper_lock",
        "duplicate_ids",
    }  # fmt: skip
    assert facts(voting()) == {"artemis", "standby", "primary", "several_pairs", "replicated", "vote"}
    assert facts([broker("artemis", "a"), broker("artemis", "b", "other")]) == {"artemis", "several_pairs"}


def test_settings_are_numbers_and_the_largest_counts() -> None:
    differ = [*quorum(4000)[:1], *quorum(6000)[1:2]]
    assert settings(differ) == {"session_ms": 6000}


@pytest.mark.parametrize("session_ms", [2000, 4000])
def test_bounds_follow_the_deployed_settings(session_ms: int) -> None:
    assert bounds(on("kill_active", quorum(session_ms))) == {
        "failover_within": 2 * session_ms, "failback_within": 45000, "available": 2 * session_ms + 2000
    }  # fmt: skip


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (voting(), {"failover_within": 10000}),
        (classic("lease", "database_store"), {"failover_within": 4500, "available": 5500}),
        (classic("lease", "file_store"), {"failover_within": 5500, "available": 6500}),
        (
            classic("lease", "database_store", lock_acquire_sleep_interval_ms=1500),
            {"failover_within": 5500, "available": 6500},
        ),
        (classic("database_lock", "database_store"), {"failover_within": 2000, "available": 3000}),
        (classic("file_lock", lock_acquire_sleep_interval_ms=1000), {"failover_within": 3000, "available": 4000}),
    ],
)
def test_each_lock_has_its_bound(found: list[Descriptor], expected: dict[str, float]) -> None:
    assert bounds(on("kill_active", found)) == expected


def test_a_bound_of_a_setting_that_nobody_exports_is_refused() -> None:
    bare = [item.model_copy(update={"settings": Settings(sesion_ms=1)}) for item in quorum()]
    with pytest.raises(UsageError, match=r"failover_within: no setting .* 'session_ms'; did you mean 'sesion_ms'"):
        on("kill_active", bare)


def test_steps_and_promises_only_where_their_needs_are_met() -> None:
    assert steps(on("kill_active", quorum())) == ["kill-active", "failover", "restart", "failback", "in-sync-again"]
    without = on("kill_active", quorum(features=()))
    assert steps(without) == ["kill-active", "failover", "restart", "in-sync-again"]
    assert "failback_within" not in bounds(without)
    assert (without.load.rate, on("kill_active", classic("lease", "file_store")).load.rate) == (200, 100)


def test_with_several_stores_one_of_them_is_hit() -> None:
    scenario = on("kill_active", voting(["failback"]))
    assert scenario.method[0].target == "active of p1"  # type: ignore[union-attr]
    assert [one.promise for one in scenario.known] == ["no_loss", "no_duplicates", "single_active"]
    assert scenario.expect()["no_loss"] == "known"
    assert {promise.name for promise in scenario.promises} >= {"single_active", "failback_within"}
    assert "ordered" not in {promise.name for promise in scenario.promises}
    assert of_store("link load→active", "p1") == "link load→active of p1"
    assert of_store("one of zookeeper", "p1") == "one of zookeeper"


@pytest.mark.parametrize(
    ("version", "known"), [("3.10.8", ["available"]), ("", ["available"]), ("4.0.5", []), ("10.1", [])]
)
def test_a_defect_of_one_version_is_none_of_another(version: str, known: list[str]) -> None:
    brokers = [
        instance(
            "rabbitmq",
            f"rabbit{number}",
            store=f"rabbit{number}",
            version=version,
            features=["cluster", "quorum_queues"],
        )
        for number in (1, 2, 3)
    ]
    assert [one.promise for one in on("broker_killed", brokers).known] == known
    assert ("rabbitmq_4" in facts(brokers)) == (not known)


def test_an_exception_is_told_beside_the_drill_and_says_why() -> None:
    kept = on("active_cut_off", classic("lease", "database_store"))
    split = on("active_cut_off", classic("lease", "file_store"))
    assert (kept.expect_violation, split.expect_violation) == ([], ["single_active"])
    assert "into the same files" in split.description and "into the same files" not in kept.description
    guarded, unguarded = (on("lock_file_deleted", classic("file_lock", *more)) for more in (["lock_checked"], []))
    assert steps(guarded) == ["delete-lock", "goes-on", "in-sync-again"] and steps(unguarded) == ["delete-lock"]
    assert unguarded.expect_violation == ["single_active"] and unguarded.method[0].pauses.after == 12


def test_a_drill_that_extends_another_says_only_what_differs() -> None:
    first, second = (on(name, classic("lease")) for name in ("restart_active_first", "restart_passive_first"))
    assert [step.of for step in first.method if step.type == "heal"] == ["stop-active", "stop-passive"]
    assert [step.of for step in second.method if step.type == "heal"] == ["stop-passive", "stop-active"]
    assert first.promises == second.promises and first.title != second.title
    assert bounds(on("database_stopped_30s", classic("lease"))) == {"available": 60000}
    assert bounds(on("database_stopped_5s", classic("lease"))) == {"available": 35000}, "it is not changed by the other"
    undetected = on("lost_reply_undetected", quorum())
    assert (undetected.load.duplicate_detection, undetected.expect_violation) == (False, ["no_duplicates"])
    assert undetected.load.transaction == 5


def test_why_a_drill_does_not_apply() -> None:
    with pytest.raises(UsageError, match=r"half_open does not apply to here: it needs database_lock \(a lock in the"):
        on("half_open", quorum())
    with pytest.raises(UsageError, match=r"newest_data does not apply .* needs no primary \(a pair with"):
        on("newest_data", quorum())


def test_what_is_run_is_told_whole_and_runs_again(tmp_path: Path) -> None:
    resolved = resolve(load_drill("kill_active"), quorum(), "artemis_quorum")
    told = yaml.safe_load(resolved.text)
    assert told["topology"] == "artemis_quorum" and told["load"]["addresses"]
    assert told.pop("extends") is None  # it is whole, whatever the defaults come to be
    assert not {"needs", "where", "set", "extends", "without"} & set(told) and "needs" not in resolved.text
    path = tmp_path / "kill_active.yml"
    path.write_text(resolved.text)
    assert resolve(load_drill(str(path)), quorum(), "artemis_quorum") == resolved


def test_changes_override_all_else() -> None:
    changes = {
        "load.rate": 50, "method.kill-active.ttl": 33, "method.0.pauses.before": 1,
        "promises.failover_within.bound_ms": 9,
    }  # fmt: skip
    drill = load_drill("kill_active")
    check_changes(drill, changes, "test")
    plain, changed = resolve(drill, quorum(), "here"), resolve(drill, quorum(), "here", changes)
    step = changed.scenario.method[0]
    assert changed.scenario.load.rate == 50 and plain.scenario.load.rate == 200
    assert (step.ttl, step.pauses.before) == (33, 1)  # type: ignore[union-attr]
    assert bounds(changed.scenario)["failover_within"] == 9
    assert changed.sha256 != plain.sha256 and changed.name == plain.name
    assert resolve(drill, quorum(), "here") == plain, "nothing of it stays"


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("title: Cut", "title: Sever", True),
        ("tags: [partition", "tags: [links, partition", True),
        ("runs: 13, broken: 10", "runs: 23, broken: 19", True),
        ("count: 1000", "count: 999", False),
        ("ttl: 90", "ttl: 91", False),
    ],
)
def test_a_drill_of_other_words_is_the_same_drill(before: str, after: str, same: bool, tmp_path: Path) -> None:
    """So that what was seen of it still counts."""
    drill = load_drill("active_alone")
    text = drill.path.read_text()
    assert before in text
    other = tmp_path / "active_alone.yml"
    other.write_text(text.replace(before, after))
    assert (load_drill(str(other)).sha256 == drill.sha256) == same


def test_what_a_playbook_is_given_is_no_word_for_people(tmp_path: Path) -> None:
    """By whatever name: a variable of it may be called as what only people read is."""
    text = load_drill("rolling_restart").path.read_text()
    given = re.sub(r"(playbook: rolling_restart)", r"\1, variables: {title: one}", text)
    assert given != text
    sums = set()
    for number, one in enumerate((given, given.replace("title: one", "title: two"))):
        path = tmp_path / f"d{number}.yml"
        path.write_text(one)
        sums.add(load_drill(str(path)).sha256)
    assert len(sums) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("extends: kill_activ\ntitle: t\ndescription: d\n", "did you mean 'kill_active'"),
        ("extends: kill_active\ntitle: t\ndescription: d\nset: {method.kil.ttl: 1}\n", "has no element 'kil'"),
        ("extends: defaults\ntitle: t\ndescription: d\nmethod: []\n", "line 4: method: "),
        ("extends: defaults\ntitle: t\ndescription: d\nmethod: 1\npromises: 3\nload: 4\n", "line 6: load: "),
        ("extends: defaults\ntitle: t\ndescription: d\nwhere: 3\n", "where: "),
        ("extends: kill_active\ntitle: t\ndescription: d\npromises: [{name: [a]}]\n", "line 4: promises.0.name: "),
        ("extends: PATH\ntitle: t\ndescription: d\n", "extends itself"),
    ],
)
def test_a_broken_drill_is_refused_in_one_sentence(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yml"
    path.write_text(text.replace("PATH", str(path)))
    with pytest.raises(UsageError) as caught:
        load_drill(str(path))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_of_ones_own_has_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "own.yml"
    text = "title: t\ndescription: d\nmethod: [{type: probe, name: p, until: in_sync}]\n"
    path.write_text(text)
    plain = resolve(load_drill(str(path)), quorum(), "here").scenario
    assert plain.load.rate == 200 and {"no_loss", "ordered"} <= {promise.name for promise in plain.promises}
    # What it says itself goes before what the defaults say of a product, too.
    path.write_text(text + "load: {rate: 300}\npromises: [no_loss]\nwithout: [ordered]\n")
    own = resolve(load_drill(str(path)), classic("lease"), "here").scenario
    assert (own.load.rate, own.load.transaction, own.load.producers) == (300, 0, 4)
    assert "ordered" not in {promise.name for promise in own.promises}
    path.write_text(text + "extends: null\nload: {addresses: [a]}\npromises: [no_loss]\n")
    alone = resolve(load_drill(str(path)), quorum(), "here").scenario
    assert (alone.load.rate, [promise.name for promise in alone.promises]) == (None, ["no_loss"])


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "own.yml"
    path.write_text(
        "title: t\nload: {rate: fast}\nmethod:\n"
        "  - {type: action, name: kill, fault: kil, target: active, ttl: 9}\n"
        "  - {type: probe, name: p, until: dinner}\nabrot: {}\n"
    )
    with pytest.raises(UsageError) as caught:
        load_drill(str(path))
    said = str(caught.value)
    for mistake in ("description: ", "line 2: load.rate: ", "line 4: method.0", "line 5: method.1", "line 6: abrot: "):
        assert mistake in said, said
    path.write_text(
        "title: t\ndescription: d\nmethod:\n  - {type: heal, name: h, of: nothing}\n"
        "  - {type: heal, name: h, of: nobody}\nexpect_violation: [sticky]\n"
    )
    with pytest.raises(
        UsageError, match=r"'nothing'.*two steps are called 'h'.*'nobody'.*'sticky' is expected to break"
    ):
        load_drill(str(path))


@pytest.mark.parametrize("number", range(3))
def test_the_examples_of_the_page_are_drills(number: int, tmp_path: Path) -> None:
    page = (paths.ROOT / "docs" / "own-drills.md").read_text()
    path = tmp_path / "mine.yml"
    path.write_text(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[number])
    scenario = resolve(load_drill(str(path)), quorum(), "artemis_quorum").scenario
    assert {"no_loss", "no_duplicates"} <= {promise.name for promise in scenario.promises}
    assert scenario.load.rate == (50, 400, 200)[number]


def test_two_promises_that_both_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.yml"
    path.write_text(
        "extends: defaults\ntitle: t\ndescription: d\nmethod: [{type: probe, name: p, until: in_sync}]\n"
        "promises: [{name: available, bound_ms: 1, needs: [artemis]}, {name: available, bound_ms: 2}]\n"
    )
    assert bounds(resolve(load_drill(str(path)), classic("lease"), "here").scenario) == {"available": 2}
    with pytest.raises(UsageError, match="two promises available fit"):
        resolve(load_drill(str(path)), quorum(), "here")


def test_known_defects_stand_in_the_findings() -> None:
    """Each names the row that describes it, with at least one run in which it was seen."""
    findings = (paths.ROOT / "FINDINGS.md").read_text()
    texts = [Defect.model_validate(one) for drill in drills() for one in _known(drill.data)]
    assert texts
    for one in texts:
        assert f"\n| {one.finding} |" in findings, one.finding
        assert one.seen.broken <= one.seen.runs
        assert one.seen.version in one.finding


SEEN = {"runs": 10, "broken": 1, "topology": "t", "version": "1"}


def _known(data: Mapping[str, Any]) -> Iterator[Any]:
    yield from data.get("known", ())
    for entry in data.get("where", ()):
        yield from entry.get("set", {}).get("known", ())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"promises": [{"name": "failover_within", "bound_ms": 1e9}]}, "its bound of 1e+06 s is as long"),
        ({"promises": ["no_phantoms", {"name": "available", "bound_ms": 600_000}]}, "its bound of 600 s is as long"),
        ({"only": {"sticky": "target"}}, "not sticky, or not expected to break"),
        ({"known": [{"promise": "no_loss", "at_most": {}, "finding": "x", "seen": SEEN}]}, "give count, rate or ms"),
        ({"known": [{"promise": "no_loss", "at_most": {"rate": 1}, "finding": "x", "seen": SEEN}]}, "less than 1"),
        ({"known": [{"promise": "sticky", "at_most": {"count": 1}, "finding": "x", "seen": SEEN}]}, "not among"),
        ({"investigates": ["no_loss"]}, "investigates"),
    ],
)
def test_a_drill_in_which_nothing_can_fail_is_refused(change: dict[str, Any], told: str) -> None:
    data = dict(load_drill("kill_active").data) | change
    if "promises" in change:
        data = {key: value for key, value in data.items() if key != "where"}
    with pytest.raises(UsageError, match=re.escape(told)):
        validated(data, Path("kill_active.yml"), None)


def test_the_table_says_what_is_expected_and_why_not() -> None:
    drill = load_drill("active_cut_off")
    others = [applied(load_drill(name), quorum(), "q") for name in ("kill_active", "database_killed", "half_open")]
    assert not_applicable([applied(drill, quorum(), "q"), *others]) == [
        ("database (a database that the brokers use)", ["active_cut_off", "database_killed"]),
        ("database_lock (a lock in the database that decides which broker is active)", ["half_open"]),
    ]
    place = applied(drill, classic("lease", "file_store"), "files")
    assert place.sign == "✗" and place.expected == "violates single_active"
    topologies = {"q": quorum(), "files": classic("lease", "file_store")}
    page = markdown([drill], topologies, {})
    assert "| `active_cut_off` |  | ✗ |" in page and "available 30 s" not in page
    assert "0 of 1 pairs" in page
    day = datetime.date(2026, 11, 29)
    seen = KeptResults(3, 2, 1, {"single_active": 2}, day, {"activemq_classic": "5.18.3"})
    page = markdown([drill], topologies, {("active_cut_off", "files"): seen, ("active_cut_off", "elsewhere"): seen})
    assert "| `active_cut_off` |  | ✗ 2/3 |" in page
    assert "2 of 3 (9% to 99%) | 1 | single_active 2 | 2026-11-29 | activemq_classic 5.18.3 |" in page
    assert "elsewhere" not in page


def test_a_majority_is_killed_wherever_an_ensemble_decides_who_is_active_and_nowhere_else() -> None:
    peers = [item.model_copy(update={"role": ""}) for item in quorum(features=())]
    for name, waits in (("majority_killed", False), ("majority_killed_backlog", True)):
        for found in (quorum(), peers):
            scenario = on(name, found)
            assert scenario.load.backlog == waits
            kill, heal = scenario.method[0], scenario.method[1]
            assert (kill.fault, kill.target) == ("kill", "majority of zookeeper")
            # Away for longer than a session, and for less than it takes to start a broker by hand
            assert kill.pauses.after == 9
            assert (heal.type, heal.of) == ("heal", kill.name)
            assert {"no_loss", "no_duplicates", "single_active", "atomic"} <= set(scenario.expect())
        assert "in-sync-after-failback" in steps(on(name, quorum()))
        assert "in-sync-after-failback" not in steps(on(name, peers))
        # Neither votes nor a lease lock in ZooKeeper, though an ensemble be there
        for found in (voting(), classic("lease", "database_store"), [*voting(), *ZOOKEEPER]):
            assert load_drill(name).unmet(found)
