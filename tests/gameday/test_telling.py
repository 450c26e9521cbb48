"""Who hears of a game day, over real HTTP and SMTP, and what is published."""

from __future__ import annotations

import datetime
import http.server
import json
import socketserver
import stat
import threading
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from brokerdrill.base.exposition import write
from brokerdrill.gameday.exposition import exposition
from brokerdrill.gameday.history import EXPECTED, MISSED, REFUSED, RUNNING, UNEXPECTED, Day, Held
from brokerdrill.gameday.model import GameDay
from brokerdrill.gameday.notify import beat, notify
from brokerdrill.gameday.pages import publish


def a_day(state: str = UNEXPECTED) -> Day:
    drills = [
        Held("kill_active", "pair", "2026-11-23T08:00:00+00:00", EXPECTED, "run-1"),
        Held("lost_reply", "pair", "2026-11-23T08:02:00+00:00", UNEXPECTED, "run-2", "verdict fail: <b>no_loss</b>"),
    ]
    return Day("20261123T080000", "2026-11-23T08:00:00+00:00", state, "2026-11-23T08:10:00+00:00", drills=drills)


class Hooks(http.server.ThreadingHTTPServer):
    """Takes webhooks; answers with `status`."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, Any]] = []
        self.status = 200
        taken = self

        class TellingHandler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                taken.taken.append((self.path, json.loads(body)))
                self.send_response(taken.status)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        super().__init__(("127.0.0.1", 0), TellingHandler)


class _Smtp(socketserver.StreamRequestHandler):
    """As much of a mail server as one message needs."""

    def handle(self) -> None:
        self.wfile.write(b"220 test\r\n")
        while line := self.rfile.readline():
            word = line[:4].upper()
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                mail = b""
                while (part := self.rfile.readline()) != b".\r\n":
                    mail += part
                self.server.mails.append(mail)  # type: ignore[attr-defined]
            if word == b"QUIT":
                self.wfile.write(b"221 bye\r\n")
                return
            self.wfile.write(b"250 ok\r\n")


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    with Hooks() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def plan(*channels: dict[str, Any], **more: Any) -> GameDay:
    return GameDay.model_validate({"title": "Weekly", "topologies": ["a"], "notify": [*channels], **more})


def test_webhook_and_slack(hooks: Hooks, tmp_path: Path) -> None:
    base = f"http://127.0.0.1:{hooks.server_port}"
    (tmp_path / "secret").write_text(f"{base}/T0/secret\n")
    one = plan(
        {"type": "webhook", "url": f"{base}/hook"},
        {"type": "slack", "url_file": str(tmp_path / "secret")},
        publish={"folder": str(tmp_path), "url": "https://drills.example/"},
    )
    assert notify("weekly", one, a_day()) == []
    (hook, body), (slack, message) = hooks.taken
    assert (hook, slack) == ("/hook", "/T0/secret")
    assert (body["gameday"], body["state"], body["as_expected"]) == ("weekly", UNEXPECTED, False)
    assert body["drills"][1] == {
        "drill": "lost_reply", "topology": "pair", "state": UNEXPECTED, "run": "run-2",
        "why": "verdict fail: <b>no_loss</b>",
    }  # fmt: skip
    assert message["text"].splitlines()[0] == "Game day Weekly: not as expected"
    assert message["text"].splitlines()[-1] == body["url"] == "https://drills.example/weekly/index.html"


def test_a_day_as_expected_is_told_only_to_who_asks(hooks: Hooks) -> None:
    base = f"http://127.0.0.1:{hooks.server_port}"
    one = plan({"type": "webhook", "url": f"{base}/a"}, {"type": "webhook", "url": f"{base}/b", "when": ["expected"]})
    assert notify("weekly", one, a_day(EXPECTED)) == []
    assert [path for path, _ in hooks.taken] == ["/b"]


def test_what_was_not_sent_is_said_without_the_secret(hooks: Hooks, tmp_path: Path) -> None:
    hooks.status = 403
    (tmp_path / "none").write_text("http://127.0.0.1:1/secret")
    one = plan(
        {"type": "slack", "url": f"http://127.0.0.1:{hooks.server_port}/secret"},
        {"type": "slack", "url_file": str(tmp_path / "none")},
        {"type": "slack", "url_file": str(tmp_path / "missing")},
        {"type": "slack", "url": "not a url, secret"},
    )
    problems = notify("weekly", one, a_day())
    assert [problem.split(": ")[0] for problem in problems] == [
        f"notification {number} (slack) was not sent" for number in (1, 2, 3, 4)
    ]
    assert "answers with status 403" in problems[0] and "cannot be read" in problems[2]
    assert not any("secret" in problem for problem in problems)


@pytest.mark.parametrize(
    ("state", "ending"),
    [(RUNNING, "/start"), (EXPECTED, ""), (UNEXPECTED, "/fail"), (MISSED, "/fail"), (REFUSED, "/log")],
)
def test_a_heartbeat_hears_of_every_day(hooks: Hooks, tmp_path: Path, state: str, ending: str) -> None:
    (tmp_path / "secret").write_text(f"http://127.0.0.1:{hooks.server_port}/ping/uuid?rid=1\n")
    assert beat("weekly", plan(heartbeat={"url_file": str(tmp_path / "secret")}), a_day(state)) is None
    assert [(path, body["state"]) for path, body in hooks.taken] == [(f"/ping/uuid{ending}?rid=1", state)]


def test_a_heartbeat_that_is_not_taken_is_said_without_its_url(hooks: Hooks) -> None:
    hooks.status = 404
    one = plan(heartbeat={"url": f"http://127.0.0.1:{hooks.server_port}/secret"})
    assert beat("weekly", one, a_day()) == "the heartbeat was not sent: it answers with status 404"
    assert beat("weekly", plan(), a_day()) is None


def test_metrics_say_when_one_was_last_held_and_as_expected(tmp_path: Path) -> None:
    good = Day("a", "2026-11-23T08:00:00+00:00", EXPECTED, "2026-11-23T08:10:00+00:00")
    bad = Day("b", "2026-11-24T08:00:00+00:00", UNEXPECTED, "2026-11-24T08:05:00+00:00")
    none = Day("c", "2026-11-25T08:00:00+00:00", REFUSED, "2026-11-25T08:00:01+00:00")
    write(tmp_path / "weekly.prom", exposition("weekly", [good, bad, none]))
    assert stat.S_IMODE((tmp_path / "weekly.prom").stat().st_mode) == 0o644
    families = {
        sample.name + (f"/{sample.labels['state']}" if "state" in sample.labels else ""): sample.value
        for family in text_string_to_metric_families((tmp_path / "weekly.prom").read_text())
        for sample in family.samples
    }
    times = "brokerdrill_gameday_{}_timestamp_seconds"
    assert families[times.format("last_success")] == datetime.datetime.fromisoformat(good.ended).timestamp()
    assert families[times.format("last_begin")] == datetime.datetime.fromisoformat(bad.began).timestamp()
    assert families[times.format("last_end")] == datetime.datetime.fromisoformat(none.ended).timestamp()
    assert families["brokerdrill_gameday_state/refused"] == 1
    assert sum(value for name, value in families.items() if "/" in name) == 1
    # Before the first one.
    assert times.format("last_success") + '{gameday="weekly"} 0' in exposition("weekly", [])


def test_mail() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Smtp) as server:
        server.mails = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        one = plan(
            {"type": "mail", "host": "127.0.0.1", "port": server.server_address[1], "sender": "drills@example.org",
             "to": ["team@example.org", "lead@example.org"]},
        )  # fmt: skip
        assert notify("weekly", one, a_day()) == []
        server.shutdown()
        (mail,) = map(message_from_bytes, server.mails)  # type: ignore[attr-defined]
    assert (mail["Subject"], mail["To"]) == ("Game day Weekly: not as expected", "team@example.org, lead@example.org")
    assert "lost_reply on pair: not as expected" in str(mail.get_payload())


def test_published_are_reports_and_nothing_else(tmp_path: Path) -> None:
    runs, folder = tmp_path / "runs", tmp_path / "www"
    for run in ("run-1", "run-2"):
        (runs / run / "ops").mkdir(parents=True)
        for name in ("report.html", "verdict.json", "journal.jsonl", "ops/worker.jsonl"):
            (runs / run / name).write_text(f"{run} {name}")
    page = publish("weekly", "Weekly <i>", [a_day()], runs, folder)
    assert page == folder / "weekly" / "index.html"
    text = page.read_text()
    assert 'href="runs/run-1/report.html"' in text
    assert "&lt;b&gt;no_loss" in text and "Weekly &lt;i&gt;" in text
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found == {
        "weekly/index.html", "weekly/gamedays.json",
        *(f"weekly/runs/{run}/{name}" for run in ("run-1", "run-2") for name in ("report.html", "verdict.json")),
    }  # fmt: skip
    assert json.loads((folder / "weekly" / "gamedays.json").read_text())[0]["state"] == UNEXPECTED
    # Again, with what is there already.
    assert publish("weekly", "Weekly <i>", [a_day()], runs, folder) == page
