"""A game day on brokers that were deployed by hand, beside production's load on the same brokers: held by its timer,
run by one account, approved by another one. Production's messages and dead letters are the same before and after it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from brokerdrill.base import paths
from brokerdrill.bench import bench
from brokerdrill.bench.keys import ssh_command
from brokerdrill.inventory.topology import Topology
from tests.control_host import project
from tests.drill import by_hand
from tests.drill.conftest import BROKERDRILL
from tests.drill.test_beside_production import HELD, LETTERS, ORDERS, Case, checked, production
from tests.roles.conftest import BIN

pytestmark = pytest.mark.long

HOME, DATA = "/opt/project", "/var/lib/brokerdrill-gameday"
FILE, RUNS = "/etc/brokerdrill-gameday/shop.yml", f"{DATA}/runs"
TIMER, SERVICE = "brokerdrill-gameday-shop.timer", "brokerdrill-gameday-shop.service"
# Brokers that no role deployed are asked what they are: nothing there needs Ansible's collections.
LEFT_OUT = ("ansible_collections", "jpype", "mypy", "molecule", "ansiblelint", "ruff", "Cython", "pip")
HELD_WITHIN_S = 600
# What production keeps is asked here, not how fast a machine is that many tests share.
DRILL = """\
extends: kill_active
title: Kill the shop's active broker
promises:
  - {name: failover_within, bound_ms: 60000}
  - {name: failback_within, bound_ms: 120000}
  - {name: available, bound_ms: 60000}
"""
DAY = {
    "title": "The shop's brokers",
    "topologies": [f"{HOME}/here/{by_hand.NAME}"],
    "drills": {"names": ["shop_killed"]},
}
GAMEDAY = {
    "gameday_home": HOME,
    "gameday_program": f"{HOME}/brokerdrill",
    "gameday_calendar": "*:0/1",
    "gameday_random_delay_s": 0,
    "gameday_days": [{"name": "shop", "file": DAY}],
}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Topology]:
    """The shop's hosts with its brokers, described, its clients' host deployed, and a control host."""
    topology = by_hand.up(tmp_path)
    try:
        by_hand.describe(topology, BROKERDRILL, tmp_path)
        play(topology, "playbooks/site.yml", "--limit", "load")
        install(topology)
        yield topology
    finally:
        bench.down(topology.name)


def play(topology: Topology, playbook: str, *options: str) -> None:
    """Run a playbook, as its README says."""
    command = [str(BIN / "ansible-playbook"), "-i", str(topology.directory), *options, playbook]
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, env=paths.child_environment())
    assert done.returncode == 0, done.stdout


def on_control(topology: Topology, script: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [*ssh_command(topology.host("control")), script]
    return subprocess.run(command, input=given, capture_output=True, timeout=600, check=False)


def said(topology: Topology, script: str, given: bytes = b"") -> str:
    done = on_control(topology, script, given)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def install(topology: Topology) -> None:
    """The project, the role's timer with an account of its own, and the account of who approves."""
    files = {
        f"here/{by_hand.NAME}/hosts.yml": (by_hand.inventory(by_hand.KEY, approval=True), 0o644),
        "chaos/scenarios/process/shop_killed.yml": (DRILL, 0o644),
    }
    said(topology, f"mkdir -p {HOME} && tar -xf - -C {HOME}", project(HOME, LEFT_OUT, files))
    play(topology, "playbooks/gameday.yml", "--extra-vars", json.dumps(GAMEDAY))
    key = (paths.cache() / "bench" / "id_ed25519").read_bytes()
    said(topology, f"umask 077; cat >{by_hand.KEY} && chown brokerdrill: {by_hand.KEY}", key)
    said(topology, "useradd --create-home --groups brokerdrill-gameday approver")


def until(what: Callable[[], Any], limit_s: float, failure: Callable[[], str]) -> Any:
    """Return what `what` returns once that is not None."""
    end = time.monotonic() + limit_s
    while (found := what()) is None:
        assert time.monotonic() < end, failure()
        time.sleep(1)
    return found


def day_that(topology: Topology, *states: str) -> dict[str, Any]:
    """Wait for the newest game day to be one that ended so; return it."""

    def found() -> dict[str, Any] | None:
        days = json.loads(said(topology, f"cat {DATA}/www/shop/gamedays.json 2>/dev/null || echo []"))
        return next((one for one in days if one["state"] in states), None)

    day: dict[str, Any] = until(
        found, HELD_WITHIN_S, lambda: said(topology, f"journalctl --no-pager -n 200 -u {SERVICE}")
    )
    return day


def test_production_is_the_same_before_and_after_a_game_day(shop: Topology, tmp_path: Path) -> None:
    case = Case(str(shop.directory), "kill_active", "", "DLQ")
    looks = [["look", ORDERS], ["look", case.letters]]

    async def main() -> None:
        async with production(case, shop, by_hand.PASSWORDS["admin"]) as other:
            (held,) = await other.orders(["send", ORDERS, HELD, 0])
            (letters,) = await other.orders(["send", case.letters, LETTERS, 0])
            before = await other.orders(*looks)
            assert before == [held, letters]
            numbers = {ORDERS: HELD, case.letters: LETTERS}
            await other.counted(numbers)
            status, lines = await checked(case)
            assert status == 0, lines

            await other.begin()
            refused = await asyncio.to_thread(day_that, shop, "refused")
            assert "shop_killed on shop asks for approval" in refused["why"]
            (id_,) = said(shop, f"runuser -u approver -- {HOME}/brokerdrill approve --runs {RUNS}").split()[:1]
            approve = f"{HOME}/brokerdrill approve {id_} --runs {RUNS}"
            own = on_control(shop, f"runuser -u brokerdrill -- {approve}")
            assert own.returncode == 64 and b"another account has to approve it" in own.stderr + own.stdout, own
            allowed = said(shop, f"runuser -u approver -- {approve}")
            assert (
                "is approved by approver" in allowed
                and "kill, at most 120 s on shop1, shop2: shop1 or shop2" in allowed
            ), allowed
            day = await asyncio.to_thread(day_that, shop, "expected", "unexpected", "failed", "stopped", "crashed")
            said(shop, f"systemctl stop {TIMER}")
            (tmp_path / "runs.tar").write_bytes(on_control(shop, f"tar -cf - -C {RUNS} .").stdout)
            (tmp_path / "journal").write_text(said(shop, f"journalctl --no-pager -u {SERVICE}"))
            (drilled,) = day["drills"]
            assert day["state"] == "expected", drilled

            flow = await other.end(tmp_path / "flow")
            # Its consumers' commits that a kill leaves in doubt come again, as with any broker that dies.
            assert flow["sent"] > 0 and flow["lost"] == 0, flow
            await other.counted(numbers)
            after = await other.orders(*looks)
            assert after == before, (before, after)
            info = json.loads(said(shop, f"cat {RUNS}/{drilled['run']}/run.json"))
            assert info["approval"]["by"] == "approver", info
            print(yaml.safe_dump({"before": before, "after": after, "flow": dict(flow), "day": day}))

    asyncio.run(main())
