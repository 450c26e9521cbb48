"""Other code for the session routers, deployed under what runs: it serves, or the deployment says that it does not."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerdrill.bench import bench
from brokerdrill.hosts.connection import connected
from brokerdrill.inventory.topology import Topology, find_topology
from tests.drill.conftest import ROOT, deployed

pytestmark = pytest.mark.long

SOURCE = ROOT / "router"
SOON = {"amqp_router_health_timeout_s": 30}
# By the protocol of the control socket: the program `ctl` is of the code that was deployed last.
ASK = """python3 -c '
import socket
with socket.socket(socket.AF_UNIX) as router:
    router.connect("/run/amqp-session-router/control.sock")
    router.sendall(b"{\\"words\\": [\\"WORKERS\\", \\"PRINT\\"]}\\n")
    print(router.makefile().readline())
'"""


@pytest.fixture(scope="module")
def routers() -> Iterator[Topology]:
    found = find_topology("rabbitmq_router")
    bench.up(found, fresh=True, progress=print)
    status, said = deployed(found)
    assert status == 0, said
    yield found
    bench.down(found)


def code(work: Path, name: str, module: str, line: str) -> Path:
    """Return a copy of the router's code with one line more at a module's end."""
    copy = work / name
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("build", "dist", "tests", "__pycache__", "*.so"))
    with (copy / "amqp_session_router" / module).open("a") as file:
        file.write(f"\n{line}\n")
    return copy


def processes(topology: Topology) -> dict[str, set[int]]:
    """Return each router's processes, by what it tells of them itself."""

    async def main() -> dict[str, set[int]]:
        routers = [host for host in topology.hosts if "amqp_router" in host.groups]
        async with connected(routers) as connections:
            answers = {name: json.loads((await one.sh(ASK, check=True)).out) for name, one in connections.items()}
            return {name: {row["pid"] for row in answer["rows"]} for name, answer in answers.items()}

    return asyncio.run(main())


def test_other_code_serves_or_is_told_not_to(routers: Topology, tmp_path: Path) -> None:
    before = processes(routers)
    assert len(before) == 2 and all(before.values())
    # Of the same code they stay.
    assert deployed(routers)[0] == 0
    assert processes(routers) == before

    good = code(tmp_path, "good", "__init__.py", "# Another one.")
    status, said = deployed(routers, amqp_router_source=good, **SOON)
    assert status == 0, said
    replaced = processes(routers)
    assert not any(replaced[name] & before[name] for name in before)

    broken = code(tmp_path, "broken", "process/worker.py", 'raise RuntimeError("this code starts nowhere")')
    status, said = deployed(routers, amqp_router_source=broken, **SOON)
    assert status != 0
    told = re.search(r"router[12] goes on with its old processes: none of the new code served .*starts nowhere\)", said)
    assert told, said
    assert processes(routers) == replaced

    # What comes next puts it right.
    status, said = deployed(routers, amqp_router_source=good, **SOON)
    assert status == 0, said
    assert not any(processes(routers)[name] & replaced[name] for name in replaced)
