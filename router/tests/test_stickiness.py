"""The cache of keys: time-out, persistence, and what a crash leaves of its file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from amqp_session_router.base.model import NO_KEY
from amqp_session_router.routing.stickiness import _SLACK, Stickiness


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_it_remembers_the_last_backend_of_a_key() -> None:
    cache = Stickiness()
    cache.put("k", "b1")
    cache.put("k", "b2")
    assert (cache.get("k"), cache.get("other"), len(cache)) == ("b2", None, 1)
    assert cache.clear() == 1
    assert cache.get("k") is None


def test_sessions_without_a_key_are_not_remembered() -> None:
    # The Artemis router's cache keeps NULL, so every client without an id follows the first one.
    cache = Stickiness()
    cache.put(NO_KEY, "b1")
    assert cache.get(NO_KEY) is None


def test_the_timeout_counts_from_the_keys_last_session() -> None:
    clock = Clock()
    cache = Stickiness(timeout=60, clock=clock)
    cache.put("k", "b1")
    clock.now += 59
    assert cache.get("k") == "b1"
    cache.put("k", "b1")
    clock.now += 59
    assert cache.get("k") == "b1"
    clock.now += 1
    assert cache.get("k") is None


def test_keys_that_timed_out_are_dropped_without_being_asked_for() -> None:
    clock = Clock()
    cache = Stickiness(timeout=60, clock=clock)
    for number in range(100):
        cache.put(f"k{number}", "b")
        clock.now += 1
    assert len(cache) == 60


def test_a_restart_keeps_keys_and_their_age(tmp_path: Path) -> None:
    file, clock = tmp_path / "sticky", Clock()
    cache = Stickiness(timeout=60, path=file, clock=clock)
    cache.put("old", "b1")
    clock.now += 30
    cache.put("new", "b2")
    cache.close()
    again = Stickiness(timeout=60, path=file, clock=clock)
    assert (again.get("old"), again.get("new")) == ("b1", "b2")
    clock.now += 30
    assert (again.get("old"), again.get("new")) == (None, "b2")


def test_a_line_that_a_crash_cut_off_costs_that_line_only(tmp_path: Path) -> None:
    file = tmp_path / "sticky"
    file.write_text('{"key": "a", "backend": "b1", "at": 1}\n[]\n{"key": "b", "at": 1}\n\x00\n{"key": "c", "back')
    cache = Stickiness(path=file)
    assert cache.get("a") == "b1"
    cache.put("d", "b2")
    cache.close()
    assert [json.loads(line)["key"] for line in file.read_text().splitlines()] == ["a", "d"]


def test_sigkill_loses_no_key_that_was_put(tmp_path: Path) -> None:
    file = tmp_path / "sticky"
    program = (
        "import sys; from pathlib import Path; from amqp_session_router.routing.stickiness import Stickiness\n"
        "cache = Stickiness(path=Path(sys.argv[1])); number = 0\n"
        "while True:\n"
        "    cache.put(f'k{number}', 'b'); print(number, flush=True); number += 1\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(file)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    last = -1
    for line in child.stdout:
        last = int(line)
        if last >= 2000:
            break
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    cache = Stickiness(path=file)
    assert all(cache.get(f"k{number}") == "b" for number in range(last + 1))


def test_the_file_does_not_grow_with_the_sessions(tmp_path: Path) -> None:
    file = tmp_path / "sticky"
    cache = Stickiness(path=file)
    for number in range(5 * _SLACK):
        cache.put(f"k{number % 3}", f"b{number}")
    assert len(file.read_text().splitlines()) <= 2 * 3 + _SLACK + 1
    assert cache.get("k1") == f"b{5 * _SLACK - 1 - (5 * _SLACK - 1 - 1) % 3}"


def test_a_file_that_cannot_be_written_costs_no_session(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = Stickiness(path=tmp_path / "missing" / "sticky")
    cache.put("k", "b1")
    cache.put("l", "b2")
    assert (cache.get("k"), cache.get("l")) == ("b1", "b2")
    assert [record.levelname for record in caplog.records] == ["ERROR"]
