"""One host of a pair is gone for good: no playbook stops the one that serves on, and each says why in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from brokerdrill.base.errors import BrokerdrillError
from brokerdrill.base.progress import Progress
from brokerdrill.bench import bench, engine
from brokerdrill.inventory.playbooks import run_playbook
from brokerdrill.inventory.topology import Topology
from tests.drill import own_topology
from tests.drill.deployment import on_host, run, until

pytestmark = pytest.mark.long

SUBNET = "172.30.236"
TAKEN_OVER_S = 90.0


@dataclass(frozen=True)
class Pair:
    """A shipped topology, its group, which of its hosts goes and which one serves on, what the journal of that one says
    then, the playbooks that would stop it, and whether it may start anew where the inventory has the other one no
    more."""

    base: str
    group: str
    gone: str
    last: str
    unit: str
    active: str
    playbooks: tuple[str, ...]
    starts_alone: bool


MOVES = ("rolling_restart", "takeover")
PAIRS = {
    "artemis": Pair(
        "artemis_shared_store", "artemis", "artemis1", "artemis2", "artemis", "AMQ221010", (*MOVES, "failback"), False
    ),
    # Equal members: the one that stays may be the active one already
    "peers": Pair("artemis_peers", "artemis", "artemis1", "artemis2", "artemis", "AMQ221007", MOVES, True),
    "classic": Pair(
        "classic_shared_file", "activemq_classic", "classic1", "classic2", "activemq-classic", ") started", MOVES, True
    ),
}


@pytest.fixture(scope="module", params=PAIRS)
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pair, Topology]]:
    """A pair that does not fail back, whose first host is no more and whose second one serves."""
    pair = PAIRS[request.param]
    topology = own_topology.copied(
        tmp_path_factory.mktemp("inventory"),
        pair.base,
        "last_active",
        SUBNET,
        {"all": {"drill_allowed": False}, "artemis": {"artemis_allow_failback": False}},
        without=["load1"],
    )
    bench.up(topology, fresh=True, progress=print)
    try:
        run(topology, "site")
        engine.require().client().containers.get(f"{topology.name}-{pair.gone}").remove(force=True)
        until(lambda: pair.active in serving(pair, topology)[1], TAKEN_OVER_S)
        yield pair, topology
    finally:
        bench.down(topology.name)


def serving(pair: Pair, topology: Topology) -> tuple[str, str]:
    """Return who serves (its process, and how often systemd started it anew), and its journal."""
    unit = f"systemctl show --property=ActiveState,MainPID,NRestarts {pair.unit}"
    return on_host(topology, pair.last, unit), on_host(topology, pair.last, f"journalctl --unit {pair.unit}")


@pytest.mark.parametrize("limited", [False, True], ids=["all", "limited"])
def test_who_serves_alone_is_stopped_by_no_playbook(left: tuple[Pair, Topology], limited: bool) -> None:
    pair, topology = left
    before = serving(pair, topology)[0]
    assert "ActiveState=active" in before
    why = rf"{pair.last} goes on: nobody else could serve in its place \({pair.gone} unreachable\)"
    for playbook in pair.playbooks:
        with pytest.raises(BrokerdrillError, match=why if limited else f"^{pair.gone}: .*(?i:unreachable|connect)"):
            run_playbook(topology, playbook, Progress(Console()), ["--limit", pair.last] if limited else [])
        assert serving(pair, topology)[0] == before, playbook


def test_the_inventory_has_the_other_one_no_more(left: tuple[Pair, Topology], tmp_path: Path) -> None:
    pair, topology = left
    alone = own_topology.removed(tmp_path, topology, pair.gone)
    before = serving(pair, topology)[0]
    with pytest.raises(BrokerdrillError, match="has no other member: nobody can take over from"):
        run(alone, "takeover")
    assert serving(pair, topology)[0] == before
    if pair.starts_alone:
        run(alone, "rolling_restart")
        after = serving(pair, topology)[0]
        assert after != before and "ActiveState=active" in after
        return
    why = rf"{pair.last} goes on: nobody else could serve in its place \(there is no other\)"
    for playbook in ("rolling_restart", "failback"):
        with pytest.raises(BrokerdrillError, match=why):
            run(alone, playbook)
        assert serving(pair, topology)[0] == before, playbook
