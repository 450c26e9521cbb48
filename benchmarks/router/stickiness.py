"""Which keys move: RabbitMQ's clients by two session routers, on the deployed topology rabbitmq_router.

    brokerdrill deploy rabbitmq_router -e @benchmarks/router/stickiness.yml
    python benchmarks/router/stickiness.py [--keys 500] [--rounds 8] [--topology rabbitmq_router]

In each round every key (the client's connection name) connects once, by the routers in turn; which broker it got to is
asked of the brokers' management, not of the routers. Three farms of the same brokers take turns: `kept` remembers keys
(a cache), `hashed` reckons the broker from the key, `forgetful` does neither. Half of the rounds are with one broker
stopped: a key that was at that broker may move then, and no other. The routers read their file again at the end.

A router remembers by itself: `kept` is asked by the first router alone. Exit status 1: a key moved that was not to, or
none did where nothing keeps them.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import ssl
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx
import pika

from brokerdrill.hosts.connection import HostConnection, connected
from brokerdrill.hosts.descriptors import read_all, read_credentials
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.topology import find_topology
from brokerdrill.products.registry import DESCRIPTORS

VHOST = "/"
STOPPED = "rabbit2"
THREADS = 16
WAIT_S = 60


@dataclass
class Counts:
    """What one farm's keys did: connects, moves that nothing excuses, and those from a broker that was stopped."""

    connects: int = 0
    moved: int = 0
    excused: int = 0
    at: dict[str, str] = field(default_factory=dict)

    def add(self, found: Mapping[str, str], stopped: str | None) -> None:
        """Take a round's brokers by key, with one of them `stopped`."""
        for key, broker in found.items():
            before = self.at.get(key)
            self.connects += 1
            if before is not None and before != broker:
                self.excused += before == stopped
                self.moved += before != stopped
        self.at.update(found)


class System:
    """The deployed topology: its routers and brokers, and how they are asked."""

    def __init__(self, connections: Mapping[str, HostConnection], found: Sequence[Descriptor]) -> None:
        self.connections = connections
        self.routers = sorted((one for one in found if one.product == "amqp_router"), key=lambda one: one.instance)
        self.brokers = {one.instance: one for one in found if one.product == "rabbitmq"}
        self.account: dict[str, str] = {}
        self.trusted = ssl.create_default_context()

    async def read(self) -> None:
        """Read the account of the drills' clients, and whom the brokers' certificates are signed by."""
        broker = self.brokers[STOPPED]
        there = self.connections[broker.host]
        self.account = await read_credentials(there, broker)
        assert broker.tls
        ca = await there.sh(f"cat {broker.tls.ca}", check=True)
        self.trusted = ssl.create_default_context(cadata=ca.out)

    async def map(self, farm: str) -> None:
        """Have all routers send the vhost to a farm."""
        await self.tell(f"MAP FARM {VHOST} {farm}")

    async def tell(self, verb: str) -> None:
        for router in self.routers:
            await self.connections[router.host].sh(f"{router.control} {verb}", check=True)

    async def unit(self, verb: str) -> None:
        broker = self.brokers[STOPPED]
        await self.connections[broker.host].sh(f"systemctl {verb} {broker.unit}", check=True, timeout=WAIT_S)
        if verb == "start":
            await self.until_ready()

    async def until_ready(self) -> None:
        """Wait until every router gives the broker out that was stopped."""
        for router in self.routers:
            # The columns are NAME, …, HEALTHY, ACTIVE, ATTEMPTS, FAILURES.
            asked = f"{router.control} BACKEND PRINT | awk '$1 == \"{STOPPED}\" {{ print $(NF - 3) }}'"
            script = f'for _ in $(seq {WAIT_S}); do [ "$({asked})" = yes ] && exit; sleep 1; done; exit 1'
            await self.connections[router.host].sh(script, check=True, timeout=2 * WAIT_S)

    def connect(self, key: str, router: Descriptor) -> pika.BlockingConnection:
        listener = next(one for one in router.listeners if one.name == "amqp")
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                listener.address,
                listener.port,
                credentials=pika.PlainCredentials(self.account["username"], self.account["password"]),
                client_properties={"connection_name": key},
                heartbeat=0,
            )
        )

    async def served(self, keys: Iterable[str], stopped: str | None) -> dict[str, str]:
        """The brokers that have connections of these keys, as one of them says."""
        wanted = set(keys)
        broker = next(one for name, one in self.brokers.items() if name not in (stopped,))
        assert broker.management
        names = {getattr(one.management, "node", ""): name for name, one in self.brokers.items()}
        account = (self.account["username"], self.account["password"])
        async with httpx.AsyncClient(verify=self.trusted, auth=account, trust_env=False, timeout=20) as http:
            for _ in range(WAIT_S):
                reply = await http.get(f"{broker.management.url}/api/connections?columns=node,user_provided_name")
                rows = reply.raise_for_status().json()
                found = {row["user_provided_name"]: names[row["node"]] for row in rows if row.get("user_provided_name")}
                if wanted <= set(found):
                    return {key: found[key] for key in wanted}
                await asyncio.sleep(0.5)
        raise SystemExit(f"{len(wanted - set(found))} connections are at no broker")

    async def round(
        self, number: int, keys: Sequence[str], routers: Sequence[Descriptor], stopped: str | None
    ) -> dict[str, str]:
        """Connect each key once; return the broker of each."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(THREADS) as pool:
            turns = [(key, routers[(number + n) % len(routers)]) for n, key in enumerate(keys)]
            opened = await asyncio.gather(*(loop.run_in_executor(pool, self.connect, *turn) for turn in turns))
            try:
                return await self.served(keys, stopped)
            finally:
                await asyncio.gather(*(loop.run_in_executor(pool, one.close) for one in opened))


async def measure(topology: str, count: int, rounds: int) -> bool:
    """Print each farm's counts; return whether all is as it is to be."""
    good = True
    async with connected(find_topology(topology).hosts) as connections:
        system = System(connections, await read_all(connections.values(), DESCRIPTORS))
        await system.read()
        try:
            for farm in ("kept", "hashed", "forgetful"):
                await system.map(farm)
                # Nobody knows them from an earlier run.
                keys = [f"{secrets.token_hex(4)}-{n}" for n in range(count)]
                routers = system.routers[:1] if farm == "kept" else system.routers
                counts = Counts()
                for number in range(rounds // 2):
                    counts.add(await system.round(number, keys, routers, None), None)
                await system.unit("stop")
                for number in range(rounds // 2):
                    counts.add(await system.round(number, keys, routers, STOPPED), STOPPED)
                await system.unit("start")
                as_told = counts.moved > 0 if farm == "forgetful" else counts.moved == 0 and counts.excused > 0
                good = good and as_told
                print(
                    f"{farm:10} {counts.connects} connects of {count} keys: {counts.moved} moved, {counts.excused} "
                    f"more from the one that was stopped: {'as it is to be' if as_told else 'NOT as it is to be'}",
                    flush=True,
                )
        finally:
            await system.unit("start")
            await system.tell("CONFIG RELOAD")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keys", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--topology", default="rabbitmq_router")
    given = parser.parse_args()
    return 0 if asyncio.run(measure(given.topology, given.keys, given.rounds)) else 1


if __name__ == "__main__":
    sys.exit(main())
