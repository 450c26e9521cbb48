"""The message header: what is written is read again, and what another run wrote is not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from brokerdrill.workload import header
from brokerdrill.workload.client import Message

TAG = header.tag_of("run-1")
MESSAGE = Message("producer-0-17", 17, "group-1", b"body", header.sha(b"body"))


@pytest.mark.parametrize("key", [None, "group-1"])
def test_what_is_written_is_read(key: str | None) -> None:
    text = header.write(TAG, MESSAGE._replace(key=key), 3)
    assert header.read(TAG, text) == ("producer-0-17", 3, 17, key)


@pytest.mark.parametrize("text", ["", "no header", header.write(header.tag_of("run-2"), MESSAGE, 0), f"{TAG}|a|1|2"])
def test_what_another_wrote_is_not_read(text: str) -> None:
    assert header.read(TAG, text) is None


@pytest.mark.parametrize("text", [None, "no header", "b9d17232|a|b|c|d|e"])
def test_a_foreign_message_keeps_a_name_of_its_own(text: str | None) -> None:
    got = header.delivery(TAG, "q", text, "ID:7", redelivered=True, body=b"x", handle=None)
    assert got == ("q", "foreign-ID:7", 0, 0, None, True, header.sha(b"x"), None, 0, None, True)


def test_what_an_earlier_run_left_behind_says_so() -> None:
    other = header.tag_of("run-2")
    got = header.delivery(TAG, "q", header.write(other, MESSAGE, 0), "ID:7", redelivered=False, body=b"x", handle=None)
    assert (got.left_by, got.foreign, got.message_id) == (other, False, "foreign-ID:7")


def test_the_header_needs_no_jpype() -> None:
    done = "import sys, brokerdrill.workload.header, brokerdrill.workload.producer; sys.exit('jpype' in sys.modules)"
    subprocess.run([sys.executable, "-c", done], check=True)
