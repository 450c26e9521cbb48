"""What a process that died wrote last: the one sentence of it that tells why."""

from __future__ import annotations

_FRAME = "Problematic frame"


def last_words(said: str) -> str:
    """Return why a process says that it ends, "" where it says nothing: its last line of standard error, or, of a Java
    virtual machine's report of its own death, what befell it and where."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # A report is told in lines that begin with "#"; what follows it, if it is whole, are registers, stacks and maps.
    report = [line.lstrip("# ").rstrip(":.") for line in lines if line.startswith("#") and line.strip("# ")]
    if report:
        where = report[report.index(_FRAME) + 1 :][:1] if _FRAME in report else []
        return "; ".join([*report[:2], *where])
    return lines[-1] if lines else ""
