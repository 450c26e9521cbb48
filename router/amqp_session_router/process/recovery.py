"""What the next worker finds of the sessions of one that was killed, and makes its own.

Each step leaves a journal that says where every byte is: the next worker may be killed at any place, too, and the one
after it goes on from there. First what was in flight goes to a pipe of its own session (`rescue`), then the state of
each session is read from the journal (`recovered`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

from amqp_session_router.net import tcp_info
from amqp_session_router.net.tcp_info import counts
from amqp_session_router.relay.flow_transfer import FlowState
from amqp_session_router.relay.journal import UNKNOWN, Journal, JournaledSession
from amqp_session_router.relay.pipes import Pipe, PipePool, pipe_of

Flows = tuple[list[dict[str, Any]], tuple[Pipe | None, Pipe | None]]


def rescue(journal: Journal, pool: PipePool) -> dict[tuple[int, int], bytes | None]:
    """Bring what the process that died was moving to a pipe of its session.

    Returns by slot and direction the bytes that found no room in a pipe and are only in this process now; None: how
    much was staged is unknown.
    """
    read, write = journal.active_pipe
    over: dict[tuple[int, int], bytes | None] = {}
    for one in [*journal.sessions()]:
        for index, pipe in enumerate(one.pipes):
            if pipe and (one.splicing[index] or one.staging[index]):
                journal.rescued(one.slot, index, pipe)
            elif one.splicing[index]:
                moving = pipe_of(read, write)
                journal.rescued(one.slot, index, moving.ends if moving.filled() else 0)
            elif one.staging[index]:
                try:
                    data = journal.staged(_in_flight(one, index))
                except OSError:
                    over[one.slot, index] = None
                    continue
                ends, over[one.slot, index] = _poured(data, pool)
                journal.rescued(one.slot, index, ends)
    journal.clear_active()
    return over


def recovered(journal: Journal, one: JournaledSession, over: Mapping[tuple[int, int], bytes | None]) -> Flows:
    """Return for each direction of a session what `flow_transfer.import_flow` goes on from, and its pipe.

    `over`: what `rescue` returned. Raises OSError where bytes are missing: to go on would be to leave them out.
    """
    states: list[dict[str, Any]] = []
    pipes: list[Pipe | None] = []
    for index, (rest, ends) in enumerate(zip(one.rest, one.pipes, strict=True)):
        outbox = over.get((one.slot, index), b"")
        if outbox is None:
            raise OSError(0, "how many bytes were in flight is unknown")
        pipe = pipe_of(ends & 0xFFFFFFFF, ends >> 32) if ends else None
        left = 0 if pipe is None else pipe.filled()
        if pipe is not None and not left:
            journal.emptied(one.slot, index)
            pipe.close()
            pipe = None
        missing = _missing(one, index, left + len(outbox))
        if missing:
            raise OSError(0, f"{missing} bytes were in the memory of the process that died")
        state = FlowState(
            rest=None if rest == UNKNOWN else rest, left=left, outbox=outbox, blocked=index == 1 and one.blocked
        )
        states.append(state.message())
        pipes.append(pipe)
    return states, (pipes[0], pipes[1])


def _poured(data: bytes, pool: PipePool) -> tuple[int, bytes]:
    """Put `data` into a pipe; return both ends as one journal word (0: no pipe), and the bytes that did not fit."""
    if not data:
        return 0, b""
    try:
        pipe = pool.acquire()
    except OSError:
        return 0, data
    return pipe.ends, data[os.write(pipe.write, data) :]


def _in_flight(one: JournaledSession, index: int) -> int:
    """Return how many bytes of a direction were read and not written, by the kernel's counts; raises OSError."""
    ends = (one.client, one.broker) if index == 0 else (one.broker, one.client)
    with socket.socket(fileno=os.dup(ends[0])) as source, socket.socket(fileno=os.dup(ends[1])) as sink:
        if tcp_info.over(source) or tcp_info.over(sink):
            # It may or may not have counted the end of the stream as a byte.
            raise OSError(0, "the connection is over")
        return (counts(source).read - counts(sink).written - one.count_offset[index]) % (1 << 64)


def _missing(one: JournaledSession, index: int, found: int) -> int:
    """Return how many bytes of a direction are neither written nor among those `found`; 0 where the counts say nothing,
    as after a reset."""
    try:
        missing = (_in_flight(one, index) - found) % (1 << 64)
    except OSError:
        return 0
    return missing if missing < 1 << 63 else 0
