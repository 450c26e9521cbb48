"""Which addresses are of a network, and who may come by them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _parsed(text: str) -> _Network:
    """Return the network (CIDR); one of IPv4 addresses in their form as IPv6 ones is that of IPv4."""
    network = ipaddress.ip_network(text)
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= 96:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return ipaddress.IPv4Network((mapped, network.prefixlen - 96))
    return network


class Networks:
    """A set of networks (CIDR). To look an address up takes one step for each length of prefix, however many there
    are."""

    __slots__ = ("_by_shift",)

    def __init__(self, texts: Iterable[str]) -> None:
        """Raises ValueError for a text that is no network."""
        self._by_shift: dict[tuple[int, int], set[int]] = {}
        """IP version and bits behind the prefix → prefixes."""
        for network in map(_parsed, texts):
            shift = network.max_prefixlen - network.prefixlen
            prefixes = self._by_shift.setdefault((network.version, shift), set())
            prefixes.add(int(network.network_address) >> shift)

    def __contains__(self, address: str) -> bool:
        """Return whether the IP `address` is in one of them; what is no address is in none."""
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        number, version = int(found), found.version
        return any(of == version and number >> shift in prefixes for (of, shift), prefixes in self._by_shift.items())


@lru_cache(maxsize=64)
def networks(texts: tuple[str, ...]) -> Networks:
    """Return `Networks` of these; raises ValueError."""
    return Networks(texts)


@dataclass(frozen=True, slots=True)
class Gate:
    """Whom a listener lets in, by networks (CIDR): who is in `deny` stays out, and with `allow` who is not in that."""

    allow: tuple[str, ...] | None = None
    """None: everybody."""
    deny: tuple[str, ...] = ()
    _allowed: Networks | None = field(init=False, repr=False, compare=False)
    _denied: Networks | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise ValueError for a text that is no network."""
        object.__setattr__(self, "_allowed", None if self.allow is None else Networks(self.allow))
        object.__setattr__(self, "_denied", Networks(self.deny) if self.deny else None)

    def keeps_out(self, address: str) -> bool:
        """Return whether the client's IP `address` may not come in."""
        if self._denied is not None and address in self._denied:
            return True
        return self._allowed is not None and address not in self._allowed
