"""The management API of Artemis' connection routers: who is to be connected to, for clients that nobody redirects.

The router is asked with the key itself: no key-filter is put on it, and whether there is such a client does not count.
"""

from __future__ import annotations

import base64
import functools
import json
import ssl
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from brokerdrill.workload.client import Aim, ClientError, endpoint_at, known_as
from brokerdrill.workload.config import BrokerEndpoint, WorkerConfig

ASK_S = 5.0


def question(broker: str, router: str, key: str) -> dict[str, Any]:
    """Return the request that asks `router` of `broker` whom a client with that key is to connect to, for Jolokia."""
    return {
        "type": "exec",
        "mbean": f'org.apache.activemq.artemis:broker="{broker}",component=connection-routers,name="{router}"',
        "operation": "getTargetAsJSON(java.lang.String)",
        "arguments": [key],
    }


def place_in(value: str | None) -> tuple[str, int] | None:
    """Return address and port of the target in a router's answer; None where it is its own broker, or there is none."""
    connector = json.loads(value)["connector"] if value else None
    return (str(connector["params"]["host"]), int(connector["params"]["port"])) if connector else None


def whom_to_dial(config: WorkerConfig, aim: Aim | None) -> Sequence[BrokerEndpoint]:
    """Return whom a client is to dial, in turn: all, or whom the router names that it is led by. Raises ClientError
    where that is nobody."""
    if aim is None:
        return config.endpoints
    return [target_of(config, aim, known_as(config, aim) or aim.key)]


def target_of(config: WorkerConfig, aim: Aim, key: str) -> BrokerEndpoint:
    """Ask the router whom a client with `key` is to connect to. Raises ClientError where it names nobody known."""
    value = _answer(config, aim, key).get("value")
    if not value:
        raise ClientError("the router names nobody")
    place = place_in(value)
    if place is None:
        found = next((item for item in config.endpoints if item.instance == aim.router.instance), None)
    else:
        found = endpoint_at(f"{place[0]}:{place[1]}", config.endpoints)
    if found is None:
        raise ClientError(f"the router names {place or aim.router.instance}, which is none of the brokers")
    return found


@functools.cache
def _opener(tls_ca: str | None) -> urllib.request.OpenerDirector:
    """One a process: a TLS context takes longer to make than the router to answer."""
    secure = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=tls_ca))
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), secure)


def _answer(config: WorkerConfig, aim: Aim, key: str) -> Mapping[str, Any]:
    router, credentials = aim.router, config.credentials
    token = base64.b64encode(f"{credentials.username}:{credentials.password}".encode()).decode()
    request = urllib.request.Request(
        router.url,
        json.dumps(question(router.broker, router.router, key)).encode(),
        {
            "Authorization": f"Basic {token}",
            "Origin": "/".join(router.url.split("/")[:3]),
            "Content-Type": "application/json",
        },
    )
    try:
        with _opener(config.tls_ca).open(request, timeout=ASK_S) as reply:
            found = json.loads(reply.read())
    except (OSError, ValueError) as error:
        raise ClientError(f"{type(error).__name__}: {error}") from None
    if not isinstance(found, dict) or found.get("status") != 200:
        raise ClientError(f"the router's management answers {found.get('error') if isinstance(found, dict) else found}")
    return found
