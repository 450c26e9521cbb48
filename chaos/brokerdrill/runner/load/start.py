"""The start of the load: which hosts it runs on, and its workers there, ready and silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.base.progress import Progress
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.hosts.descriptors import read_credentials
from brokerdrill.inventory.descriptors import Descriptor, LoadDescriptor
from brokerdrill.runner.load.control import LoadControl
from brokerdrill.runner.load.plan import plan_workers
from brokerdrill.runner.request import RunRequest
from brokerdrill.runner.system import System
from brokerdrill.scenario.model import Load

# A load host: its connection, and the descriptor of what the clients run with there.
LoadHost = tuple[HostConnection, LoadDescriptor]


def load_hosts(
    inventory: str, descriptors: Sequence[Descriptor], connections: Mapping[str, HostConnection]
) -> list[LoadHost]:
    """The hosts that clients run on. Raises InfrastructureError where there is none."""
    found = [(connections[item.host], item) for item in descriptors if isinstance(item, LoadDescriptor)]
    if not found:
        raise InfrastructureError(f"inventory {inventory} has no host in group load for the clients")
    return found


async def start_load(
    request: RunRequest,
    wanted: Load,
    system: System,
    load: LoadControl,
    hosts: Sequence[LoadHost],
    progress: Progress,
) -> None:
    """Start the workers of the load `wanted`; they send nothing yet. Raises Unmet if one is not ready in
    time, InfrastructureError if one fails."""
    first = next(iter(system.instances.values()))
    if first.product.client is None:
        raise InfrastructureError(f"product {first.product.name} has no client protocol for a load")
    credentials = await read_credentials(first.connection, first.descriptor)
    planned = plan_workers(
        run_id=request.run_id,
        seed=request.seed,
        protocol=wanted.client or first.product.client,
        load=wanted,
        servers=[item.descriptor for item in system.instances.values()],
        credentials=credentials,
        hosts=[item for _, item in hosts],
    )
    progress.step(f"start {len(planned)} workers on {', '.join(sorted({c.name for c, _ in hosts}))}")
    await load.start(hosts, planned, request.run_id)
