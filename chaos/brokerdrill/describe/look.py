"""Looks at the hosts for brokers, and leaves the descriptors there."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from brokerdrill.base.errors import InfrastructureError, UsageError, unknown_name
from brokerdrill.describe import activemq_classic, artemis, rabbitmq
from brokerdrill.describe.found import CREDENTIALS, DescribeOptions, Found, with_drill_addresses
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.inventory.descriptors import DIRECTORY


class Describer(Protocol):
    """A module of this package that knows one product: its name, and what is in the command line of its brokers."""

    PRODUCT: str
    MARKER: str
    # What they are asked by their own tools, as /bin/sh takes it.
    COMMANDS: Sequence[str]

    def paths(self, found: Found) -> list[str]:
        """Return the files that `describe` reads."""
        ...

    def describe(self, found: Found, options: DescribeOptions) -> dict[str, Any]:
        """Return the descriptor. Raises UsageError with what cannot be known."""
        ...

    def joined(self, descriptors: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the descriptors of all brokers, which now know of each other."""
        ...


DESCRIBERS: Mapping[str, Describer] = {module.PRODUCT: module for module in (artemis, activemq_classic, rabbitmq)}

_ON_HOST = (Path(__file__).parent / "on_host.py").read_text()
# A broker's own tools start slowly.
ASK_S = 60
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def describer(product: str) -> Describer:
    """Return what describes `product`. Raises UsageError with the nearest name."""
    if product not in DESCRIBERS:
        raise unknown_name("product that can be described", product, DESCRIBERS)
    return DESCRIBERS[product]


def seconds(span: str) -> float:
    """Return a span as systemd shows it (`100ms`, `1min 30s`) in seconds; what it does not say counts as 0."""
    total = 0.0
    for part in span.split():
        number = part.rstrip("abcdefghijklmnopqrstuvwxyz")
        total += float(number) * _SECONDS.get(part[len(number) :], 0) if number else 0
    return total


def chosen(units: Sequence[Mapping[str, Any]], host: str, unit: str | None) -> Mapping[str, Any]:
    """Return the broker's unit among those of `host`: the only one, or the one that is asked for. Raises UsageError
    where that leaves none, or several."""
    names = [str(one["unit"]) for one in units]
    if unit is not None:
        name = unit if "." in unit else f"{unit}.service"
        if name not in names:
            raise UsageError(f"host {host}: no broker runs as {name} there (there runs {', '.join(names) or 'none'})")
        return units[names.index(name)]
    if len(names) != 1:
        many = (
            f"{', '.join(names)} are brokers: say by --unit which is meant" if names else "no broker runs as a service"
        )
        raise UsageError(f"host {host}: {many}")
    return units[0]


async def _found_there(connection: HostConnection, what: str, argument: str) -> Any:
    """Return what `on_host` finds there."""
    words = f"python3 - {what} {shlex.quote(argument)}"
    return json.loads((await connection.sh(words, stdin=_ON_HOST, timeout=ASK_S, check=True)).out)


async def look(connection: HostConnection, kind: Describer, unit: str | None) -> Found:
    """Return what the host says of the broker that runs there. Raises UsageError (`chosen`), InfrastructureError."""
    shown = await _found_there(connection, "units", kind.MARKER)
    one = chosen(shown, connection.name, unit)
    found = Found(
        host=connection.name,
        address=connection.host.address,
        unit=str(one["unit"]),
        restart_s=seconds(str(one["restart"])),
        command=tuple(one["command"]),
    )
    texts = await _found_there(connection, "texts", json.dumps([kind.paths(found), list(kind.COMMANDS)]))
    return replace(found, files=texts)


async def describe(
    connections: Mapping[str, HostConnection], product: str, unit: str | None, options: DescribeOptions
) -> list[dict[str, Any]]:
    """Return the descriptors of the brokers of `product` on these hosts, one a host. Raises UsageError with what
    cannot be known, InfrastructureError where a host cannot be asked."""
    kind = describer(product)
    found = await asyncio.gather(*(look(connections[name], kind, unit) for name in sorted(connections)))
    described = [with_drill_addresses(kind.describe(one, options), options.drill_addresses) for one in found]
    return kind.joined(described)


async def leave(
    connections: Mapping[str, HostConnection], descriptors: Sequence[Mapping[str, Any]], credentials: Mapping[str, str]
) -> list[str]:
    """Write each descriptor, and beside it the credentials, on its host; return the files. Raises InfrastructureError
    where a host has another descriptor of that name that this command did not leave."""
    written = []
    for one in descriptors:
        connection = connections[one["host"]]
        path = f"{DIRECTORY}/{one['instance']}.json"
        for target, mode, content in (
            (path, "0644", {**one, "described": True}),
            (CREDENTIALS.format(instance=one["instance"]), "0600", dict(credentials)),
        ):
            text = json.dumps(content, indent=4) + "\n"
            script = _LEAVE.format(
                path=shlex.quote(target), mode=mode, folder=shlex.quote(str(PurePosixPath(target).parent))
            )
            result = await connection.sh(script, stdin=text)
            if result.rc != 0:
                raise InfrastructureError(
                    f"host {connection.name}: {target}: {result.err.strip() or 'cannot be written'}"
                )
            written.append(f"{connection.name}:{target}")
    return written


# A role's own descriptor is not replaced.
_LEAVE = """
set -eu
case {path} in
  *.credentials.json) ;;
  *) if [ -e {path} ] && ! grep -q '"described": true' {path}; then echo "a role has left one there" >&2; exit 1; fi ;;
esac
mkdir -p {folder}
umask 077
cat > {path}.new
chmod {mode} {path}.new
mv {path}.new {path}
"""
