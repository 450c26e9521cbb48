"""From a scenario's load to the workers' configurations: which worker runs which clients on which addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from brokerdrill.descriptors import Descriptor
from brokerdrill.scenario import Load
from brokerdrill.workload.config import ClientSpec, Credentials, Endpoint, WorkerConfig


def share(addresses: Sequence[str], index: int, clients: int) -> tuple[str, ...]:
    """The addresses of client `index` of `clients`: every address has a client, every client an address, evenly."""
    if clients <= len(addresses):
        return tuple(addresses[index::clients])
    return (addresses[index % len(addresses)],)


def endpoints(brokers: Sequence[Descriptor], protocol: str) -> tuple[Endpoint, ...]:
    """The listeners of that protocol on all brokers, primaries first, so that clients try them first."""
    ordered = sorted(brokers, key=lambda item: (item.role != "primary", item.instance))
    return tuple(
        Endpoint(listener.address, listener.port, item.instance, item.host)
        for item in ordered
        for listener in item.listeners
        if listener.protocol == protocol
    )


def worker_configs(
    *,
    run_id: str,
    seed: int,
    protocol: str,
    load: Load,
    brokers: Sequence[Descriptor],
    credentials: Mapping[str, str],
    hosts: Sequence[Descriptor],
) -> dict[str, tuple[int, dict[str, Any]]]:
    """Return worker name → (index of its load host, its configuration without the paths that only its host knows).

    Producers and consumers are dealt out to the workers in turn, workers to the hosts in turn.
    """
    count = min(load.workers, load.producers + load.consumers)
    producers = [ClientSpec(f"producer-{i}", share(load.addresses, i, load.producers)) for i in range(load.producers)]
    consumers = [ClientSpec(f"consumer-{i}", share(load.addresses, i, load.consumers)) for i in range(load.consumers)]
    configs = {}
    for number in range(count):
        name = f"worker-{number}"
        own = tuple(producers[number::count])
        host = hosts[number % len(hosts)]
        config = WorkerConfig(
            run_id=run_id,
            worker=name,
            clock=name,
            client=protocol,
            endpoints=endpoints(brokers, protocol),
            credentials=Credentials(credentials["username"], credentials["password"]),
            addresses=tuple(load.addresses),
            producers=own,
            consumers=tuple(consumers[number::count]),
            seed=seed * 1000 + number,
            tls_ca=host.tls["ca"] if host.tls else None,
            rate=load.rate * len(own) / load.producers if load.rate and own else None,
            transaction=load.transaction,
            payload_bytes=tuple(load.payload_bytes),
            keys=load.keys,
            durable=load.durable,
            duplicate_detection=load.duplicate_detection,
            call_timeout_ms=load.call_timeout_ms,
        )
        configs[name] = (number % len(hosts), config.to_json())
    return configs
