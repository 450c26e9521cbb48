"""Which engine is used, and the life of our own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.bench import engine

pytestmark = pytest.mark.bench

# In namespaces of its own, so that this engine's rules touch nothing of the machine's, and its processes end with it.
LIFE = """
import os
import sys
from pathlib import Path
from brokerdrill.bench import engine
from brokerdrill.base.errors import InfrastructureError

engine.RUN = Path(sys.argv[1])
engine.OWN_URL, engine.PID_FILE = f"unix://{engine.RUN}/docker.sock", engine.RUN / "docker.pid"
engine.SYSTEM_URL = "unix:///nowhere/docker.sock"
engine._start_system = lambda progress: None
assert engine.find() is None and engine.stop() is False
try:
    engine.require()
except InfrastructureError as error:
    print(error)
lines = []
first = engine.ensure(lines.append)
pid = engine._pid()
assert first.own and engine.ensure(lines.append) == first and engine._pid() == pid, "the second call finds the first"
print(lines)
print(first.client().info()["DockerRootDir"])
assert engine.stop() is True and engine.find() is None and engine._pid() is None
mounts = Path("/proc/self/mounts").read_text()
assert str(engine.RUN) not in mounts and os.environ[engine.DATA_VARIABLE] not in mounts, "a mount is left behind"
engine.PID_FILE.write_text(f"{os.getpid()}")
assert engine.ensure().own, "a process id left by an earlier boot does not stand in the way"
assert engine.stop() is True
"""


def test_the_engine_is_found_again() -> None:
    first = engine.ensure()
    assert engine.ensure() == first == engine.find() == engine.require()
    assert first.cgroup in ("1", "2")


def test_a_dead_docker_host_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(InfrastructureError) as caught:
        engine.ensure()
    assert str(caught.value) == "no Docker engine answers at unix:///nowhere/docker.sock, which DOCKER_HOST names"


def test_without_root_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "find", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InfrastructureError, match="no Docker engine answers for this user: start one"):
        engine.ensure()


def test_without_apt_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(engine, "find", lambda: None)
    monkeypatch.setattr(engine, "RUN", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(engine.shutil, "which", lambda *_, **__: None)
    with pytest.raises(InfrastructureError, match="dockerd is not installed; install Docker, or set DOCKER_HOST"):
        engine.ensure()


@pytest.fixture
def run() -> Iterator[Path]:
    """A directory for the engine's sockets: their paths end with `exec/containerd/containerd-debug.sock` and may have
    104 characters in all, which leaves no room for the directory of a test that runs beside others."""
    with tempfile.TemporaryDirectory(prefix="engine-") as made:
        yield Path(made)


def test_our_own_engine_starts_is_found_and_stops(tmp_path: Path, run: Path) -> None:
    assert os.geteuid() == 0, "only root can start an engine; run the tests as root"
    done = subprocess.run(
        [
            *["unshare", "--net", "--mount-proc", "--pid", "--fork", "--kill-child", "--"],
            sys.executable,
            "-c",
            LIFE,
            str(run),
        ],
        env={k: v for k, v in os.environ.items() if k != "DOCKER_HOST"}
        | {engine.DATA_VARIABLE: str(tmp_path / "data"), "BROKERDRILL_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "no Docker engine answers; `brokerdrill bench up` starts one",
        "['starting a Docker engine']",
        str(tmp_path / "data"),
    ]
