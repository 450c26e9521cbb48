"""The hot modules do the same where they are not compiled: C has other numbers, and `native` stands twice."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from test_boundary import frame

import amqp_session_router
from amqp_session_router import base
from amqp_session_router.amqp import boundary, frames
from amqp_session_router.base import native
from amqp_session_router.net import poller
from amqp_session_router.relay import fastpath, frame_scan, stream_profile

HERE = Path(__file__).parent
PACKAGE = Path(amqp_session_router.__file__).parent
# The tests of all that the compiled modules do.
TESTS = ("test_boundary", "test_flow", "test_transport", "test_staging", "test_sessions", "test_recovery")


def pure(compiled: ModuleType) -> ModuleType:
    """Load the Python of a compiled module, above the Python of `native`."""
    if compiled is native:
        return _loaded(native)
    kept = base.native
    base.native = _loaded(native)
    try:
        return _loaded(compiled)
    finally:
        base.native = kept


def _loaded(compiled: ModuleType) -> ModuleType:
    assert compiled.__file__ and compiled.__file__.endswith(".so"), "the tests need the router with its compiled parts"
    place = PACKAGE.joinpath(*compiled.__name__.split(".")[1:]).with_suffix(".py")
    spec = importlib.util.spec_from_file_location(f"pure_{place.stem}", place)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


PURE_FRAMES, PURE_BOUNDARY = pure(frames), pure(boundary)


def told(call: Callable[[], Any]) -> tuple[str, Any]:
    """What a call returns, or how it fails."""
    try:
        return "returned", call()
    except Exception as error:
        return type(error).__name__, (str(error), getattr(error, "code", None))


def stream(rng: random.Random, frame_max: int, length: int) -> bytes:
    """Frames of three channels, `length` bytes and more; one in some hundreds is wrong."""
    made = b""
    while len(made) < length:
        kind = rng.choice((1, 1, 2, 3, 3, 3, 8))
        channel = 0 if kind == 8 else rng.randrange(kind != 1, 3)
        least = {1: 4, 2: 14, 3: 0, 8: 0}[kind]
        size = 0 if kind == 8 else rng.choice((least, rng.randrange(least, min(frame_max - 8, 60)), frame_max - 8))
        payload = bytearray(rng.choice((rng.randbytes(size), bytes(size))))
        if kind in (1, 2):
            payload[:2] = bytes((0, 60 if kind == 2 else rng.choice((10, 20, 60, 90))))
        one = bytearray(frame(kind, channel, bytes(payload)))
        if rng.random() < 0.003:
            one[rng.randrange(len(one))] ^= 1 << rng.randrange(8)
        elif rng.random() < 0.01:
            one[1:3] = b"\0\0"  # a body belongs to a channel
        made += one
    return made


@pytest.mark.parametrize("seed", range(60))
def test_a_boundary_is_found_at_the_same_place(seed: int) -> None:
    rng = random.Random(seed)
    frame_max = rng.choice((64, 256, 1024))
    whole = stream(rng, frame_max, 4 * boundary.window(frame_max))
    found = []
    for _ in range(40):
        begin = rng.randrange(len(whole) // 2)
        cut = whole[begin : begin + rng.randrange(boundary.window(frame_max) + 100)]
        limits = rng.choice((frame_max, frame_max, frame_max, 0)), rng.choice((0, 2, 2047, 1))
        one, other = boundary.locate(cut, *limits), PURE_BOUNDARY.locate(cut, *limits)
        assert (one and (one.rest, one.part)) == (other and (other.rest, other.part))
        found.append(one)
        ends = rng.randrange(8), rng.choice((frame_max, 40)), rng.randrange(len(cut) + 1)
        assert boundary.walk(cut, *ends) == PURE_BOUNDARY.walk(cut, *ends)
    # Some are known and some are not: else nothing was compared.
    assert None in found and any(found)
    assert boundary.window(frame_max) == PURE_BOUNDARY.window(frame_max)


@pytest.mark.parametrize("seed", range(30))
def test_frames_are_taken_off_in_the_same_way(seed: int) -> None:
    rng = random.Random(seed)
    whole = stream(rng, 300, 20_000)
    buffers = bytearray(), bytearray()
    at = 0
    while at < len(whole):
        step = rng.randrange(1, 400)
        for buffer in buffers:
            buffer += whole[at : at + step]
        at += step
        while True:
            found = [
                told(lambda: module.next_frame(buffer, 280))  # noqa: B023
                for module, buffer in zip((frames, PURE_FRAMES), buffers, strict=True)
            ]
            said = [
                (how, (one.type, one.channel, one.payload, one.method) if how == "returned" and one else one)
                for how, one in found
            ]
            assert said[0] == said[1]
            assert buffers[0] == buffers[1]
            if found[0] == ("returned", None):
                break
            if found[0][0] != "returned":
                return


@pytest.mark.parametrize("seed", range(30))
def test_arguments_are_read_and_written_in_the_same_way(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        payload = rng.randbytes(rng.randrange(60))
        readers = frames.Reader(payload, 2), PURE_FRAMES.Reader(payload, 2)
        for _ in range(6):
            name, *given = rng.choice((["number", 1], ["number", 2], ["number", 8], ["take", 3], ["short"], ["long"]))
            one, other = (told(lambda: getattr(reader, name)(*given)) for reader in readers)  # noqa: B023
            assert one == other
            if one[0] != "returned":
                break
    for text in ("", "vhost", "ä" * 127 + "bc", "ä" * 200, "\udcff", b"x" * 255, b"x" * 256):
        assert told(lambda: frames.short(text)) == told(lambda: PURE_FRAMES.short(text))  # noqa: B023
    data = rng.randbytes(300)
    assert frames.long(data) == PURE_FRAMES.long(data)
    assert frames.frame(data, 3, 2) == PURE_FRAMES.frame(data, 3, 2)


def test_both_have_the_same_names() -> None:
    for compiled in (native, frames, boundary, poller, fastpath, frame_scan, stream_profile):
        names = {name for name in vars(compiled) if not name.startswith("_")} - {"os", "codec", "journal", "dataclass"}
        assert names <= set(vars(pure(compiled))), compiled.__name__


def test_reads_of_long_bodies_count_once_they_are_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    module = pure(stream_profile)
    profile = module.StreamProfile(1 << 17)
    for now, moved, busy in [
        (1.0, stream_profile.FAST_BYTES - 1, 0),
        (1.0 + stream_profile.FAST_WITHIN / 2, 1, 1),
        (1.0 + stream_profile.FAST_WITHIN * 2, stream_profile.FAST_BYTES - 1, 1),
        (1.0 + stream_profile.FAST_WITHIN * 4, stream_profile.FAST_BYTES - 1, 1),
        (1.0 + stream_profile.FAST_WITHIN * 4, 1, 2),
    ]:
        monkeypatch.setattr(module, "monotonic", lambda now=now: now)
        profile._add_long_read(moved)
        assert profile.busy_reads == busy


def test_sessions_pass_without_compiled_parts(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    code = f"""
import sys, pytest
from amqp_session_router.relay import fastpath
assert fastpath.__file__.startswith({str(tmp_path)!r}), fastpath.__file__
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, *(str(HERE / f"{name}.py") for name in TESTS)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
