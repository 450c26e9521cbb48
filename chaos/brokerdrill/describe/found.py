"""What a host tells of a broker that runs there, and what a person adds who knows more."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from brokerdrill.base.errors import UsageError

CREDENTIALS = "/etc/brokerdrill/{instance}.credentials.json"
# Addresses that stand for every one of a host's.
EVERYWHERE = ("", "0.0.0.0", "::", "[::]")
LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")
_PROPERTY = re.compile(r"\$\{([^}:]+)(?::([^}]*))?\}")


@dataclass(frozen=True)
class Found:
    """A unit whose main process is a broker's: its `host` and the `address` by which others reach it, the `unit` with
    its RestartSec, the process's `command` line, and the `files` (path → text) that the product's module asked for."""

    host: str
    address: str
    unit: str
    restart_s: float = 0
    command: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    def property(self, name: str) -> str | None:
        """The value of Java's property `name` on the command line, None where it is not set."""
        start = f"-D{name}="
        return next((word.removeprefix(start) for word in reversed(self.command) if word.startswith(start)), None)

    def text(self, path: str) -> str:
        """The text of the file. Raises UsageError where the host has none."""
        if path not in self.files:
            raise UsageError(f"host {self.host}: {self.unit} has no readable {path}")
        return self.files[path]

    def filled(self, text: str) -> str:
        """`text` with each ${NAME} and ${NAME:default} as the process sees it. Raises UsageError for one that is
        nowhere said."""

        def value(match: re.Match[str]) -> str:
            said = self.property(match[1])
            if said is None and match[2] is None:
                raise UsageError(f"host {self.host}: the configuration says ${{{match[1]}}}, which nothing sets")
            return match[2] if said is None else said

        return _PROPERTY.sub(value, text)

    def reached(self, address: str) -> str:
        """The address by which others reach what listens at `address`."""
        return self.address if address in EVERYWHERE else address.strip("[]")


@dataclass(frozen=True)
class Options:
    """What a host's files do not say: the `store` that its broker serves with others, the CA's file on the host that
    its certificate is signed by, and where it is managed."""

    store: str | None = None
    ca: str | None = None
    management_url: str | None = None


def tree(found: Found, path: str) -> ElementTree.Element:
    """Return the root of an XML file, without namespaces. Raises UsageError: no such file, no XML, or it includes
    others."""
    try:
        root = ElementTree.fromstring(found.text(path))
    except ElementTree.ParseError as error:
        raise UsageError(f"host {found.host}: {path} is no XML: {error}") from None
    for element in root.iter():
        element.tag = str(element.tag).rpartition("}")[2]
    if root.find(".//include") is not None:
        raise UsageError(f"host {found.host}: {path} includes other files: write its descriptor by hand")
    return root


def common(found: Found, product: str, instance: str) -> dict[str, Any]:
    """Return the fields that the descriptor of every product has."""
    return {
        "schema": 1,
        "product": product,
        "instance": instance,
        "host": found.host,
        "unit": found.unit,
        "log": "journal",
        "credentials": {"file": CREDENTIALS.format(instance=instance)},
    }


def secured(found: Found, url: str, options: Options) -> dict[str, Any]:
    """Return a descriptor's `tls` for what is managed at `url`. Raises UsageError where that is TLS and nobody said
    whose certificate is to be trusted."""
    if url.startswith("https:") and not options.ca:
        raise UsageError(
            f"host {found.host}: {url} is TLS: say by --ca which file there has its authority's certificate"
        )
    return {"tls": {"ca": options.ca}} if options.ca else {}
