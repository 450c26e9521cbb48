"""Filters for texts that users and vaults give: each file's own way to write them, and what a product cannot hold.

Pure functions. A template writes a text by one of the filters here; what no file of a product can hold is refused by
`text_problems` before anything is touched.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape


def _java_property(text: str, special: str) -> str:
    escaped = re.sub(f"[{re.escape(special)}]", lambda one: "\\" + one[0], text)
    # Files of properties are in ISO 8859-1, and products write it differently beyond ASCII.
    units = escaped.encode("utf-16-be")
    pairs = (units[at] << 8 | units[at + 1] for at in range(0, len(units), 2))
    return "".join(chr(unit) if 0x20 <= unit < 0x7F else f"\\u{unit:04x}" for unit in pairs)


def java_property_key(text: Any) -> str:
    """Return `text` as java.util.Properties reads it back as a key."""
    return _java_property(str(text), "\\:=#! ")


def java_property_value(text: Any) -> str:
    """Return `text` as java.util.Properties reads it back as a value."""
    escaped = _java_property(str(text), "\\")
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def java_argument(text: Any) -> str:
    """Return `text` as one argument in a file of arguments of `java`."""
    words = str(text)
    if not re.search(r"[\s\"'#\\]", words) and words:
        return words
    return '"' + re.sub(r'(["\\])', r"\\\1", words) + '"'


def environment_file_value(text: Any) -> str:
    """Return `text` as a value in a file of systemd's EnvironmentFile."""
    return '"' + re.sub(r'(["\\`$])', r"\\\1", str(text)) + '"'


def unit_text(text: Any) -> str:
    """Return `text` as it stands between double quotes in a systemd unit."""
    return re.sub(r'(["\\])', r"\\\1", str(text)).replace("%", "%%")


def xml_text(text: Any) -> str:
    """Return `text` as content or attribute of XML, for a text that a product puts there itself."""
    return escape(str(text), {'"': "&quot;", "'": "&#39;"})


def sql_text(text: Any) -> str:
    """Return `text` as a literal of SQL, in PostgreSQL with or without standard_conforming_strings."""
    words = str(text).replace("'", "''")
    return "E'" + words.replace("\\", "\\\\") + "'" if "\\" in words else f"'{words}'"


def sql_name(text: Any) -> str:
    """Return `text` as a name of SQL, or of pg_hba.conf."""
    return '"' + str(text).replace('"', '""') + '"'


def url_text(text: Any) -> str:
    """Return `text` as a part of a URL."""
    return quote(str(text), safe="")


def file_name(text: Any) -> str:
    """Return `text` as a part of a file's name; of other texts other names."""
    return quote(str(text), safe="@+")


def obfuscated(text: Any) -> str:
    """Return a password as Jetty's files of users may have any of them: by its own `OBF:`."""
    words = str(text).encode()
    parts = ["OBF:"]
    for one, other in zip(words, reversed(words), strict=True):
        if one > 127 or other > 127:
            parts.append("U" + _in_36(one * 256 + other, 4))
        else:
            parts.append(_in_36((127 + one + other) * 256 + (127 + one - other), 4))
    return "".join(parts)


def jetty_roles(roles: Iterable[Any]) -> str:
    """Return the roles of a user in one of Jetty's files of users: those with other characters in quotes."""
    return ",".join(
        str(role) if re.fullmatch(r"[\w.-]+", str(role)) else '"' + re.sub(r'(["\\])', r"\\\1", str(role)) + '"'
        for role in roles
    )


def _in_36(number: int, digits: int) -> str:
    found = ""
    while number:
        number, digit = divmod(number, 36)
        found = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + found
    return found.rjust(digits, "0")


@dataclass(frozen=True)
class _Rule:
    """What a kind of text may not have: parts, beginnings, spaces around it, more bytes, characters beyond ASCII; and
    why."""

    why: str
    parts: tuple[str, ...] = ()
    beginnings: tuple[str, ...] = ()
    spaces: bool = False
    bytes: int | None = None
    ascii: bool = False


# Before it parses the file and after it, so that no escape helps.
_REPLACED = _Rule("Artemis replaces it in broker.xml", ("${",))
_SPRING = "Spring replaces it in ActiveMQ Classic's files"
_RABBITMQ_CONF = (
    _Rule("rabbitmq.conf takes it for something else", ("#", "'", '"', "$("), ("encrypted:",), spaces=True),
    # With one beyond Latin-1 the broker does not start, with others its own tools end in a traceback.
    _Rule("rabbitmq.conf knows no others", ascii=True),
)
_RULES: Mapping[str, tuple[_Rule, ...]] = {
    "artemis_name": (
        _Rule("Artemis separates users and roles by commas, and cuts spaces off", (",",), spaces=True),
        _REPLACED,
    ),
    "artemis_text": (_REPLACED, _Rule("Artemis cuts them off", spaces=True)),
    "artemis_password": (
        _REPLACED,
        _Rule("Artemis takes what begins so as encrypted", beginnings=("ENC(",)),
        _Rule("Artemis cuts them off", spaces=True),
    ),
    "classic_name": (
        _Rule("ActiveMQ Classic separates users and groups by commas, and cuts spaces off", (",",), spaces=True),
        _Rule(_SPRING, ("${", "#{")),
    ),
    "classic_text": (_Rule(_SPRING, ("${", "#{")),),
    "classic_password": (_Rule(_SPRING, ("${", "#{")),),
    "classic_user_password": (_Rule("Jetty takes what begins so as obfuscated", beginnings=("OBF:",)),),
    "openmq_name": (_Rule("Open MQ's file of users separates by them", (":", ",", "*"), spaces=True),),
    "openmq_password": (_Rule("Open MQ cuts spaces off", spaces=True),),
    "postgresql_name": (_Rule("PostgreSQL cuts longer names", bytes=63),),
    "postgresql_database": (
        _Rule("PostgreSQL cuts longer names", bytes=63),
        _Rule("PostgreSQL's clients take it for more than a name, and a backup's file is called so", ("=", "/", "?")),
    ),
    "rabbitmq_name": _RABBITMQ_CONF,
    "rabbitmq_setting": _RABBITMQ_CONF,
    "jaas_password": (_Rule("Java replaces it in files of JAAS", ("${",)),),
    # Written by rules that hold any text.
    "name": (),
    "password": (),
}


def text_problems(texts: Mapping[str, Any], kind: str) -> list[str]:
    """Return a sentence for each of `texts` (a variable's name to its text, or a list of texts) that a product's files
    cannot hold. A password is not shown, nor is a setting, which may be one. `kind` is one of _RULES."""
    secret = kind.endswith(("password", "setting"))
    return [
        f"{name} has {problem}" if secret else f"{name} {text!r} has {problem}"
        for name, value in texts.items()
        for text in (value if isinstance(value, list | tuple) else [value])
        for problem in _problems("" if text is None else str(text), kind)
    ]


def _problems(text: str, kind: str) -> Iterable[str]:
    if any(unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") for one in text):
        yield "a control character, or a line's end"
    for rule in _RULES[kind]:
        yield from (f"{part!r}: {rule.why}" for part in rule.parts if part in text)
        yield from (f"{part!r} at its beginning: {rule.why}" for part in rule.beginnings if text.startswith(part))
        if rule.spaces and text != text.strip():
            yield f"spaces around it: {rule.why}"
        if rule.bytes is not None and len(text.encode()) > rule.bytes:
            yield f"more than {rule.bytes} bytes: {rule.why}"
        if rule.ascii and not text.isascii():
            yield f"a character beyond ASCII: {rule.why}"


def duplicate_problems(named: Mapping[str, Iterable[Any]]) -> list[str]:
    """Return a sentence for each name that stands more than once in its list: products take the last one, or one of
    them, without a word. `named`: what is named → names."""
    return [
        f"{what} {name!r} is there {count} times"
        for what, names in named.items()
        for name, count in Counter(map(str, names)).items()
        if count > 1
    ]


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "duplicate_problems": duplicate_problems,
            "environment_file_value": environment_file_value,
            "file_name": file_name,
            "java_argument": java_argument,
            "java_property_key": java_property_key,
            "java_property_value": java_property_value,
            "jetty_roles": jetty_roles,
            "obfuscated": obfuscated,
            "sql_name": sql_name,
            "sql_text": sql_text,
            "text_problems": text_problems,
            "unit_text": unit_text,
            "url_text": url_text,
            "xml_text": xml_text,
        }
