"""The direction from a client to a broker that takes smaller frames than the client was offered: body frames are split.

The client's Tune is agreed before its vhost, and so its broker, is known. A message's body may be cut into frames
anywhere (specification 4.2.6.2), so larger body frames are rewritten as several; other frames cannot be split.
"""

from __future__ import annotations

import struct

from amqp_session_router.amqp import frames
from amqp_session_router.net.transport import Transport
from amqp_session_router.relay.buffered_flow import BufferedFlow
from amqp_session_router.relay.interfaces import FlowOwner

_HEADER = struct.Struct(">BHI")


class FrameTooLargeError(Exception):
    """A frame of `size` bytes is above the limit."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a frame of {size} bytes")
        self.size = size


class FrameSplitter:
    """Rewrites a stream of frames so that no body's is longer than `frame_max` bytes."""

    def __init__(self, frame_max: int, limit: int) -> None:
        """`frame_max`: of a body's frames; `limit`: the most bytes of a frame in the input (0: none)."""
        self._most = frame_max - frames.OVERHEAD
        self._limit = limit
        self._header = b""
        """The bytes of an incomplete header."""
        self._rest = 0
        """Bytes of the current frame's payload still to come; its end octet is counted."""
        self._piece = 0
        """Payload bytes left in the current output frame; 0 where the frame is not split."""
        self._channel = 0

    def split(self, data: bytes) -> bytes:
        """Return what is to be sent for the next bytes of the input; raises FrameTooLargeError."""
        out, at = bytearray(), 0
        while at < len(data):
            if self._rest:
                at += self._payload(memoryview(data)[at:], out)
                continue
            taken = data[at : at + _HEADER.size - len(self._header)]
            self._header += taken
            at += len(taken)
            if len(self._header) == _HEADER.size:
                self._begin(out)
        return bytes(out)

    def _begin(self, out: bytearray) -> None:
        kind, self._channel, size = _HEADER.unpack(self._header)
        whole = size + frames.OVERHEAD
        if self._limit and whole > self._limit:
            raise FrameTooLargeError(whole)
        self._rest = size + 1
        if size > self._most and kind == frames.BODY:
            self._next_piece(out)
        else:
            self._piece = 0
            out += self._header
        self._header = b""

    def _next_piece(self, out: bytearray) -> None:
        self._piece = min(self._most, self._rest - 1)
        out += _HEADER.pack(frames.BODY, self._channel, self._piece)

    def _payload(self, data: memoryview, out: bytearray) -> int:
        """Write the start of `data`, as far as one output frame goes; returns how many bytes."""
        count = min(len(data), self._piece or self._rest)
        out += data[:count]
        self._rest -= count
        if self._piece:
            self._piece -= count
            if not self._piece and self._rest > 1:
                out.append(frames.END)
                self._next_piece(out)
        return count


class SplittingFlow(BufferedFlow):
    """See the module and `interfaces.Flow`."""

    def __init__(self, owner: FlowOwner, source: Transport, sink: Transport, broker_max: int, limit: int) -> None:
        """`broker_max`: the broker's frame_max in bytes; `limit`: of the client's frames (0: none)."""
        super().__init__(owner, 0, source, sink, 0)
        self._splitter = FrameSplitter(broker_max, limit)

    def feed(self, data: bytes) -> None:
        """Take bytes that were read from the source before `start`."""
        self._got(data)

    def _got(self, data: bytes) -> None:
        if not data:
            super()._got(data)
            return
        try:
            out = self._splitter.split(data)
        except FrameTooLargeError as error:
            self.halt()
            self.owner.flow_frame_too_large(self, error.size)
            return
        if out:
            super()._got(out)
