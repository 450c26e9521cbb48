"""Filters of the role artemis."""

from __future__ import annotations

import hashlib
from typing import Any

ITERATIONS = 1024


def artemis_password_hash(password: str, salt: str) -> str:
    """Return `password` as an Artemis users file keeps it, byte for byte what `artemis mask --hash` makes.

    `salt` is 64 hex digits. The result is ENC(iterations:SALT:HASH) with PBKDF2-HMAC-SHA1, 64 bytes, in upper case.
    Raises ValueError where the salt is no hex.
    """
    derived = hashlib.pbkdf2_hmac("sha1", password.encode(), bytes.fromhex(salt), ITERATIONS, 64)
    return f"ENC({ITERATIONS}:{salt.upper()}:{derived.hex().upper()})"


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {"artemis_password_hash": artemis_password_hash}
