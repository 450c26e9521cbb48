"""The guard by metrics: what a Prometheus answers, over real HTTP, and what that ends."""

from __future__ import annotations

import asyncio
import datetime
import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import ValidationError

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.gameday.guards import Watching
from brokerdrill.gameday.metrics import asked, highest
from brokerdrill.gameday.model import Guard, Metric, load_gameday
from brokerdrill.runner.live_run import LiveRun

NONE = cast(LiveRun, None)


def vector(*values: str) -> dict[str, Any]:
    result = [{"metric": {}, "value": [0, value]} for value in values]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


class Prometheus(http.server.ThreadingHTTPServer):
    """Answers each question with the next of `answers`, and the last one for ever."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Any] = [vector("0")]
        self.heard: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def metric(self, **more: Any) -> Metric:
        return Metric.model_validate(
            {
                "name": "errors a second",
                "prometheus": self.url,
                "query": 'sum(rate(e{c=~"5.."}[30s]))',
                "above": 1,
                **more,
            }
        )


class Handler(http.server.BaseHTTPRequestHandler):
    server: Prometheus

    def do_GET(self) -> None:
        place = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(place.query)).get("query", "")
        self.server.heard.append((f"{place.path} {query}", self.headers.get("Authorization", "")))
        answers = self.server.answers
        body = json.dumps(answers.pop(0) if len(answers) > 1 else answers[0]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    with Prometheus() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def told(metric: Metric) -> str | None:
    async def ask() -> str | None:
        async with asked([metric]) as (one,):
            return await one.too_high()

    return asyncio.run(ask())


def watching(guard: Guard) -> Watching:
    return Watching(guard, datetime.datetime.max.replace(tzinfo=datetime.UTC))


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (vector(), None),
        (vector("NaN"), None),
        (vector("0.5", "2", "NaN"), 2.0),
        ({"status": "success", "data": {"resultType": "scalar", "result": [0, "3"]}}, 3.0),
        (vector("+Inf"), float("inf")),
    ],
)
def test_the_highest_value_counts(answer: Any, value: float | None) -> None:
    assert highest(answer) == value


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"status": "error", "error": "parse error: unexpected end"}, "parse error: unexpected end"),
        ({"status": "success", "data": {"resultType": "matrix", "result": []}}, "the query gives a matrix"),
        ([], "no answer to a query"),
        (vector("much"), "could not convert"),
    ],
)
def test_what_is_no_answer(answer: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        highest(answer)


def test_a_value_above_its_limit(prometheus: Prometheus, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-secret\n")
    metric = prometheus.metric(token_file=tmp_path / "token")
    prometheus.answers = [vector("1"), vector("1.5")]
    assert told(metric) is None
    assert told(metric) == "errors a second is 1.5, above 1"
    assert prometheus.heard[0] == ('/api/v1/query sum(rate(e{c=~"5.."}[30s]))', "Bearer a-secret")


def test_one_that_cannot_be_read(prometheus: Prometheus, tmp_path: Path) -> None:
    prometheus.answers = [{"status": "error", "error": "parse error"}]
    with pytest.raises(InfrastructureError, match=r"errors a second cannot be read from 127\.0\.0\.1: parse error"):
        told(prometheus.metric())
    with pytest.raises(InfrastructureError, match="a file of the guard cannot be read"):
        told(prometheus.metric(token_file=tmp_path / "none"))
    with pytest.raises(InfrastructureError, match=r"cannot be read from 127\.0\.0\.1: "):
        told(prometheus.metric(prometheus="http://127.0.0.1:1/"))


@pytest.mark.parametrize("token", ["new-secret\n# old\nold-secret", "geheimnisträger"])
def test_what_is_no_token_is_not_quoted(prometheus: Prometheus, tmp_path: Path, token: str) -> None:
    (tmp_path / "token").write_text(token)
    with pytest.raises(InfrastructureError, match="holds no token of one line") as caught:
        told(prometheus.metric(token_file=tmp_path / "token"))
    assert token[:6] not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "why"), [("https://prom:909O", "no URL"), ("https://me:secret@prom", "a secret goes into token_file")]
)
def test_urls_that_are_refused(prometheus: Prometheus, url: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        prometheus.metric(prometheus=url)


def test_a_drill_ends_when_others_suffer(prometheus: Prometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brokerdrill.gameday.guards.METRIC_PERIOD_S", 0.01)
    prometheus.answers = [vector("0"), vector(), {"status": "error", "error": "not yet"}, vector("9")]
    watch = watching(Guard(metrics=[prometheus.metric()]))
    assert asyncio.run(watch.too_high(NONE)) == "errors a second is 9, above 1"
    assert watch.ended == "failed"
    assert len(prometheus.heard) == 4


def test_a_drill_ends_when_nobody_can_say(prometheus: Prometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brokerdrill.gameday.guards.METRIC_PERIOD_S", 0.01)
    prometheus.answers = [vector("0"), {"status": "error", "error": "gone"}]
    watch = watching(Guard(metrics=[prometheus.metric()], metrics_silent_s=0.2))
    assert asyncio.run(watch.too_high(NONE)).endswith("gone")
    assert len(prometheus.heard) > 2


def test_two_of_one_name_are_two(prometheus: Prometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brokerdrill.gameday.guards.METRIC_PERIOD_S", 0.01)
    gone = prometheus.metric(prometheus="http://127.0.0.1:1")
    watch = watching(Guard(metrics=[prometheus.metric(), gone], metrics_silent_s=0.2))
    assert "errors a second cannot be read" in asyncio.run(watch.too_high(NONE))


def test_its_files_are_seen_from_the_game_days_folder(tmp_path: Path) -> None:
    file = tmp_path / "weekly.yml"
    file.write_text(
        "title: T\ntopologies: [pair]\nguard:\n  metrics:\n"
        "  - {name: e, prometheus: 'https://p', query: up, above: 1, token_file: token, ca_file: /etc/ca.pem}\n"
    )
    (metric,) = load_gameday(file)[1].guard.metrics
    assert (metric.token_file, metric.ca_file) == (tmp_path / "token", Path("/etc/ca.pem"))
