"""Keys: the bench's own, which the inventory names, and the hosts'; and the known_hosts that goes with them."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from brokerdrill.base import atomic, paths
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.bench.plan import BenchPlan
from brokerdrill.inventory.topology import Host, Topology

SSH_TRY_TIMEOUT_S = 10


def cache_folder() -> Path:
    """Return the folder of all that the bench keeps outside the engine."""
    return paths.private_dir(paths.cache() / "bench")


def make_key(path: Path, comment: str) -> None:
    """Make an SSH key pair, where there is none. Raises InfrastructureError."""
    if path.exists() and path.with_name(path.name + ".pub").exists():
        return
    program = shutil.which("ssh-keygen")
    if program is None:
        raise InfrastructureError("ssh-keygen is not installed; install openssh-client (`make setup` does as root)")
    path.unlink(missing_ok=True)
    done = subprocess.run(
        [program, "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise InfrastructureError(f"no SSH key can be made at {path}: {done.stderr.strip()}")


def authorized_keys(topology: Topology) -> str:
    """Return the authorized_keys of the hosts: the bench's key, and any other that the inventory logs in with."""
    key = cache_folder() / "id_ed25519"
    make_key(key, "brokerdrill-bench")
    files = [str(key), *(host.key_file for host in topology.hosts if host.key_file)]
    lines: dict[str, None] = {}
    for file in files:
        public = Path(file + ".pub")
        if public.exists():
            lines[public.read_text().strip()] = None
    return "\n".join(lines) + "\n"


def _known_host(address: str, public_key: Path) -> str:
    return f"{address} {' '.join(public_key.read_text().split()[:2])}"


def _rewrite_known_hosts(keep: Callable[[str], bool], lines: Iterable[str]) -> None:
    """Make the cache's known_hosts hold its own lines that pass `keep`, and then `lines`."""
    path = cache_folder() / "known_hosts"
    with (cache_folder() / "known_hosts.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        old = path.read_text().splitlines() if path.exists() else []
        atomic.write(path, "".join(f"{line}\n" for line in [*filter(keep, old), *lines]).encode())


def learn_hosts(wanted: BenchPlan) -> None:
    """Write the hosts' present keys into the cache's known_hosts, in place of what it says of their addresses."""
    addresses = set(wanted.addresses.values())
    keys = {name: host_key(wanted.topology, name).with_name(f"{name}.pub") for name in wanted.addresses}
    lines = [_known_host(wanted.addresses[name], key) for name, key in keys.items()]
    _rewrite_known_hosts(lambda line: line.split(" ", 1)[0] not in addresses, lines)


def forget_hosts(topology: str) -> None:
    """Drop the keys of the topology's hosts, and their lines in the cache's known_hosts."""
    directory = cache_folder() / "host_keys" / topology
    keys = {" ".join(path.read_text().split()[:2]) for path in directory.glob("*.pub")}
    _rewrite_known_hosts(lambda line: line.split(" ", 1)[-1] not in keys, [])
    shutil.rmtree(directory, ignore_errors=True)


def host_key(topology: str, host: str) -> Path:
    """Return the path of a host's own SSH key."""
    return paths.private_dir(cache_folder() / "host_keys" / topology) / host


def ssh_command(host: Host) -> list[str]:
    """Return the `ssh` command line that reaches the bench host `host`; append the remote command."""
    known = cache_folder() / "known_hosts"
    return [
        "ssh",
        "-F/dev/null",
        "-oBatchMode=yes",
        "-oStrictHostKeyChecking=yes",
        f"-oUserKnownHostsFile={known}",
        f"-oConnectTimeout={SSH_TRY_TIMEOUT_S}",
        f"-i{cache_folder() / 'id_ed25519'}",
        f"-p{host.port}",
        f"{host.user}@{host.address}",
    ]
