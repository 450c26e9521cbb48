"""The base images of bench hosts: Debian with systemd, sshd and Java, as a golden image of a VM would have it, or with
no more than the roles ask of a host.

Made from a pinned Debian image where a registry answers, else with `mmdebstrap`. A tag holds a hash of the recipe, so
that an image is made again only when its recipe changes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import docker
from docker.errors import APIError, DockerException, ImageNotFound

from brokerdrill.base import paths
from brokerdrill.base.errors import InfrastructureError, unknown_name
from brokerdrill.bench.engine import CALL_TIMEOUT_S, Engine, Progress

REPOSITORY = "brokerdrill-host"
MIRROR_VARIABLE = "BROKERDRILL_DEBIAN_MIRROR"
REGISTRY_TIMEOUT_S = 8
PULL_STALL_S = 60

# What the roles ask of a host: SSH, python3, systemd, sudo. The rest of an image is what a machine usually has.
MINIMUM = ("openssh-server", "python3", "sudo", "systemd", "systemd-sysv")
USUAL = (
    "ca-certificates",
    "conntrack",
    "dbus",
    "gzip",
    "iproute2",
    "iptables",
    "less",
    "nftables",
    "procps",
    "python3-apt",
    "tar",
)


@dataclass(frozen=True)
class Recipe:
    """What an image is made of: Debian's suite, the pinned image of a registry, the packages."""

    suite: str
    pinned: str
    packages: tuple[str, ...]


def _recipe(suite: str, pinned: str, *packages: str) -> Recipe:
    return Recipe(suite, pinned, tuple(sorted({*MINIMUM, *packages})))


DEFAULT = "debian12"
RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        DEFAULT: _recipe("bookworm", "debian:bookworm-20250407-slim", *USUAL, "openjdk-17-jre-headless"),
        "debian13": _recipe("trixie", "debian:trixie-20250811-slim", *USUAL, "openjdk-21-jre-headless"),
        "bare": _recipe("bookworm", "debian:bookworm-20250407-slim"),
    }
)


def find_recipe(name: str) -> Recipe:
    """Return the recipe of that name. Raises UsageError, with the nearest name, where there is none."""
    if name not in RECIPES:
        raise unknown_name("bench image", name, RECIPES)
    return RECIPES[name]


# Run in the new root. The journal is kept on disk, whole and unthrottled: a run's evidence is read from it afterwards.
PROVISION = """\
set -eu
mkdir -p /etc/systemd/journald.conf.d /etc/ssh/sshd_config.d /var/log/journal
cat > /etc/systemd/journald.conf.d/bench.conf <<'EOF'
[Journal]
Storage=persistent
SystemMaxUse=2G
SystemMaxFileSize=64M
RateLimitIntervalSec=0
RateLimitBurst=0
ForwardToSyslog=no
ForwardToWall=no
EOF
cat > /etc/ssh/sshd_config.d/bench.conf <<'EOF'
PermitRootLogin prohibit-password
PasswordAuthentication no
UseDNS no
MaxStartups 200:30:400
MaxSessions 200
HostKey /etc/ssh/ssh_host_ed25519_key
EOF
systemctl mask getty.target console-getty.service systemd-logind.service systemd-udevd.service \
  systemd-udev-trigger.service systemd-modules-load.service sys-kernel-debug.mount sys-kernel-tracing.mount \
  sys-kernel-config.mount sys-fs-fuse-connections.mount dev-hugepages.mount dev-mqueue.mount \
  apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
  systemd-networkd-wait-online.service >/dev/null 2>&1
systemctl enable ssh.service >/dev/null 2>&1
systemctl set-default multi-user.target >/dev/null 2>&1
mkdir -p -m 700 /root/.ssh
rm -f /etc/ssh/ssh_host_* /var/lib/dbus/machine-id
: > /etc/machine-id
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /usr/share/man/* /usr/share/doc/*/changelog*
"""

INSTALL = """\
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -q install -y --no-install-recommends {packages}
apt-get -q clean
"""

CHANGES = ('CMD ["/sbin/init"]', "ENV container=docker")


def _state(recipe: Recipe) -> str:
    """Return the hash (12 hex digits) of everything that decides what is in the image."""
    content = json.dumps([recipe.suite, recipe.pinned, recipe.packages, PROVISION, INSTALL, CHANGES])
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def tag(recipe: Recipe) -> str:
    """Return the image's name and tag."""
    return f"{REPOSITORY}:{_state(recipe)}"


def _present(client: docker.DockerClient, name: str) -> str | None:
    with contextlib.suppress(ImageNotFound):
        return client.images.get(name).id
    return None


def _pull(engine: Engine, client: docker.DockerClient, pinned: str, progress: Progress) -> bool:
    """Say whether the pinned Debian image is there, pulling it where a registry answers soon."""
    if _present(client, pinned):
        return True
    quick = docker.DockerClient(base_url=engine.url, timeout=REGISTRY_TIMEOUT_S, version="auto")
    patient = docker.DockerClient(base_url=engine.url, timeout=PULL_STALL_S, version="auto")
    try:
        quick.images.get_registry_data(pinned)
        progress(f"pulling {pinned}")
        repository, pinned_tag = pinned.split(":")
        patient.images.pull(repository, tag=pinned_tag)
    except (DockerException, OSError):
        return False
    finally:
        quick.close()
        patient.close()
    return True


def _from_pinned(client: docker.DockerClient, recipe: Recipe, name: str, log: Path, progress: Progress) -> bool:
    """Make the image from the pinned one by installing the packages in it; say whether that worked."""
    progress("installing the hosts' packages")
    script = INSTALL.format(packages=" ".join(recipe.packages)) + PROVISION
    container = client.containers.create(recipe.pinned, ["/bin/sh", "-c", script], network_mode="host")
    try:
        container.start()
        status = container.wait(timeout=CALL_TIMEOUT_S)["StatusCode"]
        log.write_bytes(container.logs())
        if status != 0:
            return False
        repository, new_tag = name.split(":")
        container.commit(repository, new_tag, changes="\n".join(CHANGES))
        return True
    except (DockerException, OSError):
        return False
    finally:
        with contextlib.suppress(APIError):
            container.remove(force=True)


def _bootstrap(recipe: Recipe, tar: Path, log: Path, progress: Progress) -> None:
    """Write a Debian root file system to `tar` with mmdebstrap. Raises InfrastructureError when it cannot."""
    if shutil.which("mmdebstrap") is None:
        raise InfrastructureError(
            "no container registry answers and mmdebstrap is not installed, so the hosts' base image cannot be made; "
            "install mmdebstrap (`make setup` does as root)"
        )
    progress(f"making a Debian {recipe.suite} root file system with mmdebstrap")
    script = tar.with_suffix(".sh")
    script.write_text(PROVISION)
    partial = tar.with_suffix(".partial.tar")
    command = [
        "mmdebstrap",
        "--variant=minbase",
        f"--include={','.join(recipe.packages)}",
        '--aptopt=Acquire::Languages "none"',
        f'--customize-hook=chroot "$1" sh -s < "{script}"',
        recipe.suite,
        str(partial),
    ]
    mirror = os.environ.get(MIRROR_VARIABLE)
    try:
        with log.open("wb") as out:
            done = subprocess.run([*command, *([mirror] if mirror else [])], stdout=out, stderr=out)
        if done.returncode != 0:
            errors = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("E:")]
            raise InfrastructureError(
                f"the hosts' base image cannot be made: {errors[-1][2:].strip() if errors else 'mmdebstrap failed'} "
                f"(see {log})"
            )
        partial.rename(tar)
    finally:
        partial.unlink(missing_ok=True)
        script.unlink(missing_ok=True)


def _import(client: docker.DockerClient, tar: Path, name: str, progress: Progress) -> None:
    progress("importing the base image")
    repository, new_tag = name.split(":")
    answer = client.api.import_image_from_file(str(tar), repository=repository, tag=new_tag, changes=list(CHANGES))
    if '"error"' in str(answer):
        raise InfrastructureError(f"the base image cannot be imported: {str(answer)[:300]}")


def ensure(engine: Engine, recipe: Recipe, progress: Progress) -> str:
    """Return the id of `recipe`'s image in `engine`, making it where it is missing.

    The file system that mmdebstrap made stays in the cache, so that another engine, or one that was emptied, gets it in
    seconds. Raises InfrastructureError, in one sentence, when there is neither a registry nor a way to bootstrap.
    """
    name = tag(recipe)
    directory = paths.cache() / "bench"
    directory.mkdir(parents=True, exist_ok=True)
    client = engine.client()
    try:
        with (directory / "image.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = _present(client, name)
            if found:
                return found
            tar, log = directory / f"base-{_state(recipe)}.tar", directory / "image.log"
            made = False
            if not tar.exists():
                made = _pull(engine, client, recipe.pinned, progress) and _from_pinned(
                    client, recipe, name, log, progress
                )
                if not made:
                    _bootstrap(recipe, tar, log, progress)
            if not made:
                _import(client, tar, name, progress)
            found = _present(client, name)
    except DockerException as error:
        raise InfrastructureError(f"the base image cannot be made: {' '.join(str(error).split())[:300]}") from None
    finally:
        client.close()
    if found is None:
        raise InfrastructureError(f"the engine does not have {name} after its import")
    return found
