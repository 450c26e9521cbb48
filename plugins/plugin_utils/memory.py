"""What a broker's heap must hold at its worst, so that it pages or holds its producers back instead of dying: pure
functions from plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MIB = 1 << 20


def heap_problems(variable: str, heap_mib: int, parts: Mapping[str, float], advice: str) -> list[str]:
    """Return a sentence where `parts` (what for → MiB) together need more than `heap_mib`, the value of `variable`."""
    needed = sum(parts.values())
    if needed <= heap_mib:
        return []
    return [
        f"{variable} {heap_mib} is less than the {needed:.0f} MiB that the broker may come to need ({told(parts)}): it "
        f"would die of it; {advice}"
    ]


def told(parts: Mapping[str, float]) -> str:
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


ARTEMIS_ITSELF_MIB = 48
"""With 192 MiB, half of them for messages, brokers were seen to serve 400 messages a second through failovers."""
ARTEMIS_MESSAGES = 0.5
"""ActiveMQDefaultConfiguration.getDefaultMaxGlobalSize: half of the heap, where global-max-size is not set."""
ARTEMIS_ID_BYTES = 200
"""InMemoryDuplicateIDCache keeps of each id its bytes in an array of their own, a ByteArray, an ObjLongPair, a map's
node and an Integer: 170 bytes for an id of 20, rounded up for the map's table."""
CLASSIC_ITSELF_MIB = 64
"""Seen with 192 MiB, 60 % of them for messages."""
