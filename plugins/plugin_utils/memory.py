"""What a broker's heap must hold at its worst, so that it pages or holds its producers back instead of dying, and what
the heaps of one machine may come to: pure functions from plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.brokerdrill.ha.plugins.plugin_utils.hosts import HostVars
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.products import Product

MIB = 1 << 20


def heap_problems(variable: str, heap_mib: int, parts: Mapping[str, float], advice: str) -> list[str]:
    """Return a sentence where `parts` (what for → MiB) together need more than `heap_mib`, the value of `variable`."""
    needed = sum(parts.values())
    if needed <= heap_mib:
        return []
    return [
        f"{variable} {heap_mib} is less than the {needed:.0f} MiB that the broker may come to need ({listed(parts)}): "
        f"it would die of it; {advice}"
    ]


def listed(parts: Mapping[str, float]) -> str:
    """Return the parts in one line, as MiB."""
    return ", ".join(f"{mib:.0f} for {what}" for what, mib in parts.items())


def artemis_heap(config: Mapping[str, Any]) -> dict[str, float]:
    """Return what the heap of an Artemis broker must hold.

    `config`: heap_mib, id_cache_size, addresses (how many may see duplicate ids).
    """
    return {
        "itself": ARTEMIS_ITSELF_MIB,
        "messages before they are paged": config["heap_mib"] * ARTEMIS_MESSAGES,
        f"{config['id_cache_size']} remembered ids on each of {config['addresses']} addresses": config["id_cache_size"]
        * config["addresses"]
        * ARTEMIS_ID_BYTES
        / MIB,
    }


def classic_heap(config: Mapping[str, Any]) -> dict[str, float]:
    """Return what the heap of an ActiveMQ Classic broker must hold. `config`: heap_mib, memory_percent."""
    return {
        "itself": CLASSIC_ITSELF_MIB,
        "messages before their producers are held back": config["heap_mib"] * config["memory_percent"] / 100,
    }


def heaps(host: str, hostvars: HostVars, products: Iterable[Product]) -> dict[str, int]:
    """Return the heaps (MiB) of the JVMs on the machine that is `host`, by what to call each: those of all hosts of the
    inventory that are reached at its address."""

    def address(name: str) -> Any:
        return hostvars[name].get("ansible_host", name)

    found = {}
    jvms = [(product.name, product.heap, product.heap_mib) for product in products if product.heap is not None]
    for name in hostvars:
        if address(name) != address(host):
            continue
        for product, variable, default_mib in jvms:
            if product in hostvars[name]["group_names"]:
                found[f"{variable} of {name}"] = int(hostvars[name].get(variable, default_mib))
    return found


def memory_mib(said: str) -> float:
    """Return how much memory a host has, from its /proc/meminfo and, each on a line of its own, the limits in bytes of
    the control group that is its root (none: `max`). Raises ValueError."""
    limits = []
    for line in said.splitlines():
        name, _colon, value = line.partition(":")
        if name == "MemTotal":
            limits.append(int(value.split()[0]) * 1024)
        elif name.isdecimal():
            limits.append(int(name))
    return min(limits) / MIB


def machine_problems(heaps_mib: Mapping[str, int], has_mib: float) -> list[str]:
    """Return a sentence where the JVMs with these heaps may together take more memory than their machine has."""
    needed = sum(heaps_mib.values()) + len(heaps_mib) * JVM_ITSELF_MIB + MACHINE_MIB
    if needed <= has_mib:
        return []
    return [
        f"the JVMs of this host may take {needed} MiB ({listed(heaps_mib)}, {JVM_ITSELF_MIB} for each beside its heap, "
        f"{MACHINE_MIB} for the host), and it has {has_mib:.0f}: the kernel would end one of them; set smaller heaps, "
        "give it more memory, or set common_allow_small_memory"
    ]


JVM_ITSELF_MIB = 96
"""A ZooKeeper with a heap of 64 MiB took 137 to 151, an idle ActiveMQ Classic with one of 192 took 265."""
MACHINE_MIB = 96
"""The system itself, without a cache worth the name."""
ARTEMIS_ITSELF_MIB = 48
"""With 192 MiB, half of them for messages, brokers were seen to serve 400 messages a second through failovers."""
ARTEMIS_MESSAGES = 0.5
"""ActiveMQDefaultConfiguration.getDefaultMaxGlobalSize: half of the heap, where global-max-size is not set."""
ARTEMIS_ID_BYTES = 200
"""InMemoryDuplicateIDCache keeps of each id its bytes in an array of their own, a ByteArray, an ObjLongPair, a map's
node and an Integer: 170 bytes for an id of 20, rounded up for the map's table."""
CLASSIC_ITSELF_MIB = 64
"""Seen with 192 MiB, 60 % of them for messages."""
