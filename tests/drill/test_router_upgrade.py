"""Other code for the session routers, deployed under what runs: it serves, or the deployment says that it does not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.inventory.topology import Topology
from tests.drill.conftest import ROOT
from tests.drill.deployment import deployed, on_host, run

pytestmark = pytest.mark.long

SOURCE = ROOT / "router"
ROUTERS = ("router1", "router2")
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
    with deployed("rabbitmq_router") as found:
        yield found


def code(work: Path, name: str, module: str, line: str) -> Path:
    """Return a copy of the router's code with one line more at a module's end."""
    copy = work / name
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("build", "dist", "tests", "__pycache__", "*.so"))
    with (copy / "amqp_session_router" / module).open("a") as file:
        file.write(f"\n{line}\n")
    return copy


def processes(topology: Topology) -> dict[str, set[int]]:
    """Return each router's processes, by what it tells of them itself."""
    answers = {name: json.loads(on_host(topology, name, ASK)) for name in ROUTERS}
    return {name: {row["pid"] for row in answer["rows"]} for name, answer in answers.items()}


def deploy(topology: Topology, source: Path) -> None:
    """Deploy the routers' code of `source`."""
    run(topology, "site", amqp_router_source=str(source), amqp_router_health_timeout_s=30)


def test_other_code_serves_or_is_told_not_to(routers: Topology, tmp_path: Path) -> None:
    before = processes(routers)
    assert all(before.values())
    # Of the same code they stay.
    deploy(routers, SOURCE)
    assert processes(routers) == before

    good = code(tmp_path, "good", "__init__.py", "# Another one.")
    deploy(routers, good)
    replaced = processes(routers)
    assert not any(replaced[name] & before[name] for name in ROUTERS)

    broken = code(tmp_path, "broken", "process/worker.py", 'raise RuntimeError("this code starts nowhere")')
    told = r"goes on with its old processes: none of the new code served within 30 s \(.*starts nowhere\)"
    with pytest.raises(InfrastructureError, match=told):
        deploy(routers, broken)
    assert processes(routers) == replaced

    # What comes next puts it right.
    deploy(routers, good)
    assert not any(processes(routers)[name] & replaced[name] for name in ROUTERS)
