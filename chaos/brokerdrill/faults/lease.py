"""A run's lease on all its hosts: taken on each before anything is touched, kept while it goes on, given back after.

Each host decides for itself (`hosts/safety_kernel.py`); here is only who asks whom in which order.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import secrets
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.hosts import safety_kernel
from brokerdrill.hosts.connection import HostConnection, KernelRefused, NoKernel
from brokerdrill.inventory.allowance import Allowance

KERNEL_SOURCE = Path(safety_kernel.__file__).read_text()
# A host heals what a run has broken there when it has not heard of the run for so long, in s.
SILENT_S = 30.0
# How often it hears of it in that time.
WORDS_IN_SILENCE = 6


def owner() -> str:
    """Whose process this is, and where: USER@HOST."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


@dataclass(frozen=True)
class LeaseRequest:
    """What a run asks its hosts for. `token` distinguishes it from all other runs; `allowances`, by the host's name in
    the inventory, say what it may hit: nothing on a host that is not among them, anything where there are none."""

    run: str
    inventory: str
    silent_s: float = SILENT_S
    allowances: Mapping[str, Allowance] | None = None
    token: str = field(default_factory=lambda: secrets.token_hex(16))

    def of_host(self, name: str) -> dict[str, Any]:
        """The lease as the host `name` keeps it."""
        return {
            "token": self.token,
            "owner": owner(),
            "run": self.run,
            "inventory": self.inventory,
            "silent_s": self.silent_s,
            "targets": self._targets(name),
        }

    def _targets(self, name: str) -> list[str] | None:
        if self.allowances is None:
            return None
        allowed = self.allowances.get(name)
        return sorted(allowed.instances | allowed.links) if allowed else []


class Keeper(Protocol):
    """Who has faults on the hosts, and hears what became of them."""

    def unhealed(self, host: str) -> list[str]: ...

    def heard(self, host: str, records: list[dict[str, Any]]) -> None: ...


@dataclass
class Lease:
    """A lease that was taken; `lost` says where it is not this run's any more, in a sentence."""

    request: LeaseRequest
    connections: Mapping[str, HostConnection]
    lost: str = ""
    _renewing: list[asyncio.Task[None]] = field(default_factory=list)
    _over: bool = False

    @property
    def token(self) -> str:
        return self.request.token

    def keep(self, keeper: Keeper) -> None:
        """Renew it on each host from now on, and have `keeper` hear what became of its faults there."""
        for name in self.connections:
            self._renewing.append(asyncio.create_task(self._keep_on(name, keeper)))

    async def _keep_on(self, name: str, keeper: Keeper) -> None:
        period_s = self.request.silent_s / WORDS_IN_SILENCE
        while not self.lost:
            try:
                faults = keeper.unhealed(name)
                said = await self.connections[name].kernel("renew", token=self.token, faults=faults, timeout=period_s)
            except KernelRefused as error:
                self.lost = str(error)
                return
            except InfrastructureError:  # a host that does not answer heals by itself, and is asked again
                said = {"faults": []}
            keeper.heard(name, said["faults"])
            await asyncio.sleep(period_s)

    async def give_back(self) -> None:
        """End it on all hosts that answer; on another one it ends by itself."""
        if self._over:
            return
        self._over = True
        for task in self._renewing:
            task.cancel()
        await asyncio.gather(*self._renewing, return_exceptions=True)
        self._renewing.clear()
        await _give_back(self.connections.values(), self.token)


async def _give_back(connections: Iterable[HostConnection], token: str) -> None:
    asked = (connection.kernel("give_back", token=token, timeout=5) for connection in connections)
    await asyncio.gather(*asked, return_exceptions=True)


async def take(request: LeaseRequest, connections: Mapping[str, HostConnection]) -> Lease:
    """Take the lease on all hosts, or on none.

    Hosts are asked in the order of what they call themselves, so that of several runs that want the same ones always
    one gets all. Raises Refused where a host is held by another run or holds a fault that is not healed,
    InfrastructureError where one cannot be asked.
    """
    installing = {name: one.kernel("install", source=KERNEL_SOURCE) for name, one in connections.items()}
    found = await asyncio.gather(*installing.values(), return_exceptions=True)
    for answer in found:
        if isinstance(answer, BaseException):
            raise answer
    orders = {name: answer["order"] for name, answer in zip(installing, found, strict=True)}  # type: ignore[index]
    asked: list[HostConnection] = []
    try:
        for name in sorted(orders, key=lambda name: (orders[name], name)):
            asked.append(connections[name])
            await connections[name].kernel("take", lease=request.of_host(name))
    except BaseException:
        await _give_back(asked, request.token)
        raise
    return Lease(request, connections)


@contextlib.asynccontextmanager
async def leased(request: LeaseRequest, connections: Mapping[str, HostConnection]) -> AsyncIterator[Lease]:
    """Hold the lease on all hosts. Raises as `take` does."""
    lease = await take(request, connections)
    try:
        yield lease
    finally:
        await lease.give_back()


async def left_over(connections: Iterable[HostConnection]) -> dict[str, list[str]]:
    """Return the ids of the unhealed faults on each host that has any."""

    async def of(connection: HostConnection) -> tuple[str, list[str]]:
        try:
            status = await connection.kernel("status")
        except NoKernel:
            return connection.name, []
        return connection.name, [record["fault"] for record in status["faults"]]

    found = await asyncio.gather(*map(of, connections))
    return {name: ids for name, ids in found if ids}
