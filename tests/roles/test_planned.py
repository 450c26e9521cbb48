"""What the roles would deploy for each inventory, and what drills become there: the page docs/drills.md says it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from rich.console import Console

from brokerdrill.base.progress import Progress
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.planned import planned
from brokerdrill.inventory.topology import find_topology, topologies
from brokerdrill.results.proof import PROVEN, current, read, seen
from brokerdrill.scenario.drill import drills, load_drill, resolve
from brokerdrill.scenario.facts import facts, settings
from brokerdrill.scenario.table import markdown

from .conftest import ROOT

QUIET = Progress(Console(quiet=True))
# Drills by a topology that each was written for first.
FIRST = {
    "artemis_colocated": "kill_active",
    "artemis_colocated_store": "kill_active",
    "artemis_peers": "kill_active newest_data",
    "artemis_quorum": "kill_active lost_reply lost_reply_undetected sync_stalled",
    "artemis_replication": "kill_active",
    "artemis_scale_down": "scale_down_stop",
    "artemis_shared_store": "kill_active rolling_restart takeover_failback upgrade",
    "classic_database": (
        "active_cut_off database_killed database_stopped_30s database_stopped_5s database_switchover "
        "half_open kill_active"
    ),
    "classic_lease": (
        "active_cut_off clock_ahead database_killed database_paused database_stopped_30s "
        "database_stopped_5s database_switchover kill_active outage outage_takeover passive_cut_off "
        "pause_long pause_short restart_active_first restart_passive_first stop_active"
    ),
    "classic_lease_kahadb": "active_cut_off kill_active",
    "classic_shared_file": "kill_active lock_file_changed lock_file_deleted",
    "classic_shared_file_unguarded": "lock_file_deleted",
}


def test_a_variable_that_is_deployed_moves_facts_and_settings() -> None:
    topology = find_topology("artemis_quorum")
    kept, changed = (
        planned(topology, QUIET, variables)
        for variables in ({}, {"artemis_quorum_session_ms": 2000, "artemis_allow_failback": False})
    )
    assert (settings(kept)["session_ms"], settings(changed)["session_ms"]) == (4000, 2000)
    assert facts(kept) - facts(changed) == {"failback"}
    assert planned(topology, QUIET) == kept, "kept in the cache"
    bounds = {
        promise.name: promise.spec().bound_ms
        for promise in resolve(load_drill("kill_active"), changed, "q").scenario.promises
    }
    assert bounds["failover_within"] == 4000 and "failback_within" not in bounds


@pytest.fixture(scope="module")
def deployed() -> dict[str, list[Descriptor]]:
    """The instances of each topology, as its inventory says."""
    names = [name for name, _ in topologies()]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(lambda name: planned(find_topology(name), QUIET), names), strict=True))


@pytest.mark.long
def test_the_page_of_drills_says_what_the_inventories_say(deployed: dict[str, list[Descriptor]]) -> None:
    """`brokerdrill scenarios --markdown > docs/drills.md` writes it."""
    assert (ROOT / "docs" / "drills.md").read_text(encoding="utf-8") == markdown(
        drills(), deployed, seen(current(read(PROVEN)))
    )


@pytest.mark.long
def test_every_drill_applies_where_it_was_written_for(deployed: dict[str, list[Descriptor]]) -> None:
    for topology, names in FIRST.items():
        for name in names.split():
            assert resolve(load_drill(name), deployed[topology], topology).scenario.topology == topology
