"""Boundaries are proven, never guessed."""

from __future__ import annotations

import random
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_session_router.amqp.boundary import Position, locate, window


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def publish(channel: int, body: bytes, frame_max: int) -> bytes:
    """A message as clients send it."""
    out = frame(1, channel, b"\x00\x3c\x00\x28\x00\x00\x00\x01q\x00")
    out += frame(2, channel, b"\x00\x3c\x00\x00" + struct.pack(">QH", len(body), 0))
    step = frame_max - 8
    for at in range(0, len(body), step):
        out += frame(3, channel, body[at : at + step])
    return out


def where(stream: bytes, cut: int) -> Position:
    """The truth, by walking from the start."""
    at = 0
    while at + 7 <= cut:
        at += int.from_bytes(stream[at + 3 : at + 7], "big") + 8
    return Position(at - cut) if at >= cut else Position(0, stream[at:cut])


BODIES = {
    "zeros": lambda size, rng: bytes(size),
    "text": lambda size, rng: (b"the quick brown fox " * (size // 20 + 1))[:size],
    "random": lambda size, rng: rng.randbytes(size),
    "end octets": lambda size, rng: b"\xce" * size,
    "numbers": lambda size, rng: struct.pack(f">{size // 4 + 1}I", *range(size // 4 + 1))[:size],
}


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(sorted(BODIES)),
    st.sampled_from([4096, 8192]),
    st.integers(0, 3000),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_what_is_found_is_the_truth(seed: int, kind: str, frame_max: int, size: int, start: float, end: float) -> None:
    rng = random.Random(seed)
    stream = bytearray()
    while len(stream) < 3 * window(frame_max):
        stream += publish(rng.randint(1, 5), BODIES[kind](rng.randint(0, size), rng), frame_max)
        if rng.random() < 0.1:
            stream += b"\x08\0\0\0\0\0\0\xce"
    begin = int(start * window(frame_max))
    cut = begin + window(frame_max) + int(end * window(frame_max))
    found = locate(bytes(stream[begin:cut]), frame_max, 2047)
    assert found == where(bytes(stream), cut)


def test_frames_inside_of_bodies_are_no_boundaries() -> None:
    """A body that is itself a stream of frames, shifted: every place is possible, so nothing is said."""
    frame_max = 4096
    inner = frame(3, 1, b"\x03\x00\x01" + bytes(20)) * 400
    stream = b"".join(frame(3, 1, inner[at : at + 4088]) for at in range(0, len(inner), 4088)) * 8
    for begin in range(0, 9000, 977):
        data = stream[begin : begin + window(frame_max) + 100]
        found = locate(data, frame_max, 2047)
        assert found is None or found == where(stream, begin + len(data))


def test_frames_as_large_as_a_rabbitmq_takes_them_hide_nothing() -> None:
    """Payloads of frame_max bytes: a second chain of frames inside of them is not the only one."""
    frame_max = 4096
    inner = frame(3, 1, b"x" * 93)
    body = b"y" + inner * (frame_max // len(inner))
    stream = frame(3, 1, body.ljust(frame_max, b"z")) * 12
    for begin in range(0, 9000, 977):
        for more in range(0, 4096, 311):
            data = stream[begin : begin + window(frame_max) + more]
            found = locate(data, frame_max, 2047)
            assert found is None or found == where(stream, begin + len(data))


def test_content_headers_beyond_frame_max_hide_nothing() -> None:
    frame_max, header_max = 4096, 32768
    decoys = frame(8, 0, b"") * 2500
    header = frame(2, 1, b"\x00\x3c\x00\x00" + bytes(10) + decoys)
    message = frame(1, 1, b"\x00\x3c\x00\x3c" + bytes(20)) + header + frame(3, 1, b"x" * 500)
    stream = message * 8
    size = window(frame_max, header_max)
    seen = 0
    for begin in range(0, len(message), 1777):
        for more in range(0, len(message), 1999):
            data = stream[begin : begin + size + more]
            found = locate(data, frame_max, 2047, header_max)
            assert found is None or found == where(stream, begin + len(data))
            seen += found is not None
    assert seen


def test_too_little_is_never_enough() -> None:
    stream = frame(8, 0, b"") * 1000
    assert locate(stream[:4000], 4096, 2047) is None
