"""Members of a farm that are ejected since their sessions fail, and the retry budget."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from router_fakes import members, open_session, settings
from router_support import config_of, local_router_of, wait_for
from test_blame import refuse_with
from test_metrics import samples
from test_sessions import Client, FakeBroker

from amqp_session_router.base.model import End, Identity, Route
from amqp_session_router.routing.outliers import Outliers
from amqp_session_router.routing.retry_budget import RetryBudget, RetryBudgets
from amqp_session_router.routing.routes import Routes

A = Identity("a")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def routes_of(count: int = 4, **farm: Any) -> tuple[Routes, Clock]:
    clock = Clock()
    names = [f"b{number}" for number in range(count)]
    farm = {"members": names, "selector": "first"} | farm
    routes = Routes(settings(backends=members(*names), farms={"f": farm}, default={"farm": "f"}))
    routes.outliers, routes.budgets = Outliers(clock), RetryBudgets(clock)
    routes._go_by(routes.settings)
    return routes, clock


def order(routes: Routes) -> list[str]:
    """Return the candidates of a session."""
    decision = routes.planner.plan(A)
    assert isinstance(decision, Route)
    return [backend.name for backend in decision.candidates]


def fail(routes: Routes, name: str, times: int = 1) -> None:
    for _ in range(times):
        routes.outliers.failed(name)


def test_a_member_whose_attempts_fail_is_tried_last_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    routes, clock = routes_of(outlier_detection={"failures": 3, "interval": 10, "ejection_time": 30})
    caplog.set_level("INFO")
    for _ in range(3):
        session = open_session(routes, A)
        routes.attempted(session, routes.settings.backends["b0"], False, "gone")
    assert order(routes) == ["b0", "b1", "b2", "b3"]
    routes.attempted(session, routes.settings.backends["b0"], False, "gone")
    assert order(routes) == ["b1", "b2", "b3", "b0"]
    clock.now += 29.9
    assert order(routes)[-1] == "b0"
    clock.now += 0.2
    assert order(routes) == ["b0", "b1", "b2", "b3"]
    said = [one.message for one in caplog.records if "backend is" in one.message]
    assert said == ["backend is ejected", "backend is taken back"]


def test_sessions_that_a_broker_loses_count_and_no_others() -> None:
    routes, _ = routes_of(outlier_detection={"failures": 2})
    for how in End:
        for _ in range(3):
            session = open_session(routes, A)
            routes.closed(session, how)
            routes.closed(session, how)
        assert (order(routes)[-1] == "b0") == (how is End.BROKER_LOST), how
        routes, _ = routes_of(outlier_detection={"failures": 2})


def test_failures_that_are_too_far_apart_do_not_add_up() -> None:
    routes, clock = routes_of(outlier_detection={"failures": 2, "interval": 10})
    for _ in range(20):
        fail(routes, "b0")
        clock.now += 5.0
    assert order(routes)[0] == "b0"


def test_it_comes_before_the_fallback_and_behind_those_that_are_not_ready() -> None:
    clock = Clock()
    farms = {
        "f": {"members": ["a", "b"], "policies": ["health"], "fallback": "g", "outlier_detection": {"failures": 1}},
        "g": {"members": ["c"]},
    }
    routes = Routes(settings(backends=members("a", "b", "c"), farms=farms, default={"farm": "f"}))
    routes.outliers._clock = clock
    routes.markers.checked("b", False)
    fail(routes, "a", 2)
    assert order(routes) == ["b", "a", "c"]


@given(st.integers(1, 7), st.integers(0, 100), st.lists(st.tuples(st.integers(0, 6), st.integers(0, 20)), max_size=60))
def test_never_more_than_a_share_is_ejected_and_every_member_stays(
    count: int, percent: int, steps: list[tuple[int, int]]
) -> None:
    routes, clock = routes_of(
        count, outlier_detection={"failures": 1, "ejection_time": 15, "max_ejection_percent": percent}
    )
    farm = routes.settings.farms["f"]
    for member, later in steps:
        clock.now += later
        fail(routes, f"b{member}", 2)
        ejected = routes.outliers.ejected(farm)
        assert len(ejected) <= count * percent // 100
        found = order(routes)
        assert sorted(found) == [f"b{number}" for number in range(count)]
        assert {*found[count - len(ejected) :]} == ejected


def test_those_that_drain_are_no_part_of_the_share(caplog: pytest.LogCaptureFixture) -> None:
    names = members("a", "b") | members("c", "d", drain=True)
    farm = {"members": [*names], "outlier_detection": {"failures": 1}}
    routes = Routes(settings(backends=names, farms={"f": farm}, default={"farm": "f"}))
    fail(routes, "a", 2)
    fail(routes, "b", 20)
    assert routes.outliers.ejected(routes.settings.farms["f"]) == {"a"}
    assert [one.message for one in caplog.records if "stays" in one.message] == [
        "backend stays: too many of its farm are ejected"
    ]


def test_a_reload_keeps_who_is_ejected_and_forgets_who_left() -> None:
    routes, _ = routes_of(outlier_detection={"failures": 1})
    fail(routes, "b0", 2)
    data = routes.settings.config.model_dump(exclude_unset=True)
    routes.apply(settings(**data | {"datacenter": "x"}))
    assert order(routes)[-1] == "b0"
    data["farms"]["f"].pop("outlier_detection")
    routes.apply(settings(**data))
    assert order(routes)[0] == "b0" and not routes.outliers._members


def test_a_broker_that_passes_its_checks_and_refuses_sessions() -> None:
    bad, good = FakeBroker(refuse_with(320)), FakeBroker()
    config = config_of(bad.port, good.port)
    detection = {"failures": 2, "interval": 600, "ejection_time": 600}
    config["farms"]["all"] |= {"selector": "first", "policies": ["health"], "outlier_detection": detection}
    config["status"] = {"port": 0}
    with local_router_of(config) as router:
        clients = [Client(router.port).opened() for _ in range(3)]
        wait_for("the ejection", lambda: router.entries("backend is ejected"))
        before = len(bad.vhosts)
        clients += [Client(router.port).opened() for _ in range(5)]
        assert len(bad.vhosts) == before
        (row,) = router.ctl("FARM", "PRINT")
        assert row["ejected"] == "b0"
        del clients


# --- the retry budget ---


def test_a_share_of_the_first_attempts_and_some_in_any_case() -> None:
    clock = Clock()
    part = (
        settings(
            backends=members("a"), farms={"f": {"members": ["a"], "retry_budget": {"ratio": 0.5, "min_per_second": 1}}}
        )
        .farms["f"]
        .retry_budget
    )
    assert part is not None
    budget = RetryBudget("f", part, clock)
    # Those of ten seconds at once.
    assert [budget.retry() for _ in range(12)] == [True] * 10 + [False] * 2
    for _ in range(4):
        budget.first()
    assert [budget.retry() for _ in range(3)] == [True, True, False]
    assert budget.exhausted == 3
    clock.now += 10
    # What was used before counts by 1/e: of 10 and 2 of 4 there are about 7.6 and 2 · 0.37 left to give.
    assert sum(budget.retry() for _ in range(20)) == 6


def test_without_a_budget_left_a_session_is_refused_instead_of_tried_everywhere() -> None:
    brokers = [FakeBroker(refuse_with(320)) for _ in range(3)]
    config = config_of(*(one.port for one in brokers))
    config["farms"]["all"] |= {"selector": "first", "retry_budget": {"ratio": 0, "min_per_second": 0.1}}
    config["farms"]["all"]["fallback"] = "spare"
    config["farms"]["spare"] = {"members": ["b2"]}
    config["farms"]["all"]["members"] = ["b0", "b1"]
    with local_router_of(config) as router:
        tried = [Client(router.port).closed()[1].partition(" tried")[0][-1] for _ in range(3)]
        assert tried == ["2", "1", "1"]
        assert [one["how"] for one in router.entries("closed")].count("no_backend") >= 2
        assert len(router.entries("the retry budget is used up")) == 1


def test_each_worker_of_a_healthy_farm_needs_no_budget() -> None:
    broker = FakeBroker()
    config = config_of(broker.port)
    config["farms"]["all"]["retry_budget"] = {"ratio": 0, "min_per_second": 0}
    with local_router_of(config) as router:
        clients = [Client(router.port).opened() for _ in range(5)]
        del clients


def test_a_budget_is_kept_over_a_reload_that_does_not_change_it() -> None:
    routes, _ = routes_of(retry_budget={})
    before = routes.budgets.by_farm["f"]
    data = routes.settings.config.model_dump(exclude_unset=True)
    routes.apply(settings(**data | {"datacenter": "x"}))
    assert routes.budgets.by_farm["f"] is before
    data["farms"]["f"]["retry_budget"] = {"ratio": 0.7}
    routes.apply(settings(**data))
    assert routes.budgets.by_farm["f"] is not before


def test_metrics_show_both() -> None:
    routes, _ = routes_of(outlier_detection={"failures": 1}, retry_budget={"ratio": 0, "min_per_second": 0})
    fail(routes, "b1", 2)
    decision = routes.decide(A)
    assert isinstance(decision, Route)
    assert [one.name for one in decision.candidates] == ["b0"]
    shown = samples(routes)
    assert shown["amqp_router_member_ejected", "f,b1"] == shown["amqp_router_ejections_total", "f,b1"] == 1
    assert shown["amqp_router_member_ejected", "f,b0"] == 0
    assert shown["amqp_router_retry_budget_exhausted_total", "f"] == 1
