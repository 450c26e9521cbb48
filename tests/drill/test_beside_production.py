"""Drills on brokers that serve another application, too: its messages, its load and its dead letters stay as they are.

The dead letters of both go to one queue, which is not the drills'.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from brokerdrill.base import paths
from brokerdrill.base.progress import Progress
from brokerdrill.hosts.connection import HostConnection, connected
from brokerdrill.hosts.descriptors import read_all
from brokerdrill.inventory.descriptors import Descriptor, LoadDescriptor
from brokerdrill.inventory.topology import Topology
from brokerdrill.products.registry import DESCRIPTORS, managed
from brokerdrill.runner.evidence.spools import fetch_spool
from brokerdrill.runner.load.control import LoadControl
from brokerdrill.runner.load.plan import plan_workers
from brokerdrill.runner.load.shipping import CODE_DIR, bundle
from brokerdrill.runner.system import System
from brokerdrill.scenario.model import Load
from tests.drill import deployment
from tests.drill.conftest import BROKERDRILL, ROOT
from tests.workload.worker_process import merged, rows_of

pytestmark = pytest.mark.long

ORDERS, FLOW, DRILL = "orders", "orders.flow", "drill.q0"
HELD, LETTERS, STRANGERS = 7, 9, 3
EXPIRED_S = TOLD_S = 120


@dataclass(frozen=True)
class Case:
    """A topology with another application's queues by `variables`, and the drill that breaks one of its brokers.
    `secret`: the file of the administrator's password; `letters`: where all dead letters go; `lives_ms`: how long what
    becomes dead there lives, 0 where it can be sent there; `browsed`: whether a client can look there and change
    nothing; `apart`: each broker shows what it has itself, so that one is asked for all;
    `prepares`: transactions can be prepared there."""

    topology: str
    drill: str
    secret: str
    letters: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    lives_ms: int = 0
    transaction: int = 10
    browsed: bool = True
    apart: bool = False
    prepares: bool = False


QUEUES = [{"name": name, "routing": "anycast"} for name in ("DLQ", "ExpiryQueue", ORDERS, FLOW)]
CASES = {
    "artemis": Case(
        "artemis_shared_store",
        "kill_active",
        "artemis-admin",
        "DLQ",
        {"artemis_addresses": QUEUES, "common_drill_dead_letters": "DLQ"},
    ),
    "activemq_classic": Case(
        "classic_shared_file",
        "kill_active",
        "activemq-classic-admin",
        "ActiveMQ.DLQ",
        {"activemq_classic_queues": [ORDERS, FLOW], "common_drill_dead_letters": "ActiveMQ.DLQ"},
        transaction=0,
    ),
    "openmq": Case(
        "openmq_master",
        "kill_broker",
        "openmq-admin",
        "mq.sys.dmq",
        {"openmq_queues": [ORDERS, FLOW, "orders.short"]},
        lives_ms=1,
        apart=True,
        prepares=True,
    ),
    "rabbitmq": Case(
        "rabbitmq_mirrored",
        "kill_broker",
        "rabbitmq-admin",
        "dead",
        {
            "rabbitmq_queues": [{"name": name} for name in (ORDERS, FLOW, "dead")],
            "common_drill_dead_letters": "dead",
        },
        transaction=0,
        browsed=False,
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Iterator[tuple[Case, Topology]]:
    """A case, and its topology as it was deployed."""
    found = CASES[request.param]
    with deployment.deployed(found.topology, **found.variables) as topology:
        yield found, topology


class Production:
    """The other application: its administrator's client and its load, on the hosts that the drills' clients run on."""

    def __init__(self, case: Case, password: str, found: list[Descriptor], connections: Mapping[str, Any]) -> None:
        self._case = case
        (self._host, *_) = [item for item in found if isinstance(item, LoadDescriptor)]
        self._connection: HostConnection = connections[self._host.host]
        self._instances, self._connections = managed(found), connections
        self._protocol = str(self._instances[0][0].client)
        self._planned = plan_workers(
            run_id="production",
            seed=1,
            protocol=self._protocol,
            load=Load(producers=2, consumers=2, workers=1, addresses=[FLOW], rate=20, transaction=case.transaction),
            servers=[item for _, item in self._instances],
            credentials={"username": "admin", "password": password},
            hosts=[self._host],
        )
        self._flow = LoadControl("production", lambda: None)

    async def _client(self, orders: Sequence[list[Any]]) -> tuple[str, str]:
        """Put the administrator's client on its host; return the command that starts it, and its input."""
        config = self._planned[0].config
        code = f"{CODE_DIR}/production"
        await self._connection.sh(f"rm -rf {code} && mkdir -p {code}", check=True)
        local = Path(__file__).with_name("production_client.py")
        await self._connection.put(local, f"{code}/production_client.py")
        archive = paths.cache() / f"production-{time.monotonic_ns()}.tar"
        archive.write_bytes(bundle())
        try:
            await self._connection.put(archive, f"{code}/code.tar")
        finally:
            archive.unlink()
        if self._case.apart:
            config = replace(config, endpoints=config.endpoints[:1])
        config = replace(config, jars=self._host.jars.get(self._protocol), producers=(), consumers=())
        return (
            f"cd {code} && tar -xf code.tar && exec env PYTHONPATH={code}:{self._host.pythonpath} "
            f"JAVA_HOME={self._host.java_home} {self._host.python} production_client.py",
            f"{json.dumps(config.to_json())}\n{json.dumps(orders)}\n",
        )

    async def orders(self, *orders: list[Any]) -> list[list[list[Any]]]:
        """Have the administrator's client carry out these; return what it says of each."""
        command, given = await self._client(orders)
        told = await self._connection.sh(command, stdin=given, timeout=300, check=True)
        return [json.loads(line) for line in told.out.splitlines() if line.startswith("[")]

    async def counts(self, *addresses: str) -> dict[str, tuple[int, int, int]]:
        """Return what all brokers count of each address: messages, handed out, scheduled."""
        system = System(Progress(Console(quiet=True)))
        try:
            await system.open(self._instances, self._connections)
            found: dict[str, tuple[int, int, int]] = dict.fromkeys(addresses, (0, 0, 0))
            for one in system.brokers():
                if await one.management.role() == "active":
                    for name, said in (await one.management.counts(addresses)).items():
                        more = (said.messages, said.delivering, said.scheduled)
                        found[name] = tuple(map(sum, zip(found[name], more, strict=True)))  # type: ignore[assignment]
            return found
        finally:
            await system.close()

    async def counted(self, expected: Mapping[str, int]) -> None:
        """See that the brokers count so many messages in these addresses, and none handed out or scheduled; some tell
        their counts once in a while."""
        end = time.monotonic() + TOLD_S
        while (found := await self.counts(*expected)) != {name: (number, 0, 0) for name, number in expected.items()}:
            assert time.monotonic() < end, (found, expected)
            await asyncio.sleep(2)

    @asynccontextmanager
    async def consuming(self, address: str) -> AsyncIterator[None]:
        """The other application consumes from `address`, and there is nothing there."""
        command, given = await self._client([["consume", address]])
        channel = await self._connection.open(["sh", "-c", command])
        await channel.write(given.rstrip("\n"))
        try:
            async for line in channel.lines():
                if line.startswith("[]"):
                    break
            else:
                raise AssertionError(await channel.ending())
            yield
        finally:
            await channel.end_input()
            await channel.ending()
            await channel.close()

    async def begin(self) -> None:
        # A run ends what looks like a drill's worker on its load hosts; this one does not.
        # Nothing is executed from /run.
        python, code = "/usr/local/bin/other-application", "from brokerdrill.workload import worker"
        await self._connection.sh(
            f"cat >{python} && chmod 755 {python}",
            stdin=f"#!/bin/sh\nexec {self._host.python} -u -c '{code}; raise SystemExit(worker.main())'\n",
            check=True,
        )
        host = self._host.model_copy(update={"python": python})
        await self._flow.start([(self._connection, host)], self._planned, f"production-{time.time_ns()}")
        await self._flow.begin()

    async def end(self, into: Path) -> Counter[str]:
        """Stop when all is received; return how many messages of the load were sent, lost and doubled."""
        await self._flow.stop_producers()
        await self._flow.all_reach("producers_stopped", 60)
        end = time.monotonic() + 60
        while (totals := self._flow.totals()).received + totals.received_unknown < totals.sent_ok:
            assert time.monotonic() < end, totals
            await asyncio.sleep(0.2)
        await self._flow.stop([])
        await self._flow.all_reach("closed", 60)
        (worker,) = self._flow.workers
        (into / "ops").mkdir(parents=True)
        await fetch_spool(worker.connection, worker.spool, into)
        await self._flow.close()
        ops = [op for path in into.rglob("*.spool") for op in merged(rows_of(path))]
        sent = {op["message_id"] for op in ops if op["op"] == "send" and op["outcome"] == "ok"}
        got = Counter(op["message_id"] for op in ops if op["op"] == "receive" and op["outcome"] != "fail")
        return Counter(sent=len(sent), lost=len(sent - set(got)), doubled=sum(number > 1 for number in got.values()))


@asynccontextmanager
async def production(case: Case, topology: Topology, password: str = "") -> AsyncIterator[Production]:
    """The other application on a topology; without the administrator's password it is what the roles made."""
    if not password:
        secrets = paths.cache() / "secrets" / f"bench-{topology.name}"
        password = (secrets / f"{case.secret}.password").read_text().split()[0]
    async with connected(topology.hosts) as connections:
        found = await read_all(connections.values(), DESCRIPTORS)
        yield Production(case, password, found, connections)


async def drill(case: Case, runs: Path, *options: str, name: str = "") -> tuple[int, str]:
    """Run the drill, or another one by its `name`; return its exit status and what it said."""
    process = await asyncio.create_subprocess_exec(
        *BROKERDRILL,
        "run",
        name or case.drill,
        case.topology,
        "--runs",
        str(runs),
        *options,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def checked(case: Case) -> tuple[int, list[str]]:
    """Run `brokerdrill check`; return its exit status and its lines, one a host."""
    process = await asyncio.create_subprocess_exec(
        *BROKERDRILL, "check", case.topology, cwd=ROOT, stdout=subprocess.PIPE, env={**os.environ, "COLUMNS": "1000"}
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode().splitlines()


async def told(case: Case, *words: str) -> list[str]:
    """Check until some line says all the `words`; return the lines. A broker may tell its counts once in a while."""
    end = time.monotonic() + TOLD_S
    while True:
        status, lines = await checked(case)
        if any(all(word in line for word in words) for line in lines):
            assert status == 3, lines
            return lines
        assert time.monotonic() < end, lines


async def dead(case: Case, other: Production) -> list[list[Any]]:
    """Make the other application's dead letters; return them."""
    if not case.lives_ms:
        (made,) = await other.orders(["send", case.letters, LETTERS, 0])
        return made
    (had,) = await other.orders(["look", case.letters])
    await other.orders(["send", "orders.short", LETTERS, case.lives_ms])
    end = time.monotonic() + EXPIRED_S
    while len(found := (await other.orders(["look", "orders.short"], ["look", case.letters]))[1]) < len(had) + LETTERS:
        assert time.monotonic() < end, found
        await asyncio.sleep(5)
    return found[-LETTERS:]


def test_another_applications_messages_load_and_dead_letters_stay_as_they_are(
    case: tuple[Case, Topology], tmp_path: Path
) -> None:
    one, topology = case

    async def main() -> None:
        async with production(one, topology) as other:
            (held,) = await other.orders(["send", ORDERS, HELD, 0])
            letters = await dead(one, other)
            looks = [["look", ORDERS], ["look", one.letters]]
            # Of RabbitMQ, to look takes: that is for the end.
            before = await other.orders(*looks) if one.browsed else [held, letters]
            assert (before[0][-HELD:], before[1][-LETTERS:]) == (held, letters)
            numbers = {ORDERS: len(before[0]), one.letters: len(before[1])}
            await other.counted(numbers)
            status, lines = await checked(one)
            assert status == 0, lines
            assert [line.split(":")[0] for line in lines] == [host.name for host in topology.hosts]
            assert all(": ok" in line for line in lines), lines

            async with other.consuming(DRILL):
                await told(one, f"1 consumers take from {DRILL}")
                status, said = await drill(one, tmp_path / "taken")
                assert status == 3 and f"1 consumers from {DRILL}" in said, said
            await other.orders(["send", DRILL, STRANGERS, 0])
            await told(one, f"{STRANGERS} messages wait in {DRILL}")

            of_theirs = tmp_path / "of_theirs.yml"
            of_theirs.write_text(f"extends: {one.drill}\nload: {{addresses: [{ORDERS}]}}\n")
            status, said = await drill(one, tmp_path / "refused", name=str(of_theirs))
            assert status == 64 and f"{ORDERS} of {topology.name} is not declared a drill's" in said, said
            assert not (tmp_path / "refused").exists()

            status, said = await drill(one, tmp_path / "refused")
            assert status == 3, said
            assert f"{STRANGERS} messages that no drill has sent" in said and "--purge" in said, said

            if one.prepares:
                await other.orders(["prepare", DRILL])
                status, said = await drill(one, tmp_path / "prepared", "--purge")
                assert "has 1 prepared transactions from before this run" in said, said
                # The broker may count the message that a prepared transaction holds, or not: it was seen both ways.
                assert status == 0 or (status == 3 and f"does not give up 0 messages in {DRILL}" in said), said
                await other.orders(["rollback", DRILL])
            await other.begin()
            status, said = await drill(one, tmp_path / "runs", "--purge")
            flow = await other.end(tmp_path / "flow")
            assert one.prepares or f"removed {STRANGERS} messages from" in said, said
            assert "not drained" not in said, said
            assert flow["sent"] > 0 and flow["lost"] == 0, flow
            await other.counted(numbers)
            after = await other.orders(*looks)
            assert after == before, (before, after)

            (run,) = (path.parent for path in (tmp_path / "runs").glob("*/run.json"))
            judged(one, run, tmp_path)

    asyncio.run(main())


def judged(case: Case, run: Path, tmp_path: Path) -> None:
    """Assert that the strangers broke nothing, and that the ledger says what was seen of the dead letters."""
    analyzed = [*BROKERDRILL, "analyze", str(run), "--json", str(tmp_path / "verdict.json")]
    subprocess.run(analyzed, cwd=ROOT, capture_output=True, check=False)
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    promises = {promise["name"]: promise["verdict"] for promise in verdict["promises"]}
    assert promises["no_phantoms"] == promises["no_loss"] == "pass", promises
    assert promises["no_dead_letters"] != "fail", promises
    ops = [op for path in run.rglob("*.spool") for op in merged(rows_of(path))]
    looks = {(op["address"], op["outcome"]) for op in ops if op["op"] == "browse" and not op.get("message_id")}
    assert looks == {(case.letters, "ok" if case.browsed else "fail")}
