"""Descriptors: what really runs on each host, as the roles left it in /etc/brokerdrill/INSTANCE.json.

Brokers that something else deployed can be drilled too, once such a file is written for them; its shape is told in
docs/adding-a-product.md.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from brokerdrill.errors import InfrastructureError
from brokerdrill.hosts import HostConnection

DIRECTORY = "/etc/brokerdrill"
SCHEMA = 1


class Listener(BaseModel):
    """A port that the instance accepts connections on, at the address it advertises."""

    name: str
    address: str
    port: int
    protocol: str
    tls: bool = False


class Dial(BaseModel):
    """A connection that the instance opens itself: `link` says what for, `to` names the instance it reaches."""

    link: str
    to: str
    address: str
    port: int


class Address(BaseModel):
    """A queue or topic that exists before the load."""

    name: str
    routing: str = "anycast"
    dead_letter: str | None = None


class Descriptor(BaseModel):
    """One instance as it was deployed. Product-specific values stay in `settings` and the extra fields."""

    model_config = ConfigDict(extra="allow")

    schema_version: int = Field(alias="schema")
    product: str
    instance: str
    host: str
    version: str = ""
    unit: str | None = None
    role: str | None = None
    store: str | None = None
    listeners: list[Listener] = []
    dials: list[Dial] = []
    management: dict[str, Any] | None = None
    credentials: dict[str, str] | None = None
    tls: dict[str, str] | None = None
    addresses: list[Address] = []
    settings: dict[str, Any] = {}

    def extra(self, name: str) -> Any:
        """Return a product's own field, or None."""
        return (self.model_extra or {}).get(name)


def parse(host: str, files: Mapping[str, str]) -> list[Descriptor]:
    """Return the descriptors in `files` (path to text) of `host`. Raises InfrastructureError naming file and field."""
    found = []
    for path, text in sorted(files.items()):
        try:
            descriptor = Descriptor.model_validate({"host": host, **json.loads(text)})
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise InfrastructureError(f"host {host}: {path}: field {where}: {first['msg']}") from None
        except (ValueError, TypeError) as error:
            raise InfrastructureError(f"host {host}: {path} is not a JSON object: {error}") from None
        if descriptor.schema_version > SCHEMA:
            raise InfrastructureError(
                f"host {host}: {path} has schema {descriptor.schema_version}; this brokerdrill knows up to {SCHEMA}"
            )
        found.append(descriptor)
    return found


_READ_ALL = f"""
python3 - <<'PY'
import glob, json
files = [p for p in glob.glob("{DIRECTORY}/*.json") if not p.endswith(".credentials.json")]
print(json.dumps({{p: open(p).read() for p in files}}))
PY
"""


async def read_all(connections: Iterable[HostConnection]) -> list[Descriptor]:
    """Read the descriptors of all hosts. Raises InfrastructureError where two instances have one name."""

    async def of(connection: HostConnection) -> list[Descriptor]:
        result = await connection.sh(_READ_ALL, check=True)
        return parse(connection.name, json.loads(result.out))

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
    path = descriptor.credentials["file"]
    result = await connection.sh(f"cat -- '{path}'", check=True)
    try:
        content = json.loads(result.out)
        return {"username": content["username"], "password": content["password"]}
    except (ValueError, KeyError, TypeError):
        raise InfrastructureError(f"host {connection.name}: {path} holds no username and password") from None
