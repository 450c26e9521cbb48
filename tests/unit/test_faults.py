"""Fault plans are data: what they would run is checked by a shell's parser; the effect is tested on real hosts."""

import random
import subprocess

import pytest

from brokerdrill.errors import UsageError
from brokerdrill.faults.link import ARM, proxy_port
from brokerdrill.faults.registry import FAULTS, complete_params
from brokerdrill.targets import Link, Scene, Target, resolve

from .test_targets import ALL

SCENE = Scene(ALL, {"artemis1": "active", "artemis2": "passive"}, random.Random(1))


def target_for(acts_on: str) -> Target:
    return resolve(SCENE, "active" if acts_on == "instance" else "link active→zookeeper")


@pytest.mark.parametrize("fault", [*FAULTS.values(), ARM], ids=lambda fault: fault.name)
def test_every_script_of_every_fault_is_a_shell_script(fault) -> None:  # type: ignore[no-untyped-def]
    changes = fault.plan(target_for(fault.acts_on), dict(fault.params), "t1-1")
    assert changes
    for change in changes:
        for script in (change.prepare, change.effect, change.verify, change.heal, change.verify_heal):
            done = subprocess.run(["/bin/sh", "-n"], input=script, text=True, capture_output=True)
            assert done.returncode == 0, (script, done.stderr)


def test_a_partition_is_one_table_a_host_with_every_link_in_it() -> None:
    (change,) = FAULTS["partition"].plan(target_for("link"), {"how": "reject"}, "t1-1")
    assert change.host == "artemis1"
    assert change.effect.count("reject with tcp reset") == 6


def test_parameters_are_checked_against_the_fault() -> None:
    assert complete_params(FAULTS["kill"], {"restart": True}) == {"restart": True, "all": False}
    with pytest.raises(UsageError, match="did you mean 'restart'"):
        complete_params(FAULTS["kill"], {"restarts": True})
    with pytest.raises(UsageError, match="drop or reject"):
        complete_params(FAULTS["partition"], {"how": "lose"})


def test_proxies_of_different_destinations_have_different_ports() -> None:
    links = [Link("l", "h", f"172.30.16.{n}", 61616, "i") for n in range(10, 40)]
    assert len({proxy_port(link) for link in links}) == len(links)
