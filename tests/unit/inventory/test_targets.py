import random

import pytest

from brokerdrill.base.errors import BrokerdrillError, InfrastructureError, UsageError
from brokerdrill.inventory.descriptors import TOOLS, Descriptor
from brokerdrill.inventory.targets import Scene, of_store, resolve, served_by, validate_spec


def descriptor(instance: str, product: str, **fields: object) -> Descriptor:
    return TOOLS.get(product, Descriptor).model_validate(
        {"schema": 1, "instance": instance, "product": product, "host": instance, **fields}
    )


def broker(name: str, role: str, peer: str) -> Descriptor:
    return descriptor(
        name,
        "artemis",
        role=role,
        store="pair1",
        data_dir="/var/lib/artemis/data",
        features=["own_disk"],
        control="/opt/patroni/bin/patronictl -c /etc/patroni.yml",
        listeners=[
            {"name": "core", "address": f"{name}.test", "port": 61616, "protocol": "core"},
            {"name": "console", "address": f"{name}.test", "port": 8161, "protocol": "https"},
        ],
        dials=[{"link": "backup", "to": peer, "address": f"{peer}.test", "port": 61616}]
        + [{"link": "zookeeper", "to": f"zk{n}", "address": f"zk{n}.test", "port": 2281} for n in (1, 2, 3)],
    )


def toxiproxy(host: str) -> Descriptor:
    api = {"address": "127.0.0.1", "port": 8475}
    return descriptor(f"toxiproxy_{host}", "toxiproxy", user="links", api=api).model_copy(update={"host": host})


ALL = [
    broker("artemis1", "primary", "artemis2"),
    broker("artemis2", "backup", "artemis1"),
    *(descriptor(f"zk{n}", "zookeeper") for n in (1, 2, 3)),
    descriptor("load1", "load", python="/p", pythonpath="/w", java_home="/j", jars={"core": "/c"}, spool_dir="/s"),
    *(toxiproxy(host) for host in ("artemis1", "load1")),
]


def scene(one: str = "active", two: str = "passive", seed: int = 1) -> Scene:
    return Scene(ALL, {"artemis1": one, "artemis2": two}, random.Random(seed))


def names(spec: str, at: Scene | None = None) -> list[str]:
    return [item.instance for item in resolve(at or scene(), spec).instances]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("active", ["artemis1"]),
        ("passive", ["artemis2"]),
        ("backup", ["artemis2"]),
        ("artemis1", ["artemis1"]),
        ("all of zookeeper", ["zk1", "zk2", "zk3"]),
        ("zookeeper", ["zk1", "zk2", "zk3"]),
    ],
)
def test_words_become_instances(spec: str, expected: list[str]) -> None:
    assert names(spec) == expected


def test_active_is_who_is_active_now_whatever_the_inventory_calls_it() -> None:
    assert names("active", scene("passive", "active")) == ["artemis2"]


def test_one_and_majority_count_and_repeat_with_the_seed() -> None:
    assert len(names("one of zookeeper")) == 1
    assert len(names("majority of zookeeper")) == 2
    assert {tuple(names("first of zookeeper", scene(seed=s))) for s in range(30)} == {("zk1",)}
    assert {tuple(names("one of zookeeper", scene(seed=s))) for s in range(30)} == {("zk1",), ("zk2",), ("zk3",)}
    assert names("one of zookeeper", scene(seed=5)) == names("one of zookeeper", scene(seed=5))


def test_a_feature_means_those_that_have_it() -> None:
    members = [descriptor(f"r{number}", "rabbitmq", features=["cluster"]) for number in (1, 2)]
    at = Scene([*members, descriptor("alone", "rabbitmq")], {}, random.Random(1))
    assert names("all of cluster", at) == ["r1", "r2"]
    assert names("all of rabbitmq", at) == ["alone", "r1", "r2"]
    assert names("all of rabbitmq but cluster", at) == ["alone"]
    with pytest.raises(UsageError, match="no product or store is called 'clster'"):
        names("all of rabbitmq but clster", at)
    with pytest.raises(InfrastructureError, match="target 'all of cluster but rabbitmq' fits no instance"):
        names("all of cluster but rabbitmq", at)


def test_who_is_beside_another_runs_on_its_host() -> None:
    def server(host: str) -> Descriptor:
        others = [name for name in ("artemis1", "artemis2", "store1") if name != host]
        dials = [{"link": "store", "to": f"store-{name}", "address": f"{name}.test", "port": 49152} for name in others]
        return descriptor(f"store-{host}", "shared_store", dials=dials).model_copy(update={"host": host})

    servers = [server(host) for host in ("artemis1", "artemis2", "store1")]
    at = Scene([*ALL, *servers], {"artemis1": "passive", "artemis2": "active"}, random.Random(1))
    assert names("shared_store beside active", at) == ["store-artemis2"]
    assert names("shared_store beside passive of pair1", at) == ["store-artemis1"]
    cut = resolve(at, "link shared_store beside active↔shared_store").links
    assert sorted((link.dialler, link.instance) for link in cut) == [
        ("artemis1", "store-artemis2"),
        ("artemis2", "store-artemis1"),
        ("artemis2", "store-store1"),
        ("store1", "store-artemis2"),
    ]
    assert of_store("link shared_store beside active↔shared_store", "pair1") == (
        "link shared_store beside active of pair1↔shared_store"
    )
    with pytest.raises(InfrastructureError, match="target 'shared_store beside zk1' fits no instance"):
        names("shared_store beside zk1", at)


def test_what_a_fault_hit_are_its_instances_or_those_that_its_links_lead_to() -> None:
    def again(spec: str) -> list[str]:
        found = served_by(ALL, resolve(scene(), spec), "what it hit")
        assert found.spec == "what it hit" and not found.links
        return [item.instance for item in found.instances]

    assert again("active") == ["artemis1"]
    assert again("all of zookeeper") == ["zk1", "zk2", "zk3"]
    assert again("link active→zookeeper") == ["zk1", "zk2", "zk3"]
    assert again("link load→passive") == ["artemis2"]


def test_a_link_both_ways_is_between_the_same_ones() -> None:
    def member(number: int) -> Descriptor:
        others = [{"link": "cluster", "to": f"r{n}", "address": f"10.0.0.{n}", "port": 25672} for n in (1, 2, 3)]
        dials = [dial for dial in others if dial["to"] != f"r{number}"]
        return descriptor(f"r{number}", "rabbitmq", features=["cluster"], dials=dials)

    members = [member(number) for number in (1, 2, 3)]
    for seed in range(10):
        links = resolve(Scene(members, {}, random.Random(seed)), "link one of cluster↔cluster").links
        (one,) = (name for name in ("r1", "r2", "r3") if all(name in (link.dialler, link.instance) for link in links))
        assert len(links) == 4
        assert sum(link.dialler == one for link in links) == 2


def test_links_lead_from_who_dials_to_where_it_dials() -> None:
    load = resolve(scene(), "link load→active").links
    assert [(link.dialler, link.address, link.port) for link in load] == [("load1", "artemis1.test", 61616)]
    lock = resolve(scene("passive", "active"), "link active->zookeeper").links
    assert {(link.dialler, link.address) for link in lock} == {("artemis2", f"zk{n}.test") for n in (1, 2, 3)}


@pytest.mark.parametrize(
    ("spec", "at", "error", "words"),
    [
        ("active", scene("active", "active"), InfrastructureError, "fits 2 instances"),
        ("active", scene("down", "syncing"), InfrastructureError, "fits 0 instances"),
        ("artemis3", scene(), UsageError, "did you mean"),
        ("one of rabbit", scene(), UsageError, "no product or store"),
        ("link load", scene(), UsageError, "FROM→TO"),
        ("link zk1→active", scene(), InfrastructureError, "does not dial"),
        ("some of us", scene(), UsageError, "is no target"),
    ],
)
def test_what_fits_nothing_is_one_sentence(spec: str, at: Scene, error: type[BrokerdrillError], words: str) -> None:
    with pytest.raises(error, match=words):
        resolve(at, spec)


def test_a_spec_is_checked_before_there_is_a_scene() -> None:
    with pytest.raises(UsageError):
        validate_spec("link a b")


WITH_DATABASE = [*ALL, *(descriptor(f"db{n}", "lease_db", store="leasedb") for n in (1, 2))]


def test_a_database_is_active_too_but_no_broker() -> None:
    roles = {"artemis1": "passive", "artemis2": "active", "db1": "active", "db2": "passive"}
    at = Scene(WITH_DATABASE, roles, random.Random(1))
    assert names("active", at) == ["artemis2"]
    assert names("active of lease_db", at) == ["db1"]
    assert names("passive of leasedb", at) == ["db2"]
    with pytest.raises(InfrastructureError, match="fits 0 instances"):
        names("active of lease_db", Scene(WITH_DATABASE, {}, random.Random(1)))
    with pytest.raises(UsageError, match="lease_db"):
        names("active of lease_bd", at)


def test_reached_is_the_active_broker_that_most_producers_are_at() -> None:
    serves = [{"name": "core", "address": "192.0.2.1", "port": 1, "protocol": "core"}]
    stores = [descriptor(name, "artemis", store=name, listeners=serves) for name in ("b1", "b2", "b3")]
    serving = dict.fromkeys(("b1", "b2", "b3"), "active")
    rng = random.Random(1)
    found = [
        resolve(Scene(stores, roles, rng, reached), "reached").describe()
        for roles, reached in (
            (serving, {"b1": 1, "b3": 7}),
            ({**serving, "b3": "down"}, {"b1": 1, "b3": 7}),
        )
    ]
    assert found == ["b3", "b1"]
    # While nobody is anywhere, any of them.
    anyone = {resolve(Scene(stores, serving, random.Random(seed)), "reached").describe() for seed in range(20)}
    assert anyone == {"b1", "b2", "b3"}
    with pytest.raises(InfrastructureError, match="fits 0 instances"):
        resolve(Scene(stores, {}, rng, {"b1": 1}), "reached")


def test_the_router_is_the_first_that_leads_clients() -> None:
    led = [{"name": "led", "address": "192.0.2.1", "port": 1, "protocol": "core", "router": "r", "key": "SNI_HOST"}]
    routers = [descriptor(name, "artemis", listeners=led) for name in ("router2", "router1")]
    scene = Scene([*ALL, *routers], {}, random.Random(1))
    assert [item.instance for item in resolve(scene, "router").instances] == ["router1"]
    with pytest.raises(BrokerdrillError, match="router"):
        resolve(Scene(ALL, {}, random.Random(1)), "router")
