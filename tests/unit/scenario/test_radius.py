"""How far a drill could go: which hosts, how many services out of service at once, and what is too far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from brokerdrill.base.errors import UsageError
from brokerdrill.gameday.model import Radius as GameDayRadius
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.operations import NO_STEPS, OPERATIONS, operation
from brokerdrill.inventory.playbooks import PLAYBOOKS
from brokerdrill.inventory.topology import Host, Topology
from brokerdrill.scenario.drill import load_drill, resolve
from brokerdrill.scenario.model import parse
from brokerdrill.scenario.radius import Limits, Radius, limits, possible, reached, redeployment, too_far
from tests.unit.descriptors import instance
from tests.unit.worlds import LOAD, PAIR, RABBITS, ROUTERS, ZOOKEEPER, broker

SYSTEM = [*PAIR, *ZOOKEEPER, LOAD]
CLUSTER = [*RABBITS, *ROUTERS, LOAD]
GROUPS = {item.host: (item.product,) for item in [*SYSTEM, *CLUSTER]}
HEAD = """
title: T
description: D
load: {addresses: [drill.q]}
promises: [no_loss]
"""


def scenario(*steps: str, more: str = "") -> Any:
    return parse(HEAD + more + "\nmethod:\n" + "\n".join(f"  - {{{step}}}" for step in steps), Path("s.yml"))


def kill(name: str, target: str, **more: str) -> str:
    words = "".join(f", {key}: {value}" for key, value in more.items())
    return f"type: action, name: {name}, fault: kill, target: {target}{words}"


def most(descriptors: list[Descriptor], *steps: str, more: str = "") -> int:
    return reached(scenario(*steps, more=more), descriptors).at_once


PROBE = "type: probe, name: goes-on, until: acknowledged"
IN_SYNC = "type: probe, name: whole, until: in_sync"
HEAL = "type: heal, name: back, of: a"


def test_what_is_not_required_to_come_has_not_been_seen() -> None:
    steps = kill("a", "artemis1"), HEAL, IN_SYNC, kill("b", "artemis2")
    assert most(SYSTEM, *steps) == 1
    assert most(SYSTEM, *steps[:2], f"{IN_SYNC}, required: false", steps[3]) == 2


def test_what_a_target_can_come_to_mean() -> None:
    def words(spec: str, descriptors: list[Descriptor] = SYSTEM) -> set[str]:
        return {one.describe() for one in possible(descriptors, spec)}

    assert words("active") == words("passive") == words("one of artemis") == {"artemis1", "artemis2"}
    assert words("all of artemis") == {"artemis1, artemis2"}
    assert words("link load→active") == {"load1→artemis1", "load1→artemis2"}
    assert words("nobody") == set()
    # Not only neighbours.
    assert words("majority of zookeeper") == {"zk1, zk2", "zk1, zk3", "zk2, zk3"}
    # Each active one of several stores, whoever serves the others.
    two = [broker(f"{store}{n}", store=store) for store in ("east", "west") for n in (1, 2)]
    assert words("reached", two) == {"east1", "east2", "west1", "west2"}
    assert words("active of west", two) == {"west1", "west2"}


@pytest.mark.parametrize(
    ("descriptors", "steps", "count"),
    [
        (SYSTEM, [kill("a", "active")], 1),
        # Each time another one may be hit.
        (CLUSTER, [kill("a", "one of rabbitmq"), kill("b", "one of rabbitmq")], 2),
        (SYSTEM, [kill("a", "active"), kill("b", "active")], 2),
        (SYSTEM, [kill("a", "active"), PROBE, kill("b", "active")], 2),
        (SYSTEM, [kill("a", "active"), PROBE, kill("b", "passive")], 2),
        # The same one, for sure.
        (SYSTEM, [kill("a", "active"), "type: action, name: b, fault: stop, of: a"], 1),
        (SYSTEM, [kill("a", "artemis1"), kill("b", "artemis1")], 1),
        # Healed is not yet seen to serve.
        (SYSTEM, [kill("a", "active"), HEAL, kill("b", "active")], 2),
        (SYSTEM, [kill("a", "active"), HEAL, IN_SYNC, kill("b", "active")], 1),
        (SYSTEM, [kill("a", "active"), IN_SYNC, kill("b", "active")], 2),
        (
            SYSTEM,
            [kill("a", "active"), HEAL, "type: probe, name: p, until: failed_back, of: a", kill("b", "active")],
            1,
        ),
        # One that restarts by itself is back when all are in sync.
        (SYSTEM, [kill("a", "active", params="{restart: true}"), IN_SYNC, kill("b", "active")], 1),
        (SYSTEM, [kill("a", "active", params="{restart: true}"), kill("b", "active")], 2),
        # Of a server of ZooKeeper nothing but its heal can be seen.
        (SYSTEM, [kill("a", "zk1"), HEAL, kill("b", "zk2")], 1),
        (SYSTEM, [kill("a", "zk1"), kill("b", "active")], 2),
        (SYSTEM, [kill("a", "majority of zookeeper")], 2),
        # Links: whom clients cannot have; who depends on whom; of a pair both; of a cluster the one that is cut off.
        (SYSTEM, ["type: action, name: a, fault: partition, target: link load→active"], 1),
        (SYSTEM, ["type: action, name: a, fault: partition, target: link active→zookeeper"], 1),
        (SYSTEM, ["type: action, name: a, fault: partition, target: link artemis→zookeeper"], 2),
        (SYSTEM, ["type: action, name: a, fault: partition, target: link primary↔backup"], 2),
        (SYSTEM, ["type: action, name: a, fault: partition, target: link zk1↔zookeeper"], 1),
        (CLUSTER, ["type: action, name: a, fault: partition, target: link one of cluster↔cluster"], 1),
        (CLUSTER, ["type: action, name: a, fault: partition, target: link rabbit1↔rabbit2"], 1),
        # Either end may be gone, and the other one is killed.
        (
            CLUSTER,
            ["type: action, name: a, fault: partition, target: link rabbit1↔rabbit2", kill("b", "rabbit1")],
            2,
        ),
        (CLUSTER, ["type: action, name: a, fault: drain, target: link amqp_router→one of cluster"], 1),
        (
            CLUSTER,
            [
                "type: action, name: a, fault: drain, target: link amqp_router→one of cluster",
                "type: action, name: b, fault: kill, of: a",
            ],
            1,
        ),
        # Playbooks: all at once, or one after the other.
        (SYSTEM, ["type: operation, name: o, playbook: site"], 6),
        (SYSTEM, ["type: operation, name: o, playbook: rolling_restart"], 1),
        (SYSTEM, ["type: operation, name: o, playbook: verify"], 0),
        (SYSTEM, [kill("a", "zk1"), "type: operation, name: o, playbook: rolling_restart"], 2),
        # What is handed over stays stopped until something brings it back.
        (SYSTEM, ["type: operation, name: o, playbook: takeover", kill("a", "active")], 2),
        (SYSTEM, ["type: operation, name: o, playbook: takeover", IN_SYNC, kill("a", "active")], 1),
        # An order may do anything.
        (CLUSTER, ["type: order, name: o, target: router1, words: stop it", kill("a", "rabbit1")], 2),
    ],
)
def test_how_many_may_be_out_of_service_at_once(descriptors: list[Descriptor], steps: list[str], count: int) -> None:
    assert most(descriptors, *steps) == count


def test_every_round_may_leave_another_one_behind() -> None:
    assert most(CLUSTER, kill("a", "one of rabbitmq"), more="rounds: 2") == 2
    assert most(CLUSTER, kill("a", "one of rabbitmq"), more="for: 1h") == 3
    assert most(CLUSTER, kill("a", "one of rabbitmq"), HEAL, IN_SYNC, more="for: 1h") == 1


def test_instances_of_one_unit_count_once() -> None:
    colocated = [broker("b1", host="h1", unit="u"), broker("b2", store="pair2", host="h1", unit="u"), broker("b3")]
    assert most(colocated, kill("a", "b1"), kill("b", "b2")) == 1
    assert most(colocated, kill("a", "b1"), kill("b", "b3")) == 2


def test_a_host_that_restarts_takes_all_that_runs_on_it() -> None:
    restart = "type: action, name: a, fault: restart_host, target: b1"
    tools = [instance("load", "l1", host="h1"), instance("toxiproxy", "t1", host="h1", unit="toxiproxy.service")]
    shared = [broker("b1", host="h1"), instance("zookeeper", "zk1", host="h1", unit="zk.service"), broker("b2"), *tools]
    assert most(shared, restart) == 2 and most(shared, kill("a", "b1")) == 1
    found = reached(scenario(restart), shared)
    assert found.steps[0].targets == ("b1, zk1",)
    assert found.allowances(shared, 2)["h1"].instances == {"b1", "zk1"}
    # What else it hit is healed, and seen to serve, with it.
    assert most(shared, restart, HEAL, IN_SYNC, kill("b", "b2")) == 2
    assert most(shared, restart, kill("b", "zk1")) == 2
    assert most(shared, restart, kill("b", "b2")) == 3


def test_which_hosts_it_reaches() -> None:
    def hosts(descriptors: list[Descriptor], *steps: str) -> frozenset[str]:
        return reached(scenario(*steps), descriptors, GROUPS | {"spare": ("spare",)}).hosts

    assert hosts(SYSTEM, kill("a", "active")) == {"artemis1", "artemis2"}
    assert hosts(SYSTEM, "type: action, name: a, fault: partition, target: link load→active") == {"load1"}
    assert hosts(SYSTEM, "type: operation, name: o, playbook: verify") == set()
    assert hosts(SYSTEM, "type: operation, name: o, playbook: takeover") == {"artemis1", "artemis2"}
    # The whole inventory, also what has no instance yet.
    assert hosts(SYSTEM, "type: operation, name: o, playbook: site") == {*GROUPS, "spare"}


def test_shipped_drills() -> None:
    reply = reached(resolve(load_drill("lost_reply"), SYSTEM, "pair").scenario, SYSTEM)
    # Two faults on one link, bent where the load dials.
    assert (reply.hosts, reply.at_once) == ({"load1"}, 1)
    found = reached(resolve(load_drill("broker_drained"), CLUSTER, "routers").scenario, CLUSTER)
    # Any broker of the cluster is stopped, and none but the one that is drained.
    assert (found.hosts, found.at_once) == ({"rabbit1", "rabbit2", "rabbit3", "router1", "router2"}, 1)
    assert set(next(step for step in found.steps if step.step == "stop").targets) == {"rabbit1", "rabbit2", "rabbit3"}


def test_what_is_too_far() -> None:
    def problems(*radii: Radius, steps: tuple[str, ...] = (kill("a", "active"),)) -> list[str]:
        groups = {"artemis1": ("artemis",), "artemis2": ("artemis", "spare"), "load1": ("load",)}
        return too_far(reached(scenario(*steps), SYSTEM), Limits(radii, groups))

    assert problems(Radius()) == problems(Radius(groups=["artemis"])) == []
    assert problems(Radius(groups=["spare"])) == ["it could hit artemis1, outside spare"]
    assert problems(Radius(), Radius(groups=["spare"])) == ["it could hit artemis1, outside spare"]
    twice = (kill("a", "active"), kill("b", "active"))
    assert problems(Radius(), steps=twice) == ["it could hit 2 at once, and 1 is allowed"]
    assert problems(Radius(at_once=2), steps=twice) == []
    assert problems(Radius(at_once=2), Radius(), steps=twice) == ["it could hit 2 at once, and 1 is allowed"]
    unknown = kill("a", "majority of nobody")
    assert problems(Radius(), steps=(unknown,)) == ["what a would hit is not known beforehand"]
    assert problems(Radius(), steps=("type: action, name: a, fault: cut, target: link load→active",)) == []


def place(*variables: Any) -> Topology:
    hosts = tuple(
        Host(f"h{n}", f"h{n}", 22, "root", None, ("artemis",), {} if one is None else {"drill_radius": one})
        for n, one in enumerate(variables)
    )
    return Topology("t", Path("/t"), hosts, True, "0" * 64, {})


def test_what_an_inventory_and_a_command_allow() -> None:
    assert limits(place(None)).at_once == 1
    assert limits(place({"at_once": 3})).at_once == 3
    assert limits(place({"at_once": 3}, {"at_once": 2})).at_once == 2
    assert limits(place(None), Radius(at_once=4)).at_once == 4
    assert limits(place({"at_once": 3}), Radius(at_once=4)).at_once == 3
    assert limits(place({"groups": ["spare"]})).outside(["h0"]) == "h0, outside spare"
    assert limits(place({"groups": ["artemis"]})).outside(["h0"]) is None
    with pytest.raises(UsageError, match=r"inventory t: drill_radius\.at_once of h0: Input should be greater"):
        limits(place({"at_once": 0}))
    with pytest.raises(UsageError, match=r"drill_radius\.group of h0: Extra inputs"):
        limits(place({"group": ["x"]}))
    assert GameDayRadius is Radius


def test_a_deployment_takes_everything_away() -> None:
    found = redeployment(SYSTEM, GROUPS)
    assert (found.hosts, found.at_once) == (frozenset(GROUPS), len(SYSTEM))


def test_what_each_host_may_be_told_to_break() -> None:
    found = reached(
        scenario(kill("a", "active"), "type: action, name: b, fault: partition, target: link load→artemis1"), SYSTEM
    ).allowances(SYSTEM, 2)
    assert set(found) == {"artemis1", "artemis2", "load1"}
    assert (found["artemis1"].instances, found["artemis1"].links, found["artemis1"].at_once) == ({"artemis1"}, set(), 2)
    assert (found["load1"].instances, found["load1"].links) == (set(), {"load1→artemis1"})


def test_every_playbook_is_a_step_or_none() -> None:
    assert {path.stem for path in PLAYBOOKS.glob("*.yml")} == set(OPERATIONS) | set(NO_STEPS)
    for name, one in OPERATIONS.items():
        text = (PLAYBOOKS / f"{name}.yml").read_text()
        # What it has others do, it does.
        for shared in ("join", "restart_pending"):
            if f"import_playbook: {shared}.yml" in text:
                text += (PLAYBOOKS / f"{shared}.yml").read_text()
        assert all(f"tasks_from: {tasks}" in text for tasks in one.tasks)
        assert (one.out.value in ("one", "one of each store")) == ("serial: 1" in text)
        verified = "import_playbook: verify.yml" in text or name == "verify"
        assert one.verified == verified


@pytest.mark.parametrize("playbook", [*NO_STEPS])
def test_what_no_heal_brings_back_is_no_step(playbook: str) -> None:
    with pytest.raises(UsageError, match=f"playbook {playbook} is no step of a drill: "):
        scenario(f"type: operation, name: o, playbook: {playbook}")


def test_a_playbook_goes_to_the_hosts_of_the_drill() -> None:
    with pytest.raises(UsageError, match="ansible_host would lead the playbook to other hosts"):
        scenario("type: operation, name: o, playbook: site, variables: {ansible_host: h}")


def test_site_reaches_more_than_brokers() -> None:
    assert all(operation("site").reaches(product) for product in ("artemis", "zookeeper", "lease_db", "amqp_router"))
    assert not operation("takeover").reaches("zookeeper")
    # The brokers of Open MQ hand over and restart in one.
    assert operation("rolling_restart").reaches("openmq") and not operation("rolling_restart").reaches("zookeeper")
