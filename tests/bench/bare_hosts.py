"""Two hosts of the bench with nothing but a unit to hurt, a toxiproxy and a link: every fault that needs no product.

Several pairs go side by side, each a topology with a sixteenth of the subnet.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench import made
from tests.roles.test_toxiproxy import server_program

from brokerdrill.hosts.connection import connected
from brokerdrill.inventory.topology import Topology

NAME = "safety_selftest"
PAIRS = 16
# Exits with 0 when all that faults hit is there.
READY = "systemctl is-active --quiet victim toxiproxy srv-store.mount ssh && touch /srv/store/lock"
# The fault `clock` needs it.
LIBFAKETIME = """ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 || {
  apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install libfaketime >/dev/null
}"""
VICTIM = """[Unit]
Description=What faults hit
[Service]
ExecStart=/bin/sh -c 'while :; do sleep 600 & sleep 600; done'
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
"""
TOXIPROXY = """[Service]
User=nobody
ExecStart=/usr/local/bin/toxiproxy-server -host 127.0.0.1 -port 8474
Restart=always
[Install]
WantedBy=multi-user.target
"""
# The victim's disk, which a start of its host leaves as it is.
STORE = {"store": {"path": "/srv/store", "size": "16m"}}
SERVER_SAYS = {"schema": 1, "product": "peer", "instance": "server", "unit": "victim.service"}
TOXIPROXY_SAYS = {
    "schema": 1, "product": "toxiproxy", "instance": "toxi", "unit": "toxiproxy.service", "user": "nobody",
    "api": {"address": "127.0.0.1", "port": 8474},
}  # fmt: skip


def _written(files: Mapping[str, Any]) -> str:
    return "\n".join(
        f"mkdir -p {Path(path).parent}; printf %s {shlex.quote(text if isinstance(text, str) else json.dumps(text))} "
        f"> {path}"
        for path, text in files.items()
    )


def _victim_says(server: str) -> dict[str, Any]:
    return {
        "schema": 1, "product": "victim", "instance": "victim", "unit": "victim.service", "data_dir": "/srv/store",
        "features": ["own_disk"], "dials": [{"link": "peer", "to": "server", "address": server, "port": 7000}],
    }  # fmt: skip


def up(folder: Path, pair: int = 0) -> Topology:
    """Make both hosts of a pair (below PAIRS), with an inventory below `folder`."""
    first, name = 256 // PAIRS * pair, f"{NAME}_{pair}" if pair else NAME
    hosts = {"dialler": f"172.30.249.{first + 11}", "server": f"172.30.249.{first + 12}"}
    topology = made.up(folder, name, f"172.30.249.{first}/28", hosts, drill_allowed=True, bench_volumes=STORE)
    program = server_program(folder)
    victim_says = _victim_says(topology.host("server").address)

    async def prepare() -> None:
        units = {"victim.service": VICTIM, "toxiproxy.service": TOXIPROXY}
        says = {"dialler": {"victim": victim_says, "toxi": TOXIPROXY_SAYS}, "server": {"server": SERVER_SAYS}}
        async with connected(topology.hosts) as connections:
            for name, connection in connections.items():
                files: dict[str, Any] = {f"/etc/systemd/system/{unit}": text for unit, text in units.items()}
                files |= {f"/etc/brokerdrill/{one}.json": said for one, said in says[name].items()}
                await connection.sh(LIBFAKETIME, check=True, timeout=300)
                await connection.put(program, "/usr/local/bin/toxiproxy-server")
                script = f"chmod 755 /usr/local/bin/toxiproxy-server\n{_written(files)}\nsystemctl daemon-reload"
                await connection.sh(
                    f"{script}\nsystemctl enable --now --quiet {' '.join(units)}", check=True, timeout=300
                )

    asyncio.run(prepare())
    return topology
