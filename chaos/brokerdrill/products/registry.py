"""All products: a module of this package with a `PRODUCT` is one; its `DESCRIPTOR` models what its role says."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence

from brokerdrill import products
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.inventory.descriptors import TOOLS, Descriptor
from brokerdrill.products.base import Product

_MODULES = [
    importlib.import_module(f"{products.__name__}.{item.name}") for item in pkgutil.iter_modules(products.__path__)
]
PRODUCTS: dict[str, Product] = {
    module.PRODUCT.name: module.PRODUCT for module in _MODULES if hasattr(module, "PRODUCT")
}
# The models of the descriptors, by the `product` that these say; a product without one of its own has the common one.
DESCRIPTORS: dict[str, type[Descriptor]] = {
    **TOOLS,
    **{module.PRODUCT.name: module.DESCRIPTOR for module in _MODULES if hasattr(module, "DESCRIPTOR")},
}


def managed(descriptors: Sequence[Descriptor]) -> list[tuple[Product, Descriptor]]:
    """Return those instances that serve a store and whose roles can be read, with their products.

    Those that clients send to come first. Raises InfrastructureError where there is none: nothing could be drilled.
    """
    found = [(PRODUCTS[item.product], item) for item in descriptors if item.product in PRODUCTS and item.management]
    found.sort(key=lambda pair: pair[0].client is None)
    if not found or found[0][0].client is None:
        raise InfrastructureError("no host has the descriptor of a broker; is the topology deployed?")
    return found
