"""From a scenario's load to the workers' configurations: which worker runs which clients on which addresses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from brokerdrill.base.errors import InfrastructureError, UsageError, unknown_name
from brokerdrill.inventory.descriptors import Descriptor, JolokiaManagement, Listener
from brokerdrill.inventory.targets import leads_clients
from brokerdrill.scenario.model import Load
from brokerdrill.workload.config import (
    NO_KEY,
    PARAMETRIZED,
    REDIRECTED,
    SHOWN,
    SUBSCRIBING,
    TAUGHT,
    UNCONFIRMED,
    UNTRANSACTED,
    WINDOWED,
    BrokerEndpoint,
    ClientAccount,
    ClientSpec,
    Router,
    WorkerConfig,
    takes_the_answer_away,
)
from brokerdrill.workload.header import tag_of

# Of a connection's keys those that a client can choose.
CHOSEN_KEYS = ("CLIENT_ID", "SNI_HOST")
# The clients that connect without a key where the load has none; others choose one by themselves.
KEYLESS = "core"
# The role that only the drills' account has.
DRILL_ROLE = "drill"


def share(addresses: Sequence[str], index: int, clients: int) -> tuple[str, ...]:
    """The addresses of client `index` of `clients`: every address has a client, every client an address, evenly."""
    if clients <= len(addresses):
        return tuple(addresses[index::clients])
    return (addresses[index % len(addresses)],)


def endpoints(servers: Sequence[Descriptor], protocol: str, through: str | None = None) -> tuple[BrokerEndpoint, ...]:
    """The listeners of that protocol that clients dial, primaries first, so that clients try them first: those with the
    name `through` where there are some that lead nobody."""
    ordered = sorted(servers, key=lambda item: (item.role != "primary", item.instance))
    direct = [
        (item, listener)
        for item in ordered
        for listener in item.listeners
        if listener.protocol == protocol and listener.router is None and not listener.relays
    ]
    dialled = [one for one in direct if one[1].name == through] or [one for one in direct if one[1].clients]
    return tuple(
        BrokerEndpoint(listener.address, listener.port, item.instance, item.host) for item, listener in dialled
    )


def secure(servers: Sequence[Descriptor], protocol: str) -> bool:
    """Whether the listeners that clients dial use TLS. Raises InfrastructureError where only some do."""
    found = {
        listener.tls
        for item in servers
        for listener in item.listeners
        if listener.protocol == protocol and listener.clients
    }
    if len(found) > 1:
        raise InfrastructureError(f"some listeners of {protocol} use TLS and some do not: clients speak one way to all")
    return found != {False}


@dataclass(frozen=True)
class RoutedLoad:
    """How clients of a load reach brokers by way of routers: the `routers` that they ask, by which key after which
    filter, and the `stores` (instances each) that these lead to, which may be the routers' own. `keys` are those of all
    producers."""

    routers: tuple[Router, ...]
    key_type: str
    key_filter: str | None
    keys: tuple[str, ...]
    stores: tuple[tuple[str, ...], ...]


def router_at(item: Descriptor, listener: Listener) -> Router:
    """Return the router behind a listener of `item`, and where it can be asked."""
    known = item.management if isinstance(item.management, JolokiaManagement) else None
    broker, url = (known.broker_name, known.url) if known else ("", "")
    own = listener.router or ""
    return Router(listener.address, listener.port, item.instance, item.host, own, broker, url, listener.relays)


def route_load(servers: Sequence[Descriptor], load: Load, protocol: str, run_id: str) -> RoutedLoad | None:
    """Return how the load's clients reach brokers by way of routers, None where they dial the brokers themselves.

    Keys are the run's own: a router that remembers would know those of an earlier one. Clients that no router redirects
    ask the one behind the listener, which need not speak their protocol. Raises UsageError where no router of `servers`
    has the listener that `load` names, where it is a balancer's and clients could not tell who serves them, and where
    producers were to have several messages in flight.
    """
    if load.through is None:
        return None
    if not any(map(leads_clients, servers)):
        names = {listener.name for item in servers for listener in item.listeners if listener.protocol == protocol}
        if load.through in names:
            return None
        raise unknown_name("listener", load.through, names)
    routing = [
        (item, listener)
        for item in sorted(servers, key=lambda item: item.instance)
        for listener in item.listeners
        if listener.router and (listener.protocol == protocol or protocol not in REDIRECTED)
    ]
    listening = {item.instance: (item, listener) for item, listener in routing if listener.name == load.through}
    if not listening:
        raise unknown_name("listener with a connection router", load.through, {one.name for _, one in routing})
    if load.window > 1:
        raise UsageError("producers that connection routers lead have one message in flight: leave load.window out")
    asked = list(listening.values())[: load.routers or None]
    if any(listener.relays and not (listener.tls and protocol in SHOWN) for _, listener in asked):
        known = " and ".join(SHOWN)
        raise UsageError(f"behind the balancer's {load.through} only clients of {known}, with TLS, can tell who serves")
    key_type = asked[0][1].key or ""
    stores: dict[str, list[str]] = {}
    targets = [item for item in servers if not leads_clients(item)]
    for item in targets or servers:
        if item.store:
            stores.setdefault(item.store, []).append(item.instance)
    return RoutedLoad(
        tuple(router_at(item, listener) for item, listener in asked),
        key_type,
        asked[0][1].key_filter,
        _keys(load, key_type, protocol, run_id),
        tuple(tuple(sorted(names)) for _, names in sorted(stores.items())),
    )


def _keys(load: Load, key_type: str, protocol: str, run_id: str) -> tuple[str, ...]:
    if key_type not in CHOSEN_KEYS:
        # There is one, which the client does not choose: its account's, or its host's.
        return (DRILL_ROLE,)
    if load.routing_keys == 0:
        if protocol != KEYLESS:
            raise UsageError(f"routing_keys is 0, and clients of {protocol} cannot connect without a key")
        return (NO_KEY,)
    return tuple(f"{tag_of(run_id)}-{n}" for n in range(load.routing_keys))


def producer(load: Load, number: int, routes: RoutedLoad | None) -> ClientSpec:
    """Return producer `number`; where clients ask routers, the producers share the keys out."""
    keys = routes.keys if routes else ()
    own = keys[number :: load.producers] or keys
    return ClientSpec(f"producer-{number}", share(load.addresses, number, load.producers), keys=own)


def consumer(load: Load, number: int, routes: RoutedLoad | None) -> ClientSpec:
    """Return consumer `number`; where clients ask routers, each store has consumers of its own for every address."""
    if routes is None:
        return ClientSpec(f"consumer-{number}", share(load.addresses, number, load.consumers))
    stores = len(routes.stores)
    own = share(load.addresses, number // stores, -(-(load.consumers - number % stores) // stores))
    return ClientSpec(f"consumer-{number}", own, instances=routes.stores[number % stores])


@dataclass(frozen=True)
class PlannedWorker:
    """A worker to start: the index of its load host, and its configuration without the paths that only its host
    knows."""

    host: int
    config: WorkerConfig


def plan_workers(
    *,
    run_id: str,
    seed: int,
    protocol: str,
    load: Load,
    servers: Sequence[Descriptor],
    credentials: Mapping[str, str],
    hosts: Sequence[Descriptor],
) -> list[PlannedWorker]:
    """Return the workers of `load`: producers and consumers are dealt out to them in turn, and they to the load `hosts`
    in turn.

    Raises UsageError where no router leads clients as the load wants it, or where clients of `protocol` cannot do what
    the load asks; InfrastructureError where clients would have to speak TLS to some servers only.
    """
    _refuse_unable(protocol, load)
    count = min(load.workers, load.producers + load.consumers)
    routes = route_load(servers, load, protocol, run_id)
    producers = [producer(load, number, routes) for number in range(load.producers)]
    consumers = [consumer(load, number, routes) for number in range(load.consumers)]
    direct = [item for item in servers if not routes or item.instance in {n for own in routes.stores for n in own}]
    planned = []
    for number in range(count):
        own = tuple(producers[number::count])
        host = hosts[number % len(hosts)]
        config = WorkerConfig(
            run_id=run_id,
            worker=f"worker-{number}",
            clock=f"worker-{number}",
            client=protocol,
            endpoints=endpoints(direct, protocol, load.through),
            routers=routes.routers if routes else (),
            key_type=routes.key_type if routes else "",
            key_filter=routes.key_filter if routes else None,
            keeps_connection=load.keeps_connection,
            credentials=ClientAccount(credentials["username"], credentials["password"]),
            addresses=tuple(load.addresses),
            producers=own,
            consumers=tuple(consumers[number::count]),
            seed=seed * 1000 + number,
            tls_ca=host.tls.ca if host.tls and secure(servers, protocol) else None,
            rate=load.rate * len(own) / load.producers if load.rate and own else None,
            transaction=load.transaction,
            payload_bytes=tuple(load.payload_bytes),
            keys=load.keys,
            window=load.window,
            durable=load.durable,
            duplicate_detection=load.duplicate_detection,
            resend=load.resend,
            confirms=load.confirms,
            backlog=load.backlog,
            subscriptions=load.subscriptions,
            call_timeout_ms=load.call_timeout_ms,
            url_params=_as_in_a_url(load.url_params),
            dials=load.dials,
        )
        planned.append(PlannedWorker(number % len(hosts), config))
    return planned


def _refuse_unable(protocol: str, load: Load) -> None:
    """Raise UsageError where clients of `protocol` cannot do what `load` asks."""
    if protocol in UNTRANSACTED and load.transaction > 0:
        raise UsageError(f"clients of {protocol} send without transactions: set load.transaction to 0")
    if protocol not in UNCONFIRMED and not load.confirms:
        raise UsageError(f"clients of {protocol} always wait for the broker's word on a send: leave load.confirms out")
    if protocol not in WINDOWED and load.window > 1:
        raise UsageError(
            f"clients of {protocol} have one message in flight here, those of {', '.join(WINDOWED)} several: leave "
            "load.window out"
        )
    if protocol not in SUBSCRIBING and load.subscriptions:
        raise UsageError(f"clients of {protocol} have no durable subscriptions here: leave load.subscriptions out")
    if load.dials and (protocol not in TAUGHT or load.through):
        raise UsageError(
            f"only clients of {' and '.join(TAUGHT)} that nobody leads learn of brokers whose addresses they are not "
            "given: leave load.dials out"
        )
    if protocol not in PARAMETRIZED and load.url_params:
        raise UsageError(f"clients of {protocol} take no parameters of their connections: leave load.url_params out")
    for name, value in _as_in_a_url(load.url_params).items():
        if load.transaction == 0 and takes_the_answer_away(protocol, name, value, windowed=load.window > 1):
            raise UsageError(
                f"clients of {protocol} with {name}={value} are told that a message arrived before the broker has it: "
                f"leave load.url_params.{name} out, or let them send in transactions (load.transaction)"
            )


def _as_in_a_url(values: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    """Return connection parameters as a URL has them: numbers in digits, true and false."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
