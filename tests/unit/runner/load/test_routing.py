"""Loads that are led: what the workers are told; whom the routers say is ready; which router is asked for that."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import Unmet, UsageError
from brokerdrill.base.progress import Progress
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.ledger.events import FILE, EventWriter
from brokerdrill.products.artemis import ArtemisDescriptor, onlooker
from brokerdrill.products.base import ManagementError
from brokerdrill.runner import steady_state
from brokerdrill.runner.load.plan import plan_workers
from brokerdrill.runner.system import Changes
from brokerdrill.runner.watching.pools import PoolWatch, View, combined
from brokerdrill.scenario.facts import facts
from brokerdrill.scenario.model import Load
from brokerdrill.workload.client import Aim
from brokerdrill.workload.config import WorkerConfig, from_json
from brokerdrill.workload.core_jms import url
from brokerdrill.workload.header import tag_of
from tests.unit.descriptors import instance

CREDENTIALS = {"username": "drill", "password": "p"}


def listener(port: int, name: str = "core", **values: Any) -> dict[str, Any]:
    return {"name": name, "address": f"192.0.2.{port}", "port": port, "protocol": "core", **values}


def router(name: str, port: int, key: str = "SNI_HOST") -> Descriptor:
    own = [listener(port), listener(port + 1, "led", router="r", key=key)]
    return instance("artemis", name, store=name, listeners=own, features=["connection_router"])


def target(name: str, port: int, store: str) -> Descriptor:
    return instance("artemis", name, store=store, listeners=[listener(port)])


TARGETS = [target("a1", 1, "a1"), target("b1", 2, "b"), target("b2", 3, "b")]
HOSTS = [instance("load", "load1"), instance("load", "load2")]


def planned(servers: Sequence[Descriptor], protocol: str = "core", **load: Any) -> dict[str, WorkerConfig]:
    values = {"addresses": ["q"], "through": "led", "producers": 2, "consumers": 2, "workers": 2, **load}
    made = plan_workers(
        run_id="r", seed=1, protocol=protocol, load=Load.model_validate(values), servers=servers,
        credentials=CREDENTIALS, hosts=HOSTS,
    )  # fmt: skip
    return {one.config.worker: from_json(json.dumps(one.config.to_json())) for one in made}


def test_producers_ask_routers_and_consumers_dial_stores() -> None:
    found = planned([router("r2", 20), router("r1", 10), *TARGETS], routing_keys=5, consumers=3)
    config = found["worker-0"]
    assert [(item.instance, item.port) for item in config.routers] == [("r1", 11), ("r2", 21)]
    assert {item.instance for item in config.endpoints} == {"a1", "b1", "b2"}, "nobody dials a router as a broker"
    assert config.key_type == "SNI_HOST"
    producers = [spec for one in found.values() for spec in one.producers]
    assert sorted(key for spec in producers for key in spec.keys) == [f"{tag_of('r')}-{n}" for n in range(5)], (
        "of this run alone"
    )
    consumers = {spec.name: spec for one in found.values() for spec in one.consumers}
    assert [consumers[f"consumer-{n}"].instances for n in range(3)] == [("a1",), ("b1", "b2"), ("a1",)]
    assert all(spec.addresses == ("q",) for spec in consumers.values())


def test_clients_that_nobody_redirects_ask_the_router_behind_the_listener() -> None:
    """It need not speak their protocol; what they are led to must."""
    spoken = [listener(2, "all"), {**listener(2, "all"), "protocol": "stomp"}]
    asked = ArtemisDescriptor.model_validate(
        {
            "schema": 1, "product": "artemis", "instance": "r1", "host": "r1", "store": "r1",
            "listeners": [listener(10), listener(11, "led", router="r", key="SNI_HOST")],
            "management": {"type": "jolokia", "url": "https://192.0.2.10:8161/", "broker_name": "one"},
        }
    )  # fmt: skip
    config = planned([asked, instance("artemis", "a1", store="a1", listeners=spoken)], protocol="stomp")["worker-0"]
    (router,) = config.routers
    assert (router.instance, router.router, router.broker, router.url) == ("r1", "r", "one", "https://192.0.2.10:8161/")
    assert [(item.instance, item.port) for item in config.endpoints] == [("a1", 2)]
    with pytest.raises(UsageError, match="no listener with a connection router"):
        planned([asked, instance("artemis", "a1", store="a1", listeners=spoken)], protocol="openwire")


@pytest.mark.parametrize(("routers", "asked"), [(0, ["r1", "r2"]), (1, ["r1"]), (9, ["r1", "r2"])])
def test_as_many_routers_are_asked_as_are_wanted(routers: int, asked: list[str]) -> None:
    config = planned([router("r1", 10), router("r2", 20), *TARGETS], routers=routers)["worker-0"]
    assert [item.instance for item in config.routers] == asked


@pytest.mark.parametrize("key_type", ["USER_NAME", "ROLE_NAME", "SOURCE_IP"])
def test_a_key_that_is_not_the_clients_to_choose_is_one(key_type: str) -> None:
    found = planned([router("r1", 10, key_type), *TARGETS], routing_keys=50)
    assert {spec.keys for one in found.values() for spec in one.producers} == {("drill",)}


def test_clients_without_a_key_are_null_to_the_router() -> None:
    found = planned([router("r1", 10), *TARGETS], routing_keys=0)
    assert {spec.keys for one in found.values() for spec in one.producers} == {("NULL",)}
    (config,) = (one for one in found.values() if one.producers and one.producers[0].name == "producer-0")
    asked = config.routers[0]
    assert "sniHost" not in url(replace(config, tls_ca="ca"), [asked], Aim(asked, "NULL"))
    assert "sniHost=anna" in url(replace(config, tls_ca="ca"), [asked], Aim(asked, "anna"))


def test_clients_that_choose_a_key_by_themselves_are_not_asked_to_come_without() -> None:
    spoken = [router("r1", 10, "CLIENT_ID"), *TARGETS]
    spoken = [
        item.model_copy(update={"listeners": [one.model_copy(update={"protocol": "amqp"}) for one in item.listeners]})
        for item in spoken
    ]
    with pytest.raises(UsageError, match="routing_keys is 0, and clients of amqp cannot connect without a key"):
        planned(spoken, protocol="amqp", routing_keys=0)


def test_producers_that_are_led_have_one_message_in_flight() -> None:
    with pytest.raises(UsageError, match=r"leave load\.window out"):
        planned([router("r1", 10), *TARGETS], transaction=0, window=2)


def test_the_filter_of_the_listener_goes_to_the_workers() -> None:
    filtered = [listener(10), listener(11, "led", router="r", key="SNI_HOST", key_filter="[0-9]$")]
    config = planned([instance("artemis", "r1", store="r1", listeners=filtered), *TARGETS])["worker-0"]
    assert config.key_filter == "[0-9]$"


def test_a_connection_that_is_kept_has_one_key() -> None:
    config = planned([router("r1", 10), *TARGETS], producers=4, routing_keys=4, keeps_connection=True)["worker-0"]
    assert config.keeps_connection and all(len(spec.keys) == 1 for spec in config.producers)
    with pytest.raises(ValueError, match="4 producers keep as many keys, not 5"):
        planned([router("r1", 10), *TARGETS], producers=4, routing_keys=5, keeps_connection=True)


def test_a_listener_that_leads_nobody_is_named() -> None:
    with pytest.raises(UsageError, match=r"no listener with a connection router is called 'core'; .*led"):
        planned([router("r1", 10), *TARGETS], through="core")


def test_without_through_nobody_is_led() -> None:
    config = planned([router("r1", 10), *TARGETS], through=None)["worker-0"]
    assert config.routers == () and not config.producers[0].keys
    assert {item.port for item in config.endpoints} == {1, 2, 3, 10}


def test_clients_dial_the_listener_that_a_load_names() -> None:
    own = [listener(1), listener(9, "virtual", clients=False)]
    routers = [instance("amqp_router", name, listeners=own) for name in ("r1", "r2")]
    config = planned(routers, through="virtual")["worker-0"]
    assert [(item.instance, item.port) for item in config.endpoints] == [("r1", 9), ("r2", 9)]
    assert {item.port for item in planned(routers, through=None)["worker-0"].endpoints} == {1}
    with pytest.raises(UsageError, match=r"no listener is called 'virtul'; .*virtual"):
        planned(routers, through="virtul")


@pytest.mark.parametrize(
    "change",
    [
        {"producers": [{"name": "p", "keys": ["no space"]}]},
        {"producers": [{"name": "p", "keys": ["k"]}], "routers": []},
        {"consumers": [{"name": "c", "keys": ["k"]}]},
        {"key_type": "NO_SUCH"},
    ],
)
def test_a_worker_refuses_keys_that_nobody_could_use(change: dict[str, Any]) -> None:
    config = planned([router("r1", 10), *TARGETS])["worker-0"].to_json()
    with pytest.raises(UsageError):
        from_json(json.dumps(config | change))


def test_where_all_lead_clients_they_are_what_clients_get_to() -> None:
    found = planned([router("r1", 10), router("r2", 20)])
    consumers = [spec for one in found.values() for spec in one.consumers]
    assert sorted(spec.instances for spec in consumers) == [("r1",), ("r2",)]
    assert [item.port for item in found["worker-0"].endpoints] == [10, 20], "consumers dial past the routers"


def test_a_topology_with_routers_has_drills_of_its_own() -> None:
    assert facts([router("r1", 10), *TARGETS]) == {"artemis", "connection_router"}


# --- whom the routers say is ready --------------------------------------------------------------------------------


def view(*ready: str) -> View:
    return View(frozenset(ready))


@pytest.mark.parametrize(
    ("views", "expected"),
    [
        ([view("a", "b"), view("a", "b")], {"a": True, "b": True}),
        ([view("a", "b"), view("a")], {"a": True, "b": False}),
        ([view("b"), View()], {"a": False, "b": True}),
        ([View(), View()], {"a": True, "b": False}),
    ],
)
def test_a_target_is_ready_by_all_routers_that_answer(views: list[View], expected: dict[str, bool]) -> None:
    assert combined(views, ["a", "b"], {"a": True, "b": False}) == expected


class Told:
    """A router whose answers are given, each once: places, or None for silence. After the last one nothing comes."""

    def __init__(self, *answers: list[tuple[str, int]] | None) -> None:
        self._answers = list(answers)
        self.done = asyncio.Event()

    def leads(self) -> bool:
        return True

    async def ready_targets(self) -> list[tuple[str, int]]:
        if not self._answers:
            self.done.set()
            await asyncio.Event().wait()
        answer = self._answers.pop(0)
        if answer is None:
            raise ManagementError("silence")
        return answer


def watched(told: Told, instances: Sequence[Descriptor], folder: Path, **change: Any) -> PoolWatch:
    """Return the watch of router r1 once it has had all that is `told`; its events are below `folder`."""

    async def until_told() -> PoolWatch:
        named: Mapping[str, Descriptor] = {item.instance: item for item in instances}
        watch = PoolWatch({"r1": told}, named, EventWriter(folder, "r", 0), **change)
        watch.record()
        watch.start()
        await asyncio.wait_for(told.done.wait(), 10)
        await watch.stop()
        return watch

    return asyncio.run(until_told())


def test_what_changed_is_written_with_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brokerdrill.runner.watching.pools.PoolWatch.period_s", 0.0)
    a1, b1 = ("192.0.2.1", 1), ("192.0.2.2", 2)
    told = Told([a1, b1], [b1], None, [a1, b1])
    watched(told, TARGETS, tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "events" / FILE).read_text().splitlines()]
    assert [(row["kind"], row["instance"], row["store"], row["value"], row["name"]) for row in rows] == [
        ("pool", "a1", "a1", "ready", "r1"),
        ("pool", "b1", "b", "ready", "r1"),
        ("pool", "a1", "a1", "not_ready", "r1"),
        ("pool", "a1", "a1", "ready", "r1"),
    ]


def test_a_target_that_was_never_ready_is_none_from_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its store would count as ready while its active broker is away, and moves to another as unexcused."""
    monkeypatch.setattr("brokerdrill.runner.watching.pools.PoolWatch.period_s", 0.0)
    told = Told([("192.0.2.2", 2)], [], [("192.0.2.3", 3)])
    watched(told, [leading("r1", "b1", "b2"), *TARGETS], tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "events" / FILE).read_text().splitlines()]
    assert sorted((row["instance"], row["value"]) for row in rows[:2]) == [("b1", "ready"), ("b2", "not_ready")]
    assert [(row["instance"], row["value"]) for row in rows[2:]] == [("b1", "not_ready"), ("b2", "ready")]


def leading(name: str, *targets: str) -> Descriptor:
    dials = [{"link": "target", "to": to, "address": "192.0.2.9", "port": 1} for to in targets]
    return instance("artemis", name, dials=dials)


@pytest.mark.parametrize(
    ("active", "answers", "lacking"),
    [
        (["r1", "a1", "b1"], [[("192.0.2.1", 1), ("192.0.2.2", 2)]], {}),
        (["r1", "a1", "b1"], [[("192.0.2.2", 2)]], {"r1": ["a1"]}),
        # One that waits for its turn is not expected, nor one that the router does not dial
        (["r1", "a1"], [[("192.0.2.1", 1)]], {}),
        (["r1", "a1", "b2"], [[("192.0.2.1", 1)]], {}),
        (["r1", "a1", "b1"], [[("192.0.2.1", 1), ("192.0.2.2", 2)], None], {"r1": ["a1", "b1"]}),
        (["a1", "b1"], [None], {}),
    ],
    ids=["whole", "one is not ready", "passive", "none of its targets", "a silent router", "a router that is down"],
)
def test_a_router_lacks_what_is_active_and_not_ready_to_it(
    active: list[str],
    answers: list[list[tuple[str, int]] | None],
    lacking: dict[str, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("brokerdrill.runner.watching.pools.PoolWatch.period_s", 0.0)
    told = Told(*answers)
    # Clients ask another router: what this one has ready is of no matter to them, and known all the same.
    watch = watched(told, [leading("r1", "a1", "b1"), *TARGETS], tmp_path, clients_ask=[])
    assert watch.lacking(active) == lacking
    assert not (tmp_path / "events" / FILE).read_text()


class Lacking:
    """A system whose router r1 does not have a1 ready the first so many `times` it is asked."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.changes = Changes()
        self.ran: list[str] = []
        described = SimpleNamespace(unit="artemis.service")
        self.instances = {"r1": SimpleNamespace(descriptor=described, connection=self)}

    def lacking(self) -> dict[str, list[str]]:
        self.times -= 1
        return {"r1": ["a1"]} if self.times >= 0 else {}

    async def sh(self, script: str, **_: object) -> None:
        self.ran.append(script)


def test_only_a_router_that_takes_up_nobody_again_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady_state, "RECOVERY_S", 0.5)

    async def left(times: int) -> list[str]:
        system: Any = Lacking(times)
        await steady_state.restart_routers(
            await steady_state.routers_still_lacking(system), system, Progress(Console(quiet=True))
        )
        return system.ran

    assert asyncio.run(left(2)) == []
    assert asyncio.run(left(10**6)) == ["systemctl restart artemis.service"]


def test_a_load_does_not_begin_with_a_target_missing() -> None:
    async def waited(times: int, end_ns: int) -> None:
        system: Any = Lacking(times)
        await steady_state._until_led(system, end_ns)

    asyncio.run(waited(2, now_ns() + 10**10))
    with pytest.raises(Unmet, match="r1 does not have a1 ready; a router takes up again what it has lost when it is"):
        asyncio.run(waited(10**6, now_ns()))


def described(**change: Any) -> ArtemisDescriptor:
    look = {"name": "look", "policy": "ROUND_ROBIN", "cached": False, "targets": 3, **change}
    return ArtemisDescriptor.model_validate(
        {
            "schema": 1, "product": "artemis", "instance": "r1", "host": "r1", "routers": [look],
            "listeners": [listener(1, "in", router="led", key="SNI_HOST")],
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "asked"),
    [({}, True), ({"cached": True}, False), ({"policy": "CONSISTENT_HASH"}, False), ({"targets": None}, False),
     ({"name": "led"}, False)],
)  # fmt: skip
def test_who_looks_on_takes_turns_and_leads_nobody(change: dict[str, Any], asked: bool) -> None:
    assert (onlooker(described(**change)) is not None) == asked


def test_parameters_of_connections_are_what_a_url_has() -> None:
    params = {"reconnectAttempts": 10, "failoverAttempts": -1, "retryIntervalMultiplier": 1.5, "ha": False, "user": "u"}
    (config,) = planned(TARGETS, through=None, workers=1, url_params=params).values()
    assert config.url_params == {
        "reconnectAttempts": "10",
        "failoverAttempts": "-1",
        "retryIntervalMultiplier": "1.5",
        "ha": "false",
        "user": "u",
    }
