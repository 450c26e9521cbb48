"""Filters of the role load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ROOT = "/opt/brokerdrill"


def _file_name(coordinate: str) -> tuple[str, str]:
    """Return the file name in a Maven repository and the version of group:artifact:version[:type[:classifier]]."""
    _group, artifact, version, kind, classifier = [*coordinate.split(":"), "", ""][:5]
    return f"{artifact}-{version}{'-' + classifier if classifier else ''}.{kind or 'jar'}", version


def load_clients(
    products: Sequence[Mapping[str, Any]],
    groups: Mapping[str, Sequence[str]],
    overrides: Mapping[str, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return what a load host needs for the clients of each product that the inventory has, in the products' order.

    `products`: {"name", "client"} as the lookup `products` returns them with details; `overrides`: product to what
    differs from its client's settings, with `url` for an archive on a server of one's own. Each of the result has
    product, protocols and version, and where the clients need files: name and source (as the role common's `fetch`
    takes them), directory (where they go), strip, include, and jars (the directory that holds them).
    """
    found: list[dict[str, Any]] = []
    for product in products:
        if not product["client"] or not groups.get(product["name"]):
            continue
        client = {**product["client"], **overrides.get(product["name"], {})}
        name = str(product["name"]).replace("_", "-")
        archive, jars = client.get("archive"), client.get("jars")
        entry: dict[str, Any] = {"product": product["name"], "version": ""}
        entry["protocols"] = [client["protocol"], *client.get("more_protocols", [])]
        if archive:
            file, version = _file_name(archive["coordinate"])
            url = client.get("url")
            source = {"url": {"url": url, "sha256": archive["sha256"]}} if url else {"maven": [archive]}
            entry |= {"name": file, "source": source, "version": version, "strip": 1}
        elif jars:
            version = str(client["version"])
            entry |= {"name": f"{name}-client-{version}.tar", "source": {"maven": jars}, "version": version, "strip": 0}
        if archive or jars:
            directory = f"{ROOT}/{name}-{entry['version']}"
            inside = client.get("directory", "")
            entry |= {
                "directory": directory,
                "include": client.get("include", []),
                "jars": f"{directory}/{inside}" if inside else directory,
            }
        found.append(entry)
    return found


SETTINGS = ("archive", "directory", "include", "jars", "url", "version")


def load_problems(
    products: Sequence[Mapping[str, Any]],
    groups: Mapping[str, Sequence[str]],
    overrides: Mapping[str, Mapping[str, Any]],
    host: str,
) -> list[str]:
    """Return what forbids the load host `host`, a sentence each; the other arguments are those of `load_clients`."""
    known = sorted(product["name"] for product in products if product["client"])
    problems = []
    if not load_clients(products, groups, {}):
        problems.append(f"{host} is a load host, but the inventory has no broker in the groups {', '.join(known)}")
    for name, own in sorted(overrides.items()):
        if name not in known:
            problems.append(f"load_clients names {name}, which is none of {', '.join(known)}")
        problems += [
            f"load_clients: {name} has no setting {setting}; there are {', '.join(SETTINGS)}"
            for setting in sorted(set(own) - set(SETTINGS))
        ]
    return problems


def load_jars(clients: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return protocol → the directory of its clients' jars, for those of `load_clients` that have any. Where two
    products have clients of one protocol, those of the product are taken that speaks it first of all."""
    found: dict[str, str] = {}
    ranked = [
        (place, name, item["jars"])
        for item in clients
        if "jars" in item
        for place, name in enumerate(item["protocols"])
    ]
    for _rank, name, jars in sorted(ranked, key=lambda one: one[0] > 0):
        found.setdefault(name, jars)
    return found


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {"load_clients": load_clients, "load_jars": load_jars, "load_problems": load_problems}
