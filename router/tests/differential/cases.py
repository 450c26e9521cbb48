"""What clients do: cases made from a seed, each of a kind. What they send is data; nothing here knows the router."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass

from router_support import PASSWORD, USER

from amqp_session_router.amqp import codec, frames
from amqp_session_router.amqp.frames import long, short
from differential.talk import (
    NAME,
    Await,
    AwaitBytes,
    HalfClose,
    Publish,
    Send,
    Stall,
    Step,
    content,
    method,
)

CHANNEL_OPEN, CHANNEL_OPEN_OK, CHANNEL_CLOSE, CHANNEL_CLOSE_OK = ((20 << 16) | n for n in (10, 11, 40, 41))
DECLARE, DECLARE_OK = (50 << 16) | 10, (50 << 16) | 11
QOS, QOS_OK, CONSUME, CONSUME_OK, PUBLISH, DELIVER, GET, GET_OK, GET_EMPTY = (
    (60 << 16) | n for n in (10, 11, 20, 21, 40, 60, 70, 71, 72)
)
SELECT, SELECT_OK, ACK = (85 << 16) | 10, (85 << 16) | 11, (60 << 16) | 80
GOOD = f"\0{USER}\0{PASSWORD}".encode()
CAPABLE = codec.encode_table({"capabilities": {"authentication_failure_close": True, "connection.blocked": True}})
FRAME_MAX = 131072

AMQPLAIN = b"\x05LOGINS" + long(USER.encode()) + b"\x08PASSWORDS" + long(PASSWORD.encode())
FIELDS = {
    "t": b"\1", "b": b"\xff", "B": b"\xff", "s": b"\xff\xff", "u": b"\xff\xff", "I": b"\xff" * 4, "i": b"\xff" * 4,
    "l": b"\xff" * 8, "L": b"\xff" * 8, "f": b"\x7f\x80\0\0", "d": b"\x7f\xf0" + bytes(6), "D": b"\xff" * 5,
    "S": long(b"\xc3\xff"), "x": long(b"\0\xff"), "T": b"\xff" * 8, "V": b"", "F": long(b"\1aV"),
    "A": long(b"VI\0\0\0\1"), "U": b"\0\0", "z": b"", "N": long(b"x"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One client."""

    kind: str
    about: str
    steps: tuple[Step, ...]


def handshake(
    mechanism: str = "PLAIN",
    response: bytes = GOOD,
    properties: bytes = CAPABLE,
    tune: tuple[int, int, int] = (2047, FRAME_MAX, 0),
    vhost: bytes = b"/",
    locale: str = "en_US",
) -> tuple[bytes, bytes, bytes, bytes]:
    """What a client says until it is open: header, Start-Ok, Tune-Ok, Open."""
    return (
        codec.PROTOCOL_HEADER,
        codec.start_ok(properties, mechanism, response, locale),
        codec.tune(codec.TUNE_OK, *tune),
        method(codec.OPEN, short(vhost) + b"\0\0"),
    )


def opening(*said: bytes) -> tuple[Step, ...]:
    """Say each part of a handshake when it is asked for."""
    steps: list[Step] = []
    for part, answer in zip(said, (codec.START, codec.TUNE, None, codec.OPEN_OK), strict=True):
        steps.append(Send(part))
        if answer is not None:
            steps.append(Await(answer))
    return tuple(steps)


def opened(tune: tuple[int, int, int] = (2047, FRAME_MAX, 0), vhost: bytes = b"/") -> tuple[Step, ...]:
    """An open connection."""
    return opening(*handshake(tune=tune, vhost=vhost))


def closed() -> tuple[Step, ...]:
    """A polite end."""
    return (Send(codec.close(200, "Goodbye")), Await(codec.CLOSE_OK), HalfClose())


def channel(number: int = 1) -> tuple[Step, ...]:
    """An open channel."""
    return (Send(method(CHANNEL_OPEN, b"\0", number)), Await(CHANNEL_OPEN_OK, number))


def queue(name: bytes = NAME, number: int = 1) -> tuple[Step, ...]:
    """A queue of the case's own, gone with its last consumer or after a minute."""
    arguments = b"\x09x-expiresI" + struct.pack(">I", 60_000)
    said = method(DECLARE, b"\0\0" + short(name) + b"\0" + long(arguments), number)
    return (Send(said), Await(DECLARE_OK, number))


def published(to: bytes, headers: int, body: int, frame_max: int = FRAME_MAX) -> tuple[Step, ...]:
    """On channel 1 of an open connection: a message, confirmed."""
    message = method(PUBLISH, b"\0\0" + short(b"") + short(to) + b"\0", 1) + content(1, b"b" * body, frame_max, headers)
    return (*channel(), Send(method(SELECT, b"\0", 1)), Await(SELECT_OK, 1), Send(message), Await(ACK, 1))


def consuming(number: int = 1) -> tuple[Step, ...]:
    """A consumer of the case's queue that needs not acknowledge."""
    said = method(CONSUME, b"\0\0" + short(NAME) + short(b"tag") + b"\x02" + long(b""), number)
    return (Send(said), Await(CONSUME_OK, number))


# --- the kinds --------------------------------------------------------------------------------------------------------


def logins(rng: random.Random) -> Case:
    """Mechanisms, and responses with and without their form."""
    responses = {
        "good": GOOD, "wrong password": f"\0{USER}\0wrong".encode(), "unknown user": b"\0nobody\0x", "empty": b"",
        "one NUL": f"\0{USER}".encode(), "three NULs": GOOD + b"\0", "another identity": b"x" + GOOD,
        "AMQPLAIN": AMQPLAIN, "AMQPLAIN, wrong password": AMQPLAIN[:-1] + b"?", "AMQPLAIN, no PASSWORD": AMQPLAIN[:20],
        "AMQPLAIN, cut": AMQPLAIN[:-1], "no UTF-8": b"\0\xc3\xff\0x",
    }  # fmt: skip
    mechanism = rng.choice(
        ("PLAIN", "PLAIN", "AMQPLAIN", "AMQPLAIN", "plain", "EXTERNAL", "RABBIT-CR-DEMO", "", "X" * 255)
    )
    name = rng.choice(sorted(responses))
    properties = rng.choice(
        (CAPABLE, b"", codec.encode_table({"capabilities": {"authentication_failure_close": False}}))
    )
    said = handshake(mechanism, responses[name], properties)
    return Case("login", f"{mechanism[:20]!r}, {name}", opening(*said) + closed())


def field_types(rng: random.Random) -> Case:
    """Fields of any type, in the client's properties and beside a login by AMQPLAIN."""
    kinds = rng.sample(sorted(FIELDS), rng.randint(1, 4))
    odd = b"".join(short(rng.choice((b"n", b"\xc3\xff", b""))) + kind.encode() + FIELDS[kind] for kind in kinds)
    if rng.random() < 0.5:
        said = handshake(properties=CAPABLE + odd)
        where = "properties"
    else:
        said = handshake("AMQPLAIN", odd + AMQPLAIN if rng.random() < 0.5 else AMQPLAIN + odd)
        where = "AMQPLAIN"
    return Case("field types", f"{where}: {' '.join(kinds)}", opening(*said) + closed())


def login_sizes(rng: random.Random) -> Case:
    """Start-Oks around what RabbitMQ takes before it knows the client."""
    size = rng.choice((3000, 4000, 4040, 4060, 4079, 4080, 4090, 4095, 4096, 4097, 4100, 5000, 8192, 8193, 20_000))
    bare = handshake(properties=CAPABLE + b"\1pS" + long(b""))
    pad = max(0, size - (len(bare[1]) - 8))
    said = handshake(properties=CAPABLE + b"\1pS" + long(b"p" * pad))
    return Case("login sizes", f"payload of {len(said[1]) - 8} bytes", opening(*said) + closed())


def tunes(rng: random.Random) -> Case:
    """Tune-Oks around what was offered."""
    tune = (
        rng.choice((0, 1, 2, 2046, 2047, 2048, 65535)),
        rng.choice((0, 1, 4095, 4096, 4097, 8192, 131071, 131072, 131073, 2**32 - 1)),
        rng.choice((0, 0, 1, 2, 60, 65535)),
    )
    return Case("tune", f"channel_max {tune[0]}, frame_max {tune[1]}, heartbeat {tune[2]}", opened(tune) + closed())


def vhosts(rng: random.Random) -> Case:
    """Virtual hosts that are there, that are not, that are full."""
    vhost = rng.choice((b"/", b"other", b"closed", b"full", b"unknown", b"", b"v" * 255, b"\xc3\xff", "vöst".encode()))
    return Case("vhosts", repr(vhost[:20]), opened(vhost=vhost) + closed())


def headers(rng: random.Random) -> Case:
    """Protocol headers."""
    header = rng.choice(
        (b"AMQP\0\0\x09\x01", b"AMQP\0\0\x09\0", b"AMQP\0\1\0\0", b"AMQP\3\1\0\0", b"AMQP\2\1\0\0", b"AMQP\1\1\x08\0",
         b"AMQP\1\1\x09\1", b"AMQP\1\1\0\x0a", b"AMQP\0\0\x0a\0", b"HTTP/1.1", b"GET / HT",
         b"\x16\x03\x01\0\xa5\1\0\0", b"\0" * 8)
    )  # fmt: skip
    steps: tuple[Step, ...] = (Send(header, rng.choice((0, 1, 4))), Await(codec.START))
    if header == codec.PROTOCOL_HEADER:
        steps += opened()[2:] + closed()
    return Case("protocol headers", repr(header), steps)


def pipelines(rng: random.Random) -> Case:
    """All at once, or cut anywhere; with more behind Open, before it is answered."""
    said = b"".join(handshake())
    behind = rng.choice(("nothing", "a channel", "heartbeats", "a close", "half-close", "200 kB"))
    tail = {
        "nothing": b"",
        "a channel": method(CHANNEL_OPEN, b"\0", 1) + method(CHANNEL_OPEN, b"\0", 2),
        "heartbeats": codec.HEARTBEAT * 3,
        "a close": codec.close(200, "Goodbye"),
        "half-close": codec.close(200, "Goodbye"),
        "200 kB": method(CHANNEL_OPEN, b"\0", 1)
        + (method(PUBLISH, b"\0\0" + short(b"") + short(b"nowhere") + b"\0", 1) + content(1, b"b" * 1000, FRAME_MAX))
        * 200,
    }[behind]
    pieces = rng.choice((0, 0, 1, 7, 100, rng.randint(1, 500)))
    steps: tuple[Step, ...] = (Send(said, pieces), Send(tail, 0 if len(tail) > 1000 else pieces))
    if behind == "half-close":
        steps += (HalfClose(),)
    elif behind != "a close":
        steps += (Await(codec.OPEN_OK), *closed())
    return Case("pipelining", f"{behind} behind Open, in pieces of {pieces or 'any'}", steps)


def frame_sizes(rng: random.Random) -> Case:
    """Frames around frame_max, of each type."""
    frame_max = rng.choice((4096, 8192, 131072))
    payload = frame_max + rng.choice((-9, -8, -7, -1, 0, 1, 8, 5000))
    kind = rng.choice(("body", "body", "header", "method"))
    steps = opened((2047, frame_max, 0)) + channel() + queue()
    publish = method(PUBLISH, b"\0\0" + short(b"") + short(NAME) + b"\0", 1)
    if kind == "body":
        header = frames.frame(struct.pack(">HHQH", 60, 0, payload, 0), 1, 2)
        said = publish + header + frames.frame(b"b" * payload, 1, frames.BODY)
    elif kind == "header":
        inside = b"\1hS" + long(b"h" * (payload - 14 - 4 - 7))
        said = publish + frames.frame(struct.pack(">HHQH", 60, 0, 0, 1 << 13) + long(inside), 1, 2)
    else:
        pad = payload - len(method(DECLARE, b"\0\0" + short(NAME) + b"\0" + long(b"\1pS" + long(b""))))
        said = method(DECLARE, b"\0\0" + short(NAME) + b"\0" + long(b"\1pS" + long(b"p" * (pad + 8))), 1)
    get = method(GET, b"\0\0" + short(NAME) + b"\1", 1)
    steps += (Send(said), Send(get), Await(GET_OK, 1)) if kind != "method" else (Send(said), Await(DECLARE_OK, 1, 2))
    return Case("frame sizes", f"{kind} of {payload} bytes, frame_max {frame_max}", steps + closed())


def large_headers(rng: random.Random) -> Case:
    """Messages of others, whose headers are larger than the consumer's frames."""
    frame_max = rng.choice((4096, 8192, 131072))
    size = rng.choice((100, frame_max - 60, frame_max, min(2 * frame_max, 130_000), 20_000, 100_000))
    body = rng.choice((0, 10, 5000))
    steps = opened((2047, frame_max, 0)) + channel() + queue() + consuming()
    steps += (Publish(min(size, 130_900), body), Await(DELIVER, 1), AwaitBytes(body))
    return Case("large headers", f"{size} bytes of headers, frame_max {frame_max}", steps + closed())


def channels(rng: random.Random) -> Case:
    """Many channels, those beyond the limit, and errors on them."""
    most = rng.choice((1, 10, 100, 2047))
    tune = (most, FRAME_MAX, 0)
    what = rng.choice(("storm", "storm", "one too many", "twice", "unknown queue", "not open", "error and on"))
    count = rng.randint(1, min(most, 60))
    if what == "storm":
        said = b"".join(method(CHANNEL_OPEN, b"\0", number) for number in range(1, count + 1))
        said += b"".join(
            method(CHANNEL_CLOSE, b"\0\xc8" + short(b"bye") + bytes(4), one) for one in range(1, count + 1)
        )
        steps: tuple[Step, ...] = (Send(said, rng.choice((0, 13))), Await(CHANNEL_CLOSE_OK, count))
    elif what == "one too many":
        steps = (Send(method(CHANNEL_OPEN, b"\0", most + 1)), Await(CHANNEL_OPEN_OK, most + 1))
    elif what == "twice":
        steps = (*channel(), Send(method(CHANNEL_OPEN, b"\0", 1)), Await(codec.CLOSE))
    elif what == "unknown queue":
        steps = (*channel(), Send(method(GET, b"\0\0" + short(b"nowhere") + b"\1", 1)), Await(CHANNEL_CLOSE, 1))
        steps += (Send(method(CHANNEL_CLOSE_OK, b"", 1)), *channel())
    elif what == "not open":
        steps = (Send(method(GET, b"\0\0" + short(b"nowhere") + b"\1", 1)), Await(codec.CLOSE))
    else:
        wrong = method(DECLARE, b"\0\0" + short(b"amq.reserved") + b"\0" + long(b""), 1)
        steps = (*channel(), Send(wrong), Await(CHANNEL_CLOSE, 1), Send(method(CHANNEL_CLOSE_OK, b"", 1)))
    return Case("channels", f"{what}, {count} of {most}", opened(tune) + steps + closed())


def nonsense(rng: random.Random) -> Case:
    """What is no frame, or none that may come."""
    wrong = {
        "an unknown type": frames.frame(b"x" * 10, 1, 7),
        "no end octet": frames.frame(b"x" * 10, 1, 3)[:-1] + b"\0" + codec.HEARTBEAT,
        "a body on channel 0": frames.frame(b"x" * 10, 0, 3),
        "a header without a method": frames.frame(bytes(14), 1, 2),
        "an unknown class": method((99 << 16) | 10, b"", 1),
        "an unknown method": method((60 << 16) | 99, b"", 1),
        "a method that is cut": method(DECLARE, b"\0", 1),
        "a heartbeat on a channel": frames.frame(b"", 1, 8),
        "a heartbeat with a payload": frames.frame(b"x", 0, 8),
        "Open again": method(codec.OPEN, short(b"/") + b"\0\0"),
        "an empty method": frames.frame(b"", 0, 1),
        "a Blocked": codec.blocked("x"),
        "a Close-Ok": codec.CLOSE_OK_FRAME,
    }
    name = rng.choice(sorted(wrong))
    return Case(
        "nonsense",
        name,
        opened() + channel() + (Send(wrong[name], rng.choice((0, 1, 5))), Await(codec.CLOSE)) + closed(),
    )


def too_early(rng: random.Random) -> Case:
    """What may not come before the connection is open."""
    said = handshake()
    wrong = {
        "a channel": method(CHANNEL_OPEN, b"\0", 1),
        "a close": codec.close(200, "Goodbye"),
        "a heartbeat": codec.HEARTBEAT,
        "an end": b"",
        "nonsense": b"\xff" * 20,
        "a body": frames.frame(b"x", 1, 3),
    }
    name, place = rng.choice(sorted(wrong)), rng.randint(1, 3)
    steps = opening(*said)
    at = (2, 4, 5)[place - 1]
    ended: tuple[Step, ...] = (HalfClose(),) if name == "an end" else (Send(wrong[name]),)
    rest = steps[at:] + closed() if name == "a heartbeat" else ()
    return Case("too early", f"{name} after step {place}", steps[:at] + ended + rest)


def ends(rng: random.Random) -> Case:
    """Connections that end in other ways."""
    what = rng.choice(
        ("half-close", "half-close in a frame", "data behind Close", "Close twice", "Close with a long text")
    )
    steps = opened() + channel()
    if what == "half-close":
        steps += (HalfClose(),)
    elif what == "half-close in a frame":
        steps += (Send(b"\3\0\1\0\0\0\x10half"), HalfClose())
    elif what == "data behind Close":
        steps += (
            Send(codec.close(200, "Goodbye") + method(CHANNEL_OPEN, b"\0", 2)),
            Await(codec.CLOSE_OK),
            HalfClose(),
        )
    elif what == "Close twice":
        steps += (Send(codec.close(200, "Goodbye") * 2), Await(codec.CLOSE_OK), HalfClose())
    else:
        steps += (Send(codec.close(320, "t" * 255)), Await(codec.CLOSE_OK), HalfClose())
    return Case("ends", what, steps)


def slow_readers(rng: random.Random) -> Case:
    """A consumer that takes its time, and then all."""
    size, count = rng.choice(((200, 400), (4000, 200), (200_000, 12))), rng.randint(1, 3)
    body, messages = size[0], size[1] * count
    frame_max = rng.choice((4096, 131072))
    steps = opened((2047, frame_max, 0)) + channel() + queue()
    message = method(PUBLISH, b"\0\0" + short(b"") + short(NAME) + b"\0", 1) + content(1, b"b" * body, frame_max)
    steps += (Send(message * messages), *consuming(), Stall(), AwaitBytes(body * messages))
    return Case("slow readers", f"{messages} messages of {body} bytes, frame_max {frame_max}", steps + closed())


def traffic(rng: random.Random) -> Case:
    """Messages there and back, cut anywhere."""
    frame_max = rng.choice((4096, 131072))
    bodies = [rng.choice((0, 1, 100, 4087, 4088, 4089, 20_000, 300_000)) for _ in range(rng.randint(1, 12))]
    steps = opened((2047, frame_max, 0)) + channel() + queue() + consuming()
    said = b"".join(
        method(PUBLISH, b"\0\0" + short(b"") + short(NAME) + b"\0", 1) + content(1, rng.randbytes(body), frame_max)
        for body in bodies
    )
    steps += (Send(said, rng.choice((0, 0, 1000, 65_535))), Await(DELIVER, 1, len(bodies)), AwaitBytes(sum(bodies)))
    return Case("traffic", f"{len(bodies)} messages, frame_max {frame_max}", steps + closed())


KINDS: tuple[Callable[[random.Random], Case], ...] = (
    logins, field_types, login_sizes, tunes, vhosts, headers, pipelines, frame_sizes, large_headers, channels, nonsense,
    too_early, ends, slow_readers, traffic,
)  # fmt: skip


def case(seed: int, number: int) -> Case:
    """The case of this number."""
    return KINDS[number % len(KINDS)](random.Random(f"{seed}:{number}"))
