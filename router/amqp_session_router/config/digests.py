"""Digests of a configuration's sections, by which instances on several hosts are held against each other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from amqp_session_router.config.schema import Config

OWN = frozenset({"control", "datacenter", "listeners", "log", "state_dir", "status", "tls", "workers"})
"""Sections that say what an instance has of its own: addresses, files, its cores, where it stands. Others are one for
all."""
_LENGTH = 12


def digest(part: Any) -> str:
    """Return 12 hexadecimal digits that are the same for equal data, whatever the order of keys."""
    return hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()[:_LENGTH]


def digests(config: Config) -> Mapping[str, str]:
    """Return the digest of each section, by its key; what is left to a default is as if it were written."""
    return {name: digest(part) for name, part in config.model_dump(mode="json").items()}
