"""Links as they are on live hosts: by IPv6, by name, from a container behind a bridge, beside another firewall."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.bench import made
from tests.roles.test_toxiproxy import server_program

from brokerdrill.base.clock import now_ns
from brokerdrill.bench import bench
from brokerdrill.faults.base import FaultType, HostChange
from brokerdrill.faults.link import ARM
from brokerdrill.faults.registry import FAULTS
from brokerdrill.hosts.connection import HostConnection, connected
from brokerdrill.inventory.descriptors import ToxiproxyDescriptor
from brokerdrill.inventory.targets import Link, Target
from brokerdrill.inventory.topology import Topology

pytestmark = pytest.mark.bench

IPV4, IPV6, PORT = "172.30.247.12", "fd00:bd::12", 61616
# Both hosts have an address of IPv6, too, and the name that the dialler knows means both of the server's.
BOTH = "mount -o remount,rw /proc/sys && sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv4.ip_forward=1"
ADDRESS = "ip -6 address add {address}/64 dev eth0 nodad"
# What an engine does for a container: a namespace behind a bridge, whose packets the host forwards as its own.
CONTAINER = """set -e
ip netns add inside
ip link add engine0 type bridge
ip address add 10.88.0.1/24 dev engine0
ip link set engine0 up
ip link add outer type veth peer name inner netns inside
ip link set outer master engine0 up
ip netns exec inside ip address add 10.88.0.2/24 dev inner
ip netns exec inside ip link set inner up
ip netns exec inside ip route add default via 10.88.0.1
nft -f - <<'NFT'
table ip engine {
 chain post { type nat hook postrouting priority 100; ip saddr 10.88.0.0/24 oifname != "engine0" masquerade; }
}
NFT"""
ANSWERING = """import socket, threading
server = socket.create_server(("::", 61616), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    connection, _ = server.accept()
    threading.Thread(target=lambda c=connection: c.sendall(c.recv(9)), daemon=True).start()
"""
# What becomes of a connection to ADDRESS that is asked for an answer.
DIAL = """import socket, sys
try:
    with socket.create_connection((sys.argv[1], 61616), timeout=3) as connection:
        connection.sendall(b"here")
        print(connection.recv(9).decode())
except OSError as error:
    print(type(error).__name__)
"""

API = {"address": "127.0.0.1", "port": 8474}
PROXIES = "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8474/proxies').read().decode())\""

Connections = dict[str, HostConnection]
OnHosts = Callable[[Callable[[Connections], Coroutine[Any, Any, None]]], None]


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    hosts = {"dialler": "172.30.247.11", "server": IPV4}
    folder = tmp_path_factory.mktemp("inventories")
    found = made.up(folder, "links_selftest", "172.30.247.0/24", hosts, bench_memory="512m")
    yield found
    bench.down(found.name)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return server_program(tmp_path_factory.mktemp("toxiproxy"))


@pytest.fixture(scope="module")
def on_hosts(topology: Topology, program: Path) -> OnHosts:
    def call(work: Callable[[Connections], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with connected(topology.hosts) as connections:
                await work(connections)

        asyncio.run(main())

    async def prepare(connections: Connections) -> None:
        for name, address in (("dialler", "fd00:bd::11"), ("server", IPV6)):
            await connections[name].sh(f"{BOTH} && {ADDRESS.format(address=address)}", check=True)
        await connections["dialler"].sh(f"echo '{IPV4} broker.test\n{IPV6} broker.test' >>/etc/hosts", check=True)
        await connections["dialler"].sh(CONTAINER, check=True)
        script = f"systemd-run --quiet --unit=answering python3 -c {shlex.quote(ANSWERING)}"
        await connections["server"].sh(script, check=True)
        deadline = time.monotonic() + 30
        while await dialled(connections["dialler"], IPV6) != "here":
            assert time.monotonic() < deadline

    async def install(connections: Connections) -> None:
        for name in ("dialler", "server"):
            await connections[name].put(program, "/usr/local/bin/toxiproxy-server")
            command = "chmod +x /usr/local/bin/toxiproxy-server && systemd-run --quiet --unit=toxiproxy --uid=nobody"
            await connections[name].sh(f"{command} /usr/local/bin/toxiproxy-server", check=True)
            await connections[name].sh(f"until {PROXIES} >/dev/null; do sleep 0.1; done", check=True)

    call(prepare)
    call(install)
    return call


async def dialled(connection: HostConnection, address: str, inside: bool = False) -> str:
    within = "ip netns exec inside " if inside else ""
    return (await connection.sh(f"{within}python3 -c {shlex.quote(DIAL)} {address}", check=True)).out.strip()


def a_link(address: str, port: int = PORT, dialler: str = "dialler") -> Link:
    told = {"schema": 1, "product": "toxiproxy", "instance": "t", "host": dialler, "user": "nobody", "api": API}
    return Link(f"it:{port}", dialler, address, port, "server", ToxiproxyDescriptor.model_validate(told))


def plan(fault: FaultType[Any], *links: Link, **given: Any) -> list[HostChange]:
    return fault.plan(Target("it", links=links), fault.complete(given), f"t{now_ns()}-1")


def partition(address: str, how: str = "drop") -> HostChange:
    (change,) = plan(FAULTS["partition"], a_link(address), how=how)
    return change


@contextlib.asynccontextmanager
async def in_effect(connection: HostConnection, change: HostChange) -> AsyncIterator[None]:
    await connection.sh(change.effect, check=True)
    try:
        await connection.sh(change.verify, check=True)
        yield
    finally:
        await connection.sh(change.heal, check=True)
        await connection.sh(change.verify_heal, check=True)


async def counted(connection: HostConnection, change: HostChange) -> int:
    """How many packets the change's counters have met."""
    said = (await connection.sh(change.count, check=True)).out
    return int(dict(line.split() for line in said.splitlines()).get("packets", 0))


@pytest.mark.parametrize(("how", "seen"), [("drop", "TimeoutError"), ("reject", "ConnectionRefusedError")])
@pytest.mark.parametrize(("address", "cut"), [(IPV4, {IPV4}), (IPV6, {IPV6}), ("broker.test", {IPV4, IPV6})])
def test_a_partition_is_of_the_addresses_that_the_link_has(
    on_hosts: OnHosts, address: str, cut: set[str], how: str, seen: str
) -> None:
    async def work(connections: Connections) -> None:
        dialler = connections["dialler"]
        change = partition(address, how)
        async with in_effect(dialler, change):
            # The last packets of connections that ended before may have met it already.
            before = await counted(dialler, change)
            for each in (IPV4, IPV6):
                assert await dialled(dialler, each) == (seen if each in cut else "here")
            assert await counted(dialler, change) >= before + len(cut)
        assert [await dialled(dialler, each) for each in (IPV4, IPV6)] == ["here", "here"]

    on_hosts(work)


@pytest.mark.parametrize(("how", "seen"), [("drop", "TimeoutError"), ("reject", "ConnectionRefusedError")])
def test_a_partition_is_of_containers_behind_a_bridge_too(on_hosts: OnHosts, how: str, seen: str) -> None:
    async def work(connections: Connections) -> None:
        dialler = connections["dialler"]
        assert await dialled(dialler, IPV4, inside=True) == "here"
        async with in_effect(dialler, partition(IPV4, how)):
            assert await dialled(dialler, IPV4, inside=True) == seen
            assert await dialled(dialler, IPV4) == seen
        assert await dialled(dialler, IPV4, inside=True) == "here"

    on_hosts(work)


def test_a_name_without_an_address_is_refused_and_leaves_nothing(on_hosts: OnHosts) -> None:
    async def work(connections: Connections) -> None:
        change = partition("nobody.test")
        done = await connections["dialler"].sh(change.effect)
        assert done.rc != 0 and "nobody.test: this host knows no address of it" in done.err
        assert (await connections["dialler"].sh(change.verify_heal)).rc == 0

    on_hosts(work)


def test_a_flushed_ruleset_shows(on_hosts: OnHosts) -> None:
    async def work(connections: Connections) -> None:
        dialler = connections["dialler"]
        change = partition(IPV4)
        async with in_effect(dialler, change):
            # As a host's own service does when its rules are loaded again.
            own = "/run/own.nft"
            await dialler.sh(f"nft list table ip engine >{own}; nft flush ruleset; nft -f {own}", check=True)
            assert (await dialler.sh(change.verify)).rc != 0
            assert await dialled(dialler, IPV4) == "here"

    on_hosts(work)


LATE_MS = 400


async def took_ms(connection: HostConnection, address: str, inside: bool = False) -> float:
    begun = time.monotonic()
    assert await dialled(connection, address, inside) == "here"
    return (time.monotonic() - begun) * 1000


@pytest.mark.parametrize(
    ("address", "inside"),
    [(IPV4, False), (IPV6, False), ("broker.test", False), (IPV4, True)],
    ids=["IPv4", "IPv6", "name", "container"],
)
def test_an_armed_link_passes_its_proxy(on_hosts: OnHosts, address: str, inside: bool) -> None:
    async def work(connections: Connections) -> None:
        dialler = connections["dialler"]
        link = a_link(address)
        (arm,), late = plan(ARM, link), {"type": "latency", "attributes": {"latency": LATE_MS}}
        async with in_effect(dialler, arm):
            assert await dialled(dialler, address, inside) == "here"
            (toxic,) = plan(FAULTS["toxic"], link, **late)
            before = await counted(dialler, toxic)
            async with in_effect(dialler, toxic):
                assert await counted(dialler, toxic) == before, "nothing has met it"
                assert await took_ms(dialler, address, inside) >= LATE_MS
                assert await counted(dialler, toxic) > before
            (cut,) = plan(FAULTS["cut"], link)
            async with in_effect(dialler, cut):
                assert await dialled(dialler, address, inside) == "ConnectionRefusedError"
            assert await dialled(dialler, address, inside) == "here"
        assert await dialled(dialler, address, inside) == "here"

    on_hosts(work)


async def ports(connection: HostConnection) -> dict[str, int]:
    """The port of each proxy on the host."""
    found = json.loads((await connection.sh(PROXIES, check=True)).out)
    return {name: int(proxy["listen"].rpartition(":")[2]) for name, proxy in found.items()}


def test_links_that_are_armed_at_once_have_ports_of_their_own(on_hosts: OnHosts) -> None:
    """Sixteen links of two hosts, armed at the same moment, while something else has the first port."""

    async def work(connections: Connections) -> None:
        hold = "systemd-run --quiet --unit=hold python3 -m http.server 19000"
        await connections["dialler"].sh(f"{hold} && until ss -ltn | grep -q :19000; do sleep 0.1; done", check=True)
        hosts = [("dialler", IPV4), ("server", "172.30.247.11")]
        links = [a_link(address, 5000 + n, host) for n in range(8) for host, address in hosts]
        changes = plan(ARM, *links)
        try:
            done = [connections[change.host].sh(change.effect, check=True) for change in changes]
            chosen = [int(result.out) for result in await asyncio.gather(*done)]
            for host, _ in hosts:
                mine = [port for change, port in zip(changes, chosen, strict=True) if change.host == host]
                assert len(set(mine)) == 8 == len(await ports(connections[host]))
                assert set((await ports(connections[host])).values()) == set(mine)
            # One that is armed already keeps its port.
            again = await connections["dialler"].sh(changes[0].effect, check=True)
            assert int(again.out) == chosen[0] != 19000
        finally:
            await asyncio.gather(*(connections[change.host].sh(change.heal, check=True) for change in changes))
            await connections["dialler"].sh("systemctl stop hold", check=True)
        for host, _ in hosts:
            assert await ports(connections[host]) == {}

    on_hosts(work)


def test_nobody_from_elsewhere_gets_into_a_proxy(on_hosts: OnHosts) -> None:
    async def work(connections: Connections) -> None:
        (arm,) = plan(ARM, a_link(IPV4))
        async with in_effect(connections["dialler"], arm):
            (port,) = (await ports(connections["dialler"])).values()
            stranger = DIAL.replace("61616", str(port))
            for address in ("172.30.247.11", "fd00:bd::11"):
                asked = await connections["server"].sh(f"python3 -c {shlex.quote(stranger)} {address}", check=True)
                assert asked.out.strip() == "ConnectionRefusedError"

    on_hosts(work)


def test_connections_that_are_older_than_the_arming_are_ended(on_hosts: OnHosts) -> None:
    """On the host and in a container: they would go on beside the proxy, and no fault would hit them."""
    lasting = "import socket, sys; s = socket.create_connection((sys.argv[1], 61616)); s.recv(1)"

    async def work(connections: Connections) -> None:
        dialler = connections["dialler"]
        for within in ([], ["ip", "netns", "exec", "inside"]):
            channel = await dialler.open([*within, "python3", "-c", lasting, IPV4])
            look = shlex.join([*within, "ss", "-Htn", "state", "established", "dst", IPV4, "dport", "=", ":61616"])
            await dialler.sh(f"until {look} | grep -q .; do sleep 0.1; done", check=True)
            (arm,) = plan(ARM, a_link(IPV4))
            async with in_effect(dialler, arm):
                assert "ConnectionAbortedError" in (await channel.ending()).said

    on_hosts(work)
