"""Descriptors: what really runs on each host, as the roles left it in /etc/brokerdrill/INSTANCE.json.

Only the models are here; `hosts/descriptors.py` reads them over SSH. A product's own model is in its module of
`products/`. Brokers that something else deployed can be drilled too, once such a file is written for them; its shape is
described in docs/adding-a-product.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from brokerdrill.base.errors import InfrastructureError

DIRECTORY = "/etc/brokerdrill"
SCHEMA = 1


class Part(BaseModel):
    """A part of a descriptor. Fields that this version does not know are left out."""

    model_config = ConfigDict(frozen=True)


class Endpoint(Part):
    """An address and a port."""

    address: str
    port: int = Field(ge=1, le=65535)

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


class Listener(Endpoint):
    """A port that the instance accepts connections on, at the address it advertises."""

    name: str
    protocol: str
    tls: bool = False
    # Whether the drills' clients dial it; not where they reach the instance through another system.
    clients: bool = True
    # What leads its clients to another instance, what of their connection is their key (`routers` of the instance), and
    # the expression whose first match in it is what counts; no match counts as no key.
    router: str | None = None
    key: str | None = None
    key_filter: str | None = None
    # Whether it hands connections on as they are: who serves one shows by its certificate alone.
    relays: bool = False


class Dial(Endpoint):
    """A connection that the instance opens itself: `link` says what for, `to` names the instance it reaches."""

    link: str
    to: str


class Address(Part):
    """A queue or topic that exists before the load. `drill`: it is a drill's, which may send to it, take from it and
    empty it; drills leave alone what does not say so."""

    name: str
    routing: str = "anycast"
    dead_letter: str | None = None
    drill: bool = False


class ManagementAccess(Part):
    """Where the instance is managed, and by which interface (`jolokia`, `patroni`, …)."""

    type: str = ""
    url: str


class JolokiaManagement(ManagementAccess):
    """A broker in Java: its name is part of the names of its management beans."""

    broker_name: str


class Credentials(Part):
    """The file on the host with `username` and `password` of the drill's user."""

    file: str


class Tls(Part):
    """Files on the host: the authority that the instance's peers trust, and its own key and certificate."""

    ca: str
    bundle: str | None = None


class Settings(Part):
    """What the deployment set, by name; a name that ends in `_ms` or `_s` says the value's unit."""

    model_config = ConfigDict(frozen=True, extra="allow")

    def items(self) -> list[tuple[str, Any]]:
        """Return each setting that the descriptor says, with its value."""
        return [(name, value) for name, value in self if value is not None]


class Descriptor(Part):
    """One instance as it was deployed: what every product says of itself."""

    schema_version: int = Field(alias="schema")
    product: str
    instance: str
    host: str
    version: str = ""
    unit: str | None = None
    role: str | None = None
    store: str | None = None
    # Where its lines go; None: it shares a process and a log with another instance, so that no line is surely its own.
    log: Literal["journal"] | None = "journal"
    data_dir: str | None = None
    # The service's own control command, and the arguments that always go with it.
    control: str | None = None
    listeners: list[Listener] = []
    dials: list[Dial] = []
    management: ManagementAccess | None = None
    credentials: Credentials | None = None
    tls: Tls | None = None
    addresses: list[Address] = []
    # Commands by name; what each prints is kept when a run ends.
    evidence: dict[str, str] = {}
    settings: Settings = Settings()
    # What drills ask for in their `needs`: words of the scenarios' facts.
    features: list[str] = []


class LoadDescriptor(Descriptor):
    """A host that clients run on: the programs and folders of the role `load`."""

    python: str
    pythonpath: str
    java_home: str
    jars: dict[str, str] = Field(description="the folder of each client protocol's jars")
    spool_dir: str


class ToxiproxyDescriptor(Descriptor):
    """The toxiproxy of a host: the user whose own connections pass no proxy, and its API."""

    user: str
    api: Endpoint


class PrometheusDescriptor(Descriptor):
    """A Prometheus that watches the brokers."""

    @property
    def api(self) -> Endpoint:
        """Where its host reaches its API. Raises InfrastructureError where its descriptor does not say it."""
        for item in self.listeners:
            if item.name == "http":
                return Endpoint(address=item.address, port=item.port)
        raise InfrastructureError(f"instance {self.instance}: its descriptor names no listener http")


M = TypeVar("M", bound=ManagementAccess)


def management(descriptor: Descriptor, kind: type[M]) -> M:
    """Return how the instance is managed. Raises InfrastructureError where its descriptor says nothing of that kind."""
    if not isinstance(descriptor.management, kind):
        raise InfrastructureError(f"instance {descriptor.instance}: its descriptor's `management` is not complete")
    return descriptor.management


def control(descriptor: Descriptor) -> str:
    """Return the instance's control command. Raises InfrastructureError where its descriptor says none."""
    if descriptor.control is None:
        raise InfrastructureError(f"instance {descriptor.instance}: its descriptor says no `control` command")
    return descriptor.control


# The models of those systems that no product's module describes.
TOOLS: Mapping[str, type[Descriptor]] = {
    "load": LoadDescriptor,
    "prometheus": PrometheusDescriptor,
    "toxiproxy": ToxiproxyDescriptor,
}


def parse(host: str, files: Mapping[str, str], models: Mapping[str, type[Descriptor]]) -> list[Descriptor]:
    """Return the descriptors in `files` (path to text) of `host`, each by the model of its product in `models`, else by
    the common one. Raises InfrastructureError naming file and field."""
    found = []
    for path, text in sorted(files.items()):
        try:
            values = {"host": host, **json.loads(text)}
            model = models.get(str(values.get("product")), Descriptor)
            descriptor = model.model_validate(values)
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
