"""Plans of faults on the targets that tests make up."""

import random
import subprocess
from typing import Any

from brokerdrill.faults.base import HostChange
from brokerdrill.faults.registry import FAULTS
from brokerdrill.inventory.targets import Scene, Target, resolve
from tests.unit.inventory.test_targets import ALL, descriptor

SCENE = Scene(ALL, {"artemis1": "active", "artemis2": "passive"}, random.Random(1))


def target_for(acts_on: str) -> Target:
    return resolve(SCENE, "active" if acts_on == "instance" else "link active→zookeeper")


def planned(name: str, **params: Any) -> list[HostChange]:
    return FAULTS[name].plan(target_for(FAULTS[name].acts_on), FAULTS[name].complete(params), "t1-1")


def drained(**params: Any) -> list[HostChange]:
    dials = [{"link": "backend", "to": f"rabbit{n}", "address": f"10.0.0.{n}", "port": 5672} for n in (1, 2)]
    control = "/opt/router ctl --socket /run/router/control.sock"
    diallers = [descriptor(f"router{n}", "amqp_router", control=control, dials=dials) for n in (1, 2)]
    brokers = [descriptor(f"rabbit{n}", "rabbitmq", features=["cluster"]) for n in (1, 2)]
    target = resolve(Scene([*diallers, *brokers], {}, random.Random(1)), "link amqp_router→rabbit1")
    return FAULTS["drain"].plan(target, FAULTS["drain"].complete(params), "t1-1")


ROUTER = descriptor("router1", "amqp_router", unit="r.service", control="ctl", dials=[
    {"link": "backend", "to": f"rabbit{n}", "address": f"10.0.0.{n}", "port": 5672} for n in (1, 2)])  # fmt: skip
PROXY = descriptor("toxi", "toxiproxy", user="t", unit="t.service", api={"address": "::1", "port": 1}).model_copy(
    update={"host": "router1"}
)
RABBITS = [descriptor(f"rabbit{n}", "rabbitmq", unit="rabbit.service") for n in (1, 2)]
TO_RABBIT = "link router1→rabbit1"


def run(script: str) -> int:
    return subprocess.run(["/bin/sh", "-c", script], capture_output=True).returncode
