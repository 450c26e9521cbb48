"""All products by name: a new one is one line here."""

from __future__ import annotations

from collections.abc import Sequence

from brokerdrill.descriptors import Descriptor
from brokerdrill.errors import InfrastructureError
from brokerdrill.products.activemq_classic import ActiveMQClassic
from brokerdrill.products.artemis import Artemis
from brokerdrill.products.base import Product
from brokerdrill.products.lease_db import LeaseDb

PRODUCTS: dict[str, Product] = {product.name: product for product in (ActiveMQClassic(), Artemis(), LeaseDb())}


def managed(descriptors: Sequence[Descriptor]) -> list[tuple[Product, Descriptor]]:
    """Return those instances that serve a store and whose roles can be read, with their products.

    Those that clients send to come first. Raises InfrastructureError where there is none: nothing could be drilled.
    """
    found = [(PRODUCTS[item.product], item) for item in descriptors if item.product in PRODUCTS and item.management]
    found.sort(key=lambda pair: pair[0].client is None)
    if not found or found[0][0].client is None:
        raise InfrastructureError("no host has the descriptor of a broker; is the topology deployed?")
    return found
