"""The start of the load: which hosts it runs on, and its workers there, ready and silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from brokerdrill import descriptors as desc
from brokerdrill.descriptors import Descriptor
from brokerdrill.errors import InfrastructureError
from brokerdrill.hosts import HostConnection
from brokerdrill.load_control import LoadControl
from brokerdrill.load_plan import worker_configs
from brokerdrill.progress import Progress
from brokerdrill.runner.request import RunRequest
from brokerdrill.runner.system import System

# A load host: its connection, and the descriptor of what the clients run with there.
LoadHost = tuple[HostConnection, Descriptor]


def load_hosts(
    inventory: str, descriptors: Sequence[Descriptor], connections: Mapping[str, HostConnection]
) -> list[LoadHost]:
    """The hosts that clients run on. Raises InfrastructureError where there is none."""
    found = [(connections[item.host], item) for item in descriptors if item.product == "load"]
    if not found:
        raise InfrastructureError(f"inventory {inventory} has no host in group load for the clients")
    return found


async def start_load(
    request: RunRequest, system: System, load: LoadControl, hosts: Sequence[LoadHost], progress: Progress
) -> None:
    """Start the workers of the run's load; they send nothing yet. Raises InfrastructureError when one is not ready."""
    scenario = request.loaded.scenario
    first = next(iter(system.instances.values()))
    if first.product.client is None:
        raise InfrastructureError(f"product {first.product.name} has no client protocol for a load")
    credentials = await desc.read_credentials(first.connection, first.descriptor)
    configs = worker_configs(
        run_id=request.run_id,
        seed=request.seed,
        protocol=scenario.load.client or first.product.client,
        load=scenario.load,
        brokers=[item.descriptor for item in system.brokers()],
        credentials=credentials,
        hosts=[item for _, item in hosts],
    )
    progress.step(f"start {len(configs)} workers on {', '.join(sorted({c.name for c, _ in hosts}))}")
    await load.start(hosts, configs, request.run_id)
