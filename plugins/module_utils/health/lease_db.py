"""The lease database: Patroni's REST API."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError

from .answer import Health, get_json


def health_of(answer: dict[str, Any], synchronous: bool = False) -> Health:
    """Return the health that Patroni's answer amounts to.

    `passive` is a standby that follows its primary; one that does not follow yet is `starting`. One that shall be
    `synchronous` and is not yet is `syncing`: Patroni makes no primary of it.
    """
    state, role, in_sync = str(answer.get("state")), str(answer.get("role")), bool(answer.get("sync_standby"))
    detail = f"{role} {state}"
    if state not in ("running", "streaming"):
        return Health("starting", False, detail)
    if role in ("master", "primary"):
        return Health("active", False, detail)
    return Health("syncing" if synchronous and not in_sync else "passive", in_sync, detail)


def read(descriptor: dict[str, Any]) -> Health:
    """Ask Patroni; a member that is not ready answers 503 and says the same in its body.

    Raises OSError or ValueError without a usable answer.
    """
    synchronous = bool(descriptor["settings"].get("synchronous_standby"))
    try:
        return health_of(get_json(f"{descriptor['management']['url']}/patroni", descriptor["tls"]["ca"]), synchronous)
    except HTTPError as error:
        return health_of(json.load(error), synchronous)
