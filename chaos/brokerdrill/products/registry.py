"""All products by name: a new one is one line here."""

from __future__ import annotations

from collections.abc import Sequence

from brokerdrill.descriptors import Descriptor
from brokerdrill.errors import InfrastructureError
from brokerdrill.products.activemq_classic import ActiveMQClassic
from brokerdrill.products.artemis import Artemis
from brokerdrill.products.base import Product

PRODUCTS: dict[str, Product] = {product.name: product for product in (ActiveMQClassic(), Artemis())}


def managed(descriptors: Sequence[Descriptor]) -> list[tuple[Product, Descriptor]]:
    """Return those instances that serve a store and whose roles can be read, with their products.

    Raises InfrastructureError where there is none: nothing there could be drilled.
    """
    found = [(PRODUCTS[item.product], item) for item in descriptors if item.product in PRODUCTS and item.management]
    if not found:
        raise InfrastructureError("no host has the descriptor of a broker; is the topology deployed?")
    return found
