# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Frames of AMQP 0-9-1 and the arguments of methods (specification 4.2). Compiled: a handshake makes and reads dozens.

What the methods say is in `wire`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

OVERHEAD = 8
"""Seven bytes before a frame's payload and the end octet after it."""
METHOD, BODY, HEARTBEAT = 1, 3, 8
END = 0xCE
FRAME_ERROR = 501
SYNTAX_ERROR = 502

cdef Py_ssize_t _HEADER = 7, _OVERHEAD = OVERHEAD
cdef uint8_t _END = END


class ProtocolError(Exception):
    """The peer's bytes are not AMQP 0-9-1; `code` is the reply code of the specification."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code
        self.text = text


cdef class Frame:
    """One frame without its header and end octet."""

    cdef readonly int type, channel
    cdef readonly bytes payload
    cdef readonly unsigned int method
    """Class and method as one number (`wire.OPEN`), 0 for what is no method frame of channel 0."""


cdef inline uint64_t _number(const uint8_t *at, Py_ssize_t width) noexcept nogil:
    cdef uint64_t value = 0
    for _ in range(width):
        value = value << 8 | at[0]
        at += 1
    return value


cdef inline bint _of_a_type(uint8_t kind) noexcept nogil:
    return kind in (1, 2, 3, 8)


def next_frame(bytearray buffer not None, Py_ssize_t limit):
    """Take the first frame off `buffer`, None if it is not whole; raises ProtocolError, also above `limit` bytes."""
    cdef const uint8_t *data = buffer
    cdef Py_ssize_t length = len(buffer), whole
    cdef Frame found
    if length and not _of_a_type(data[0]):
        raise ProtocolError(FRAME_ERROR, f"no frame has the type {data[0]}")
    if length < _HEADER:
        return None
    whole = <Py_ssize_t>_number(data + 3, 4) + _OVERHEAD
    if whole > limit:
        raise ProtocolError(FRAME_ERROR, f"a frame of {whole} bytes is above the limit of {limit}")
    if length < whole:
        return None
    if data[whole - 1] != _END:
        raise ProtocolError(FRAME_ERROR, "a frame does not end with its end octet")
    found = Frame.__new__(Frame)
    found.type = data[0]
    found.channel = <int>_number(data + 1, 2)
    found.payload = data[_HEADER : whole - 1]
    found.method = 0
    if found.type == METHOD and not found.channel and whole - _OVERHEAD >= 4:
        found.method = <unsigned int>_number(data + _HEADER, 4)
    del buffer[:whole]
    return found


def frame(bytes payload not None, unsigned int channel=0, unsigned int kind=METHOD):
    """Return `payload` as a frame."""
    cdef Py_ssize_t size = len(payload)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, size + _OVERHEAD)
    cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(made)
    to[0], to[1], to[2] = kind, channel >> 8, channel
    _write(to + 3, size)
    memcpy(to + _HEADER, PyBytes_AS_STRING(payload), size)
    to[_HEADER + size] = _END
    return made


cdef inline void _write(uint8_t *to, uint64_t size) noexcept nogil:
    to[0], to[1], to[2], to[3] = size >> 24, size >> 16, size >> 8, size


def short(text not None):
    """Return a short string. Text is cut to 255 bytes at a whole character; raises ValueError for more bytes."""
    cdef bytes raw
    if isinstance(text, str):
        # What a client sent that is no UTF-8 goes back to the bytes that it was.
        raw = (<str>text).encode(errors="surrogateescape")
        if len(raw) > 255:
            raw = raw[:255].decode(errors="ignore").encode()
    else:
        raw = text
        if len(raw) > 255:
            raise ValueError(f"a short string has at most 255 bytes, not {len(raw)}")
    return _counted(raw, 1)


def long(bytes data not None):
    """Return a long string."""
    return _counted(data, 4)


cdef bytes _counted(bytes data, Py_ssize_t width):
    """Return `data` behind its length."""
    cdef Py_ssize_t size = len(data)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, width + size)
    cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(made)
    if width == 1:
        to[0] = size
    else:
        _write(to, size)
    memcpy(to + width, PyBytes_AS_STRING(data), size)
    return made


cdef class Reader:
    """Reads a method's arguments in order; raises ProtocolError where they end too early."""

    cdef bytes _payload
    cdef Py_ssize_t _at

    def __init__(self, bytes payload not None, Py_ssize_t at=4):
        self._payload = payload
        self._at = at

    cdef const uint8_t *_take(self, Py_ssize_t count) except NULL:
        cdef Py_ssize_t at = self._at
        if count > len(self._payload) - at:
            raise ProtocolError(SYNTAX_ERROR, "a method's arguments end too early")
        self._at = at + count
        return <const uint8_t *>PyBytes_AS_STRING(self._payload) + at

    cpdef number(self, Py_ssize_t width):
        """Return an unsigned number of `width` bytes, at most eight."""
        return _number(self._take(width), width)

    cpdef bytes take(self, Py_ssize_t count):
        """Return the next `count` bytes."""
        return self._take(count)[:count]

    def short(self):
        """Return a short string; bytes that are not UTF-8 are kept as surrogates."""
        return self.take(self._take(1)[0]).decode(errors="surrogateescape")

    def long(self):
        """Return a long string or the inside of a table."""
        return self.take(<Py_ssize_t>_number(self._take(4), 4))
