"""The balancer: HAProxy's own page on whether each of its listeners has a broker to hand connections on to."""

from __future__ import annotations

from typing import Any
from urllib.error import HTTPError

from .answer import Health, get

READY = "/ready"


def state_of(status: int) -> str:
    """Return the state that the status of the answer to `READY` amounts to: every balancer serves."""
    return "active" if status == 200 else "starting"


def read(descriptor: dict[str, Any]) -> Health:
    """Ask a balancer. Raises OSError without a usable answer."""
    try:
        get(descriptor["management"]["url"] + READY)
    except HTTPError as error:
        if error.code != 503:
            raise
        return Health(state_of(error.code), True, "a listener has no broker")
    return Health(state_of(200), True, "brokers behind every listener")
