"""The bench: an inventory's hosts as systemd containers on one machine, reached by SSH like any other host.

Every host has the address that the inventory gives it, on a bridge of its topology alone. Nothing is published on other
interfaces. What the bench makes outside the engine stays in the cache: `bench/id_ed25519` (the key that the inventory
names), `bench/known_hosts`, and the hosts' own keys.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException

from brokerdrill.base import paths
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.bench import engine, image, kernel_limits
from brokerdrill.bench.containers import HostMaker, containers_of, remove_container
from brokerdrill.bench.engine import Engine, Progress
from brokerdrill.bench.hosts import failed_units, host_row, status_rows, wait_until_up
from brokerdrill.bench.keys import authorized_keys, cache_folder, forget_hosts, learn_hosts
from brokerdrill.bench.labels import LABEL, LABEL_CHECKOUT, LABEL_HOST
from brokerdrill.bench.network import ensure_network, remove_network
from brokerdrill.bench.plan import plan, recipes
from brokerdrill.bench.volumes import ensure_volumes, remove_volumes
from brokerdrill.inventory.topology import Topology


def _quiet(_: str) -> None:
    pass


@contextlib.contextmanager
def _locked(topology: str) -> Iterator[None]:
    """One bench command at a time a topology; the lock ends with the process."""
    with (cache_folder() / f"{topology}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _refuse_foreign(client: docker.DockerClient, topology: str) -> None:
    """Refuse to replace the hosts that another checkout, still there, has up under the same name."""
    for container in containers_of(client, topology):
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
        for container in containers_of(client, topology.name):
            host = container.labels.get(LABEL_HOST)
            if fresh or (host is not None and host not in wanted.addresses):
                container.remove(force=True, v=True)
        ensure_network(client, wanted)
        ensure_volumes(client, topology, next(iter(images.values())), fresh)
        limits = bool(client.info().get("MemoryLimit"))
        maker = HostMaker(client, found, wanted, image_ids, authorized_keys(topology), limits, fresh)
        with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool:
            made = dict(zip(wanted.addresses, pool.map(maker.ensure, topology.hosts), strict=True))
            learn_hosts(wanted)
            new = [name for name, was_made in made.items() if was_made]
            progress(f"booting {', '.join(new)}" if new else f"all {len(made)} hosts of {topology.name} are up already")
            states = list(pool.map(lambda host: wait_until_up(client, wanted, host), topology.hosts))
        for host, state in zip(topology.hosts, states, strict=True):
            if state == "degraded":
                progress(f"{host.name}: failed units: {', '.join(failed_units(client, wanted.container(host.name)))}")
        return status_rows(client, topology, wanted)


def down(topology: str, progress: Progress = _quiet) -> int:
    """Remove the hosts of the topology of that name, their network and their keys; return how many hosts there were.

    Its inventory may be gone. Without an engine there is nothing to remove, and none is started.
    """
    found = engine.find()
    with _locked(topology):
        count = _remove(found, topology, progress) if found is not None else 0
        forget_hosts(topology)
        return count


def _remove(found: Engine, topology: str, progress: Progress) -> int:
    with _talking(found) as client:
        containers = containers_of(client, topology)
        hosts = sum(LABEL_HOST in container.labels for container in containers)
        if containers:
            progress(f"removing {hosts} hosts of {topology}")
        with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(lambda container: remove_container(container), containers))
        remove_network(client, f"brokerdrill-{topology}")
        remove_volumes(client, topology)
        return hosts


def down_all(progress: Progress = _quiet) -> int:
    """Remove every bench host of this checkout, and its networks, whatever the topology; return how many there were."""
    return sum(down(name, progress) for name in standing(str(paths.ROOT)))


def standing(checkout: str | None = None) -> list[str]:
    """Return the names of the topologies that have hosts on this machine, or of those that have some of `checkout`."""
    found = engine.find()
    if found is None:
        return []
    with _talking(found) as client:
        return sorted(
            {c.labels[LABEL] for c in containers_of(client, None) if checkout in (None, c.labels.get(LABEL_CHECKOUT))}
        )


def status(topology: Topology) -> list[dict[str, Any]]:
    """Return, for each host, {"host", "address", "container", "state", "system", "memory_mib", "limit_mib"}.

    `state` is the engine's word (or "absent"), `system` is systemd's (null where it cannot be asked), memory in MiB.
    Where no engine answers, every host is absent; none is started.
    """
    wanted = plan(topology)
    found = engine.find()
    if found is None:
        return [host_row(wanted, host, "absent") for host in topology.hosts]
    with _talking(found) as client:
        return status_rows(client, topology, wanted)
