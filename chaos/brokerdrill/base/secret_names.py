"""Which names are a secret's: of settings, options, attributes and headers, in whatever way they are written."""

from __future__ import annotations

import functools
import itertools
import re

# `keyStorePassword`, `DB_PASSWORD`, `ssl.quorum.keyStore.password`, `x-api-key` in words.
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET = re.compile(
    r"(?:password|passwort|passwd|passphrase|pass|pswd|pwd|secret|token|credential|cookie|authorization"
    r"|apikey|privatekey|accesskey|secretkey|superdigest)s?"
)
_OTHERS = frozenset({"passin", "passout"})
_ORDINARY = frozenset({"bypass", "compass", "encompass", "overpass", "surpass", "trespass", "underpass"})
_PAIRS = frozenset(
    {*((kind, "key") for kind in ("access", "account", "api", "auth", "encryption", "master", "private", "secret",
                                  "shared", "signing")),
     ("super", "digest")}
)  # fmt: skip
# What is said of a secret without saying it: `password_file`, `tokenTtl`, `password_encryption`.
_ABOUT = frozenset(
    {
        "algorithm", "alias", "age", "class", "count", "dir", "directory", "dirpath", "enabled", "encryption",
        "endpoint", "expiration", "expires", "expiry", "file", "files", "format", "function", "hashing", "interval",
        "length", "limit", "location", "login", "max", "min", "mode", "module", "ms", "name", "names", "path", "policy",
        "provider", "required", "s", "seconds", "size", "timeout", "ttl", "type", "uri", "url", "user", "username",
    }
)  # fmt: skip
# Whose value may be a whole mapping of settings of which only some are secret.
_LOOSE = re.compile(r"(?:credential|token|cookie)s?$", re.I)
# What a name of a secret has in it: to look for, before `is_secret` says more.
STEMS = ("pass", "pwd", "pswd", "secret", "token", "credential", "cookie", "key", "digest", "authorization")


@functools.lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Return whether what is called `name` is a secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[-1] in _ABOUT:
        return False
    if any(word in _OTHERS or (_ends_as_secret(word) and word not in _ORDINARY) for word in words):
        return True
    return any(pair in _PAIRS for pair in itertools.pairwise(words))


def is_loose(name: str) -> bool:
    """Return whether the secret called `name` may also be a mapping, whose own names say what of it is secret."""
    return _LOOSE.search(name) is not None


def _ends_as_secret(word: str) -> bool:
    # In one word: `storepass`, `userpassword`.
    return re.search(_SECRET.pattern + "$", word) is not None
