"""How the program ends: each failure one sentence and its exit status."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

INTERRUPTED = """
def failing(**_):
    try:
        raise KeyboardInterrupt
    finally:
        raise RuntimeError("the virtual machine closed the connection")
"""
DEFECT = "def failing(**_): raise RuntimeError('a mistake')"


@pytest.mark.parametrize(
    ("text", "last"),
    [
        (INTERRUPTED, "brokerdrill: interrupted"),
        (DEFECT, "brokerdrill: this is a defect of brokerdrill; please report it with the lines above"),
    ],
)
def test_what_an_interrupt_makes_fail_is_no_defect(text: str, last: str) -> None:
    program = f"from brokerdrill.cli import app\n{text}\napp.app = failing\napp.main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stderr.splitlines()[-1], done.returncode) == (last, 3)
    assert ("Traceback" in done.stderr) == (text is DEFECT)


def test_an_interrupt_while_a_command_works_is_said() -> None:
    """Typer made status 130 of it, without a word."""
    program = (
        "from brokerdrill.cli import app\n@app.app.command()\ndef waits() -> None: raise KeyboardInterrupt\napp.main()"
    )
    done = subprocess.run([sys.executable, "-c", program, "waits"], capture_output=True, text=True)
    assert (done.stderr, done.returncode) == ("brokerdrill: interrupted\n", 3)


@pytest.mark.parametrize(
    ("number", "words"),
    [("EACCES", "Permission denied"), ("ENAMETOOLONG", "File name too long"), ("ENOSPC", "No space left on device")],
)
def test_what_the_file_system_refuses_is_one_sentence(number: str, words: str) -> None:
    """A folder that one may not enter, a name of 300 letters: each was called a defect of brokerdrill."""
    failing = f"def failing(**_): raise OSError(errno.{number}, os.strerror(errno.{number}), 'a/b')"
    program = f"import errno, os\nfrom brokerdrill.cli import app\n{failing}\napp.app = failing\napp.main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stderr, done.returncode) == (f"brokerdrill: a/b: {words}\n", 3)


def test_words_that_the_terminal_has_no_letters_for_end_nothing() -> None:
    """`link load→active` ended a command where the terminal is not UTF-8."""
    program = "from brokerdrill.cli import app\napp.app = lambda **_: print('load\u2192active')\napp.main()"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr, done.returncode) == ("load\\u2192active\n", "", 0)


def test_without_an_output_the_status_stands() -> None:
    """`brokerdrill … >&-` ended in a traceback and 1, which is the status of a broken promise."""
    command = f"exec {sys.executable} -m brokerdrill topologies >&-"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True)
    assert (done.stderr, done.returncode) == ("", 0)
