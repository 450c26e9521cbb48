"""Fault plans are data: what they would run is checked by a shell's parser; the effect is tested on real hosts."""

import random
import subprocess
from pathlib import Path

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


def test_a_kill_of_all_reaches_what_else_the_unit_runs() -> None:
    (change,) = FAULTS["kill"].plan(target_for("instance"), {"restart": False, "all": True}, "t1-1")
    assert "--kill-who=all --signal=KILL" in change.effect
    (change,) = FAULTS["kill"].plan(target_for("instance"), {"restart": False, "all": False}, "t1-1")
    assert "MainPID" in change.effect


def run(script: str) -> int:
    return subprocess.run(["/bin/sh", "-c", script], capture_output=True).returncode


@pytest.mark.parametrize("how", ["delete", "change"])
def test_a_lock_file_that_somebody_laid_hands_on_is_seen_to_be_so(how: str, tmp_path: Path) -> None:
    item = SCENE.instance("artemis1")
    assert item
    (tmp_path / "lock").touch()
    target = Target("artemis1", instances=(item.model_copy(update={"data_dir": str(tmp_path)}),))
    (change,) = FAULTS["lock_file"].plan(target, {"how": how, "name": "lock"}, f"test-{tmp_path.name}")
    notes = "/run/brokerdrill"
    here = {
        name: getattr(change, name).replace(notes, str(tmp_path)) for name in ("prepare", "effect", "verify", "heal")
    }
    assert run(here["verify"]) != 0
    assert run(here["prepare"]) == 0
    assert run(here["verify"]) != 0
    assert run(here["effect"]) == 0
    assert run(here["verify"]) == 0
    assert run(here["heal"]) == 0


def test_how_a_lock_file_is_changed_is_checked() -> None:
    with pytest.raises(UsageError, match="delete or change"):
        complete_params(FAULTS["lock_file"], {"how": "eat"})
