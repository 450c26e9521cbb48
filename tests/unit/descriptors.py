"""Descriptors of made-up instances, as the roles would leave them."""

from __future__ import annotations

from typing import Any

from brokerdrill.inventory.descriptors import Descriptor

PORTS = {"artemis": ("core", 61616), "activemq_classic": ("openwire", 61617)}


def instance(product: str, name: str, **values: Any) -> Descriptor:
    """Return the descriptor of an instance that no client sends to."""
    return Descriptor.model_validate({"schema": 1, "product": product, "instance": name, "host": name, **values})


def broker(product: str, name: str, store: str = "pair1", **values: Any) -> Descriptor:
    """Return the descriptor of a broker of `store`."""
    protocol, port = PORTS[product]
    listener = {"name": protocol, "address": "192.0.2.1", "port": port, "protocol": protocol}
    return instance(product, name, store=store, listeners=[listener], **values)
