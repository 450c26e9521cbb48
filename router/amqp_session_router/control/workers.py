"""How the workers of one router act as one: the leader sends the others the state to go by, and asks them.

Each of the others connects to the leader's socket, which listens as long as the router runs, says which one it is, and
answers what it is asked. It gets the state (configuration and paused vhosts) at once, and whenever that changes; if
either end was killed, its successor connects, or is connected to, anew. A message is a line of JSON with `size`, the
bytes of JSON or text that follow.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from amqp_session_router.base.errors import RouterError, UsageError
from amqp_session_router.base.paced import paced
from amqp_session_router.control.replies import decoded
from amqp_session_router.net import unix_server

log = logging.getLogger(__name__)

Message = dict[str, Any]
Answer = Callable[[str, bytes], Awaitable[bytes]]
"""Answers what is asked: `state`, `words` or the name of a page. Raises RouterError."""

STATE, WORDS = "state", "words"
WITHIN = 10.0
"""Seconds in which every worker is to have answered."""
_AGAIN = 0.1


class Line:
    """One connection between two workers; either end may ask."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer | None) -> None:
        self._reader, self._writer = reader, writer
        self._answer = answer
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._number = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, what: str, body: bytes) -> bytes:
        """Return the answer. Raises what the other end raised (RouterError), ConnectionError if it went."""
        self._number += 1
        number = self._number
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            await self.send({"ask": what, "number": number}, body)
            return await answer
        finally:
            self._asked.pop(number, None)

    async def send(self, message: Message, body: bytes = b"") -> None:
        """Send one message; raises ConnectionError."""
        if self._writer.is_closing():
            raise ConnectionResetError
        self._writer.write(json.dumps(message | {"size": len(body)}).encode() + b"\n" + body)
        await self._writer.drain()

    async def receive(self) -> tuple[Message, bytes] | None:
        """Return the next message, None at the end."""
        try:
            message: Message = json.loads(await self._reader.readuntil(b"\n"))
            return message, await self._reader.readexactly(message["size"])
        except (OSError, asyncio.IncompleteReadError):
            return None

    async def run(self) -> None:
        """Take in answers and answer, until the other end goes."""
        try:
            while (packet := await self.receive()) is not None:
                message, body = packet
                if "ask" in message:
                    task = asyncio.create_task(self._reply(message, body))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                elif (answer := self._asked.get(message["number"])) is not None and not answer.done():
                    if "error" in message:
                        kind = UsageError if message["usage"] else RouterError
                        answer.set_exception(kind(message["error"]))
                    else:
                        answer.set_result(body)
        finally:
            self.close()

    async def _reply(self, message: Message, body: bytes) -> None:
        assert self._answer is not None
        reply: Message = {"number": message["number"]}
        answer = b""
        try:
            answer = await self._answer(message["ask"], body)
        except RouterError as error:
            reply |= {"error": str(error), "usage": isinstance(error, UsageError)}
        except Exception:
            log.exception("an answer to the leader failed")
            reply |= {"error": "a worker failed to do it; the router's log says why", "usage": False}
        with contextlib.suppress(OSError):
            await self.send(reply, answer)

    def close(self) -> None:
        """End it: who waits for an answer gets ConnectionError."""
        self._writer.close()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError())


class Leader:
    """The leader's end: the others, by their index."""

    def __init__(self, workers: int, state: Callable[[], Message]) -> None:
        """`workers`: how many there are, with the leader; `state`: what the others are to go by."""
        self._others = range(1, workers)
        self._state = state
        self._lines: dict[int, Line] = {}
        self._connected = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._telling = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, listening: socket.socket) -> None:
        """Take in the others."""
        self._server = await unix_server.serve(self._serve, listening)

    async def stop(self) -> None:
        """Take in no more, and leave the others to the next leader."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        line = Line(reader, writer, None)
        index = -1
        try:
            packet = await line.receive()
            if packet is None:
                return
            index = packet[0]["worker"]
            if (old := self._lines.get(index)) is not None:
                old.close()
            running = asyncio.create_task(line.run())
            try:
                await self._tell(line, json.dumps(self._state()).encode(), index)
                self._lines[index] = line
                self._connected.set()
                await running
            finally:
                running.cancel()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            line.close()
            if self._lines.get(index) is line:
                del self._lines[index]

    async def _tell(self, line: Line, state: bytes, index: int) -> None:
        try:
            await line.ask(STATE, state)
        except RouterError as error:
            log.error("a worker does not go by what the others do: %s", error, extra={"of": index})

    async def _line(self, index: int) -> Line:
        while (line := self._lines.get(index)) is None:
            self._connected.clear()
            await self._connected.wait()
        return line

    async def ask(self, index: int, what: str, body: bytes, within: float = WITHIN) -> bytes:
        """Return one worker's answer, its successor's if it is killed meanwhile. Raises RouterError."""
        try:
            async with asyncio.timeout(within):
                while True:
                    line = await self._line(index)
                    try:
                        return await line.ask(what, body)
                    except OSError:
                        if self._lines.get(index) is line:
                            del self._lines[index]
        except TimeoutError:
            raise RouterError(
                f"worker {index} has not answered within {within:g} s; once it does, it goes by what the others do"
            ) from None

    async def ask_all(self, what: str, body: bytes, within: float = WITHIN) -> list[bytes | RouterError]:
        """Return what each of the others answers, or why it does not."""
        found = await asyncio.gather(
            *(self.ask(index, what, body, within) for index in self._others), return_exceptions=True
        )
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, RouterError):
                raise one
        return found  # type: ignore[return-value]

    async def agree(self) -> list[Message]:
        """Have all go by the state of now; returns what each answers. Raises UsageError if one cannot, RouterError if
        one has not confirmed in time (it goes by the state when it answers)."""
        async with self._telling:
            answers = await self.ask_all(STATE, json.dumps(self._state()).encode())
        failed = [one for one in answers if isinstance(one, RouterError)]
        for one in sorted(failed, key=lambda error: not isinstance(error, UsageError)):
            raise one
        return [json.loads(one) for one in answers if isinstance(one, bytes)]

    async def call(self, words: Sequence[str], within: float = WITHIN) -> list[Message | RouterError]:
        """Return each one's reply to a verb, or why there is none."""
        answers = await self.ask_all(WORDS, json.dumps([*words]).encode(), within)
        return [await paced(decoded(one)) if isinstance(one, bytes) else one for one in answers]


class Follower:
    """The end of one of the others."""

    def __init__(self, path: str, index: int, answer: Answer) -> None:
        """`path`: the leader's socket; `answer`: does what the leader asks."""
        self._path = path
        self._index = index
        self._answer_it = answer
        self._task: asyncio.Task[None] | None = None
        self.begun = asyncio.Event()
        """Set once it goes by the state that the leader sent."""

    async def start(self) -> None:
        """Follow the leader, and each successor of it."""
        self._task = asyncio.create_task(self._follow(), name="follow the leader")

    async def stop(self) -> None:
        """Follow no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_unix_connection(self._path)
                line = Line(reader, writer, self._answer)
                try:
                    await line.send({"worker": self._index})
                    await line.run()
                finally:
                    line.close()
            await asyncio.sleep(_AGAIN)

    async def _answer(self, what: str, body: bytes) -> bytes:
        answer = await self._answer_it(what, body)
        if what == STATE:
            self.begun.set()
        return answer
