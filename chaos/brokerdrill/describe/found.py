"""What a host's files and commands say of a broker that runs there, and what a person adds who knows more."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit
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
class DescribeOptions:
    """What a host's files do not say: the `store` that its broker serves with others, the CA's file on the host that
    its certificate is signed by, where it is managed, and which of its addresses are a drill's."""

    store: str | None = None
    ca: str | None = None
    management_url: str | None = None
    drill_addresses: tuple[str, ...] = ()


class UrlAddress(NamedTuple):
    """One address of a URL: the URL's scheme and parameters (of several the last one), the host and the port."""

    scheme: str
    host: str
    port: int
    said: Mapping[str, str]


def places(found: Found, what: str, url: str, schemes: Collection[str]) -> list[UrlAddress]:
    """Return the addresses that a broker's URL names: one, or several as (URL,URL)?PARAMETERS, URL#URL,URL or by the
    parameter `host`; none of another scheme than `schemes`. Raises UsageError for one without a port."""
    several = re.fullmatch(r"\(([^)]*)\)(.*)", url)
    urls, query = (several[1].split(","), several[2]) if several else ([url], "")
    first, _, more = urls[0].partition("#")
    alike = urlsplit(f"{first}{query}").query
    said = {name: values[-1] for name, values in parse_qs(alike.replace(";", "&")).items()}
    result = []
    for one in (first, *filter(None, more.split(",")), *urls[1:]):
        try:
            uri = urlsplit(one.strip())
            port = uri.port
        except ValueError:
            raise UsageError(f"host {found.host}: {what} is {url!r}, no address with a port") from None
        if uri.scheme not in schemes:
            continue
        if not port or "," in uri.netloc:
            raise UsageError(f"host {found.host}: {what} is {url!r}, no address with a port")
        hosts = said["host"].split(",") if "host" in said else [uri.hostname or ""]
        result += [UrlAddress(uri.scheme, host.strip(), port, said) for host in hosts]
    return result


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


def number(found: Found, what: str, said: str, default: int) -> int:
    """Return the number that a file says, or the default where it says nothing. Raises UsageError for another text."""
    if said and not said.isdecimal():
        raise UsageError(f"host {found.host}: {what} is {said!r}, no number")
    return int(said) if said else default


def no_store(found: Found, path: str, name: str) -> UsageError:
    """The error where a file does not say which brokers take each other's place."""
    return UsageError(f"host {found.host}: {path} does not say with whom {name} serves a store: name it by --store")


def console_on_loopback(found: Found, address: str | None) -> UsageError:
    """The error where only the broker's own host reaches its management."""
    return UsageError(
        f"host {found.host}: the console listens on {address} alone: bind it to an address that the controller "
        "reaches, or say another by --management-url"
    )


def dead_letters(letters: Mapping[str, str], name: str) -> str | None:
    """Return the dead-letter address of what the most specific match of an address says; None for an address of dead
    letters itself. `letters`: by wildcard (`matched`)."""
    found = sorted((match for match in letters if matched(match, name) and letters[match]), key=_certain)
    letter = letters[found[-1]] if found else None
    return letter if letter != name else None


def _certain(match: str) -> tuple[int, int]:
    """How much of an address a match says: an exact one most."""
    return (0 if "#" in match else 1 if "*" in match else 2), len(match)


def matched(match: str, name: str) -> bool:
    """Whether a wildcard (words apart by dots, `*` one word, `#` any number) covers `name`."""

    def covers(pattern: Sequence[str], words: Sequence[str]) -> bool:
        if not pattern:
            return not words
        if pattern[0] == "#":
            return any(covers(pattern[1:], words[place:]) for place in range(len(words) + 1))
        return bool(words) and pattern[0] in ("*", words[0]) and covers(pattern[1:], words[1:])

    return covers(match.split("."), name.split("."))


def with_drill_addresses(descriptor: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the descriptor with `names`, and no others, declared to be a drill's. Raises UsageError where its broker
    has no such address."""
    there = [item["name"] for item in descriptor["addresses"]]
    if missing := sorted(set(names).difference(there)):
        raise UsageError(
            f"host {descriptor['host']}: {descriptor['instance']} has no address {', '.join(missing)}; make it first"
        )
    return {**descriptor, "addresses": [{**item, "drill": item["name"] in names} for item in descriptor["addresses"]]}


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


def secured(found: Found, url: str, options: DescribeOptions) -> dict[str, Any]:
    """Return a descriptor's `tls` for what is managed at `url`. Raises UsageError where that is TLS and nobody said
    whose certificate is to be trusted."""
    if url.startswith("https:") and not options.ca:
        raise UsageError(
            f"host {found.host}: {url} is TLS: say by --ca which file there has its authority's certificate"
        )
    return {"tls": {"ca": options.ca}} if options.ca else {}
