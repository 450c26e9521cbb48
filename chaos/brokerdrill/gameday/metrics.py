"""What a Prometheus knows of others than the drill, such as the errors of production's clients, as a guard."""

from __future__ import annotations

import math
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.gameday.model import Metric

CALL_TIMEOUT_S = 5.0


def highest(answer: Any) -> float | None:
    """Return the highest value of an answer of Prometheus' /api/v1/query; None where it has none.

    Raises ValueError for what is no such answer, with Prometheus' own words where it has some.
    """
    try:
        if answer["status"] != "success":
            raise ValueError(str(answer.get("error", answer["status"])))
        kind, result = answer["data"]["resultType"], answer["data"]["result"]
        if kind not in ("vector", "scalar"):
            raise ValueError(f"the query gives a {kind}, not the values of now")
        values = [float(result[1])] if kind == "scalar" else [float(one["value"][1]) for one in result]
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"no answer to a query: {type(error).__name__} {error}") from None
    # Nothing divided by nothing is no number.
    return max((value for value in values if not math.isnan(value)), default=None)


class MetricReader:
    """One metric of a guard and the connection by which it is read."""

    def __init__(self, metric: Metric, http: httpx.AsyncClient) -> None:
        self.metric = metric
        self._http = http

    async def too_high(self) -> str | None:
        """Return a sentence where the value is above its limit now. Raises InfrastructureError where it cannot be
        read."""
        metric = self.metric
        try:
            response = await self._http.get("api/v1/query", params={"query": metric.query})
            value = highest(response.json())
        except (httpx.HTTPError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise InfrastructureError(
                f"{metric.name} cannot be read from {self._http.base_url.host}: {reason}"
            ) from None
        return (
            f"{metric.name} is {value:g}, above {metric.above:g}"
            if value is not None and value > metric.above
            else None
        )

    async def close(self) -> None:
        await self._http.aclose()


@asynccontextmanager
async def asked(metrics: Sequence[Metric]) -> AsyncIterator[list[MetricReader]]:
    """The metrics, each ready to be read. Raises InfrastructureError where a file that one names cannot be read."""
    found: list[MetricReader] = []
    try:
        for metric in metrics:
            found.append(MetricReader(metric, _client(metric)))
        yield found
    finally:
        for one in found:
            await one.close()


def _client(metric: Metric) -> httpx.AsyncClient:
    try:
        token = metric.token_file.read_text(encoding="utf-8").strip() if metric.token_file else ""
        verify = ssl.create_default_context(cafile=metric.ca_file) if metric.ca_file else True
    except (OSError, UnicodeDecodeError, ssl.SSLError) as error:
        raise InfrastructureError(f"{metric.name}: a file of the guard cannot be read: {error}") from None
    # What is no token may still be a secret: it must not come to be quoted by who cannot send it.
    if not (token.isascii() and token.isprintable()):
        raise InfrastructureError(f"{metric.name}: {metric.token_file} holds no token of one line")
    return httpx.AsyncClient(
        base_url=metric.prometheus.rstrip("/") + "/",
        timeout=CALL_TIMEOUT_S,
        trust_env=False,
        headers={"Authorization": f"Bearer {token}"} if token else {},
        verify=verify,
    )
