"""Partitions: nftables on the dialling host drops (a black hole) or rejects (a reset) what goes over a link."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

from pydantic import Field

from brokerdrill.faults import nft
from brokerdrill.faults.base import LINKS_SEPARATOR, FaultType, HostChange, Parameters
from brokerdrill.inventory.targets import Link, Target
from brokerdrill.ledger.coverage import Minimum

_VERDICTS = {"drop": "drop", "reject": "reject with tcp reset"}
_CHAINS = tuple(f"{hook} {{ type filter hook {hook} priority -10; }}" for hook in ("output", "input", "forward"))


def _rules(verdict: str, there: str, back: str) -> list[str]:
    """What becomes of the packets of a link, on the chains of its way `there` and `back`."""
    return [
        f"{there} $ip daddr $address tcp dport $port counter {verdict}",
        # Heartbeats of some products are datagrams, which no reset answers.
        f"{there} $ip daddr $address udp dport $port counter drop",
        # The way back too, so that the peer's side is reset as well; but not the resets that the way out just made.
        f"{back} $ip saddr $address tcp sport $port tcp flags & rst == 0 counter {verdict}",
    ]


class PartitionParameters(Parameters):
    """What becomes of a packet."""

    how: Literal["drop", "reject"] = Field(
        "drop", description="drop: packets vanish (a black hole); reject: each is answered by a reset"
    )


def _partition(target: Target, params: PartitionParameters, fault_id: str) -> list[HostChange]:
    table, verdict = nft.table(fault_id), _VERDICTS[params.how]
    own = _rules(verdict, "output", "input")
    bridged = _rules(verdict, "forward iifname { $bridges }", "forward oifname { $bridges }")
    by_host: dict[str, list[Link]] = defaultdict(list)
    for link in target.links:
        by_host[link.dialler].append(link)
    return [
        HostChange(
            host=host,
            effect=nft.load(table, links, _CHAINS, own, bridged),
            verify=nft.there(table),
            heal=nft.delete(table),
            verify_heal=f"! {nft.there(table)}",
            count=nft.counted(table),
            target=LINKS_SEPARATOR.join(link.name for link in links),
        )
        for host, links in sorted(by_host.items())
    ]


FAULTS = (
    FaultType(
        "partition",
        "link",
        "the link carries nothing",
        PartitionParameters,
        _partition,
        ("nft", "ip"),
        meets=Minimum(packets=1),
        drawn=({"how": "reject"}, {"how": "drop"}),
    ),
)
