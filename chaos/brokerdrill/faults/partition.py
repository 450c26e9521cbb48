"""Partitions: nftables on the dialling host drops (a black hole) or rejects (a reset) what goes over a link."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

from pydantic import Field

from brokerdrill.faults.base import FaultType, HostChange, Parameters
from brokerdrill.inventory.targets import Link, Target

_VERDICTS = {"drop": "drop", "reject": "reject with tcp reset"}


class PartitionParameters(Parameters):
    """What becomes of a packet."""

    how: Literal["drop", "reject"] = Field(
        "drop", description="drop: packets vanish (a black hole); reject: each is answered by a reset"
    )


def _partition(target: Target, params: PartitionParameters, fault_id: str) -> list[HostChange]:
    # One table a fault: healing is the deletion of the table, whatever is in it.
    table = f"brokerdrill_{fault_id.replace('-', '_')}"
    verdict = _VERDICTS[params.how]
    by_host: dict[str, list[Link]] = defaultdict(list)
    for link in target.links:
        by_host[link.dialler].append(link)
    changes = []
    for host, links in sorted(by_host.items()):
        rules = [f"  ip daddr {link.address} tcp dport {link.port} {verdict}" for link in links]
        # Heartbeats of some products are datagrams, which no reset answers.
        rules += [f"  ip daddr {link.address} udp dport {link.port} drop" for link in links]
        # The way back too, so that the peer's side is reset as well; but not the resets that the way out just made.
        back = [f"  ip saddr {link.address} tcp sport {link.port} tcp flags & rst == 0 {verdict}" for link in links]
        ruleset = "\n".join(
            [
                f"table inet {table} {{",
                " chain out { type filter hook output priority -10;",
                *rules,
                " }",
                " chain in { type filter hook input priority -10;",
                *back,
                " }",
                "}",
            ]
        )
        changes.append(
            HostChange(
                host=host,
                effect=f"nft -f - <<'NFT'\n{ruleset}\nNFT",
                verify=f"nft list table inet {table} >/dev/null",
                heal=f"nft delete table inet {table} 2>/dev/null || :",
                verify_heal=f"! nft list table inet {table} >/dev/null 2>&1",
                target=", ".join(link.name for link in links),
            )
        )
    return changes


FAULTS = (FaultType("partition", "link", "the link carries nothing", PartitionParameters, _partition, ("nft",)),)
