"""The bench: an inventory's hosts as systemd containers on one machine, reached by SSH like any other host.

Every host has the address that the inventory gives it, on a bridge of its topology alone. Nothing is published on other
interfaces. What the bench makes outside the engine stays in the cache: `bench/id_ed25519` (the key that the inventory
names), `bench/known_hosts`, and the hosts' own keys.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import hashlib
import io
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.types import IPAMConfig, IPAMPool

from brokerdrill.base import atomic, paths
from brokerdrill.base.errors import InfrastructureError, UsageError
from brokerdrill.bench import engine, image, kernel_limits
from brokerdrill.bench.engine import Engine, Progress
from brokerdrill.inventory.topology import Host, Topology

LABEL = "brokerdrill.topology"
LABEL_HOST = "brokerdrill.host"
LABEL_SPEC = "brokerdrill.spec"
LABEL_CHECKOUT = "brokerdrill.checkout"
# The container of a topology that is no host, but keeps hosts' disks.
DISKS = "disks"

DEFAULT_MEMORY = "1g"
# A host is a machine: with the usual 1024, all that runs in it would have to do with what one process beside it gets.
CPU_SHARES = 8192
BOOT_DEADLINE_S = 90
SSH_TRY_TIMEOUT_S = 10
POLL_S = 0.2

# For systemd's mounts, nftables, looking into processes, and a restart without an orderly stop (reboot(2) ends the
# host alone, never the machine); --privileged fails where the engine itself lacks a right.
CAPABILITIES = ["SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "SYS_BOOT"]
# A host that restarts itself ends with a status other than 0 and comes back; one that was halted stays off.
RESTART_POLICY = {"Name": "on-failure", "MaximumRetryCount": 0}
# systemd's own signal for an orderly halt (systemd(1), SIGRTMIN+3).
HALT_SIGNAL = "SIGRTMIN+3"
# A container has its machine's boot id; a host has another one each time that it starts, by which systemd, journald and
# drills tell its starts apart.
_BOOT_ID = "/proc/sys/kernel/random"
INIT = f"cat {_BOOT_ID}/uuid >/run/boot_id && mount --bind /run/boot_id {_BOOT_ID}/boot_id && exec /sbin/init"
# cgroup v2: the engine mounts the host's own part of the tree read-only; systemd must write there.
INIT_V2 = f"mount -o remount,rw /sys/fs/cgroup && {INIT}"
BOOTED = ("running", "degraded")
TRIES = 3
"""How often a host is asked that gives no answer."""


def _quiet(_: str) -> None:
    pass


@dataclass(frozen=True)
class Plan:
    """What the containers of a topology must be: names, network, bridge and the host names' addresses."""

    topology: str
    network: str
    bridge: str
    subnet: ipaddress.IPv4Network
    gateway: str
    addresses: Mapping[str, str]

    def container(self, host: str) -> str:
        return f"{self.topology}-{host}"


def plan(topology: Topology) -> Plan:
    """Return the Plan of `topology`. Raises UsageError when its inventory cannot be a bench.

    It needs `bench_subnet` (IPv4, CIDR) and, in it, a distinct `ansible_host` address for each host, none of them the
    network's first one, which the bridge takes.
    """
    text = topology.vars.get("bench_subnet")
    if not text:
        raise UsageError(f"inventory {topology.name} has no bench_subnet, so its hosts cannot be made on this machine")
    try:
        subnet = ipaddress.IPv4Network(str(text))
    except ValueError as error:
        raise UsageError(f"inventory {topology.name}: bench_subnet is no IPv4 network: {error}") from None
    gateway = str(subnet.network_address + 1)
    taken: dict[str, str] = {gateway: "the bridge"}
    for host in topology.hosts:
        try:
            inside = ipaddress.IPv4Address(host.address) in subnet
        except ValueError:
            inside = False
        if not inside:
            raise UsageError(f"host {host.name} has the address {host.address!r}, not one in bench_subnet {subnet}")
        if host.address in taken:
            raise UsageError(f"host {host.name} has the address {host.address} of {taken[host.address]}")
        taken[host.address] = host.name
    return Plan(
        topology=topology.name,
        network=f"brokerdrill-{topology.name}",
        bridge="bd-" + hashlib.sha256(topology.name.encode()).hexdigest()[:8],
        subnet=subnet,
        gateway=gateway,
        addresses={host.name: host.address for host in topology.hosts},
    )


def _directory() -> Path:
    return paths.private_dir(paths.cache() / "bench")


@contextlib.contextmanager
def _locked(topology: str) -> Iterator[None]:
    """One bench command at a time a topology; the lock ends with the process."""
    with (_directory() / f"{topology}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make_key(path: Path, comment: str) -> None:
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


def _authorized(topology: Topology) -> str:
    """Return the authorized_keys of the hosts: the bench's key, and any other that the inventory logs in with."""
    key = _directory() / "id_ed25519"
    _make_key(key, "brokerdrill-bench")
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
    path = _directory() / "known_hosts"
    with (_directory() / "known_hosts.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        old = path.read_text().splitlines() if path.exists() else []
        atomic.write(path, "".join(f"{line}\n" for line in [*filter(keep, old), *lines]).encode())


def _learn_hosts(wanted: Plan) -> None:
    """Write the hosts' present keys into the cache's known_hosts, in place of what it says of their addresses."""
    addresses = set(wanted.addresses.values())
    keys = {name: _host_key(wanted.topology, name).with_name(f"{name}.pub") for name in wanted.addresses}
    lines = [_known_host(wanted.addresses[name], key) for name, key in keys.items()]
    _rewrite_known_hosts(lambda line: line.split(" ", 1)[0] not in addresses, lines)


def _forget_hosts(topology: str) -> None:
    """Drop the keys of the topology's hosts, and their lines in the cache's known_hosts."""
    directory = _directory() / "host_keys" / topology
    keys = {" ".join(path.read_text().split()[:2]) for path in directory.glob("*.pub")}
    _rewrite_known_hosts(lambda line: line.split(" ", 1)[-1] not in keys, [])
    shutil.rmtree(directory, ignore_errors=True)


def _host_key(topology: str, host: str) -> Path:
    return paths.private_dir(_directory() / "host_keys" / topology) / host


def _tar(files: Mapping[str, tuple[str, int]]) -> bytes:
    """Return a tar archive of root-owned files: path → (content, mode)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (content, mode) in files.items():
            data = content.encode()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(data), mode, int(time.time())
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _user_files(host: Host, authorized: str) -> dict[str, tuple[str, int]]:
    if host.user == "root":
        return {"root/.ssh/authorized_keys": (authorized, 0o600)}
    raise UsageError(f"bench hosts are reached as root, but host {host.name} has ansible_user {host.user!r}")


# --- the network ---------------------------------------------------------------------------------------------------


def _routes() -> list[tuple[str, str]]:
    """Return (destination, device) of this machine's IPv4 routes, without the default one."""
    ip = shutil.which("ip", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if ip is None:
        return []
    done = subprocess.run([ip, "-j", "-4", "route", "show"], capture_output=True, text=True)
    try:
        return [
            (str(r["dst"]), str(r.get("dev", ""))) for r in json.loads(done.stdout or "[]") if r["dst"] != "default"
        ]
    except (ValueError, KeyError):
        return []


def conflict(subnet: ipaddress.IPv4Network, bridge: str, routes: list[tuple[str, str]]) -> str | None:
    """Return what of this machine already uses part of `subnet` ("NETWORK on DEVICE"), or None."""
    for destination, device in routes:
        with contextlib.suppress(ValueError):
            if device != bridge and ipaddress.IPv4Network(destination).overlaps(subnet):
                return f"{destination} on {device}"
    return None


def _ensure_network(client: docker.DockerClient, wanted: Plan) -> None:
    for network in client.networks.list(names=[wanted.network]):
        if network.name == wanted.network:
            pools = (network.attrs.get("IPAM") or {}).get("Config") or [{}]
            if pools[0].get("Subnet") == str(wanted.subnet):
                return
            _remove_network(client, network.name)
    busy = conflict(wanted.subnet, wanted.bridge, _routes())
    hint = "choose another bench_subnet and addresses in the inventory"
    if busy:
        raise InfrastructureError(f"the bench's subnet {wanted.subnet} is taken on this machine by {busy}; {hint}")
    try:
        client.networks.create(
            wanted.network,
            driver="bridge",
            ipam=IPAMConfig(pool_configs=[IPAMPool(subnet=str(wanted.subnet), gateway=wanted.gateway)]),
            options={"com.docker.network.bridge.name": wanted.bridge},
            labels={LABEL: wanted.topology},
        )
    except APIError as error:
        reason = " ".join(str(error.explanation or error).split())
        if "overlap" in reason:
            raise InfrastructureError(
                f"the bench's subnet {wanted.subnet} is taken by another Docker network; {hint}"
            ) from None
        raise InfrastructureError(f"the bench's network cannot be made: {reason}") from None


def _remove_network(client: docker.DockerClient, name: str) -> None:
    try:
        network = client.networks.get(name)
        for container_id in network.attrs.get("Containers") or {}:
            network.disconnect(container_id, force=True)
        network.remove()
    except NotFound:
        return
    except APIError as error:
        raise InfrastructureError(f"the network {name} cannot be removed: {error.explanation}") from None


# --- the containers --------------------------------------------------------------------------------------------------


class Volume(NamedTuple):
    """Where a host has a volume, and for one that can be filled its size, as mount(8) writes one of a tmpfs."""

    path: str
    size: str | None


def volumes(topology: str, host: Host) -> dict[str, Volume]:
    """Return the engine's volume → where `host` has it, from its `bench_volumes` (name → absolute path, or → path and
    size).

    Hosts of a topology that name the same volume share it, as they would a mount of one server. Raises UsageError.
    """
    given = host.vars.get("bench_volumes") or {}
    listed = given if isinstance(given, Mapping) else {"": None}
    found = {name: one if isinstance(one, Mapping) else {"path": one} for name, one in listed.items()}
    if not all(str(one.get("path")).startswith("/") and one.keys() <= {"path", "size"} for one in found.values()):
        raise UsageError(f"host {host.name}: bench_volumes must map names to absolute paths, or to path and size")
    return {f"brokerdrill-{topology}-{name}": Volume(str(one["path"]), one.get("size")) for name, one in found.items()}


def _host_config(client: docker.DockerClient, found: Engine, wanted: Plan, host: Host, limits: bool) -> dict[str, Any]:
    memory = str(host.vars.get("bench_memory", DEFAULT_MEMORY)) if limits else None
    options: dict[str, Any] = {
        "cap_add": CAPABILITIES,
        "restart_policy": RESTART_POLICY,
        "security_opt": ["seccomp=unconfined", "apparmor=unconfined"],
        "tmpfs": {"/run": "mode=755", "/run/lock": ""},
        "extra_hosts": {name: address for name, address in wanted.addresses.items() if name != host.name},
        "network_mode": wanted.network,
        "cpu_shares": CPU_SHARES if limits else None,
        "mem_limit": memory,
        "memswap_limit": memory,
        "log_config": {"type": "json-file", "config": {"max-size": "1m", "max-file": "1"}},
    }
    binds = [f"{name}:{volume.path}:rw" for name, volume in sorted(volumes(wanted.topology, host).items())]
    if found.cgroup == "2":
        options["cgroupns"] = "private"
    else:
        binds.insert(0, "/sys/fs/cgroup/systemd:/sys/fs/cgroup/systemd:rw")
    options["binds"] = binds
    return client.api.create_host_config(**options)


@dataclass(frozen=True)
class _Maker:
    """Everything that `up` needs to make or keep one host, shared by the threads that do."""

    client: docker.DockerClient
    engine: Engine
    plan: Plan
    image_ids: Mapping[str, str]
    authorized: str
    limits: bool
    fresh: bool

    def spec(self, host: Host) -> str:
        """Return a hash of all that decides how `host`'s container is made."""
        config = _host_config(self.client, self.engine, self.plan, host, self.limits)
        content = json.dumps(
            [self.image_ids[host.name], self.authorized, host.address, config, HALT_SIGNAL, INIT], sort_keys=True
        )
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def ensure(self, host: Host) -> bool:
        """Make `host`'s container run; return whether it was made or started now."""
        name, spec = self.plan.container(host.name), self.spec(host)
        try:
            container = self.client.containers.get(name)
        except NotFound:
            container = None
        if container is not None and not self._right(container, host, spec):
            container.remove(force=True, v=True)
            container = None
        if container is None:
            self._create(host, name, spec)
            return True
        if container.status != "running":
            container.start()
            return True
        return False

    def _right(self, container: Any, host: Host, spec: str) -> bool:
        known = _host_key(self.plan.topology, host.name).exists()
        # One that was created and never started may lack its keys: `up` was interrupted between the two.
        begun = container.status != "created"
        return known and begun and not self.fresh and container.labels.get(LABEL_SPEC) == spec

    def _create(self, host: Host, name: str, spec: str) -> None:
        key = _host_key(self.plan.topology, host.name)
        key.unlink(missing_ok=True)
        _make_key(key, host.name)
        api = self.client.api
        created = api.create_container(
            self.image_ids[host.name],
            command=["/bin/sh", "-c", INIT_V2 if self.engine.cgroup == "2" else INIT],
            name=name,
            hostname=host.name,
            stop_signal=HALT_SIGNAL,
            labels={
                LABEL: self.plan.topology,
                LABEL_HOST: host.name,
                LABEL_SPEC: spec,
                LABEL_CHECKOUT: str(paths.ROOT),
            },
            host_config=_host_config(self.client, self.engine, self.plan, host, self.limits),
            networking_config=api.create_networking_config(
                {self.plan.network: api.create_endpoint_config(ipv4_address=host.address)}  # type: ignore[arg-type]
            ),
        )
        files = {
            "etc/machine-id": (hashlib.sha256(os.urandom(32)).hexdigest()[:32] + "\n", 0o444),
            "etc/ssh/ssh_host_ed25519_key": (key.read_text(), 0o600),
            "etc/ssh/ssh_host_ed25519_key.pub": (key.with_name(key.name + ".pub").read_text(), 0o644),
            **_user_files(host, self.authorized),
        }
        api.put_archive(created["Id"], "/", _tar(files))
        api.start(created["Id"])


def _output(client: docker.DockerClient, container: str, command: list[str]) -> str:
    """Return what `command` prints in the container, whatever its exit status."""
    output = client.containers.get(container).exec_run(command).output
    return output.decode(errors="replace") if isinstance(output, bytes) else ""


def _booted(client: docker.DockerClient, container: str) -> str:
    """Return systemd's state in the container ("running", "starting", …), or what the engine says of it."""
    for _ in range(TRIES):
        try:
            found = client.containers.get(container)
            if found.status != "running":
                return found.status
            if said := _output(client, container, ["systemctl", "is-system-running"]).strip():
                return said
        except NotFound:
            return "absent"
        except APIError:
            pass
        # No answer says nothing of the host: a busy engine may have had none.
        time.sleep(POLL_S)
    return "starting"


def _failed_units(client: docker.DockerClient, container: str) -> list[str]:
    command = ["systemctl", "list-units", "--failed", "--plain", "--no-legend"]
    lines = _output(client, container, command).splitlines()
    return [line.split()[0] for line in lines if line.split()]


def _answers_ssh(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=2) as connection:
            connection.settimeout(2)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def ssh_command(host: Host) -> list[str]:
    """Return the `ssh` command line that reaches the bench host `host`; append the remote command."""
    known = _directory() / "known_hosts"
    return [
        "ssh",
        "-F/dev/null",
        "-oBatchMode=yes",
        "-oStrictHostKeyChecking=yes",
        f"-oUserKnownHostsFile={known}",
        f"-oConnectTimeout={SSH_TRY_TIMEOUT_S}",
        f"-i{_directory() / 'id_ed25519'}",
        f"-p{host.port}",
        f"{host.user}@{host.address}",
    ]


def _wait(client: docker.DockerClient, wanted: Plan, host: Host) -> str:
    """Wait until `host` is booted and lets us in by SSH; return systemd's state. Raises InfrastructureError."""
    name = wanted.container(host.name)
    deadline = time.monotonic() + BOOT_DEADLINE_S
    state = "starting"
    while time.monotonic() < deadline:
        if _answers_ssh(host.address, host.port):
            state = _booted(client, name)
            if state in BOOTED:
                break
        elif (now := _booted(client, name)) in ("exited", "dead", "absent"):
            raise InfrastructureError(f"bench host {host.name} ended while it booted: its container is {now}")
        time.sleep(POLL_S)
    else:
        raise kernel_limits.not_up(
            f"bench host {host.name} ({host.address}) is not up within {BOOT_DEADLINE_S} s: systemd is {state}"
        )
    done = subprocess.run([*ssh_command(host), "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise InfrastructureError(f"bench host {host.name} refuses SSH: {said[-1] if said else done.returncode}")
    return state


def _containers(client: docker.DockerClient, topology: str | None) -> list[Any]:
    label = f"{LABEL}={topology}" if topology else LABEL
    return client.containers.list(all=True, filters={"label": label}, ignore_removed=True)


def _refuse_foreign(client: docker.DockerClient, topology: str) -> None:
    """Refuse to replace the hosts that another checkout, still there, has up under the same name."""
    for container in _containers(client, topology):
        other = container.labels.get(LABEL_CHECKOUT, "")
        if other and other != str(paths.ROOT) and Path(other).is_dir() and container.status == "running":
            raise InfrastructureError(
                f"the hosts of {topology} are up for the checkout {other}; "
                f"take them down (`brokerdrill bench down {topology}`), or start anew with --fresh"
            )


@contextlib.contextmanager
def _talking(found: Engine) -> Iterator[docker.DockerClient]:
    """Yield a client; turn what the engine complains about into one sentence."""
    client = found.client()
    try:
        yield client
    except APIError as error:
        raise InfrastructureError(f"the Docker engine says: {' '.join(str(error.explanation).split())[:300]}") from None
    except DockerException as error:
        raise InfrastructureError(f"the Docker engine fails: {' '.join(str(error).split())[:300]}") from None
    finally:
        client.close()


def recipes(topology: Topology, all_of: str | None = None) -> dict[str, image.Recipe]:
    """Return each host's recipe: that of the name `all_of`, else of its `bench_image`. Raises UsageError."""
    return {
        host.name: image.find_recipe(all_of or str(host.vars.get("bench_image") or image.DEFAULT))
        for host in topology.hosts
    }


def up(
    topology: Topology, fresh: bool = False, progress: Progress = _quiet, all_of: str | None = None
) -> list[dict[str, Any]]:
    """Make the hosts of `topology` run on this machine and wait until each lets us in by SSH; return `status`.

    Hosts that run as they should are kept as they are; with `fresh` all are made anew. `all_of` names the image of all
    hosts, whatever their `bench_image` says. Raises UsageError for an inventory that cannot be a bench, and
    InfrastructureError, in one sentence, for all else: no engine, a subnet that is taken, hosts of another checkout, a
    host that does not come up.
    """
    wanted, made_of = plan(topology), recipes(topology, all_of)
    found = engine.ensure(progress)
    kernel_limits.ensure_watches()
    with _locked(topology.name), _talking(found) as client:
        images = {recipe: image.ensure(found, recipe, progress) for recipe in dict.fromkeys(made_of.values())}
        image_ids = {host: images[recipe] for host, recipe in made_of.items()}
        if not fresh:
            _refuse_foreign(client, topology.name)
        for container in _containers(client, topology.name):
            host = container.labels.get(LABEL_HOST)
            if fresh or (host is not None and host not in wanted.addresses):
                container.remove(force=True, v=True)
        _ensure_network(client, wanted)
        _ensure_volumes(client, topology, next(iter(images.values())), fresh)
        limits = bool(client.info().get("MemoryLimit"))
        maker = _Maker(client, found, wanted, image_ids, _authorized(topology), limits, fresh)
        with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool:
            made = dict(zip(wanted.addresses, pool.map(maker.ensure, topology.hosts), strict=True))
            _learn_hosts(wanted)
            new = [name for name, was_made in made.items() if was_made]
            progress(f"booting {', '.join(new)}" if new else f"all {len(made)} hosts of {topology.name} are up already")
            states = list(pool.map(lambda host: _wait(client, wanted, host), topology.hosts))
        for host, state in zip(topology.hosts, states, strict=True):
            if state == "degraded":
                progress(f"{host.name}: failed units: {', '.join(_failed_units(client, wanted.container(host.name)))}")
        return _status(client, topology, wanted)


def down(topology: Topology, progress: Progress = _quiet) -> int:
    """Remove the hosts of `topology`, their network and their keys; return how many hosts there were.

    Without an engine there is nothing to remove, and none is started.
    """
    found = engine.find()
    with _locked(topology.name):
        count = _remove(found, topology.name, progress) if found is not None else 0
        _forget_hosts(topology.name)
        return count


def _remove(found: Engine, topology: str, progress: Progress) -> int:
    with _talking(found) as client:
        containers = _containers(client, topology)
        hosts = sum(LABEL_HOST in container.labels for container in containers)
        if containers:
            progress(f"removing {hosts} hosts of {topology}")
        with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(lambda container: _remove_container(container), containers))
        _remove_network(client, f"brokerdrill-{topology}")
        _remove_volumes(client, topology)
        return hosts


def _ensure_volumes(client: docker.DockerClient, topology: Topology, image_id: str, fresh: bool) -> None:
    """Make the hosts' volumes, empty ones with `fresh`; those with a size in memory, which needs no partition."""
    if fresh:
        _remove_volumes(client, topology.name)
    wanted = {name: volume.size for host in topology.hosts for name, volume in volumes(topology.name, host).items()}
    for name, size in sorted(wanted.items()):
        options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={size},mode=0755"} if size else None
        client.volumes.create(name, driver_opts=options, labels={LABEL: topology.name})
    _keep_disks(client, topology.name, image_id, [name for name, size in wanted.items() if size])


def _keep_disks(client: docker.DockerClient, topology: str, image_id: str, names: Sequence[str]) -> None:
    """Have a container use the volumes in memory: what is in one that none uses is gone, and a host that is started
    anew would find its disk empty."""
    spec = ",".join(sorted(names))
    with contextlib.suppress(NotFound):
        there = client.containers.get(f"brokerdrill-{topology}-{DISKS}")
        if there.status == "running" and there.labels.get(LABEL_SPEC) == spec:
            return
        _remove_container(there)
    if names:
        options: dict[str, Any] = {"restart_policy": RESTART_POLICY}
        client.containers.run(
            image_id,
            name=f"brokerdrill-{topology}-{DISKS}",
            entrypoint=["sleep", "infinity"],
            init=True,
            detach=True,
            network_mode="none",
            volumes=[f"{name}:/disks/{name}" for name in names],
            labels={LABEL: topology, LABEL_SPEC: spec, LABEL_CHECKOUT: str(paths.ROOT)},
            **options,
        )


def _remove_volumes(client: docker.DockerClient, topology: str) -> None:
    for volume in client.volumes.list(filters={"label": f"{LABEL}={topology}"}):
        with contextlib.suppress(NotFound):
            volume.remove(force=True)


def _remove_container(container: Any) -> None:
    with contextlib.suppress(NotFound):
        container.remove(force=True, v=True)


def down_all(progress: Progress = _quiet) -> int:
    """Remove every bench host of this checkout, and its networks, whatever the topology; return how many there were."""
    found = engine.find()
    if found is None:
        return 0
    with _talking(found) as client:
        names = {c.labels[LABEL] for c in _containers(client, None) if c.labels.get(LABEL_CHECKOUT) == str(paths.ROOT)}
    count = 0
    for name in sorted(names):
        with _locked(name):
            count += _remove(found, name, progress)
            _forget_hosts(name)
    return count


def status(topology: Topology) -> list[dict[str, Any]]:
    """Return, for each host, {"host", "address", "container", "state", "system", "memory_mib", "limit_mib"}.

    `state` is the engine's word (or "absent"), `system` is systemd's (null where it cannot be asked), memory in MiB.
    Where no engine answers, every host is absent; none is started.
    """
    wanted = plan(topology)
    found = engine.find()
    if found is None:
        return [_row(wanted, host, "absent") for host in topology.hosts]
    with _talking(found) as client:
        return _status(client, topology, wanted)


def _row(wanted: Plan, host: Host, state: str, **more: Any) -> dict[str, Any]:
    row = {"host": host.name, "address": host.address, "container": wanted.container(host.name), "state": state}
    return {**row, "system": None, "memory_mib": None, "limit_mib": None, **more}


def _memory_mib(pid: int) -> int | None:
    """Return the MiB that the host with init process `pid` uses, without file pages the kernel would drop first.

    Read from the control group itself: an engine reports nothing at all where a single controller is missing.
    """
    base = Path("/sys/fs/cgroup")
    try:
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                group, usage, idle = base / "memory" / path.lstrip("/"), "memory.usage_in_bytes", "total_inactive_file"
                break
            if not controllers:
                inner = path.removesuffix("/init.scope").lstrip("/")
                group, usage, idle = base / inner, "memory.current", "inactive_file"
        pages = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return round((int((group / usage).read_text()) - int(pages[idle])) / 2**20)
    except (OSError, ValueError, KeyError, UnboundLocalError):
        return None


def _status(client: docker.DockerClient, topology: Topology, wanted: Plan) -> list[dict[str, Any]]:
    def one(host: Host) -> dict[str, Any]:
        name = wanted.container(host.name)
        try:
            container = client.containers.get(name)
            if container.status != "running":
                return _row(wanted, host, container.status)
            return _row(
                wanted,
                host,
                container.status,
                system=_booted(client, name),
                memory_mib=_memory_mib(container.attrs["State"]["Pid"]),
                limit_mib=round((container.attrs["HostConfig"].get("Memory") or 0) / 2**20) or None,
            )
        except NotFound:
            return _row(wanted, host, "absent")

    with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool:
        return list(pool.map(one, topology.hosts))
