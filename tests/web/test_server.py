"""The server: what it answers, to whom, and what only the token may."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from brokerdrill.base.errors import InfrastructureError, UsageError
from brokerdrill.runner.guards.stop_files import ABORT_FILE
from brokerdrill.web.serve import ServeSettings, check, listening

from .conftest import TOKEN
from .running import Running


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_reads_are_free_and_an_abort_needs_the_token(serve: Callable[..., str], tmp_path: Path) -> None:
    address = serve()
    assert httpx.get(f"{address}/state.json").json() is None
    page = httpx.get(f"{address}/")
    assert "connect-src 'self'" in page.headers["content-security-policy"]
    assert "There is no run." in page.text
    assert httpx.post(f"{address}/abort", headers=bearer(TOKEN)).status_code == 409
    with Running(tmp_path / "runs") as run:
        run.load()
        run.sample(5)
        assert httpx.get(f"{address}/state.json").json()["acknowledged"] == 5
        for headers in ({}, bearer("another-token-of-that-length"), {"Authorization": f"Basic {TOKEN}"}):
            answer = httpx.post(f"{address}/abort", headers=headers)
            assert (answer.status_code, answer.json()) == (401, {"error": "that is not the token"})
        assert httpx.get(f"{address}/abort", headers=bearer(TOKEN)).status_code == 405
        assert not (run.run_dir / ABORT_FILE).exists()
        answer = httpx.post(f"{address}/abort", headers=bearer(TOKEN))
        assert (answer.status_code, answer.json()) == (200, {"run": run.run_dir.name})
        assert (run.run_dir / ABORT_FILE).read_text() == "from the page\n"


def test_without_a_token_nothing_can_be_aborted(serve: Callable[..., str], tmp_path: Path) -> None:
    address = serve(token=None)
    with Running(tmp_path / "runs") as run:
        assert 'id="token"' not in httpx.get(f"{address}/").text
        answer = httpx.post(f"{address}/abort", headers=bearer(TOKEN))
        assert answer.status_code == 403
        assert not (run.run_dir / ABORT_FILE).exists()


def test_nothing_but_reports_is_served(serve: Callable[..., str], tmp_path: Path) -> None:
    address = serve()
    run = tmp_path / "runs" / "run-1"
    run.mkdir()
    (run / "report.html").write_text("the report")
    (run / "journal.jsonl").write_text("secret")
    (tmp_path / "report.html").write_text("outside")
    assert httpx.get(f"{address}/runs/run-1/report.html").text == "the report"
    for path in (
        "runs/run-1/journal.jsonl",
        "runs/../report.html",
        "runs/%2e%2e/report.html",
        "runs/..%2Frun-1/report.html",
        "runs/run-1/..%2F..%2Freport.html",
        "runs/none/report.html",
    ):
        assert httpx.get(f"{address}/{path}").status_code == 404, path


def test_a_name_that_is_not_this_servers_is_refused(serve: Callable[..., str]) -> None:
    address = serve()
    assert httpx.get(f"{address}/", headers={"Host": "evil.example"}).status_code == 400
    named = serve("--name", "drills.example")
    assert httpx.get(f"{named}/", headers={"Host": "drills.example"}).status_code == 200


def test_watchers_hear_of_a_change_at_once_behind_a_proxy_too(serve: Callable[..., str], tmp_path: Path) -> None:
    # The proxy takes its prefix away.
    address = serve("--prefix", "/drills")
    with Running(tmp_path / "runs") as run:
        run.load()
        run.sample(1)
        streams = [httpx.stream("GET", f"{address}/events", timeout=30) for _ in range(3)]
        answers = [stream.__enter__() for stream in streams]
        lines = [answer.iter_lines() for answer in answers]
        try:
            for number in (2, 3, 4):
                run.sample(1)
                written = time.monotonic()
                for each in lines:
                    until(each, number)
                assert time.monotonic() - written < 10
        finally:
            for stream in streams:
                stream.__exit__(None, None, None)


def until(lines, acknowledged: int) -> None:  # type: ignore[no-untyped-def]
    for line in lines:
        if line.startswith("data: ") and (json.loads(line[6:]) or {}).get("acknowledged") == acknowledged:
            return
    raise AssertionError(f"{acknowledged} never came")


def test_tls(serve: Callable[..., str], tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    address = serve("--tls-cert", str(certificate), "--tls-key", str(key), scheme="https")
    assert httpx.get(f"{address}/", verify=ssl.create_default_context(cafile=certificate)).status_code == 200


@pytest.mark.parametrize(
    ("settings", "token", "message"),
    [
        (ServeSettings(certificate=Path("/x")), None, "--tls-cert and --tls-key go together"),
        (ServeSettings(certificate=Path("/x"), key=Path("/y")), None, "/x is no file"),
        (ServeSettings(prefix="drills"), None, "--prefix drills does not begin with /"),
        (ServeSettings(), "short", "at least 16 characters"),
        (ServeSettings(host="0.0.0.0"), TOKEN, "in the clear"),
    ],
)
def test_settings_that_are_refused(settings: ServeSettings, token: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(settings, token)


def test_settings_that_are_fine() -> None:
    check(ServeSettings(), TOKEN)
    check(ServeSettings(host="::1"), TOKEN)
    check(ServeSettings(host="0.0.0.0"), None)


def test_a_port_that_is_taken_is_one_sentence() -> None:
    """It said where it serves, and ended without a word."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "brokerdrill", "serve", "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True)
    told = f"brokerdrill: 127.0.0.1 port {port} cannot be listened on: Address already in use\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, "", told)


def test_an_address_that_is_nowhere_is_one_sentence() -> None:
    for host, why in (("192.0.2.77", "Cannot assign requested address"), ("no.invalid", "")):
        with pytest.raises(InfrastructureError, match=f"{host} port 8099 cannot be listened on: {why}"):
            listening(ServeSettings(host=host))


def test_a_certificate_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text("none")
    with pytest.raises(UsageError, match="are no certificate and its key"):
        check(ServeSettings(certificate=tmp_path / "c.pem", key=tmp_path / "c.pem"), None)


def test_a_wrong_word_is_one_sentence() -> None:
    command = [sys.executable, "-m", "brokerdrill", "serve", "--tls-cert", "/nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "BROKERDRILL_TOKEN": ""})
    told = "brokerdrill: --tls-cert and --tls-key go together\n"
    assert (done.returncode, done.stdout, done.stderr) == (64, "", told)
