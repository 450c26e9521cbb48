"""What tests of the CORE client do with it: send and drain batches, and make calls that a thread waits in."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence

import jpype

from brokerdrill.workload.client import Message, Outcome
from brokerdrill.workload.config import BrokerEndpoint
from brokerdrill.workload.core_jms import CoreJms
from brokerdrill.workload.header import sha
from tests.workload.standalone_broker import QUEUES, Relay
from tests.workload.worker_process import WorkerProcess

Q = QUEUES[0]
# A blocked call is given back once the client has reconnected (seen: a shorter time-out comes first), however long the
# broker takes to start on a busy machine.
WAITS_MS = 120_000
OpenClient = Callable[..., CoreJms]
StartWorker = Callable[..., WorkerProcess]


def through(relay: Relay) -> tuple[BrokerEndpoint, ...]:
    """The relay as the one broker that a client dials."""
    return (BrokerEndpoint("127.0.0.1", relay.port, "a1", "h1"),)


def batch(first: int, size: int = 3) -> list[Message]:
    return [
        Message(f"p-{n}", n, None, body, sha(body)) for n in range(first, first + size) for body in [b"body %d" % n * 9]
    ]


def send(client: CoreJms, messages: list[Message], attempt: int = 0) -> None:
    assert [client.send(Q, message, attempt) for message in messages] == [Outcome("ok")] * len(messages)


def drain(client: CoreJms) -> list[str]:
    """Receive and commit until nothing comes; return the message ids."""
    found = []
    while delivery := client.receive(1.0):
        found.append(delivery.message_id)
    assert client.commit(resent=False) == Outcome("ok")
    return found


def wait_until(condition: Callable[[], bool], deadline_s: float = 30) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.02)


_asked = itertools.count()


def asking(call: Callable[[], None]) -> threading.Thread:
    """Return a thread that makes the call, by whose name in Java `until_blocked` finds it."""
    name = f"asking-{next(_asked)}"

    def ask() -> None:
        jpype.JClass("java.lang.Thread").currentThread().setName(name)
        call()

    return threading.Thread(target=ask, name=name, daemon=True)


def until_blocked() -> None:
    """Wait until a thread of `asking` waits for the broker's answer: who is only about to is given back by nobody."""
    wait_until(
        lambda: any(
            _within(calls, "ConditionObject.await") and _within(calls, "ChannelImpl.sendBlocking")
            for name, calls in CoreJms.stacks().items()
            if name.startswith("asking-")
        )
    )


def _within(calls: Sequence[str], name: str) -> bool:
    return any(name in call for call in calls)


def in_thread(call: Callable[[], Outcome]) -> Callable[[], Outcome]:
    """Make the call in a thread; the function returned waits for its outcome."""
    results: list[Outcome] = []
    thread = asking(lambda: results.append(call()))
    thread.start()

    def wait() -> Outcome:
        thread.join(60)
        assert results, f"the call did not return: {CoreJms.stacks()}"
        return results[0]

    return wait
