"""A known secret in each way that a file, a log or a command line may have it escaped; and those in variables."""

from __future__ import annotations

import base64
import json
import re
import shlex
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from xml.sax.saxutils import escape

from brokerdrill.base.secret_names import is_secret

# A shorter text is no secret that could be distinguished from other words.
LEAST = 4


def _java(secret: str, unicode: bool) -> str:
    escaped = re.sub(r"([\\:=#!])", r"\\\1", secret)
    escaped = re.sub(r"^ ", r"\\ ", escaped)
    return _by_number(escaped, "\\u%04X") if unicode else escaped


def _by_number(text: str, form: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(
        chr(unit) if unit < 0x7F else form % unit
        for unit in (units[at] << 8 | units[at + 1] for at in range(0, len(units), 2))
    )


# Each turns a text into how some format has it, without the quotes around it.
_ESCAPES: tuple[Callable[[str], str], ...] = (
    escape,
    lambda text: escape(text, {'"': "&quot;"}),
    lambda text: escape(text, {'"': "&quot;", "'": "&apos;"}),
    lambda text: escape(text, {'"': "&#34;", "'": "&#39;"}),
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: _java(text, unicode=False),
    lambda text: _java(text, unicode=True),
    lambda text: _java(text, unicode=False).replace(" ", "\\ "),
    lambda text: text.replace("'", "''"),
    lambda text: text.replace("'", "\\'"),
    lambda text: text.replace("\\", "\\\\").replace("'", "\\'"),
    lambda text: text.replace("'", "'\"'\"'"),
    lambda text: text.replace("'", "'\\''"),
    lambda text: text.replace("%", "%%"),
    lambda text: text.replace("$", "$$"),
    lambda text: re.sub(r"([^\w@%+=:,./-])", r"\\\1", text),
    lambda text: urllib.parse.quote(text, safe=""),
    lambda text: urllib.parse.quote(text),
    urllib.parse.quote_plus,
    lambda text: re.sub(r"%[0-9A-F]{2}", lambda code: code[0].lower(), urllib.parse.quote(text, safe="")),
)


def forms(secret: str) -> set[str]:
    """Return `secret` as it is, and as formats have it, also one within another; nothing for one of < LEAST letters."""
    if len(secret) < LEAST:
        return set()
    once = {secret, *(change(secret) for change in _ESCAPES)}
    found = once | {change(form) for form in once for change in _ESCAPES}
    found |= {shlex.quote(form) for form in once}
    return {*found, base64.b64encode(secret.encode()).decode()}


def secret_values(variables: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts that `variables` and the mappings and lists in them call secrets; not what is still a template,
    or encrypted."""
    for name, value in variables.items():
        yield from _texts(value) if is_secret(str(name)) else _inner(value)


def _inner(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from secret_values(value)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _inner(one)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str) and "{{" not in value and not value.startswith("$ANSIBLE_VAULT"):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)
