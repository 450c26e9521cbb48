"""The authorisation hook: a clear yes is a yes, everything else a no."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_session_router.admission.authorization import UNAVAILABLE, AlwaysAllow, HttpAuthorizer, answer, authorizer_of
from amqp_session_router.base.errors import UsageError
from amqp_session_router.base.model import Allowed, AuthRequest, Denied, Identity
from amqp_session_router.config.schema import AuthorizationPart

REQUEST = AuthRequest(
    Identity(vhost="orders", user="alice", client_id="c", source_ip="192.0.2.1", listener="plain"),
    "PLAIN",
    b"\0alice\0secret",
)


def ok(body: object) -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw


def ask(reply: bytes | Callable[[], bytes], header_file: Path | None = None) -> tuple[Allowed | Denied, bytes]:
    """Return the verdict when a hook sends `reply` (empty: it closes), and what it was sent."""

    async def story() -> tuple[Allowed | Denied, bytes]:
        got = b""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal got
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(next(line for line in head.lower().split(b"\r\n") if b"content-length" in line).split(b":")[1])
            got = head + await reader.readexactly(length)
            writer.write(reply if isinstance(reply, bytes) else reply())
            await writer.drain()
            if reply != b"silence":
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        part = AuthorizationPart(
            url=f"http://127.0.0.1:{port}/auth?tier=dev",
            timeout=0.3 if reply == b"silence" else 10.0,
            header_file=str(header_file) if header_file else None,
        )
        authorizer = HttpAuthorizer(part)
        try:
            return await authorizer.authorize(REQUEST), got
        finally:
            await authorizer.close()
            server.close()

    return asyncio.run(story())


def test_what_the_hook_is_asked(tmp_path: Path) -> None:
    (tmp_path / "header").write_text("Authorization: Bearer token\n")
    verdict, got = ask(ok({"result": "allow"}), tmp_path / "header")
    assert verdict == Allowed()
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /auth?tier=dev HTTP/1.1\r\n")
    assert b"authorization: bearer token" in head.lower()
    assert json.loads(body) == {
        "vhost": "orders",
        "user": "alice",
        "client_id": "c",
        "source_ip": "192.0.2.1",
        "sni_host": "",
        "listener": "plain",
        "mechanism": "PLAIN",
        "response": base64.b64encode(b"\0alice\0secret").decode(),
        "certificate_name": "",
    }


def test_a_yes_with_roles_and_other_credentials() -> None:
    body = {"result": "allow", "roles": ["svc"], "mechanism": "PLAIN", "response": base64.b64encode(b"\0b\0c").decode()}
    assert ask(ok(body))[0] == Allowed(("svc",), "PLAIN", b"\0b\0c")


def test_a_no_with_its_reason() -> None:
    assert ask(ok({"result": "deny", "reason": "not today"}))[0] == Denied("not today", 403)
    assert ask(ok({"result": "deny"}))[0] == Denied("access refused by the authorisation service", 403)
    long = ask(ok({"result": "deny", "reason": "ü" * 1000}))[0]
    assert isinstance(long, Denied)
    assert len(long.text.encode()) <= 255


@pytest.mark.parametrize(
    "reply",
    {
        "closes": b"",
        "silent": b"silence",
        "no HTTP": b"\x00\x01\x02\r\n\r\n",
        "403": b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
        "500 that says allow": b'HTTP/1.1 500 Error\r\nContent-Length: 19\r\n\r\n{"result": "allow"}',
        "201 that says allow": b'HTTP/1.1 201 Created\r\nContent-Length: 19\r\n\r\n{"result": "allow"}',
        "redirect": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        "cut off": b'HTTP/1.1 200 OK\r\nContent-Length: 190\r\n\r\n{"result": "allow"}',
        "empty": ok(b""),
        "too much": ok(b'{"result": "allow", "x": "' + b"x" * 100_000 + b'"}'),
        "a list": ok(["allow"]),
        "yes": ok({"result": "yes"}),
        "true": ok({"result": True}),
        "roles that are none": ok({"result": "allow", "roles": "admin"}),
        "half credentials": ok({"result": "allow", "mechanism": "PLAIN"}),
        "no base64": ok({"result": "allow", "mechanism": "PLAIN", "response": "!!"}),
        "deep": ok(b"[" * 60_000),
    }.values(),
)
def test_everything_else_is_a_no(reply: bytes) -> None:
    assert ask(reply)[0] == UNAVAILABLE


def test_a_hook_that_is_not_there_is_a_no() -> None:
    async def story() -> Allowed | Denied:
        authorizer = HttpAuthorizer(AuthorizationPart(url="http://127.0.0.1:1/", timeout=5.0))
        try:
            return await authorizer.authorize(REQUEST)
        finally:
            await authorizer.close()

    assert asyncio.run(story()) == UNAVAILABLE


@given(st.binary())
def test_any_answer_is_a_verdict_or_a_value_error(raw: bytes) -> None:
    try:
        verdict = answer(raw)
    except ValueError:
        return
    assert isinstance(verdict, Allowed | Denied)


def test_the_log_has_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    ask(b"HTTP/1.1 500 Error\r\nContent-Length: 0\r\n\r\n")
    assert "secret" not in repr(REQUEST)
    assert not [record for record in caplog.records if "secret" in str(record.__dict__)]


def test_without_a_hook_the_broker_alone_decides() -> None:
    authorizer = authorizer_of(None)
    assert isinstance(authorizer, AlwaysAllow)
    assert asyncio.run(authorizer.authorize(REQUEST)) == Allowed()


@pytest.mark.parametrize("text", ["no colon", ": no name", "A: b\nC: d", "Ü: b"])
def test_a_header_file_that_is_no_header(tmp_path: Path, text: str) -> None:
    (tmp_path / "header").write_text(text)
    with pytest.raises(UsageError, match="is not one line 'Name: value'"):
        HttpAuthorizer(AuthorizationPart(url="http://x", header_file=str(tmp_path / "header")))


def test_an_authority_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("nothing")
    with pytest.raises(UsageError, match=r"authorization\.ca_file"):
        HttpAuthorizer(AuthorizationPart(url="https://x", ca_file=str(tmp_path / "ca")))
