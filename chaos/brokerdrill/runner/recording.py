"""Runs of a scenario, one after another, in the foreground: a signal heals before it ends them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from brokerdrill.base.errors import BrokerdrillError, Unmet
from brokerdrill.base.progress import Progress
from brokerdrill.faults.lease import SILENT_S
from brokerdrill.inventory.topology import Topology
from brokerdrill.runner.evidence.run_dir import has_load, new_run_dir
from brokerdrill.runner.live_run import RunGuard
from brokerdrill.runner.request import RunRequest, check_request
from brokerdrill.runner.run import run
from brokerdrill.scenario.drill import Drill
from brokerdrill.scenario.radius import Radius


class Interrupted(Unmet):
    """The user or the system asked for the end; its words say whether the faults were healed on the way out."""


def run_async(work: Coroutine[Any, Any, Any], console: Console, ended_so: str = "every fault is healed") -> Any:
    """Run `work`; the first SIGINT or SIGTERM cancels it, later ones wait until it has healed and ended. `ended_so`:
    what is so then, in words."""

    async def main() -> Any:
        task = asyncio.ensure_future(work)
        asked: list[str] = []

        def stop(name: str) -> None:
            if asked:
                console.print("still healing and draining; please wait")
                return
            asked.append(name)
            console.print(f"{name}: healing every fault, draining, then ending")
            task.cancel()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number.name)
        try:
            return await task
        except asyncio.CancelledError:
            if not asked:
                raise
            raise Interrupted(f"interrupted by {asked[0]}; {ended_so}") from None
        except BrokerdrillError as error:
            # What did not work on the way out: whoever has more to do is to end all the same.
            if not asked:
                raise
            ended = Interrupted(f"interrupted by {asked[0]}; {error}")
            ended.runs = error.runs
            raise ended from error

    return asyncio.run(main())


def record(
    drill: Drill,
    topology: Topology,
    runs: Path,
    seeds: Sequence[int],
    console: Console,
    run_dir: Path | None = None,
    settings: Mapping[str, str] | None = None,
    changes: Mapping[str, Any] | None = None,
    guards: tuple[RunGuard, ...] = (),
    radius: Radius | None = None,
    purge: bool = False,
    silent_s: float = SILENT_S,
) -> list[Path]:
    """Run `drill` on `topology` once for each seed; return the run directories, new ones below `runs`. `settings` go
    to run.json as they are, `changes` are places of the scenario with values, each of `guards` may end a run, and each
    run stays within `radius`, besides the inventory's own; `purge` empties the drill's addresses first. A host heals
    itself when it has heard nothing of the run for `silent_s`.

    Raises what ends a run early, with the runs that were recorded until then as its `runs`.
    """
    done: list[Path] = []
    for seed in seeds:
        target = run_dir or new_run_dir(runs, drill.name, topology.name, seed)
        request = RunRequest(
            drill, topology, target, seed, settings or {}, changes or {}, guards, radius, purge, silent_s
        )
        try:
            check_request(request)
            with Progress(console) as progress:
                progress.step(f"{drill.name} on {topology.name}, seed {seed} → {request.run_dir}")
                done.append(run_async(run(request, progress), console))
        except BrokerdrillError as error:
            last = error.runs or ((target,) if isinstance(error, Interrupted) and has_load(target) else ())
            error.runs = (*done, *last)
            raise
    return done
