"""Which addresses are a drill's, as their descriptors declare; nothing else is ever sent to, taken from, emptied."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from brokerdrill.base.errors import UsageError
from brokerdrill.inventory.descriptors import Address, Descriptor


def _all(descriptors: Iterable[Descriptor]) -> list[Address]:
    return [address for item in descriptors for address in item.addresses]


def declared(descriptors: Sequence[Descriptor]) -> frozenset[str]:
    """Return the names of the addresses that are a drill's: every broker that has one says so."""
    found = _all(descriptors)
    return frozenset(item.name for item in found if item.drill) - {item.name for item in found if not item.drill}


def dead_letters(descriptors: Iterable[Descriptor], addresses: Collection[str]) -> list[str]:
    """Return where the dead letters of `addresses` go: the names, sorted. They need not be a drill's."""
    return sorted({one.dead_letter for one in _all(descriptors) if one.name in addresses and one.dead_letter})


def refuse_undeclared(addresses: Iterable[str], descriptors: Sequence[Descriptor], topology: str) -> None:
    """Raise UsageError where the descriptors of `topology` do not declare each of `addresses` to be a drill's."""
    own = declared(descriptors)
    strange = sorted(set(addresses) - own)
    if not strange:
        return
    none = "no address there is: deploy it anew, or describe it with --drill-address"
    there = f"a drill's are {', '.join(sorted(own))}" if own else none
    raise UsageError(
        f"{', '.join(strange)} of {topology} {'is' if len(strange) == 1 else 'are'} not declared a drill's, and drills "
        f"touch nothing else; {there}"
    )
