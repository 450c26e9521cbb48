"""Inventories for a few machines: which shipped topology fits onto so many, what each carries, and why.

Pure, but for the shipped files that a layout starts from: its group variables are the topology's own, its hosts the
user's.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from brokerdrill.base.errors import UsageError, unknown_name

STORE = "shared_store_path"
_NAME = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$")
_HOST = re.compile(r"(?<=: )\w+$", re.MULTILINE)
_STORE_LINE = re.compile(rf"^{STORE}: .*$", re.MULTILINE)


@dataclass(frozen=True)
class Machine:
    """One machine as the user names it: its name in the inventory, and the address by which all reach it."""

    name: str
    address: str


@dataclass(frozen=True)
class Layout:
    """How a shipped topology fits onto `machines`: its hosts by their names there → the place of the user's machine,
    from 0. A host of the topology without a place is left out. `why`: what was chosen, for the one who asked. `beside`:
    hosts that share a machine with others → the variable of the role that calls their instance otherwise than it.
    `drill`: one to begin with."""

    topology: str
    product: str
    places: Mapping[str, int]
    why: Sequence[str]
    shared_store: bool = False
    beside: Mapping[str, str] = field(default_factory=dict)
    drill: str = "kill_active"

    @property
    def machines(self) -> int:
        """How many machines it takes."""
        return 1 + max(self.places.values())


_QUORUM_WHY = (
    "The two brokers replicate to each other; three ZooKeeper servers decide which of them is active. Two machines "
    "alone cannot tell a dead partner from a cut link, and both would serve.",
)
_STORE_WHY = "The brokers share one directory, and the lock on it decides which of them is active."
_CLIENTS_WHY = "The clients of drills run on the last machine, so that no drill on a broker's machine ends them."
LAYOUTS = (
    Layout(
        "artemis_quorum",
        "artemis",
        {"artemis1": 0, "artemis2": 1, "load1": 2, "zk1": 0, "zk2": 1, "zk3": 2},
        (
            *_QUORUM_WHY,
            "Each of the three machines runs one. The third runs no broker and may be small: it is the witness.",
            _CLIENTS_WHY,
        ),
        beside=dict.fromkeys(("zk1", "zk2", "zk3"), "zookeeper_instance"),
    ),
    Layout(
        "artemis_quorum",
        "artemis",
        {"artemis1": 0, "artemis2": 1, "zk1": 2, "zk2": 3, "zk3": 4, "load1": 5},
        (*_QUORUM_WHY, "They run on machines three to five, apart from the brokers.", _CLIENTS_WHY),
    ),
    Layout(
        "artemis_shared_store",
        "artemis",
        {"artemis1": 0, "artemis2": 1, "load1": 2},
        (_STORE_WHY, _CLIENTS_WHY),
        shared_store=True,
    ),
    Layout(
        "classic_shared_file",
        "activemq_classic",
        {"classic1": 0, "classic2": 1, "load1": 2},
        (_STORE_WHY, _CLIENTS_WHY),
        shared_store=True,
    ),
    Layout(
        "openmq_master",
        "openmq",
        {"openmq1": 0, "openmq2": 1, "openmq3": 2, "load1": 3},
        (
            "Three brokers in a conventional cluster, each with a store of its own: what waits at one that is away "
            "comes when it is back. The first one keeps the record of configuration changes.",
            _CLIENTS_WHY,
        ),
        drill="kill_broker",
    ),
)


def machine(text: str, number: int) -> Machine:
    """Return the machine of `NAME=ADDRESS`, `NAME` or `ADDRESS`; without a name it is `hostN`. Raises UsageError."""
    name, _, address = text.partition("=")
    if not address:
        try:
            address, name = str(ipaddress.ip_address(text)), f"host{number}"
        except ValueError:
            # A name that DNS knows: all of it is the address.
            name, address = re.split(r"[.:]", text)[0], text
    if not _NAME.match(name) or not re.match(r"^[A-Za-z0-9.:-]+$", address):
        raise UsageError(f"{text!r} is no machine: write NAME=ADDRESS, a name or an address")
    if re.match(r"^[0-9.]+$", address) or ":" in address:
        try:
            ipaddress.ip_address(address)
        except ValueError:
            port = "; SSH's port is `ansible_port` in the inventory" if ":" in address else ""
            raise UsageError(f"{text!r} is no machine: {address} is no address{port}") from None
    return Machine(name, address)


def machines(texts: Sequence[str]) -> list[Machine]:
    """Return the machines of `texts`, in their order. Raises UsageError where one is none or is named twice."""
    found = [machine(text, number) for number, text in enumerate(texts, 1)]
    for what in ("name", "address"):
        given = [getattr(one, what) for one in found]
        if twice := next((one for one in given if given.count(one) > 1), None):
            raise UsageError(f"two machines have the {what} {twice}")
    for one in found:
        if one.address == "localhost" or one.address.startswith("127."):
            raise UsageError(f"{one.name}: the others cannot reach {one.address}; write the address that they use")
    return found


def choose(product: str, count: int, shared_store: bool) -> Layout:
    """Return the layout of `product` for so many machines, on a directory that brokers share or not. Raises UsageError,
    which names what fits."""
    products = list(dict.fromkeys(one.product for one in LAYOUTS))
    if product not in products:
        raise unknown_name("product that `init` lays out", product, products)
    possible = [one for one in LAYOUTS if one.product == product]
    for one in possible:
        if (one.machines, one.shared_store) == (count, shared_store):
            return one
    fits = " or ".join(
        f"{one.machines} machines{' and --shared-store' if one.shared_store else ''} ({one.topology})"
        for one in possible
    )
    more = ""
    if product == "artemis" and count == 2:
        more = (
            ". Two machines alone cannot tell a dead partner from a cut link: add a third, small one, which becomes "
            "the witness, or a directory that both share and a third for the clients"
        )
    raise UsageError(
        f"{product} is laid out on {fits}, and not on {count}{' with --shared-store' * shared_store}{more}"
    )


# What Ansible takes for a template wherever it stands.
_TEMPLATE = re.compile(r"\{\{|\{%|\{#")


@dataclass(frozen=True)
class Answers:
    """What an inventory needs besides its machines: the login, whether drills may break these hosts, and the directory
    that the brokers share ("" where they share none)."""

    user: str = ""
    drills: bool = False
    store: str = ""


def _check(answers: Answers) -> None:
    """Raise UsageError where an answer is none: it would come back from a host, or from Ansible, as something else."""
    if not answers.user.isprintable() or re.search(r"\s", answers.user) or _TEMPLATE.search(answers.user):
        raise UsageError(f"{answers.user!r} is no login: it has white space, or what Ansible takes for a template")
    store = answers.store
    if not store:
        return
    if not store.startswith("/") or not store.strip("/"):
        raise UsageError(f"{store!r} is no absolute path of a directory that the brokers share")
    if not store.isprintable() or _TEMPLATE.search(store):
        raise UsageError(f"{store!r} is no path: it has what is not printed, or what Ansible takes for a template")


def written(layout: Layout, given: Sequence[Machine], answers: Answers, topology: Path) -> dict[str, str]:
    """Return the files of the inventory, by their paths in it: the hosts of the shipped `topology` (a directory) that
    have a place, as the machines `given`, and its group variables. Raises UsageError where the answers do not fit."""
    _check(answers)
    shipped = yaml.safe_load((topology / "hosts.yml").read_text(encoding="utf-8"))
    taken = {"all", "ungrouped", "localhost", *_groups(shipped["all"]["children"])}
    if odd := next((one.name for one in given if one.name in taken), None):
        raise UsageError(
            f"no machine may be called {odd}, which means something else in this inventory: write NAME=ADDRESS"
        )
    names = {host: given[place].name for host, place in layout.places.items()}
    own = {
        host: {variable: f"{variable.removesuffix('_instance')}-{names[host]}"}
        for host, variable in layout.beside.items()
    }
    groups = _renamed(shipped["all"]["children"], names, own)
    values: dict[str, Any] = {"ansible_user": answers.user} if answers.user else {}
    if answers.drills:
        values["drill_allowed"] = True
    inventory: dict[str, Any] = {"vars": values} if values else {}
    inventory["hosts"] = {one.name: {"ansible_host": one.address} for one in given}
    inventory["children"] = groups
    head = "".join(f"# {line}\n" for line in layout.why)
    text = re.sub(": null$", ":", yaml.safe_dump({"all": inventory}, sort_keys=False, width=120), flags=re.MULTILINE)
    files = {"hosts.yml": f"{head}# By `brokerdrill init`, from the topology {layout.topology}.\n{text}"}
    for path in sorted((topology / "group_vars").glob("*.yml")):
        # Some variables name a host.
        text = _HOST.sub(lambda found: names.get(found[0], found[0]), path.read_text(encoding="utf-8"))
        if answers.store:
            text = _STORE_LINE.sub(lambda _: yaml.safe_dump({STORE: answers.store}).strip(), text)
        files[f"group_vars/{path.name}"] = text
    return files


def _groups(children: Mapping[str, Any]) -> set[str]:
    """Return the names of all groups, those within others included."""
    within = [_groups((content or {}).get("children") or {}) for content in children.values()]
    return {*children, *itertools.chain.from_iterable(within)}


def _renamed(groups: Mapping[str, Any], names: Mapping[str, str], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return groups with their hosts by other names, and with variables of their `own` besides; hosts that have no name
    are left out, and groups that are empty then."""
    found: dict[str, Any] = {}
    for group, content in groups.items():
        content = content or {}
        hosts = {
            names[host]: {**(said or {}), **own.get(host, {})} or None
            for host, said in (content.get("hosts") or {}).items()
            if host in names
        }
        children = _renamed(content.get("children") or {}, names, own)
        # A group that is described elsewhere has nothing here.
        if hosts or children or not content:
            found[group] = {
                **({"hosts": hosts} if hosts else {}),
                **({"children": children} if children else {}),
            } or None
    return found
