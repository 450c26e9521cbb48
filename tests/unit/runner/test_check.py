"""`brokerdrill check`: what the facts of a host come to, and that they are read from a host as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.hosts import facts
from brokerdrill.inventory.topology import Host
from brokerdrill.runner.check import Checked, Needs, judged, needs
from tests.unit.worlds import LOAD, PAIR, RABBITS, ZOOKEEPER

FINE: dict[str, Any] = {
    "root": True,
    "lacking": [],
    "nft": True,
    "nft_said": [],
    "ends_connections": True,
    "time_namespaces": True,
    "faketime": True,
    "firewalls": {"active": [], "flushes": False},
    "free_mib": {"/var/lib": 5000},
    "synchronized": "yes",
    "wall_ns": 0,
    "peers": {"10.0.0.1": 3},
}
ALL = Needs(("nft", "ss"), links=True, clock=True)


def line(need: Needs = ALL, offset_s: float = 0, allowed: bool = True, **said: Any) -> str:
    host = Host("h1", "10.0.0.1", 22, "root", None, (), {"drill_allowed": allowed})
    return judged(host, FINE | said, need, offset_s, ["10.0.0.1"]).line


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({}, "h1: ok"),
        ({"allowed": False}, "h1: the inventory does not say `drill_allowed: true`"),
        ({"root": False}, "h1: no rights of root"),
        ({"lacking": ["nft", "ss"], "nft": False, "ends_connections": None}, "h1: no nft and no ss"),
        ({"nft": False, "nft_said": ["not supported"]}, "h1: its kernel takes no nft rules: not supported"),
        ({"nft": False, "need": Needs()}, "h1: ok"),
        ({"ends_connections": False}, "h1: its kernel does not let `ss -K` end connections"),
        ({"ends_connections": False, "need": Needs()}, "h1: ok"),
        ({"faketime": False}, "h1: ok (no libfaketime: no drill of a clock)"),
        ({"firewalls": {"active": ["firewalld"], "flushes": False}}, "h1: ok (firewall: firewalld)"),
        (
            {"firewalls": {"active": [], "flushes": True}},
            "h1: ok (its nftables.service flushes all rules when it starts, a fault's too)",
        ),
        ({"free_mib": {"/var/lib": 100}}, "h1: 100 MiB free at /var/lib, 512 are asked for"),
        ({"offset_s": -7.0}, "h1: its clock is -7.0 s off the controller's"),
        ({"synchronized": "no"}, "h1: ok (its clock is not known to be synchronized)"),
        ({"peers": {"10.0.0.9": 2}}, "h1: ok (clients that are not the drill's: 2 from 10.0.0.9)"),
    ],
)
def test_what_a_host_says_in_one_line(said: dict[str, Any], told: str) -> None:
    assert line(**said) == told


def test_what_is_missing_comes_before_what_is_met() -> None:
    assert Checked("h", ["a", "b"], ["c"]).line == "h: a; b (c)"


def test_what_the_drills_of_a_system_need() -> None:
    pair = needs([*PAIR, *ZOOKEEPER, LOAD], "pair")
    assert {"nft", "ss"} <= set(pair.commands) and pair.links
    assert not needs([*RABBITS, LOAD], "cluster").clock


def test_a_host_is_read_as_it_is(tmp_path: Path) -> None:
    words = ["python3", "no-such-command", "--", str(tmp_path), "/no/such/folder", "--", "1"]
    done = subprocess.run(
        [sys.executable, str(Path(facts.__file__)), *words], capture_output=True, text=True, check=True, timeout=60
    )
    said = json.loads(done.stdout)
    assert said["lacking"] == ["no-such-command"]
    assert list(said["free_mib"]) == [str(tmp_path)] and said["free_mib"][str(tmp_path)] > 0
    assert said["root"] == (os.geteuid() == 0)
    assert set(said) == set(FINE)
