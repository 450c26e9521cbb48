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


def _loop(api: str) -> Any:
    """Put the loop together, of session, producer, bodies, offsets, lengths, names, values and ends; no result."""
    handles = jpype.JClass("java.lang.invoke.MethodHandles")
    look = handles.publicLookup()
    session, producer, message = (
        jpype.JClass(f"{api}.{name}") for name in ("Session", "MessageProducer", "BytesMessage")
    )
    text, integer, system = jpype.JString, jpype.JInt, jpype.JClass("java.lang.System")
    many, ints, texts, table, longs = (
        jpype.JArray(jpype.JByte),
        jpype.JArray(integer),
        jpype.JArray(text),
        jpype.JArray(text, 2),
        jpype.JArray(jpype.JLong),
    )
    nothing = jpype.JClass("java.lang.Void").TYPE

    def kind(result: Any, *arguments: Any) -> Any:
        classes = [one.class_ for one in arguments]
        of = result if result is nothing else result.class_
        return jpype.JClass("java.lang.invoke.MethodType").methodType(
            of, jpype.JArray(jpype.JClass("java.lang.Class"))(classes)
        )

    def method(owner: Any, name: str, result: Any, *arguments: Any, on: Any = None) -> Any:
        """The method as a function of its object, which is an `on`, and its arguments."""
        found = look.findVirtual(owner.class_, name, kind(result, *arguments))
        return found.asType(kind(result, on or owner, *arguments))

    def element(array: Any) -> Any:
        return handles.arrayElementGetter(array.class_)

    def given(handle: Any, result: Any, available: Sequence[Any], *places: int) -> Any:
        """The handle as a function of all that is `available`, of which it gets what stands at `places`."""
        return handles.permuteArguments(handle, kind(result, *available), jpype.JArray(integer)(list(places)))

    def in_turn(*steps: Any) -> Any:
        """Functions of the same arguments without a result, one after another."""
        *earlier, done = steps
        for step in reversed(earlier):
            done = handles.foldArguments(done, step)
        return done

    # The loop over properties: place, message, number of the message, names, values.
    value = handles.collectArguments(element(texts), 0, element(table))
    put = method(jpype.JClass(f"{api}.Message"), "setStringProperty", nothing, text, text, on=message)
    put = handles.collectArguments(handles.collectArguments(put, 2, value), 1, element(texts))
    put = given(put, nothing, (integer, message, integer, texts, table), 1, 3, 0, 4, 0, 2)
    each = (message, integer, texts, table)
    properties = handles.countedLoop(given(handles.arrayLength(texts.class_), integer, each, 2), None, put)

    # The loop over messages: number, session, producer, bodies, offsets, lengths, names, values, ends.
    outer = (session, producer, many, ints, ints, texts, table, longs)
    inner = (integer, *outer)
    made = (message, *inner)
    write = method(message, "writeBytes", nothing, many, integer, integer)
    write = handles.collectArguments(handles.collectArguments(write, 3, element(ints)), 2, element(ints))
    send = method(producer, "send", nothing, jpype.JClass(f"{api}.Message")).asType(kind(nothing, producer, message))
    now = look.findStatic(system.class_, "nanoTime", kind(jpype.JLong))
    stamp = handles.collectArguments(handles.arrayElementSetter(longs.class_), 2, now)
    one = in_turn(
        given(write, nothing, made, 0, 4, 5, 1, 6, 1),
        given(properties, nothing, made, 0, 1, 7, 8),
        given(send, nothing, made, 3, 0),
        given(stamp, nothing, made, 9, 1),
    )
    create = given(method(session, "createBytesMessage", message), message, inner, 1)
    return handles.countedLoop(
        given(handles.arrayLength(ints.class_), integer, outer, 4), None, handles.foldArguments(one, create)
    )
