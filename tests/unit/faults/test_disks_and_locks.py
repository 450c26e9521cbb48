"""Faults of disks and lock files, their scripts run here: with real files, and tools that say what is asked of them."""

import subprocess
import time
from pathlib import Path

import pytest

from brokerdrill.base.errors import InfrastructureError, UsageError
from brokerdrill.faults.base import HostChange
from brokerdrill.faults.registry import FAULTS
from brokerdrill.inventory.targets import Target
from tests.unit.faults.plans import SCENE, run, target_for


@pytest.mark.parametrize("how", ["delete", "change"])
def test_a_lock_file_that_somebody_laid_hands_on_is_seen_to_be_so(how: str, tmp_path: Path) -> None:
    item = SCENE.instance("artemis1")
    assert item
    (tmp_path / "lock").touch()
    target = Target("artemis1", instances=(item.model_copy(update={"data_dir": str(tmp_path)}),))
    (change,) = FAULTS["lock_file"].plan(
        target, FAULTS["lock_file"].complete({"how": how, "name": "lock"}), f"test-{tmp_path.name}"
    )
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


def test_a_disk_that_nobody_says_is_the_stores_own_is_not_filled() -> None:
    (item,) = target_for("instance").instances
    target = Target("artemis1", instances=(item.model_copy(update={"features": []}),))
    with pytest.raises(InfrastructureError, match="artemis1: no common_store_mount says that"):
        FAULTS["disk_full"].plan(target, FAULTS["disk_full"].complete({}), "t1-1")


def test_the_hosts_own_file_system_is_not_filled() -> None:
    item = SCENE.instance("artemis1")
    assert item
    target = Target("artemis1", instances=(item.model_copy(update={"data_dir": "/etc"}),))
    (change,) = FAULTS["disk_full"].plan(target, FAULTS["disk_full"].complete({}), "t1-1")
    done = subprocess.run(["/bin/sh", "-c", change.prepare], capture_output=True, text=True)
    assert done.returncode == 1
    assert "artemis1: its store has no file system of its own but that of" in done.stderr


# What stands for systemd where there is none: a unit is a process whose number is in a file.
TOOLS = {
    "df": "echo 'Filesystem size used available'; echo 'disk 9000000 0 3000000'",
    "systemd-run": """\
while [ "${1#-}" != "$1" ]; do shift; done
"$@" >/dev/null 2>&1 & echo $! > "$(dirname "$0")/unit\"""",
    "systemctl": """\
unit=$(cat "$(dirname "$0")/unit" 2>/dev/null) || exit 3
case $1 in stop) kill "$unit"; rm "$(dirname "$0")/unit";; *) kill -0 "$unit";; esac""",
}


def test_a_disk_is_filled_but_for_what_is_left_and_emptied_again(tmp_path: Path) -> None:
    item = SCENE.instance("artemis1")
    assert item
    store, tools = tmp_path / "store", tmp_path / "bin"
    store.mkdir()
    tools.mkdir()
    for name, script in TOOLS.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    target = Target("artemis1", instances=(item.model_copy(update={"data_dir": str(store)}),))

    def planned_with(leave_mib: int) -> HostChange:
        (change,) = FAULTS["disk_full"].plan(target, FAULTS["disk_full"].complete({"leave_mib": leave_mib}), "t1-1")
        return change

    def shell(script: str) -> int:
        return run(f"PATH={tools}:$PATH; {script}")

    def seen() -> bool:
        end = time.monotonic() + 10
        while shell(planned_with(1).verify) != 0 and time.monotonic() < end:
            time.sleep(0.01)
        return shell(planned_with(1).verify) == 0

    change = planned_with(1)
    assert shell(change.verify) != 0
    assert shell(change.effect) == 0
    assert seen()
    unit = (tools / "unit").read_text().strip()
    assert Path(f"/proc/{unit}/fd/9").stat().st_size == 3000000 - (1 << 20)
    assert list(store.iterdir()) == [], "it has no name, so that it goes with its process"
    assert shell(change.heal) == shell(change.verify_heal) == 0
    assert shell(planned_with(3).effect) != 0, "less was free than is to be left"
    assert list(store.iterdir()) == []


def test_how_a_lock_file_is_changed_is_checked() -> None:
    with pytest.raises(UsageError, match="delete or change"):
        FAULTS["lock_file"].complete({"how": "eat"})
