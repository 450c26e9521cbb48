"""Why a process says that it ends."""

from __future__ import annotations

import pytest

from brokerdrill.runner.load.worker import exit_reason

CRASH = """\
warning: something else
#
# A fatal error has been detected by the Java Runtime Environment:
#
#  SIGSEGV (0xb) at pc=0x00007f2dad336a76, pid=15323, tid=15330
#
# JRE version: OpenJDK Runtime Environment (17.0.21)
# Problematic frame:
# C  [libc.so.6+0x5ea76]  memcpy+0x76
#
# No core dump will be written.
#

---------------  T H R E A D  ---------------
Registers:
"""
MEMORY = """\
#
# There is insufficient memory for the Java Runtime Environment to continue.
# Native memory allocation (mmap) failed to map 16384 bytes for committing reserved memory.
# Possible reasons:
#
"""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("", ""),
        ("one\n\nthe last\n\n", "the last"),
        ("#\n", "#"),
        (
            CRASH,
            "A fatal error has been detected by the Java Runtime Environment; "
            "SIGSEGV (0xb) at pc=0x00007f2dad336a76, pid=15323, tid=15330; C  [libc.so.6+0x5ea76]  memcpy+0x76",
        ),
        (
            MEMORY,
            "There is insufficient memory for the Java Runtime Environment to continue; "
            "Native memory allocation (mmap) failed to map 16384 bytes for committing reserved memory",
        ),
    ],
)
def test_the_last_words_tell_why(said: str, told: str) -> None:
    assert exit_reason(said) == told
