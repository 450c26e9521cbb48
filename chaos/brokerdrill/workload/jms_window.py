"""JMS clients with several messages in flight, as JMS 2.0 has them: sends with a CompletionListener.

A listener in Python would be called with each answer, from a thread of the library's, which costs 17 us and, in JPype
1.7.1, memory that is never given back. So the listener is put together in Java, from method handles, and puts what it
is called with, and when, into a queue:

    (proxy, method, arguments) -> queue.add(new Object[] {arguments, System.nanoTime()})
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jpype

from brokerdrill.workload import header
from brokerdrill.workload.client import DONE, Answer, ClientError, Message, Outcome
from brokerdrill.workload.config import WorkerConfig
from brokerdrill.workload.jms import JmsClient


class Completions:
    """The answers of one connection, for the JMS interfaces of the package `api`. Made when the JVM runs."""

    def __init__(self, api: str) -> None:
        self._queue = jpype.JClass("java.util.concurrent.LinkedBlockingQueue")()
        self._list = jpype.JClass("java.util.ArrayList")
        self._ms = jpype.JClass("java.util.concurrent.TimeUnit").MILLISECONDS
        wanted = jpype.JClass(f"{api}.CompletionListener").class_
        proxy = jpype.JClass("java.lang.reflect.Proxy")
        interfaces = jpype.JArray(jpype.JClass("java.lang.Class"))([wanted])
        self.listener = proxy.newProxyInstance(wanted.getClassLoader(), interfaces, self._handler())

    def _handler(self) -> Any:
        """The java.lang.reflect.InvocationHandler of the listener."""
        java = jpype.JClass("java.lang.invoke.MethodHandles")
        kind = jpype.JClass("java.lang.invoke.MethodType").methodType
        anything, array = jpype.JObject.class_, jpype.JArray(jpype.JObject).class_
        lookup = java.publicLookup()
        truth, long = jpype.JBoolean.class_, jpype.JLong.class_
        add = lookup.findVirtual(self._queue.getClass(), "add", kind(truth, anything)).bindTo(self._queue)
        now = lookup.findStatic(jpype.JClass("java.lang.System").class_, "nanoTime", kind(long)).asType(kind(anything))
        pair = java.identity(array).asCollector(array, 2)
        told = java.collectArguments(pair, 1, now).asType(kind(anything, anything))
        put = java.collectArguments(add, 0, told).asType(kind(anything, array))
        method = jpype.JClass("java.lang.reflect.Method").class_
        ignored = jpype.JArray(jpype.JClass("java.lang.Class"))([anything, method])
        proxies = jpype.JClass("java.lang.invoke.MethodHandleProxies")
        handler = jpype.JClass("java.lang.reflect.InvocationHandler").class_
        return proxies.asInterfaceInstance(handler, java.dropArguments(put, 0, ignored))

    def take(self, timeout_s: float) -> list[tuple[Any, Any, int]]:
        """Return what came since, waiting at most `timeout_s` for the first: Java's message, Java's throwable or None,
        and when (ns of the monotonic clock)."""
        first = self._queue.poll(max(0, int(timeout_s * 1000)), self._ms)
        if first is None:
            return []
        found = self._list()
        found.add(first)
        self._queue.drainTo(found)
        told = [(pair[0], int(pair[1])) for pair in found]
        return [(of[0], of[1] if len(of) > 1 else None, at) for of, at in told]


class WindowedJms(JmsClient):
    """A JMS client whose library sends asynchronously."""

    def __init__(self, config: WorkerConfig, name: str) -> None:
        super().__init__(config, name)
        self._completions: Completions | None = None

    def open(self, sends_to: Sequence[str], receives_from: Sequence[str], *, transacted: bool) -> None:
        # Anew: what an earlier connection's library says late is no answer.
        self._completions = Completions(self.api) if sends_to and self._config.window > 1 else None
        super().open(sends_to, receives_from, transacted=transacted)

    def hand_over(self, address: str, message: Message, attempt: int) -> Outcome:
        assert self._completions is not None
        properties = {**self._messages.properties([message], attempt), **self._marks([message])}
        try:
            java = self._session.createBytesMessage()
            java.writeBytes(jpype.JArray(jpype.JByte)(message.payload))
            for name, (value,) in properties.items():
                java.setStringProperty(name, value)
            self._producers[address].send(java, self._completions.listener)
        except self._throwable as error:
            return self._outcome(error, "send")
        return DONE

    def answers(self, timeout_s: float) -> Sequence[Answer]:
        if self._completions is None or self._session is None:
            raise ClientError("not connected")
        try:
            found = [self._answer(*told) for told in self._completions.take(timeout_s)]
            ended = None if found else self._ended()
        except self._throwable as error:
            raise ClientError(self._described(error)) from None
        if ended:
            raise ClientError(ended)
        return found

    def _answer(self, java: Any, error: Any, at_ns: int) -> Answer:
        said = header.read(self._tag, str(java.getStringProperty(header.PROPERTY)))
        assert said is not None
        outcome = DONE if error is None else self._outcome(error, "send")
        return Answer(said.message_id, outcome, at_ns)
