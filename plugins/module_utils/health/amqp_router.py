"""The AMQP 0-9-1 session router: its page `/ready`."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError

from .answer import Health, get

READY = "/ready"


def state_of(status: int) -> str:
    """Return the state that the status of the answer to `READY` amounts to: every router serves."""
    return "active" if status == 200 else "starting"


def read(descriptor: dict[str, Any]) -> Health:
    """Ask a router. Raises OSError or ValueError without a usable answer."""
    try:
        status, text = 200, get(descriptor["management"]["url"] + READY)
    except HTTPError as error:
        if error.code != 503:
            raise
        status, text = error.code, error.read()
    answer = json.loads(text)
    return Health(state_of(status), True, str(answer.get("reason", answer["status"])))
