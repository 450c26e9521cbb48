"""Reads descriptors and credentials from the hosts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.inventory.descriptors import DIRECTORY, Descriptor, parse

_READ_ALL = f"""
python3 - <<'PY'
import glob, json
files = [p for p in glob.glob("{DIRECTORY}/*.json") if not p.endswith(".credentials.json")]
print(json.dumps({{p: open(p).read() for p in files}}))
PY
"""


async def read_all(connections: Iterable[HostConnection], models: Mapping[str, type[Descriptor]]) -> list[Descriptor]:
    """Read the descriptors of all hosts, each by its product's model. Raises InfrastructureError where one cannot be
    read, or two instances have one name."""

    async def of(connection: HostConnection) -> list[Descriptor]:
        result = await connection.sh(_READ_ALL, check=True)
        return parse(connection.name, json.loads(result.out), models)

    found = [item for each in await asyncio.gather(*map(of, connections)) for item in each]
    names: dict[str, str] = {}
    for descriptor in found:
        if descriptor.instance in names:
            both = f"{names[descriptor.instance]} and {descriptor.host}"
            raise InfrastructureError(f"two descriptors name one instance {descriptor.instance!r}: on {both}")
        names[descriptor.instance] = descriptor.host
    return found


async def read_credentials(connection: HostConnection, descriptor: Descriptor) -> dict[str, str]:
    """Return {"username", "password"} of the drill user on that instance. Raises InfrastructureError without them."""
    if not descriptor.credentials:
        raise InfrastructureError(f"instance {descriptor.instance}: its descriptor names no credentials file")
    path = descriptor.credentials.file
    result = await connection.sh(f"cat -- '{path}'", check=True)
    try:
        content = json.loads(result.out)
        return {"username": content["username"], "password": content["password"]}
    except (ValueError, KeyError, TypeError):
        raise InfrastructureError(f"host {connection.name}: {path} holds no username and password") from None
