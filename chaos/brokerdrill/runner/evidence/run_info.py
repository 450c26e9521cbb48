"""What run.json says of a run: what is known when it begins, and its clocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.ledger import contract
from brokerdrill.ledger.events import CONTROLLER_CLOCK
from brokerdrill.products.base import Product
from brokerdrill.runner.load.worker import Worker
from brokerdrill.runner.request import RunRequest
from brokerdrill.scenario.model import LoadedScenario


def first_info(
    request: RunRequest,
    loaded: LoadedScenario,
    descriptors: Sequence[Descriptor],
    instances: Sequence[tuple[Product, Descriptor]],
    started_at: str,
) -> contract.RunInfo:
    """What is known of the run before it is made; `descriptors` are all there are, `instances` the managed ones.

    Raises UsageError where a value is none that run.json may hold.
    """
    scenario = loaded.scenario
    stores: dict[str, list[str]] = {}
    dead: dict[str, str] = {}
    for product, item in instances:
        # What nobody sends to, as a database, is watched and drilled; the ledger's stores are the brokers'.
        if item.store and product.client:
            stores.setdefault(item.store, []).append(item.instance)
        for address in item.addresses:
            if address.dead_letter and address.name in scenario.load.addresses:
                dead[address.name] = address.dead_letter
    return contract.new_run(
        request.run_id,
        scenario=contract.ScenarioText(loaded.name, loaded.text, loaded.sha256),
        topology=request.topology.name,
        inventory_sha256=request.topology.sha256,
        versions={item.product: item.version for item in descriptors if item.version},
        settings=request.settings,
        approval=asdict(request.approval) if request.approval else {},
        seed=request.seed,
        started_at=started_at,
        expect=scenario.expect(),
        promises=tuple(promise.spec() for promise in scenario.promises),
        stores={store: tuple(sorted(names)) for store, names in stores.items()},
        dead_letters=dead,
        clocks=clocks((), 0),
        addresses=tuple(scenario.load.addresses),
        planned=tuple(scenario.minimum()),
        minimum=scenario.minimum(),
        known=tuple(one.known() for one in scenario.known),
        only=dict(scenario.only),
    )


def clocks(workers: Iterable[Worker], base_ns: int) -> dict[str, contract.Clock]:
    """The run's clocks so far: the controller's counts from `base_ns`, the run's start, a worker's from its own."""
    own = {
        item.clock_name: contract.Clock(item.connection.name, item.clock.offset_ns - base_ns, item.clock.uncertainty_ns)
        for item in workers
    }
    return {CONTROLLER_CLOCK: contract.Clock("controller"), **own}
