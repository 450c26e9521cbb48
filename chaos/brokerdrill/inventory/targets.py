"""Targets: what a scenario's words (`active`, `one of zookeeper`, `link load→active`) mean at this moment.

Pure: a Scene holds the descriptors and the live roles; the answer names instances and links, and is recorded.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from brokerdrill.base.errors import InfrastructureError, UsageError, unknown_name
from brokerdrill.inventory.descriptors import TOOLS, Descriptor, ToxiproxyDescriptor
from brokerdrill.ledger.contract import PROTOCOLS

_LINK = re.compile(r"^link\s+(.+?)\s*(?:(?P<both>↔|<->)|→|->)\s*(.+)$")
_BOTH = "↔"
_SOME = re.compile(r"^(one|first|majority|all|active|passive) of (\S+)(?: but (\S+))?$")
# The instances of a group on the hosts of what these words mean.
_BESIDE = re.compile(r"^(\S+) beside (\S+|(?:active|passive) of \S+)$")
_WORDS = ("active", "passive", "primary", "backup", "router", "reached")


@dataclass(frozen=True)
class Link:
    """A directed connection: host `dialler` dials `address`:`port`, where `instance` listens."""

    name: str
    dialler: str
    address: str
    port: int
    instance: str
    # What its connections can be led through on the dialling host, None where that has none.
    toxiproxy: ToxiproxyDescriptor | None = None
    # The dialling instance's own control command, None where there is none.
    control: str | None = None
    # The instance that dials.
    caller: str = ""


@dataclass(frozen=True)
class Target:
    """What a target's words came to mean: instances for a process, links for a connection; never both empty."""

    spec: str
    instances: tuple[Descriptor, ...] = ()
    links: tuple[Link, ...] = ()

    def describe(self) -> str:
        """The names of what is hit, for the journal and the report."""
        return ", ".join([item.instance for item in self.instances] + [link.name for link in self.links])


@dataclass(frozen=True)
class Scene:
    """All descriptors, the live role of each instance, the run's random choice, and how many producers' newest
    connections reached each instance."""

    descriptors: Sequence[Descriptor]
    roles: Mapping[str, str]
    rng: random.Random
    reached: Mapping[str, int] = field(default_factory=dict)

    def products(self) -> set[str]:
        return {item.product for item in self.descriptors}

    def toxiproxy(self, host: str) -> ToxiproxyDescriptor | None:
        """The toxiproxy of that host, None where it has none."""
        return next((i for i in self.descriptors if isinstance(i, ToxiproxyDescriptor) and i.host == host), None)

    def instance(self, name: str) -> Descriptor | None:
        return next((item for item in self.descriptors if item.instance == name), None)


def is_link(spec: str) -> bool:
    """Whether a well-formed target is a link, not instances."""
    return _LINK.match(spec) is not None


def is_drawn(spec: str) -> bool:
    """Whether a well-formed target means some of several instances, drawn anew each time that it is resolved."""
    link = _LINK.match(spec)
    parts = (link[1], link[3]) if link else (spec,)
    return any((some := _SOME.match(part.strip())) and some[1] in ("one", "majority") for part in parts)


def validate_spec(spec: str) -> None:
    """Raise UsageError unless `spec` is a well-formed target; what it names is checked when it is resolved."""
    link = _LINK.match(spec)
    if spec.startswith("link") and not link:
        raise UsageError(f"target {spec!r}: a link is written `link FROM→TO`, both ways `link ONE↔OTHER`")
    for part in (link[1], link[3]) if link else (spec,):
        if " " in part.strip() and not _SOME.match(part.strip()) and not _BESIDE.match(part.strip()):
            raise UsageError(
                f"target {spec!r}: {part!r} is no target; write active, passive, an instance, `one of GROUP`, "
                "`all of GROUP but GROUP`, or `GROUP beside active`"
            )


def serves_clients(item: Descriptor) -> bool:
    """Whether it is a broker: a database of theirs is active or passive, too."""
    return any(listener.protocol in PROTOCOLS for listener in item.listeners)


def leads_clients(item: Descriptor) -> bool:
    """Whether it leads clients to other instances."""
    return any(listener.router for listener in item.listeners)


def _only(scene: Scene, words: str, found: list[Descriptor]) -> list[Descriptor]:
    if len(found) != 1:
        roles = ", ".join(f"{name} is {role}" for name, role in sorted(scene.roles.items()))
        raise InfrastructureError(f"target {words!r} fits {len(found)} instances, not one ({roles})")
    return found


def _serving(scene: Scene, role: str) -> list[Descriptor]:
    """The brokers that have that role for a store."""
    return [
        item
        for item in scene.descriptors
        if item.store and scene.roles.get(item.instance) == role and serves_clients(item)
    ]


def _members(scene: Scene, group: str) -> list[Descriptor]:
    """The instances of a product or store, or with a feature, by name. Raises UsageError where there is none."""
    found = [item for item in scene.descriptors if group in (item.product, item.store, *item.features)]
    if not found:
        raise unknown_name("product or store", group, scene.products())
    return sorted(found, key=lambda item: item.instance)


def _instances(scene: Scene, words: str) -> list[Descriptor]:
    if some := _SOME.match(words):
        members = _members(scene, some[2])
        if some[3]:
            left_out = _members(scene, some[3])
            members = [item for item in members if item not in left_out]
            if not members:
                raise InfrastructureError(f"target {words!r} fits no instance")
        if some[1] in ("active", "passive"):
            found = [item for item in members if scene.roles.get(item.instance) == some[1]]
            return _only(scene, words, found)
        if some[1] == "first":
            # By name: the same one each time, for steps that are to hit what an earlier one cut off.
            return members[:1]
        count: Callable[[int], int] = {"one": lambda _: 1, "majority": lambda n: n // 2 + 1, "all": lambda n: n}[
            some[1]
        ]
        return sorted(scene.rng.sample(members, count(len(members))), key=lambda item: item.instance)
    if beside := _BESIDE.match(words):
        hosts = {item.host for item in _instances(scene, beside[2])}
        found = [item for item in _members(scene, beside[1]) if item.host in hosts]
        if not found:
            raise InfrastructureError(f"target {words!r} fits no instance")
        return found
    if words in ("active", "passive"):
        return _only(scene, words, _serving(scene, words))
    if words == "reached":
        # The broker that most producers are at; any that serves while none is at one.
        serving = sorted(_serving(scene, "active"), key=lambda item: item.instance)
        most = max((scene.reached.get(item.instance, 0) for item in serving), default=0)
        found = [item for item in serving if scene.reached.get(item.instance, 0) == most]
        return scene.rng.sample(found, 1) if found else _only(scene, words, found)
    if words in ("primary", "backup"):
        return [item for item in scene.descriptors if item.role == words]
    if words == "router":
        # The one that clients ask who ask one only.
        return sorted(filter(leads_clients, scene.descriptors), key=lambda item: item.instance)[:1]
    if exact := scene.instance(words):
        return [exact]
    return [item for item in scene.descriptors if words in (item.product, item.host, *item.features)]


def of_store(spec: str, store: str) -> str:
    """Return `spec` with the words active and passive said of `store` alone."""

    def one(part: str) -> str:
        return f"{part} of {store}" if re.search(r"^(\S+ beside )?(active|passive)$", part) else part

    if link := _LINK.match(spec):
        return f"link {one(link[1].strip())}{_BOTH if link['both'] else '→'}{one(link[3].strip())}"
    return one(spec.strip())


def resolve(scene: Scene, spec: str) -> Target:
    """Resolve `spec` against the scene.

    Raises InfrastructureError when no instance fits at this moment, UsageError when the words name nothing there is.
    """
    validate_spec(spec)
    if link := _LINK.match(spec):
        ends = link[1].strip(), link[3].strip()
        diallers, servers = (_instances(scene, end) for end in ends)
        if not diallers or not servers:
            missing = ends[0] if not diallers else ends[1]
            raise unknown_name("target", missing, {item.instance for item in scene.descriptors} | scene.products())
        pairs = [(dialler, server) for dialler in diallers for server in servers]
        if link["both"]:
            # The same ones, however they were chosen; each pair once.
            pairs += [(server, dialler) for dialler, server in pairs if (server, dialler) not in pairs]
        links = tuple(found for dialler, server in pairs for found in _links(scene, dialler, server))
        if not links:
            raise InfrastructureError(f"target {spec!r}: {ends[0]} does not dial {ends[1]}")
        return Target(spec, links=links)
    instances = tuple(_instances(scene, spec.strip()))
    if not instances:
        known = {item.instance for item in scene.descriptors} | scene.products() | set(_WORDS)
        raise unknown_name("target", spec, known)
    return Target(spec, instances=instances)


def served_by(descriptors: Sequence[Descriptor], hit: Target, spec: str) -> Target:
    """Return, as what the words `spec` mean, the instances that `hit` is about: with links, those that they lead to."""
    names = {item.instance for item in hit.instances} | {link.instance for link in hit.links}
    return Target(spec, instances=tuple(item for item in descriptors if item.instance in names))


def with_neighbours(descriptors: Sequence[Descriptor], hit: Target) -> Target:
    """Return `hit` with all else that runs on the hosts of its instances and serves somebody: drills' own tools do
    not."""
    hosts, names = ({getattr(item, what) for item in hit.instances} for what in ("host", "instance"))
    more = (item for item in descriptors if item.host in hosts and item.instance not in names)
    return replace(hit, instances=(*hit.instances, *(item for item in more if item.product not in TOOLS)))


def _links(scene: Scene, dialler: Descriptor, server: Descriptor) -> list[Link]:
    """The connections from one instance to another: a load host dials clients' listeners, others what they say."""
    name = f"{dialler.instance}→{server.instance}"
    if dialler.instance == server.instance:
        return []
    if dialler.product == "load":
        ends = {(item.address, item.port) for item in server.listeners if item.protocol in PROTOCOLS and item.clients}
    else:
        ends = {(dial.address, dial.port) for dial in dialler.dials if dial.to == server.instance}
    several = len(ends) > 1
    proxy = scene.toxiproxy(dialler.host)
    return [
        Link(
            f"{name}:{port}" if several else name,
            dialler.host,
            address,
            port,
            server.instance,
            proxy,
            dialler.control,
            dialler.instance,
        )
        for address, port in sorted(ends)
    ]
