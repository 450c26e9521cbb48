"""Looks at the hosts for brokers, and leaves the descriptors there."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Protocol

from brokerdrill.base.errors import InfrastructureError, UsageError, unknown_name
from brokerdrill.describe import activemq_classic, artemis, rabbitmq
from brokerdrill.describe.found import CREDENTIALS, Found, Options
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

    def describe(self, found: Found, options: Options) -> dict[str, Any]:
        """Return the descriptor. Raises UsageError with what cannot be known."""
        ...

    def joined(self, descriptors: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the descriptors of all brokers, which now know of each other."""
        ...


DESCRIBERS: Mapping[str, Describer] = {module.PRODUCT: module for module in (artemis, activemq_classic, rabbitmq)}

# The running services whose main process has the marker in its command line.
_UNITS = """
python3 - {marker} <<'PY'
import json, subprocess, sys
def said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
units = said("systemctl", "list-units", "--type=service", "--state=running", "--no-legend", "--plain").splitlines()
found = []
for unit in [line.split()[0] for line in units if line.split()]:
    shown = said("systemctl", "show", unit, "--property=MainPID,RestartUSec")
    told = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    try:
        words = open("/proc/%s/cmdline" % told["MainPID"], "rb").read().decode(errors="replace").split("\\0")
    except OSError:
        continue
    # Java reads more of its command line from files.
    for word in [word for word in words if word.startswith("@")]:
        try:
            words += open(word[1:]).read().split()
        except OSError:
            pass
    if any(sys.argv[1] in word for word in words):
        found.append({{"unit": unit, "restart": told.get("RestartUSec", ""), "command": words}})
print(json.dumps(found))
PY
"""
# The text of files, and what commands print; left out is what cannot be read, or fails.
_TEXTS = """
python3 - {asked} <<'PY'
import json, subprocess, sys
paths, commands = json.loads(sys.argv[1])
found = {{}}
for command in commands:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        found[command] = done.stdout
for path in paths:
    try:
        found[path] = open(path, encoding="utf-8").read()
    except (OSError, UnicodeDecodeError):
        pass
print(json.dumps(found))
PY
"""
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


async def look(connection: HostConnection, kind: Describer, unit: str | None) -> Found:
    """Return what the host tells of the broker that runs there. Raises UsageError (`chosen`), InfrastructureError."""
    shown = await connection.sh(_UNITS.format(marker=shlex.quote(kind.MARKER)), check=True)
    one = chosen(json.loads(shown.out), connection.name, unit)
    found = Found(
        host=connection.name,
        address=connection.host.address,
        unit=str(one["unit"]),
        restart_s=seconds(str(one["restart"])),
        command=tuple(one["command"]),
    )
    asked = shlex.quote(json.dumps([kind.paths(found), list(kind.COMMANDS)]))
    read = await connection.sh(_TEXTS.format(asked=asked), timeout=ASK_S, check=True)
    return Found(found.host, found.address, found.unit, found.restart_s, found.command, json.loads(read.out))


async def describe(
    connections: Mapping[str, HostConnection], product: str, unit: str | None, options: Options
) -> list[dict[str, Any]]:
    """Return the descriptors of the brokers of `product` on these hosts, one a host. Raises UsageError with what
    cannot be known, InfrastructureError where a host cannot be asked."""
    kind = describer(product)
    found = await asyncio.gather(*(look(connections[name], kind, unit) for name in sorted(connections)))
    return kind.joined([kind.describe(one, options) for one in found])


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
