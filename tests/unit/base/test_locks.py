"""Locks of files: who holds one, and when it is free again."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from pathlib import Path

import pytest

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.base.locks import POLL_S, held, is_held


def test_a_lock_is_seen_and_names_its_holder(tmp_path: Path) -> None:
    lock = tmp_path / "folder" / ".lock"
    assert not is_held(lock)
    with held(lock, "busy"):
        assert is_held(lock)
        with pytest.raises(InfrastructureError, match=r"busy \(process \d+\)"), held(lock, "busy"):
            pass
    assert not is_held(lock)


def test_a_child_that_was_forked_meanwhile_does_not_keep_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with held(lock, "busy"):
        child = os.fork()
        if not child:
            signal.pause()
            os._exit(0)
    try:
        assert not is_held(lock)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_who_only_asks_keeps_nobody_out(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with lock.open("a+") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        release = threading.Timer(POLL_S / 4, fcntl.flock, (asking, fcntl.LOCK_UN))
        release.start()
        try:
            with held(lock, "busy"):
                assert is_held(lock)
        finally:
            release.join()
