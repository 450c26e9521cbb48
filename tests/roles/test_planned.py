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
from brokerdrill.scenario.drill import RENAMED_FILE, drills, load_drill, resolve
from brokerdrill.scenario.facts import facts, settings
from brokerdrill.scenario.table import markdown

from .conftest import ROOT, load

QUIET = Progress(Console(quiet=True))


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
def test_every_old_scenario_is_a_drill_that_applies(deployed: dict[str, list[Descriptor]]) -> None:
    for drill, topology, *_ in (said.split() for said in load(RENAMED_FILE).values()):
        assert resolve(load_drill(drill), deployed[topology], topology).scenario.topology == topology
