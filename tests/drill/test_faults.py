"""Every fault on real hosts: it takes effect where a third party can see it, and its heal makes the system whole."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.base.clock import now_ns
from brokerdrill.faults.executor import Executor
from brokerdrill.faults.lease import Lease, LeaseRequest, leased, left_over
from brokerdrill.faults.link import ARM
from brokerdrill.faults.registry import fault_type
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.hosts.descriptors import read_all
from brokerdrill.inventory.targets import Scene, resolve
from brokerdrill.ledger.events import EventWriter
from brokerdrill.ledger.journal import Journal, read, unhealed
from brokerdrill.products.registry import DESCRIPTORS

Connections = dict[str, HostConnection]
# How long a TCP connection to ADDRESS PORT takes in ms, or what it fails with.
DIAL = """python3 - {address} {port} <<'PY'
import socket, sys, time
t = time.monotonic()
try:
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)
    if "{tls}":
        import ssl
        ssl.create_default_context(cafile="{tls}").wrap_socket(s, server_hostname=sys.argv[1])
    print(round((time.monotonic() - t) * 1000))
except OSError as error:
    print(type(error).__name__)
PY"""


async def dial(connection: HostConnection, address: str, port: int, tls: str = "") -> str:
    script = DIAL.replace("{address}", address).replace("{port}", str(port)).replace("{tls}", tls)
    return (await connection.sh(script, check=True)).out.strip()


async def handshake_ms(connection: HostConnection, address: str, port: int, tls: str) -> int:
    """The time of a TLS handshake; one that the broker breaks off on a busy machine is tried again."""
    deadline = time.monotonic() + 60
    while not (took := await dial(connection, address, port, tls)).isdecimal():
        assert time.monotonic() < deadline, took
    return int(took)


class Lab:
    """An executor on the real hosts with a scene in which artemis1 is taken for active."""

    def __init__(self, connections: Connections, lease: Lease, scene: Scene, run_dir: Path) -> None:
        self.connections = connections
        self.scene = scene
        self.run_dir = run_dir
        self.journal = Journal(run_dir)
        self.events = EventWriter(run_dir, "lab", now_ns())
        self.executor = Executor(connections, lease, self.journal, self.events)
        lease.keep(self.executor)
        self._count = 0

    async def inject(self, fault: str, target: str, ttl: float = 60, **params: Any) -> Any:
        kind = ARM if fault == "arm" else fault_type(fault)
        self._count += 1
        return await self.executor.inject(
            f"{fault}-{self._count}",
            kind,
            resolve(self.scene, target),
            kind.complete(params),
            ttl,
            f"lab{time.monotonic_ns()}",
        )


@contextlib.asynccontextmanager
async def lab(connections: Connections, run_dir: Path) -> AsyncIterator[Lab]:
    found = await read_all(connections.values(), DESCRIPTORS)
    roles = {"artemis1": "active", "artemis2": "passive"}
    async with leased(LeaseRequest(run_dir.name, "lab"), connections) as lease:
        made = Lab(connections, lease, Scene(found, roles, random.Random(1)), run_dir)
        try:
            yield made
        finally:
            assert await made.executor.heal_all() == []


async def unit_state(connection: HostConnection, unit: str) -> str:
    pid = (await connection.sh(f"systemctl show -p MainPID --value {unit}")).out.strip()
    return (await connection.sh(f"cut -d' ' -f3 /proc/{pid}/stat 2>/dev/null || echo gone")).out.strip()


@pytest.mark.parametrize(("fault", "state"), [("kill", "gone"), ("stop", "gone"), ("pause", "T")])
def test_process_faults(on_hosts: Callable[..., Any], tmp_path: Path, fault: str, state: str) -> None:
    async def work(connections: Connections) -> None:
        async with lab(connections, tmp_path) as here:
            unit = here.scene.instance("zk3").unit  # type: ignore[union-attr]
            injection = await here.inject(fault, "zk3")
            assert await unit_state(connections["zk3"], unit) == state
            assert await left_over(connections.values()) == {"zk3": list(injection.changes)}
            await here.executor.heal(injection)
            assert await unit_state(connections["zk3"], unit) in ("S", "R", "D")
            assert unhealed(read(here.journal.path)) == []

    on_hosts(work)


@pytest.mark.parametrize(("how", "seen"), [("drop", "TimeoutError"), ("reject", "ConnectionRefusedError")])
def test_a_partition_stops_one_link_and_no_other(
    on_hosts: Callable[..., Any], tmp_path: Path, how: str, seen: str
) -> None:
    async def work(connections: Connections) -> None:
        async with lab(connections, tmp_path) as here:
            cut, kept = (
                next(x for x in here.scene.instance(zk).listeners if x.name == "client")  # type: ignore[union-attr]
                for zk in ("zk1", "zk2")
            )
            injection = await here.inject("partition", "link artemis2→zk1", how=how)
            assert await dial(connections["artemis2"], cut.address, cut.port) == seen
            assert (await dial(connections["artemis2"], kept.address, kept.port)).isdecimal()
            assert (await dial(connections["artemis1"], cut.address, cut.port)).isdecimal()
            await here.executor.heal(injection)
            assert (await dial(connections["artemis2"], cut.address, cut.port)).isdecimal()

    on_hosts(work)


def test_an_armed_link_can_be_slowed_and_cut_and_costs_nothing_after(
    on_hosts: Callable[..., Any], tmp_path: Path
) -> None:
    async def work(connections: Connections) -> None:
        async with lab(connections, tmp_path) as here:
            core = next(x for x in here.scene.instance("artemis1").listeners if x.protocol == "core")  # type: ignore[union-attr]
            load1 = connections["load1"]
            # A TLS handshake needs the broker's answer: the latency of the way back shows in it.
            talk = here.scene.instance("load1").tls.ca  # type: ignore[union-attr]
            await here.inject("arm", "link load→active")
            assert await handshake_ms(load1, core.address, core.port, talk) > 0
            slow = await here.inject("toxic", "link load→active", type="latency", attributes={"latency": 700})
            assert await handshake_ms(load1, core.address, core.port, talk) >= 700
            await here.executor.heal(slow)
            deadline = time.monotonic() + 30
            while await handshake_ms(load1, core.address, core.port, talk) >= 700:
                assert time.monotonic() < deadline, "the link is still slow"
            cut = await here.inject("cut", "link load→active")
            assert await dial(load1, core.address, core.port) == "ConnectionRefusedError"
            await here.executor.heal(cut)
            assert await here.executor.heal_all() == []
            assert "redirect" not in (await load1.sh("nft list ruleset")).out

    on_hosts(work)


def test_the_hosts_own_timer_heals_when_nobody_else_does(on_hosts: Callable[..., Any], tmp_path: Path) -> None:
    async def work(connections: Connections) -> None:
        async with lab(connections, tmp_path) as here:
            injection = await here.inject("pause", "zk3", ttl=3)
            deadline = time.monotonic() + 40
            while await left_over(connections.values()):
                assert time.monotonic() < deadline, "the timer did not fire"
            unit = here.scene.instance("zk3").unit  # type: ignore[union-attr]
            assert await unit_state(connections["zk3"], unit) != "T"
            after = (now_ns() - injection.at_ns) / 1e9
            assert after > 2
            # Healing again is harmless, and says who was first.
            await here.executor.heal(injection)
            assert read(here.journal.path)[-1]["by"] == "time-to-live"

    on_hosts(work)
