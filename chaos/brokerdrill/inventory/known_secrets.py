"""What is known of a topology's secrets: what its inventory says, and what was made for it on this controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from brokerdrill.base import paths
from brokerdrill.base.known_secrets import secret_values
from brokerdrill.inventory.topology import Topology

# The roles' `common_secrets_dir` has files of other kinds as well; keys in PEM are recognised by their form.
SUFFIXES = (".password", ".cookie", ".salt")


def known_secrets(topology: Topology) -> set[str]:
    """Return the secrets; none that is also the name of a host, a group or a user of SSH, which stays readable."""
    found = set(secret_values(topology.vars))
    names: set[str] = set()
    for host in topology.hosts:
        found.update(secret_values(host.vars))
        found.update(password for password in (host.become_password, host.password) if password)
        names.update((host.name, host.address, host.user, *host.groups))
    return (found | set(_made(topology))) - names


def _made(topology: Topology) -> Iterator[str]:
    """Yield what the roles made: in the directory of the inventory's name, or the one that it gives itself."""
    own = topology.vars.get("common_inventory_name", topology.folder.name)
    # A bench's name for it is a template in bench/group_vars.
    for name in {str(own), topology.folder.name, f"bench-{topology.name}"}:
        folder: Path = paths.state() / "secrets" / name
        for path in sorted(folder.glob("*")) if "/" not in name else ():
            if path.suffix in SUFFIXES:
                try:
                    yield path.read_text(encoding="utf-8").strip()
                except (OSError, UnicodeDecodeError):  # another user's: its hosts' files may still say it
                    continue
