import random

from brokerdrill.workload.stomp import Frame, Parser, encode, escape, unescape


def test_headers_survive_every_character() -> None:
    text = "a:b\\c\nd\re|ü"
    assert unescape(escape(text)) == text
    assert set(":\n\r") & set(escape(text)) == set()


def test_frames_come_out_whole_however_they_are_cut() -> None:
    rng = random.Random(7)
    frames = [
        Frame("SEND", {"destination": "/queue/a:b", "bd": "x|y\\z"}, rng.randbytes(200) + b"\0\n\n\0"),
        Frame("ACK", {"id": "1"}),
        Frame("SEND", {"destination": "/queue/q"}, b""),
    ]
    data = b"\n\n".join(encode(frame) for frame in frames)
    parser, found, at = Parser(), [], 0
    while at < len(data):
        step = rng.randint(1, 7)
        found += parser.feed(data[at : at + step])
        at += step
    assert [(one.command, one.body) for one in found] == [(one.command, one.body) for one in frames]
    assert [one.headers.get("destination") for one in found] == ["/queue/a:b", None, "/queue/q"]
    assert found[0].headers["bd"] == "x|y\\z"


def test_of_a_repeated_header_the_first_counts() -> None:
    (frame,) = Parser().feed(b"MESSAGE\nid:1\nid:2\n\nbody\0")
    assert (frame.headers, frame.body) == ({"id": "1"}, b"body")
