"""Many JMS sends in one call into Java.

Through JPype each call costs about a microsecond and gives the interpreter to another thread, and a message takes six.
So the loop over a batch is put together in Java, once a process, from method handles (java.lang.invoke). It is:

    for (int i = 0; i < lengths.length; i++) {
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(bodies, offsets[i], lengths[i]);
        for (int j = 0; j < names.length; j++)
            message.setStringProperty(names[j], values[j][i]);
        producer.send(message);
        ends[i] = System.nanoTime();
    }
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jpype

SEPARATOR = "\n"


class BatchSend:
    """The loop, for the JMS interfaces of the package `api`. Made when the JVM runs; used by all threads."""

    _made: ClassVar[dict[str, BatchSend]] = {}
    _making: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def of(cls, api: str) -> BatchSend:
        """Return the process's only one for `api`."""
        with cls._making:
            if api not in cls._made:
                cls._made[api] = cls(api)
            return cls._made[api]

    def __init__(self, api: str) -> None:
        self._loop = _loop(api)
        self._bytes = jpype.JArray(jpype.JByte)
        self._ints = jpype.JArray(jpype.JInt)
        self._longs = jpype.JArray(jpype.JLong)
        self._strings = jpype.JArray(jpype.JString)
        self._strings_of = jpype.JArray(jpype.JString, 2)
        self._objects = jpype.JArray(jpype.JObject)
        self._separator = jpype.JString(SEPARATOR)

    def send(
        self, session: Any, producer: Any, bodies: Sequence[bytes], properties: Mapping[str, Sequence[str]], ends: Any
    ) -> None:
        """Send a message for each of `bodies` by Java's `producer` of `session`; `properties` are the values of each
        string property, message by message, in which there is no line's end.

        `ends`, of `times`, is filled as the sends return; those that did not are 0. Raises Java's throwables.
        """
        lengths = [len(body) for body in bodies]
        offsets = [0, *itertools.accumulate(lengths[:-1])]
        values = [jpype.JString(SEPARATOR.join(each)).split(self._separator, -1) for each in properties.values()]
        self._loop.invokeWithArguments(
            self._objects(
                [
                    session,
                    producer,
                    self._bytes(b"".join(bodies)),
                    self._ints(offsets),
                    self._ints(lengths),
                    self._strings(list(properties)),
                    self._strings_of(values),
                    ends,
                ]
            )
        )

    def times(self, size: int) -> Any:
        """Return an array for the ends of `size` sends, in ns of the monotonic clock, that of the interpreter."""
        return self._longs(size)


class _Handles:
    """Method handles of Java, put together: functions of Java objects that run without the interpreter."""

    def __init__(self) -> None:
        self.java = jpype.JClass("java.lang.invoke.MethodHandles")
        self.nothing = jpype.JClass("java.lang.Void").TYPE
        self._lookup = self.java.publicLookup()
        self._type = jpype.JClass("java.lang.invoke.MethodType")
        self._classes = jpype.JArray(jpype.JClass("java.lang.Class"))
        self._ints = jpype.JArray(jpype.JInt)

    def kind(self, result: Any, *arguments: Any) -> Any:
        """The type of a function."""
        of = result if result is self.nothing else result.class_
        return self._type.methodType(of, self._classes([one.class_ for one in arguments]))

    def method(self, owner: Any, name: str, result: Any, *arguments: Any, on: Any = None) -> Any:
        """The method as a function of its object, which is an `on`, and its arguments."""
        found = self._lookup.findVirtual(owner.class_, name, self.kind(result, *arguments))
        return found.asType(self.kind(result, on or owner, *arguments))

    def static(self, owner: Any, name: str, result: Any) -> Any:
        """The static method without arguments as a function."""
        return self._lookup.findStatic(owner.class_, name, self.kind(result))

    def element(self, array: Any) -> Any:
        """The function of an array and a number that is the element there."""
        return self.java.arrayElementGetter(array.class_)

    def given(self, handle: Any, result: Any, available: Sequence[Any], *places: int) -> Any:
        """The handle as a function of all that is `available`, of which it gets what stands at `places`."""
        return self.java.permuteArguments(handle, self.kind(result, *available), self._ints(list(places)))

    def in_turn(self, *steps: Any) -> Any:
        """Functions of the same arguments without a result, one after another."""
        *earlier, done = steps
        for step in reversed(earlier):
            done = self.java.foldArguments(done, step)
        return done

    def of(self, handle: Any, place: int, inner: Any) -> Any:
        """The handle with what `inner` returns as its argument at `place`."""
        return self.java.collectArguments(handle, place, inner)


def _loop(api: str) -> Any:
    """Put the loop together, of session, producer, bodies, offsets, lengths, names, values and ends; no result."""
    handles = _Handles()
    java, nothing = handles.java, handles.nothing
    session, producer, message = (
        jpype.JClass(f"{api}.{name}") for name in ("Session", "MessageProducer", "BytesMessage")
    )
    text, integer = jpype.JString, jpype.JInt
    many, ints, texts, table, longs = (
        jpype.JArray(jpype.JByte),
        jpype.JArray(integer),
        jpype.JArray(text),
        jpype.JArray(text, 2),
        jpype.JArray(jpype.JLong),
    )

    # The loop over properties: place, message, number of the message, names, values.
    value = handles.of(handles.element(texts), 0, handles.element(table))
    put = handles.method(jpype.JClass(f"{api}.Message"), "setStringProperty", nothing, text, text, on=message)
    put = handles.of(handles.of(put, 2, value), 1, handles.element(texts))
    put = handles.given(put, nothing, (integer, message, integer, texts, table), 1, 3, 0, 4, 0, 2)
    each = (message, integer, texts, table)
    properties = java.countedLoop(handles.given(java.arrayLength(texts.class_), integer, each, 2), None, put)

    # The loop over messages: number, session, producer, bodies, offsets, lengths, names, values, ends.
    outer = (session, producer, many, ints, ints, texts, table, longs)
    inner = (integer, *outer)
    made = (message, *inner)
    write = handles.method(message, "writeBytes", nothing, many, integer, integer)
    write = handles.of(handles.of(write, 3, handles.element(ints)), 2, handles.element(ints))
    send = handles.method(producer, "send", nothing, jpype.JClass(f"{api}.Message"))
    send = send.asType(handles.kind(nothing, producer, message))
    now = handles.static(jpype.JClass("java.lang.System"), "nanoTime", jpype.JLong)
    stamp = handles.of(java.arrayElementSetter(longs.class_), 2, now)
    one = handles.in_turn(
        handles.given(write, nothing, made, 0, 4, 5, 1, 6, 1),
        handles.given(properties, nothing, made, 0, 1, 7, 8),
        handles.given(send, nothing, made, 3, 0),
        handles.given(stamp, nothing, made, 9, 1),
    )
    create = handles.given(handles.method(session, "createBytesMessage", message), message, inner, 1)
    return java.countedLoop(
        handles.given(java.arrayLength(ints.class_), integer, outer, 4), None, java.foldArguments(one, create)
    )
