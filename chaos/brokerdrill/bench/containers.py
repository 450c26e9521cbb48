"""The containers of a topology: how a host's is made, kept and removed."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import docker
from docker.errors import NotFound

from brokerdrill.base import paths
from brokerdrill.base.errors import UsageError
from brokerdrill.bench.engine import Engine
from brokerdrill.bench.keys import host_key, make_key
from brokerdrill.bench.labels import LABEL, LABEL_CHECKOUT, LABEL_HOST, LABEL_SPEC
from brokerdrill.bench.plan import BenchPlan, devices, volumes
from brokerdrill.inventory.topology import Host

DEFAULT_MEMORY = "1g"
# A host is a machine: with the usual 1024, all that runs in it would have to do with what one process beside it gets.
CPU_SHARES = 8192

# For systemd's mounts, nftables, looking into processes, and a restart without an orderly stop (reboot(2) ends the
# host alone, never the machine); --privileged fails where the engine itself lacks a right.
CAPABILITIES = ["SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "SYS_BOOT"]
# A host that restarts itself ends with a status other than 0 and comes back; one that was halted stays off.
RESTART_POLICY = {"Name": "on-failure", "MaximumRetryCount": 0}
# systemd's own signal for an orderly halt (systemd(1), SIGRTMIN+3).
HALT_SIGNAL = "SIGRTMIN+3"
# A container has its machine's boot id; a host has another one each time that it starts, by which systemd, journald and
# drills distinguish its starts.
_BOOT_ID = "/proc/sys/kernel/random"
INIT = f"cat {_BOOT_ID}/uuid >/run/boot_id && mount --bind /run/boot_id {_BOOT_ID}/boot_id && exec /sbin/init"
# cgroup v2: the engine mounts the host's own part of the tree read-only; systemd must write there.
INIT_V2 = f"mount -o remount,rw /sys/fs/cgroup && {INIT}"


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


def _host_config(
    client: docker.DockerClient, found: Engine, wanted: BenchPlan, host: Host, limits: bool
) -> dict[str, Any]:
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
    if wanted_devices := devices(host):
        options["devices"] = [f"{path}:{path}:rwm" for path in wanted_devices]
    return client.api.create_host_config(**options)


@dataclass(frozen=True)
class HostMaker:
    """Everything that `up` needs to make or keep one host, shared by the threads that do."""

    client: docker.DockerClient
    engine: Engine
    plan: BenchPlan
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
        known = host_key(self.plan.topology, host.name).exists()
        # One that was created and never started may lack its keys: `up` was interrupted between the two.
        begun = container.status != "created"
        return known and begun and not self.fresh and container.labels.get(LABEL_SPEC) == spec

    def _create(self, host: Host, name: str, spec: str) -> None:
        key = host_key(self.plan.topology, host.name)
        key.unlink(missing_ok=True)
        make_key(key, host.name)
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


def containers_of(client: docker.DockerClient, topology: str | None) -> list[Any]:
    """Return the containers of a topology, None: of all."""
    label = f"{LABEL}={topology}" if topology else LABEL
    return client.containers.list(all=True, filters={"label": label}, ignore_removed=True)


def remove_container(container: Any) -> None:
    """Remove a container with its volumes; one that is gone already is no error."""
    with contextlib.suppress(NotFound):
        container.remove(force=True, v=True)
