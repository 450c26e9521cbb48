"""The Docker engine that carries the bench: the one that answers, else one of our own that is installed and started.

Order: `$DOCKER_HOST`; the machine's own socket; an engine that an earlier run started here. Where none answers and we
are root on Debian or Ubuntu, `docker.io` is installed if it is missing and started: by systemd where systemd runs, else
as a detached daemon with a data directory of its own, so that it outlives this process and disturbs no other engine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import DockerException

from brokerdrill.base import paths
from brokerdrill.base.errors import InfrastructureError

SYSTEM_URL = "unix:///var/run/docker.sock"
RUN = Path("/run/brokerdrill-engine")
OWN_URL = f"unix://{RUN}/docker.sock"
PID_FILE = RUN / "docker.pid"
DATA_VARIABLE = "BROKERDRILL_ENGINE_DATA"
DEFAULT_DATA = "/var/lib/brokerdrill/docker"
PING_TIMEOUT_S = 5
START_DEADLINE_S = 90
STOP_DEADLINE_S = 60
CALL_TIMEOUT_S = 600

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Engine:
    """An engine that answers: its address, its version, the cgroup version ("1" or "2"), and whether it is ours."""

    url: str
    version: str
    cgroup: str
    own: bool

    def client(self) -> docker.DockerClient:
        """Return a new client of this engine."""
        return docker.DockerClient(base_url=self.url, timeout=CALL_TIMEOUT_S, version="auto")


def _quiet(_: str) -> None:
    pass


def _ask(url: str) -> Engine | None:
    """Return the engine at `url`, or None where nothing there answers as one."""
    if url.startswith("unix://") and not Path(url.removeprefix("unix://")).exists():
        return None
    try:
        client = docker.DockerClient(base_url=url, timeout=PING_TIMEOUT_S, version="auto")
    except DockerException:
        return None
    try:
        info = client.info()
    except (DockerException, OSError):
        return None
    finally:
        client.close()
    return Engine(url, str(info.get("ServerVersion", "?")), str(info.get("CgroupVersion", "1")), url == OWN_URL)


def find() -> Engine | None:
    """Return the engine that answers now, or None; start nothing. Raises InfrastructureError: a dead $DOCKER_HOST."""
    chosen = os.environ.get("DOCKER_HOST")
    if chosen:
        engine = _ask(chosen)
        if engine is None:
            raise InfrastructureError(f"no Docker engine answers at {chosen}, which DOCKER_HOST names")
        return engine
    return _ask(SYSTEM_URL) or _ask(OWN_URL)


def require() -> Engine:
    """Return the engine that answers now. Starts nothing. Raises InfrastructureError where there is none."""
    engine = find()
    if engine is None:
        raise InfrastructureError("no Docker engine answers; `brokerdrill bench up` starts one")
    return engine


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Let one process at a time start or stop our engine; the lock ends with the process."""
    RUN.mkdir(mode=0o755, parents=True, exist_ok=True)
    with (RUN / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _log_path() -> Path:
    return paths.cache() / "engine" / "dockerd.log"


def _install(progress: Progress) -> None:
    apt = shutil.which("apt-get")
    if apt is None:
        raise InfrastructureError(
            "no Docker engine answers and dockerd is not installed; install Docker, or set DOCKER_HOST"
        )
    progress("installing docker.io")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    log = _log_path().with_name("apt.log")
    with log.open("ab") as out:
        for words in (
            ["update"],
            ["install", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120", "docker.io"],
        ):
            subprocess.run([apt, "-q", *words], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
    if shutil.which("dockerd", path=_path()) is None:
        raise InfrastructureError(f"docker.io could not be installed; see {log}")


def _path() -> str:
    """PATH with the system directories that a user's own may lack: dockerd and iptables are in sbin."""
    return os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


def _pid() -> int | None:
    """Return the process of our engine; a file left by an earlier boot names none."""
    try:
        pid = int(PID_FILE.read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if f"--host={OWN_URL}".encode() in command else None


def _mount_systemd_cgroup() -> None:
    """On cgroup v1, give the hosts' systemd its named hierarchy where the machine booted without systemd."""
    base = Path("/sys/fs/cgroup")
    if (base / "cgroup.controllers").exists() or (base / "systemd" / "cgroup.procs").exists():
        return
    with contextlib.suppress(OSError):
        (base / "systemd").mkdir(exist_ok=True)
        subprocess.run(
            ["mount", "-t", "cgroup", "-o", "none,name=systemd", "cgroup", str(base / "systemd")],
            capture_output=True,
        )


def _last_words(log: Path) -> str:
    """Return the log's last error message, for the one sentence a user gets."""
    with contextlib.suppress(OSError):
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if "level=error" in line or "level=fatal" in line or "failed" in line]
        for line in (errors or lines)[-1:]:
            return line.split("msg=", 1)[-1].strip('"')[:300]
    return "it says nothing"


def _spawn(data: Path, log: Path) -> subprocess.Popen[bytes]:
    command = [
        "dockerd",
        f"--host={OWN_URL}",
        f"--data-root={data}",
        f"--exec-root={RUN}/exec",
        f"--pidfile={PID_FILE}",
        # No docker0: another engine of this machine may have it, and the bench has networks of its own.
        "--bridge=none",
        "--userland-proxy=false",
    ]
    with log.open("ab") as out:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd="/",
            env=os.environ | {"PATH": _path()},
            start_new_session=True,
        )


def _start_own(progress: Progress) -> Engine:
    data = _data()
    log = _log_path()
    data.mkdir(mode=0o710, parents=True, exist_ok=True)
    _mount_systemd_cgroup()
    process = None
    if _pid() is None:
        PID_FILE.unlink(missing_ok=True)
        log.unlink(missing_ok=True)
        progress("starting a Docker engine")
        process = _spawn(data, log)
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        engine = _ask(OWN_URL)
        if engine is not None:
            return engine
        if process is not None and process.poll() is not None:
            raise InfrastructureError(f"the Docker engine does not start: {_last_words(log)} (see {log})")
        time.sleep(0.2)
    raise InfrastructureError(f"the Docker engine does not answer within {START_DEADLINE_S} s (see {log})")


def _start_system(progress: Progress) -> Engine | None:
    """Where systemd runs the machine, let it run the engine. Returns None where it does not or cannot."""
    if not Path("/run/systemd/system").is_dir():
        return None
    progress("starting docker.service")
    subprocess.run(["systemctl", "start", "docker"], capture_output=True)
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        engine = _ask(SYSTEM_URL)
        if engine is not None:
            return engine
        active = subprocess.run(["systemctl", "is-failed", "--quiet", "docker"], capture_output=True)
        if active.returncode == 0:
            return None
        time.sleep(0.2)
    return None


def ensure(progress: Progress = _quiet) -> Engine:
    """Return an engine that answers; install and start one where that is needed and possible.

    `progress` gets a line before each long step. Raises InfrastructureError in one sentence: what is missing, or why
    the engine does not start. A second call finds the engine of the first.
    """
    engine = find()
    if engine is not None:
        return engine
    if os.geteuid() != 0:
        raise InfrastructureError(
            "no Docker engine answers for this user: start one, join the group that may use its socket "
            f"({SYSTEM_URL.removeprefix('unix://')}), or set DOCKER_HOST"
        )
    with _locked():
        engine = find()
        if engine is not None:
            return engine
        _log_path().parent.mkdir(parents=True, exist_ok=True)
        if shutil.which("dockerd", path=_path()) is None:
            _install(progress)
        return _start_system(progress) or _start_own(progress)


def _data() -> Path:
    return Path(os.environ.get(DATA_VARIABLE) or DEFAULT_DATA)


def _unmount() -> None:
    """Undo the mounts that Docker leaves behind when it ends: its data onto themselves, the network's namespace."""
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        # proc(5): the root of the mount in its file system, and where it is. Whole file systems are somebody's own.
        root, point = line.split()[3:5]
        if root != "/" and (Path(point).is_relative_to(RUN) or Path(point).is_relative_to(_data())):
            subprocess.run(["umount", point], check=False, capture_output=True)


def stop(progress: Progress = _quiet) -> bool:
    """Stop the engine that `ensure` started as its own, with its containers; say whether there was one.

    An engine that others run is never touched. Raises InfrastructureError when ours does not end.
    """
    pid = _pid()
    if pid is None:
        return False
    with _locked():
        progress("stopping the Docker engine")
        try:
            os.kill(pid, signal.SIGTERM)
        except PermissionError:
            raise InfrastructureError("only root can stop this Docker engine") from None
        except ProcessLookupError:
            return True
        deadline = time.monotonic() + STOP_DEADLINE_S
        while time.monotonic() < deadline:
            if _pid() is None:
                _unmount()
                return True
            time.sleep(0.2)
    raise InfrastructureError(f"the Docker engine (process {pid}) does not end within {STOP_DEADLINE_S} s")
