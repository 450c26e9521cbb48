"""Connects by way of a router, from its own log: its clients cannot see which broker is behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from brokerdrill.base.atomic import write
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.ledger.contract import OPS_DIR, json_line
from brokerdrill.ledger.events import CONTROLLER_CLOCK, EventWriter
from brokerdrill.products.logs import RoutedConnect


def write_routed_connects(
    run_dir: Path,
    events: EventWriter,
    router: Descriptor,
    connects: Sequence[tuple[int, RoutedConnect]],
    hosts: Mapping[str, str],
    uncertainty_ns: int,
) -> None:
    """Add to the run's operations and events the `connects` by way of `router`, each with the time (controller's clock,
    ns) of its line in the log, which is known to `uncertainty_ns`. `hosts`: of each instance. Without connects no file
    is written.

    Raises InfrastructureError.
    """
    for at_ns, one in connects:
        events.write(
            "routed",
            at_ns=at_ns,
            uncertainty_ns=uncertainty_ns,
            target=one.key,
            instance=one.instance,
            name=router.instance,
        )
    in_run = [(at_ns - events.base_ns, one) for at_ns, one in connects]
    rows = [*map(json_line, _rows(events.run_id, router, in_run, hosts, uncertainty_ns))]
    if rows:
        write(run_dir / OPS_DIR / f"{router.instance}.jsonl", b"".join(rows))


def _rows(
    run_id: str,
    router: Descriptor,
    connects: Iterable[tuple[int, RoutedConnect]],
    hosts: Mapping[str, str],
    uncertainty_ns: int,
) -> Iterator[dict[str, Any]]:
    """Yield a row a connect: the router is the client of all, and each is a session of its own."""
    for number, (at_ns, one) in enumerate(connects):
        yield {
            "run_id": run_id,
            "clock": CONTROLLER_CLOCK,
            "client": router.instance,
            "op_id": number,
            "session": number,
            "op": "connect",
            "outcome": "ok",
            "start_ns": max(0, at_ns - uncertainty_ns),
            "end_ns": at_ns + uncertainty_ns,
            "key": one.key,
            "broker": hosts.get(one.instance),
            "instance": one.instance,
            "protocol": router.listeners[0].protocol,
        }
