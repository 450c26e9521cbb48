"""How the program ends: each failure one sentence and its exit status."""

from __future__ import annotations

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
