"""What Prometheus says of its alerts, and what the watch writes of it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from brokerdrill.base.clock import now_ns
from brokerdrill.base.progress import Progress
from brokerdrill.hosts.connection import connected
from brokerdrill.inventory.descriptors import PrometheusDescriptor
from brokerdrill.inventory.topology import Host
from brokerdrill.ledger.events import EventWriter
from brokerdrill.runner.watching.alerts import AlertKey, alert_watches, firing

DOWN = {"alertname": "BrokerDown", "instance": "artemis1", "store": "pair", "host": "h1", "severity": "critical"}
NOBODY = {"alertname": "NoActiveBroker", "store": "pair"}
OTHER = {"alertname": "Watchdog"}


def answer(*alerts: dict[str, str], state: str = "firing") -> dict[str, Any]:
    """As /api/v1/alerts of Prometheus 2.42 says it."""
    told = [
        {
            "labels": labels,
            "annotations": {"summary": "x"},
            "state": state,
            "activeAt": "2026-11-23T18:00:00Z",
            "value": "1e+00",
        }
        for labels in alerts
    ]
    return {"status": "success", "data": {"alerts": told}}


def test_pending_alerts_do_not_fire() -> None:
    assert firing(answer(DOWN, state="pending")) == {}
    assert list(firing(answer(DOWN, NOBODY, OTHER))) == [
        AlertKey("BrokerDown", "artemis1", "pair"),
        AlertKey("NoActiveBroker", None, "pair"),
        AlertKey("Watchdog", None, None),
    ]


@pytest.mark.parametrize("strange", [{}, [], None, {"status": "success", "data": {"alerts": [1]}}, {"status": "error"}])
def test_what_is_no_list_of_alerts_is_refused(strange: Any) -> None:
    with pytest.raises(ValueError, match=r"no list of alerts|error"):
        firing(strange)


class Prometheus:
    """A server that answers what it is told, and with status 503 while `silent`."""

    def __init__(self) -> None:
        self.says = answer()
        self.silent = False
        self.asked = 0
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        told = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                told.asked += 1
                body = b"not ready" if told.silent else json.dumps(told.says).encode()
                self.send_response(503 if told.silent else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    found = Prometheus()
    yield found
    found.server.shutdown()
    found.server.server_close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


def rows(run_dir: Path) -> list[dict[str, Any]]:
    files = (run_dir / "events").iterdir()
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def test_every_change_is_written_and_what_is_not_known_is_said(prometheus: Prometheus, tmp_path: Path) -> None:
    port = prometheus.server.server_address[1]
    listener = {"name": "http", "address": "127.0.0.1", "port": port, "protocol": "http"}
    told = {"schema": 1, "product": "prometheus", "instance": "p", "host": "here", "listeners": [listener]}
    descriptor = PrometheusDescriptor.model_validate(told)
    host = Host("here", "127.0.0.1", 22, "root", None, (), {"ansible_connection": "local"})

    def seen(**columns: Any) -> bool:
        return any(all(row.get(name) == value for name, value in columns.items()) for row in rows(tmp_path))

    async def main() -> None:
        events = EventWriter(tmp_path, "run", now_ns())
        async with connected([host]) as connections:
            progress = Progress(Console(quiet=True))
            (watch,) = alert_watches([descriptor], connections, {"artemis1": "pair"}, events, progress)
            prometheus.says = answer(OTHER)
            watch.start()
            await until(lambda: prometheus.asked > 1)
            assert rows(tmp_path) == [], "nothing before it is told to record"
            watch.record()
            await until(lambda: seen(name="alerts watched", value="begin"))
            prometheus.says = answer(OTHER, DOWN, NOBODY)
            await until(lambda: seen(name="NoActiveBroker", value="firing"))
            prometheus.silent = True
            await until(lambda: seen(name="alerts watched", value="end"))
            prometheus.silent, prometheus.says = False, answer(NOBODY)
            await until(lambda: seen(name="BrokerDown", value="cleared"))
            await watch.stop()
        events.close()

    asyncio.run(main())
    found = rows(tmp_path)
    assert [(row["kind"], row["name"], row["value"]) for row in found] == [
        ("alert", "Watchdog", "firing"),
        ("note", "alerts watched", "begin"),
        ("alert", "BrokerDown", "firing"),
        ("alert", "NoActiveBroker", "firing"),
        ("note", "alerts watched", "end"),
        ("note", "alerts watched", "begin"),
        ("alert", "BrokerDown", "cleared"),
        ("alert", "Watchdog", "cleared"),
        ("note", "alerts watched", "end"),
    ]
    down, cleared = found[2], found[6]
    assert (down["target"], down["instance"], down["store"]) == ("h1", "artemis1", "pair")
    assert down["detail"] == DOWN
    silence = found[5]["t_ns"] - found[4]["t_ns"]
    assert silence > 0, "it is known again from the answer on, not since recording began"
    assert cleared["uncertainty_ns"] >= silence, "it may have cleared at any time of the silence"


def test_without_a_prometheus_nobody_is_asked() -> None:
    assert alert_watches([], {}, {}, None, None) == []  # type: ignore[arg-type]
