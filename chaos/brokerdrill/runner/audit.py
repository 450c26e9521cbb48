"""`brokerdrill audit`: what the hosts of an inventory show to others that they had better not, or not for long.

What is deployed is asked, not what was to be: certificates that are served, sockets that listen, modes of files. No
host is changed, and nobody but the hosts themselves is asked.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.base.progress import Progress
from brokerdrill.hosts import exposed
from brokerdrill.hosts.connection import HostConnection, reachable
from brokerdrill.inventory.descriptors import DIRECTORY
from brokerdrill.inventory.topology import Topology
from brokerdrill.products.health import restarts

# What a host runs to say it: each a program of its own.
_EXPOSED, _NEWER = (Path(str(one.__file__)).read_text(encoding="utf-8") for one in (exposed, restarts))
DAY_S = 86400
TIMEOUT_S = 120


@dataclass(frozen=True)
class Certificate:
    """What a listener serves: whether its peers would trust it, and when it and its authority end (Unix time, in
    seconds; None where the peers' distrust is all that is known)."""

    instance: str
    listener: str
    trusted: bool
    ends_s: float | None = None
    authority_ends_s: float | None = None


@dataclass
class Audited:
    """A host: what was found, what could not be seen, which certificates were, and why it could not be asked at all
    ("" where it could)."""

    host: str
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    certificates: list[Certificate] = field(default_factory=list)
    away: str = ""

    @property
    def lines(self) -> list[str]:
        """It in lines."""
        said = [self.away] if self.away else self.findings or ["nothing found"]
        return [f"{self.host}: {one}" for one in said] + [f"{self.host}: ({one})" for one in self.notes]


def judged(
    host: str,
    said: Mapping[str, Any],
    newer: Mapping[str, Sequence[str]],
    days: int,
    now_s: float,
    drills_allowed: bool,
) -> Audited:
    """Return what a host's answer comes to at `now_s` (Unix time); certificates are to last `days`; `newer`: instance →
    its files that were changed after it had started. Pure."""
    one = Audited(host)
    named = {
        (instance["unit"], listener["port"]) for instance in said["instances"] for listener in instance["listeners"]
    }
    units = {instance["unit"] for instance in said["instances"] if instance["unit"]}
    if not said["instances"]:
        one.notes.append("nothing that brokerdrill deployed is there")
    for instance in said["instances"]:
        who = f"{instance['product']} {instance['instance']}"
        for listener in instance["listeners"]:
            where = f"{who}: listener {listener['name']} ({listener['address']}:{listener['port']})"
            if not listener["tls"] and not _inside(listener["address"]):
                one.findings.append(f"{where} speaks {listener['protocol']} in plain text")
            if (seen := listener.get("certificate")) and "unseen" in seen:
                one.notes.append(f"{where}: its certificate was not seen: {seen['unseen']}")
            elif seen:
                certificate = _certificate(instance["instance"], listener["name"], seen)
                one.certificates.append(certificate)
                one.findings += [f"{where}: {what}" for what in _unfit(certificate, seen, days, now_s)]
                if "unserved" in seen:
                    one.notes.append(
                        f"{where}: nobody listens, its certificate was read from its file: {seen['unserved']}"
                    )
        one.findings += [f"{who}: every user of the host may read {path}" for path in instance["readable"]]
        if files := newer.get(instance["instance"]):
            one.notes.append(restarts.sentence(who, list(files)))
    for socket in said["listening"]:
        if socket["unit"] in units and (socket["unit"], socket["port"]) not in named and not _inside(socket["address"]):
            one.findings.append(
                f"{socket['unit']} listens on {socket['address']}:{socket['port']}, which none of its descriptors names"
            )
    if drills_allowed:
        one.notes.append("drills may break it: drill_allowed is true")
    return one


def _certificate(instance: str, listener: str, seen: Mapping[str, Any]) -> Certificate:
    if "distrusted" in seen:
        return Certificate(instance, listener, trusted=False)
    ends_s, authority_ends_s = (float(ssl.cert_time_to_seconds(seen[one])) for one in ("ends", "authority_ends"))
    return Certificate(instance, listener, True, ends_s, authority_ends_s)


def _unfit(one: Certificate, seen: Mapping[str, Any], days: int, now_s: float) -> Iterator[str]:
    """What is wrong with a certificate that is to last `days` from `now_s`."""
    if not one.trusted:
        yield f"its certificate is not one that its peers trust: {seen['distrusted']}"
    for whose, ends_s, name in (
        ("certificate", one.ends_s, "ends"),
        ("authority", one.authority_ends_s, "authority_ends"),
    ):
        if ends_s is not None and (left := int((ends_s - now_s) // DAY_S)) < days:
            yield f"its {whose} ends in {left} days ({seen[name]})"


def _inside(address: str) -> bool:
    """Whether nobody but the host itself reaches that address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


async def audit(topology: Topology, days: int, now_s: float, progress: Progress) -> list[Audited]:
    """Return what each host of `topology` shows, by host."""
    progress.step(f"connect to {len(topology.hosts)} hosts")
    async with reachable(topology.hosts) as (connections, away):
        found = {name: Audited(name, away=str(error)) for name, error in away.items()}
        looked = await asyncio.gather(*(_look(topology, one, days, now_s) for one in connections.values()))
        found |= {one.host: one for one in looked}
    return [found[host.name] for host in topology.hosts]


async def _look(topology: Topology, connection: HostConnection, days: int, now_s: float) -> Audited:
    allowed = topology.host(connection.name).vars.get("drill_allowed") is True
    try:
        shown, newer = [
            json.loads((await connection.sh(f"python3 - {DIRECTORY}", stdin=one, check=True, timeout=TIMEOUT_S)).out)
            for one in (_EXPOSED, _NEWER)
        ]
        return judged(connection.name, shown, newer, days, now_s, allowed)
    except (InfrastructureError, ValueError, KeyError) as error:
        return Audited(connection.name, away=f"cannot be looked at: {error}")
