"""The lease database: Patroni's REST API."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError

from .answer import Health, get_json


def health_of(answer: dict[str, Any]) -> Health:
    """Return the health that Patroni's answer amounts to.

    `passive` is a standby that follows its primary; one that does not follow yet is `starting`.
    """
    state, role = str(answer.get("state")), str(answer.get("role"))
    detail = f"{role} {state}"
    if state not in ("running", "streaming"):
        return Health("starting", False, detail)
    return Health("active" if role in ("master", "primary") else "passive", bool(answer.get("sync_standby")), detail)


def read(descriptor: dict[str, Any]) -> Health:
    """Ask Patroni; a member that is not ready answers 503 and says the same in its body.

    Raises OSError or ValueError without a usable answer.
    """
    try:
        return health_of(get_json(f"{descriptor['management']['url']}/patroni", descriptor["tls"]["ca"]))
    except HTTPError as error:
        return health_of(json.load(error))
