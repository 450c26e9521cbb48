"""ActiveMQ Classic: its broker bean and its connectors, by Jolokia."""

from __future__ import annotations

from typing import Any

from . import jolokia
from .answer import Health


def requests(broker_name: str) -> list[dict[str, Any]]:
    """Return the Jolokia requests whose replies show the role of that broker."""
    bean = f"org.apache.activemq:type=Broker,brokerName={broker_name}"
    return [
        {"type": "read", "mbean": bean, "attribute": "Slave"},
        {"type": "read", "mbean": f"{bean},connector=clientConnectors,connectorName=*", "attribute": "Started"},
    ]


def state_of(slave: bool | None, started: list[bool]) -> str:
    """Return the state that a broker's attribute Slave (None: no such bean yet) and its connectors' Started amount to.

    A slave waits for the lock and has no connectors; a master whose connectors are stopped waits for its store.
    """
    if slave:
        return "passive"
    return "active" if slave is False and any(started) else "starting"


def health_of(replies: list[dict[str, Any]]) -> Health:
    """Return the health that the replies to `requests` amount to."""
    broker, connectors = replies
    slave = jolokia.value(broker)
    started = [bool(bean["Started"]) for bean in (jolokia.value(connectors) or {}).values()]
    return Health(state_of(slave, started), True, str(broker.get("error", f"slave: {slave}")))


def read(descriptor: dict[str, Any]) -> Health:
    """Ask a broker. Raises OSError or ValueError without a usable answer."""
    return health_of(jolokia.ask(descriptor, requests(descriptor["management"]["broker_name"])))
