"""The control socket: a Unix socket of mode 0600, and one for those who may only look.

A request is one line of JSON, `{"words": [...]}`; the answer is one line, `{"ok": true, ...}` with `rows`, `text` or
`data`, or `{"ok": false, "error": "one sentence"}`. `STAT LISTEN` sends a line every second until the client goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Generator, Sequence
from pathlib import Path

from amqp_session_router.base.errors import RouterError, UsageError
from amqp_session_router.base.paced import paced
from amqp_session_router.control.merging import Merge, Reply
from amqp_session_router.control.replies import encoded
from amqp_session_router.control.running_configuration import changed
from amqp_session_router.control.service import Service
from amqp_session_router.control.verbs.declaration import Arguments, Changes, Scope, Verb
from amqp_session_router.control.verbs.session import no_session
from amqp_session_router.control.verbs.table import find
from amqp_session_router.control.workers import WORDS, Leader
from amqp_session_router.net import unix_server

log = logging.getLogger(__name__)

_LARGEST_REQUEST = 1024 * 1024
_MOST_READERS = 64
"""Connections at the socket that only reads: those who use it are not to be able to use the router up."""
_MOST_ANSWERS = 4
"""Answers at that socket that are made and sent at a time: one may have a row for each session."""
_TAKES = 30.0
"""Seconds in which a client has to take some of its answer."""


class Control:
    """The verbs on a Service. `call` is all of it but the socket."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def call(self, words: Sequence[str], only_reads: bool = False) -> Reply | AsyncIterator[Reply]:
        """Do what `words` say; returns the reply, or replies without end. Raises RouterError with nothing done, with
        `only_reads` for each verb that does more than show what is here."""
        verb, arguments = find(words)
        if only_reads and (verb.changes is not Changes.NOTHING or arguments.get("peer")):
            raise UsageError(f"this socket only reads: {verb.pattern} needs the control socket")
        if verb.changes is not Changes.NOTHING:
            log.info("control: %s", " ".join(words))
        if verb.edit is not None:
            edit = verb.edit
            return {"text": changed(await self._service.configuration.change(lambda data: edit(data, arguments)))}
        others = self._service.others
        if others is not None and verb.merge is not None:
            return await self._by_each(others, verb, verb.merge, arguments, words)
        if (
            others is not None
            and verb.scope is Scope.OWNER
            and arguments["id"] not in self._service.routing.sessions.live
        ):
            return await _by_owner(others, arguments["id"], words)
        return await self._own(verb, arguments)

    async def _own(self, verb: Verb, arguments: Arguments) -> Reply | AsyncIterator[Reply]:
        """Do what a verb says in this worker."""
        assert verb.act is not None
        reply = verb.act(self._service, arguments)
        if isinstance(reply, Generator):
            return await paced(reply)
        return await reply if isinstance(reply, Awaitable) else reply

    async def answer(self, what: str, body: bytes) -> bytes:
        """Answer the leader: a verb, or the metrics as a page. Raises RouterError."""
        if what == WORDS:
            verb, arguments = find(json.loads(body))
            own = await self._own(verb, arguments)
            assert isinstance(own, dict)
            return b"".join(await paced(encoded(own, lines=True)))
        return await self._service.endpoints.page(what)

    async def _by_each(
        self, others: Leader, verb: Verb, merge: Merge, arguments: Arguments, words: Sequence[str]
    ) -> Reply:
        """Have each worker do it. A name that any worker knows is none that is wrong."""
        # The others first: after an EXIT this worker may be gone before it has asked them.
        answers: list[Reply | RouterError] = [*await others.call(words)]
        try:
            own = await self._own(verb, arguments)
            assert isinstance(own, dict)
            answers.insert(0, own)
        except UsageError as error:
            answers.insert(0, error)
        wrong = [one for one in answers if isinstance(one, RouterError)]
        for one in wrong:
            if not isinstance(one, UsageError) or len(wrong) == len(answers):
                raise one
        return merge([one for one in answers if not isinstance(one, RouterError)])


async def _by_owner(others: Leader, session: str, words: Sequence[str]) -> Reply:
    """Have the worker that has a session do it."""
    answers = await others.call(words)
    for one in answers:
        if isinstance(one, dict):
            return one
    for one in answers:
        if not isinstance(one, UsageError):
            assert isinstance(one, RouterError)
            raise one
    raise no_session(session)


class ControlServer:
    """Serves `Control` on a Unix socket of mode 0600; one that `only_reads` on one of mode 0660, for a group.

    It is bound under another name and then renamed, so that it never has another mode, and so that a process that takes
    over replaces the old one's in one step. Only its own socket is removed when it stops.
    """

    def __init__(self, control: Control, path: Path, only_reads: bool = False, group: str | None = None) -> None:
        """`group`: of the socket; None: the process's own."""
        self._control = control
        self.path = path
        self._only_reads = only_reads
        self._group = group
        self._server: asyncio.Server | None = None
        self._identity: tuple[int, int] | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(_MOST_ANSWERS) if only_reads else contextlib.nullcontext()

    async def start(self, take_over: bool = False) -> None:
        """Listen; raises UsageError if another router answers there (unless `take_over`) or the path cannot be had."""
        if not take_over and await _answers(self.path):
            raise UsageError(f"another router answers at {self.path}")
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if self.path.exists() and not stat.S_ISSOCK(self.path.lstat().st_mode):
                raise UsageError(f"{self.path} is no socket: it stays as it is")
            fresh.unlink(missing_ok=True)
            before = os.umask(0o117 if self._only_reads else 0o177)
            try:
                listener.bind(str(fresh))
            finally:
                os.umask(before)
            if self._group is not None:
                shutil.chown(fresh, group=self._group)
            found = fresh.stat()
            listener.listen(16)
            listener.setblocking(False)
            fresh.replace(self.path)
        except (OSError, LookupError) as error:
            listener.close()
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            name = "read_socket" if self._only_reads else "socket"
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise UsageError(f"control.{name}: {self.path}: {why}") from None
        except UsageError:
            listener.close()
            raise
        self._identity = (found.st_dev, found.st_ino)
        self._server = await unix_server.serve(self._serve, listener, limit=_LARGEST_REQUEST)

    async def stop(self) -> None:
        """Listen no more, end the clients, remove the socket if it is still ours."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for task in [*self._clients]:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        with contextlib.suppress(OSError):
            found = self.path.lstat()
            if (found.st_dev, found.st_ino) == self._identity:
                self.path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._only_reads and len(self._clients) >= _MOST_READERS:
            writer.close()
            return
        self._clients.add(task)
        try:
            ahead = b""
            while line := ahead if ahead == b"\n" else ahead + await reader.readline():
                ahead = await self._answer(line, reader, writer)
        except TimeoutError:
            # What it has not taken by now it does not get.
            log.warning("a client of the control socket took nothing of its answer for %g s", _TAKES)
            writer.transport.abort()
        except (OSError, ValueError, asyncio.IncompleteReadError):
            pass  # the client went, or sent a line without end
        except asyncio.CancelledError:
            pass  # `stop`
        finally:
            self._clients.discard(task)
            writer.close()

    async def _answer(self, line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """Answer a request; return what was read of the next one."""
        try:
            stream = await self._one_answer(_words(line), writer)
            return b"" if stream is None else await _stream(stream, reader, writer)
        except RouterError as error:
            await _send(writer, {"ok": False, "error": str(error)})
        except OSError:
            raise
        except Exception:
            log.exception("a control verb failed")
            await _send(writer, {"ok": False, "error": "the router failed to do it; its log says why"})
        return b""

    async def _one_answer(self, words: Sequence[str], writer: asyncio.StreamWriter) -> AsyncIterator[Reply] | None:
        """Do what `words` say and send the reply; replies without end are returned."""
        async with self._turn:
            reply = await self._control.call(words, self._only_reads)
            if not isinstance(reply, dict):
                return reply
            parts = await paced(encoded({"ok": True, **reply}))
            # Ten thousands of rows are not kept for as long as a client takes its time.
            del reply
            await _send_parts(writer, parts)
            return None


def _words(line: bytes) -> list[str]:
    try:
        words = json.loads(line)["words"]
    except (ValueError, KeyError, TypeError, RecursionError):
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UsageError('a request is one line of JSON: {"words": ["HELP"]}')
    return words


async def _stream(replies: AsyncIterator[Reply], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Send `replies` until the client goes or asks for something else; return what was read of that."""
    # A client that is gone is noticed at its end of file, not only when sending fails.
    more = asyncio.create_task(reader.read(1))
    try:
        async for one in replies:
            if more.done():
                return more.result()
            await _send(writer, {"ok": True, **one})
    finally:
        more.cancel()
        # Nobody else may read before it has ended.
        await asyncio.wait([more])
    return b""


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> None:
    await _send_parts(writer, await paced(encoded(reply)))


async def _send_parts(writer: asyncio.StreamWriter, parts: list[bytes]) -> None:
    """Send a line, whose parts are let go as they are sent. Raises OSError where the client takes nothing any more."""
    parts.append(b"\n")
    parts.reverse()
    while parts:
        writer.write(parts.pop())
        # Of ten thousands of rows others are served in between, and no more is kept here than the client takes.
        await asyncio.sleep(0)
        async with asyncio.timeout(_TAKES):
            await writer.drain()


async def _answers(path: Path) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(str(path))
    except OSError:
        return False
    writer.close()
    return True
