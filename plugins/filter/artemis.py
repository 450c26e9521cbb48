"""Filters of the role artemis."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.utils.display import Display

ITERATIONS = 1024
OLD_NAMES = {
    "master": "primary",
    "slave": "backup",
    "live-only": "primary_only",
    "org.apache.activemq.artemis.quorum.zookeeper.CuratorDistributedPrimitiveManager": (
        "org.apache.activemq.artemis.lockmanager.zookeeper.CuratorDistributedLockManager"
    ),
}
"""Values that older documents of the broker use, and what stands for them now."""
OLD_VARIABLES = {"artemis_check_for_live_server": "artemis_check_for_active_server"}


def artemis_password_hash(password: str, salt: str) -> str:
    """Return `password` as an Artemis users file keeps it, byte for byte what `artemis mask --hash` makes.

    `salt` is 64 hex digits. The result is ENC(iterations:SALT:HASH) with PBKDF2-HMAC-SHA1, 64 bytes, in upper case.
    Raises ValueError where the salt is no hex.
    """
    derived = hashlib.pbkdf2_hmac("sha1", password.encode(), bytes.fromhex(salt), ITERATIONS, 64)
    return f"ENC({ITERATIONS}:{salt.upper()}:{derived.hex().upper()})"


def artemis_modern(value: str) -> str:
    """Return the present name of an older one of the broker's; any other value as it is."""
    return OLD_NAMES.get(value, value)


def artemis_old_names(values: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each of `values` (variable to value, None where it is not set) that uses an older name."""
    found = [
        f"{variable}: {value} is an older name of {OLD_NAMES[value]}"
        for variable, value in values.items()
        if isinstance(value, str) and value in OLD_NAMES
    ]
    return found + [
        f"{variable} is an older name of {OLD_VARIABLES[variable]}"
        for variable, value in values.items()
        if value is not None and variable in OLD_VARIABLES
    ]


def artemis_members_of(users: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return role → names of its users, by role. `users`: {"name", "roles"} each. Linear in users and roles."""
    found: dict[str, list[str]] = {}
    for user in users:
        for role in user["roles"]:
            found.setdefault(role, []).append(user["name"])
    return dict(sorted(found.items()))


def warn(sentences: Sequence[str]) -> Sequence[str]:
    """Show each sentence as a warning of Ansible's and return them."""
    for sentence in sentences:
        Display().warning(str(sentence))
    return sentences


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "artemis_members_of": artemis_members_of,
            "artemis_modern": artemis_modern,
            "artemis_old_names": artemis_old_names,
            "artemis_password_hash": artemis_password_hash,
            "warn": warn,
        }
