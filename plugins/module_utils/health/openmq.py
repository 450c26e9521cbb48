"""Open MQ: its JMS service and itself in its cluster, by Jolokia."""

from __future__ import annotations

from typing import Any

from . import jolokia
from .answer import Health

BEANS = "com.sun.messaging.jms.server:subtype=Monitor"


def requests(service: str) -> list[dict[str, Any]]:
    """Return the Jolokia requests whose replies show the role of the broker with that JMS service."""
    return [
        {"type": "read", "mbean": f"{BEANS},type=Service,name={service}", "attribute": "StateLabel"},
        {"type": "read", "mbean": f"{BEANS},type=Cluster", "attribute": "LocalBrokerInfo"},
    ]


def state_of(service: str | None, broker: str | None) -> str:
    """Return the state that those of the JMS service and of the broker in its cluster (None: no bean yet) amount to.

    Every broker serves; one that takes over another's store serves on.
    """
    return "active" if service == "RUNNING" and broker == "OPERATING" else "starting"


def health_of(replies: list[dict[str, Any]]) -> Health:
    """Return the health that the replies to `requests` amount to."""
    service, cluster = (jolokia.value(reply) for reply in replies)
    broker = cluster["StateLabel"] if cluster else None
    detail = str(replies[0].get("error", f"service {service}, broker {broker}"))
    return Health(state_of(service, broker), True, detail)


def read(descriptor: dict[str, Any]) -> Health:
    """Ask a broker. Raises OSError or ValueError without a usable answer."""
    return health_of(jolokia.ask(descriptor, requests(descriptor["management"]["service"])))
