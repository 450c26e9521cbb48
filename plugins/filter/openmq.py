"""Filters of the role openmq: what its files and requests hold. Pure functions."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_DATABASE_SAID = re.compile(r"SQLException: (.*\S)")
# What `imqdbmgr query` calls an error where all is well.
_CREATED = "Database tables have already been created"
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def openmq_value(value: Any) -> str:
    """Return a value as the broker's properties write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def openmq_password_hash(password: str, user: str) -> str:
    """Return the hash in the file of users: MD5 of USER:PASSWORD as a signed number in hexadecimal digits."""
    digest = hashlib.md5(f"{user}:{password}".encode(), usedforsecurity=False).digest()
    return format(int.from_bytes(digest, "big", signed=True), "x")


def openmq_passfile(passwords: Mapping[str, str]) -> str:
    """Return the pass file before it is encoded: a line NAME=PASSWORD each."""
    return "".join(f"{name}={value}\n" for name, value in sorted(passwords.items()))


def openmq_passfile_decoded(text: str) -> dict[str, str]:
    """Return the passwords in the encoded pass file `text`; lines of another form are left out.

    A line is NAME{CHECK}=CHECK:PASSWORD, the password in base 64.
    """
    found = {}
    for line in text.splitlines():
        encoded = re.fullmatch(r"([\w.]+)\{[^}]*\}=[^:]*:([A-Za-z0-9+/=]+)", line.strip())
        if encoded:
            found[encoded[1]] = base64.b64decode(encoded[2]).decode(errors="replace")
    return found


def openmq_said(text: str, *warnings: str) -> str:
    """Return the last error in `text`, a broker's log or a tool's output, in one line; "" where there is none.

    Numbers of errors begin with 3 or 4, after B (the broker's), C (the client library's) or A (the tools'). `warnings`:
    numbers that are errors here as well.
    """
    number = re.compile(rf"\[(?:[ABC][34]\d{{3}}{''.join(f'|{one}' for one in warnings)})\].*|^ERROR .*")
    found = [match[0] for match in map(number.search, text.splitlines()) if match]
    return re.sub(r"\s+", " ", found[-1]).strip()[:300] if found else ""


def openmq_has_tables(look: Mapping[str, Any]) -> bool:
    """Return whether the tables are there by the result of the tool's command that looks for them.

    Each command ends with status 0 and an error in its log in one of the two cases (6.5.1): `imqdbmgr dump sharecc_tbl`
    where there are none, `imqdbmgr query` where they are there.
    """
    said = f"{look.get('stdout', '')}{look.get('stderr', '')}"
    return look.get("rc") == 0 and ("|SEVERE|" not in said or _CREATED in said)


def openmq_reason(result: Mapping[str, Any]) -> str:
    """Return why a command of the product's tools failed: the database's own word where it has one, and the last
    error that it names, else its last line."""
    said = "\n".join(str(result.get(name, "")) for name in ("stdout", "stderr"))
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    message = openmq_said(said) or (
        lines[-1] if lines else f"its tool ended with status {result.get('rc')} without a word"
    )
    # Of a failure's causes the last one.
    causes = _DATABASE_SAID.findall(said)
    return message if not causes or causes[-1] in message else f"{causes[-1]} ({message})"


def openmq_first_certificate(bundle: str) -> str:
    """Return the first certificate in the PEM text `bundle`. Raises ValueError where there is none."""
    found = CERTIFICATE.search(bundle)
    if found is None:
        raise ValueError("the bundle holds no certificate")
    return found[0]


def openmq_destinations_to_make(
    beans: Iterable[str], queues: Sequence[str], topics: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the Jolokia requests that create those destinations which none of `beans` (their MBeans' names) is of."""
    there = set()
    for bean in beans:
        keys = dict(part.split("=", 1) for part in bean.partition(":")[2].split(",") if "=" in part)
        there.add((keys.get("desttype"), keys.get("name", "").strip('"')))
    wanted = [*(("q", name) for name in queues), *(("t", name) for name in topics)]
    return [
        {
            "type": "exec",
            "mbean": "com.sun.messaging.jms.server:type=DestinationManager,subtype=Config",
            "operation": "create(java.lang.String,java.lang.String)",
            "arguments": list(one),
        }
        for one in wanted
        if one not in there
    ]


def openmq_drill_access(queues: Sequence[str], topics: Sequence[str], user: str, dead_letter: str) -> dict[str, str]:
    """Return the access rules by which `user`, whom no other rule allows anything, uses `queues` and `topics` and looks
    into `dead_letter`. A rule for a destination stands instead of the general one, so administrators are named again.
    """
    allowed = [
        *(f"queue.{name}.{act}" for name in queues for act in ("produce", "consume", "browse")),
        *(f"topic.{name}.{act}" for name in topics for act in ("produce", "consume")),
        f"queue.{dead_letter}.browse",
    ]
    return {f"{place}.allow.{whom}": who for place in allowed for whom, who in (("user", user), ("group", "admin"))}


class FilterModule:
    """The filters, by the names that the role uses."""

    def filters(self) -> dict[str, Any]:
        return {
            "openmq_has_tables": openmq_has_tables,
            "openmq_reason": openmq_reason,
            "openmq_value": openmq_value,
            "openmq_password_hash": openmq_password_hash,
            "openmq_passfile": openmq_passfile,
            "openmq_passfile_decoded": openmq_passfile_decoded,
            "openmq_said": openmq_said,
            "openmq_first_certificate": openmq_first_certificate,
            "openmq_drill_access": openmq_drill_access,
            "openmq_destinations_to_make": openmq_destinations_to_make,
        }
