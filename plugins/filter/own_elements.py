"""Filters for elements of a product's XML that an inventory says in the product's own words. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from ansible_collections.brokerdrill.ha.plugins.plugin_utils import own_configuration
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.own_configuration import told_elsewhere

# Around elements to read them: what the files' roots declare.
_BEGIN = '<all xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
# Where each element may stand once.
_ONCE = ("ARTEMIS_CORE", "CLASSIC_BROKER")
_TYPES = ("anycast", "multicast")
# What of a queue stands in elements of its own; the rest are attributes.
_QUEUE_ELEMENTS = ("filter", "durable", "user")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(r"[A-Za-z_][\w.-]*")


def _read(text: str) -> Sequence[ElementTree.Element]:
    return list(ElementTree.fromstring(f"{_BEGIN}{text}</all>"))


def xml_names(text: str) -> list[str]:
    """Return the names of the elements in `text`, without namespaces; none where it is no XML."""
    try:
        return [str(one.tag).rpartition("}")[2] for one in _read(text)]
    except ElementTree.ParseError:
        return []


def xml_attribute_values(text: str, name: str) -> list[str]:
    """Return the values that the elements in `text` have of the attribute `name`; none where it is no XML."""
    try:
        return [value for one in _read(text) if (value := one.get(name)) is not None]
    except ElementTree.ParseError:
        return []


def xml_problems(text: str, variable: str, place: str | None = None) -> list[str]:
    """Return what keeps the elements in `text`, the value of `variable`, from standing in a file: no XML, text between
    elements, and, where `place` (a name of own_configuration's) says so, elements that other variables say."""
    try:
        whole = ElementTree.fromstring(f"{_BEGIN}{text}</all>")
    except ElementTree.ParseError as error:
        line, column = error.position
        shift = len(_BEGIN) if line == 1 else 0
        reason = re.sub(r": line \d+, column \d+$", "", str(error))
        return [f"{variable} is no XML: {reason}, line {line}, column {max(0, column - shift)} of it"]
    stray = next((part.strip() for part in (whole.text, *(one.tail for one in whole)) if part and part.strip()), None)
    found = [f"{variable} has text beside elements: {stray[:40]!r}"] if stray else []
    elements = getattr(own_configuration, place) if place else None
    if elements is not None:
        names = xml_names(text)
        found += [f"{variable} has {name} {names.count(name)} times" for name in _several(names) if place in _ONCE]
        found += [
            f"{variable} has {name}: {where}"
            for name in dict.fromkeys(names)
            if (where := told_elsewhere(elements, name))
        ]
    return found


def own_name_problems(names: Iterable[str], variable: str, place: str) -> list[str]:
    """Return a sentence for each of `names`, keys of `variable`, that other variables of the role say."""
    elements = getattr(own_configuration, place)
    return [f"{variable} has {name}: {where}" for name in names if (where := told_elsewhere(elements, str(name)))]


def secret_name_problems(secrets: Mapping[str, Any], variable: str, environment: bool) -> list[str]:
    """Return a sentence for each name of `secrets` that no ${NAME} can have: of an environment's variable, or of a
    property."""
    pattern, kind = (_VARIABLE, "variable of the environment") if environment else (_SECRET, "property")
    return [
        f"{variable} has {name!r}, which is no name of a {kind}" for name in secrets if not pattern.fullmatch(str(name))
    ]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def artemis_address_entries(addresses: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return Artemis' addresses for its file: {"name", "routings": [{"type", "queues": [{"attributes", "filter",
    "elements"}]}]}.

    A queue is a name, or a mapping of name, routing (by default the address's first), filter, durable, user and further
    attributes by the schema's names. An anycast address without queues has the one of its own name.
    """
    found = []
    for address in addresses:
        types = _types(address["routing"])
        given = address.get("queues")
        queues = [{"name": address["name"]}] if given is None and types[0] == "anycast" else given or []
        by_type: dict[str, list[dict[str, Any]]] = {name: [] for name in types}
        for queue in queues:
            said = {"name": queue} if isinstance(queue, str) else dict(queue)
            own = _queue_type(said.pop("routing", None), types)
            elements = {name: said.pop(name, None) for name in _QUEUE_ELEMENTS}
            by_type.setdefault(own, []).append(
                {
                    "attributes": {name: _text(value) for name, value in said.items() if value is not None},
                    "filter": elements.pop("filter"),
                    "elements": {name: _text(value) for name, value in elements.items() if value is not None},
                }
            )
        routings = [{"type": name, "queues": by_type[name]} for name in by_type]
        found.append({"name": address["name"], "routings": routings})
    return found


def _types(routing: Any) -> list[str]:
    """The routing types of an address: one, or several as a list or apart by commas."""
    parts = routing if isinstance(routing, list | tuple) else str(routing).split(",")
    return [_spelled(one) for one in parts]


def _queue_type(routing: Any, types: Sequence[str]) -> str:
    """The routing type of a queue: its own, or the first of its address's `types`."""
    return types[0] if routing is None else _spelled(routing)


def _spelled(routing: Any) -> str:
    return str(routing).strip().lower()


def artemis_main_routing(address: Mapping[str, Any]) -> str:
    """Return the routing of an address as a descriptor says it: of both types anycast."""
    types = _types(address["routing"])
    return "anycast" if "anycast" in types else types[0]


def artemis_queue_names(addresses: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of all queues that addresses list, one as often as it is there."""
    return [
        str(queue if isinstance(queue, str) else queue.get("name", ""))
        for address in addresses
        for queue in address.get("queues") or []
    ]


def artemis_address_problems(addresses: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what the broker would take of addresses without a word: one that is there twice, a queue of several
    addresses (a queue's name is the broker's), another routing type."""
    found = []
    names = [str(address["name"]) for address in addresses]
    found += [f"artemis_addresses has {name!r} {names.count(name)} times" for name in _several(names)]
    owners: dict[str, list[str]] = {}
    for address in addresses:
        types = _types(address["routing"])
        queues = address.get("queues") or []
        types += [_queue_type(queue.get("routing"), types) for queue in queues if not isinstance(queue, str)]
        found += [
            f"address {address['name']!r} has the routing {one!r}: there are {' and '.join(_TYPES)}"
            for one in dict.fromkeys(types)
            if one not in _TYPES
        ]
        if any(not isinstance(queue, str) and not queue.get("name") for queue in queues):
            found.append(f"address {address['name']!r} has a queue without a name")
        made = (
            [str(address["name"])]
            if address.get("queues") is None and _types(address["routing"])[0] == "anycast"
            else []
        )
        for name in [*artemis_queue_names([address]), *made]:
            owners.setdefault(name, []).append(str(address["name"]))
    found += [
        f"queue {name!r} is there {len(places)} times ({', '.join(dict.fromkeys(places))}): a queue's name is unique "
        "in a broker"
        for name, places in owners.items()
        if name and len(places) > 1
    ]
    return found


def _several(names: Sequence[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if names.count(name) > 1]


def jaas_text(text: Any) -> str:
    """Return `text` as a value in a file of JAAS, between double quotes."""
    return '"' + re.sub(r'(["\\])', r"\\\1", _text(text)) + '"'


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "artemis_address_entries": artemis_address_entries,
            "artemis_address_problems": artemis_address_problems,
            "artemis_queue_names": artemis_queue_names,
            "jaas_text": jaas_text,
            "own_name_problems": own_name_problems,
            "secret_name_problems": secret_name_problems,
            "xml_attribute_values": xml_attribute_values,
            "xml_names": xml_names,
            "xml_problems": xml_problems,
        }
