"""Runs of a scenario, one after another, in the foreground: a signal heals before it ends them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from brokerdrill.errors import EXIT_INFRASTRUCTURE, BrokerdrillError
from brokerdrill.progress import Progress
from brokerdrill.runner.request import RunRequest, check_request
from brokerdrill.runner.run import run
from brokerdrill.runner.run_dir import new_run_dir
from brokerdrill.scenario import LoadedScenario
from brokerdrill.topology import Topology


class Interrupted(BrokerdrillError):
    """The user or the system asked for the end; the faults were healed on the way out."""

    exit_status = EXIT_INFRASTRUCTURE


def run_async(work: Coroutine[Any, Any, Any], console: Console) -> Any:
    """Run `work`; the first SIGINT or SIGTERM cancels it, later ones wait until it has healed and ended."""

    async def main() -> Any:
        task = asyncio.ensure_future(work)
        asked: list[str] = []

        def stop(name: str) -> None:
            if asked:
                console.print("still healing; please wait")
                return
            asked.append(name)
            console.print(f"{name}: healing every fault, then ending")
            task.cancel()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number.name)
        try:
            return await task
        except asyncio.CancelledError:
            if not asked:
                raise
            raise Interrupted(f"interrupted by {asked[0]}; every fault is healed") from None

    return asyncio.run(main())


def record(
    loaded: LoadedScenario,
    topology: Topology,
    runs: Path,
    seeds: Sequence[int],
    console: Console,
    run_dir: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> list[Path]:
    """Run `loaded` on `topology` once for each seed; return the run directories, new ones below `runs`. `settings` go
    to run.json as they are."""
    done = []
    for seed in seeds:
        target = run_dir or new_run_dir(runs, loaded.name, seed)
        request = RunRequest(loaded, topology, target, seed, settings or {})
        check_request(request)
        with Progress(console) as progress:
            progress.step(f"{loaded.name} on {topology.name}, seed {seed} → {request.run_dir}")
            done.append(run_async(run(request, progress), console))
    return done
