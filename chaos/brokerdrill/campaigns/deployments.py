"""What a plan has deployed now, and how its hosts are left as they were."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from brokerdrill.base.atomic import write_json
from brokerdrill.base.errors import InfrastructureError, UsageError
from brokerdrill.base.progress import Progress
from brokerdrill.campaigns.plan import Cell, digest
from brokerdrill.inventory.playbooks import run_playbook, variables_file
from brokerdrill.inventory.topology import Topology, find_topology

# No role restarts a running broker: a changed configuration comes into force by taking the instances away, data kept.
REDEPLOY = ("teardown", "site")
DEPLOY = ("site",)
DEPLOYED_FILE = "deployed.json"
# What is deployed where a deployment was begun and its end is not known: equal to no settings.
_UNSURE: dict[str, Any] = {"": None}


class Deployments:
    """What is deployed now; leaves each inventory as it says itself.

    `deployed.json` in the plan's folder names the topology that is not, so that a plan whose runner was killed leaves
    that too as it was, when it goes on.
    """

    def __init__(self, folder: Path, console: Console, *, deploy: bool, bench_hosts: bool) -> None:
        self._deploys = deploy
        self._bench_hosts = bench_hosts
        self._console = console
        self._file = folder / DEPLOYED_FILE
        self._now: tuple[Topology, dict[str, Any]] | None = None
        self._refused: dict[str, str] = {}

    def __enter__(self) -> Deployments:
        try:
            left = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return self
        except (OSError, ValueError) as error:
            raise InfrastructureError(f"{self._file} does not say what a killed plan left deployed: {error}") from None
        self._now = (find_topology(str(left)), _UNSURE)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        goes_on = kind is not None and issubclass(kind, (InfrastructureError, KeyboardInterrupt))
        # Hosts that were made for the plan and could not be used are made anew when it goes on.
        if not goes_on or (self._bench_hosts and kind is InfrastructureError):
            self.leave()
        elif self._file.exists() and self._now:
            self._console.print(f"{self._now[0].name} keeps the plan's settings; started again, it goes on from there")

    def ready(self, cell: Cell) -> Topology:
        """Return the cell's topology, with its variables deployed. Raises UsageError where preflight refuses them,
        InfrastructureError where anything else fails."""
        topology = find_topology(cell.topology)
        changed = cell.deployment
        what = digest((cell.topology, changed))
        if what in self._refused:
            raise UsageError(self._refused[what])
        try:
            return self._made_ready(topology, changed)
        except UsageError as error:
            self._refused[what] = str(error)
            raise

    def renew(self) -> None:
        """Deploy anew what is deployed, after a run that left something unhealed. Hosts that were made for the plan are
        removed, and made again when they are needed; where the plan deploys, all instances are taken away, their data
        kept. Raises InfrastructureError where it does not: a deployment reaches further than a drill."""
        if self._bench_hosts:
            self.leave()
        elif not self._deploys:
            raise InfrastructureError(
                "what a run left behind is mended by a deployment, which was not asked for: --deploy"
            )
        elif self._now is not None and self._now[1] is not _UNSURE:  # else it is deployed before the next cell
            topology, changed = self._now
            with Progress(self._console) as progress:
                self._deploy(topology, changed, REDEPLOY, progress)
            self._now = (topology, changed)

    def _made_ready(self, topology: Topology, changed: dict[str, Any]) -> Topology:
        if self._now and self._now[0].sources == topology.sources and self._now[1] == changed:
            return topology
        if self._now and self._now[0].sources != topology.sources:
            self.leave()
        first = self._now is None
        with Progress(self._console) as progress:
            if first and self._bench_hosts:
                from brokerdrill.bench import bench  # of an extra that only this needs

                bench.up(topology, fresh=True, progress=progress.step)
                self._deploy(topology, changed, DEPLOY, progress)
            elif changed or not first:
                self._deploy(topology, changed, REDEPLOY, progress)
            elif self._deploys:
                self._deploy(topology, changed, DEPLOY, progress)
        self._now = (topology, changed)
        return topology

    def _deploy(
        self, topology: Topology, changed: Mapping[str, Any], playbooks: tuple[str, ...], progress: Progress
    ) -> None:
        self._now = (topology, _UNSURE)
        write_json(self._file, topology.word)
        with variables_file(changed) as words:
            for playbook in playbooks:
                said = ", ".join(changed) or "the inventory's own settings"
                progress.step(f"{playbook}.yml on {topology.name} with {said}")
                run_playbook(topology, playbook, progress, words)

    def leave(self) -> None:
        """Deploy the inventory's own settings again, or remove the hosts that were made for the plan."""
        if self._now is None:
            return
        topology, changed = self._now
        with Progress(self._console) as progress:
            if self._bench_hosts:
                from brokerdrill.bench import bench

                bench.down(topology.name, progress.step)
            elif changed:
                self._deploy(topology, {}, REDEPLOY, progress)
        self._file.unlink(missing_ok=True)
        self._now = None
