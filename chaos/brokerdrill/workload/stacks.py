"""Where a client's thread is at the moment: its calls, in Python and in its library."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from brokerdrill.workload.client import Client, Traced

# Calls that only wait, in Java and in Python: for what, says who called them.
_WAITING = ("java.", "jdk.", "sun.", "threading.py", "selectors.py", "socket.py")


def stacks(threads: Iterable[threading.Thread], kind: type[Client]) -> dict[str, list[str]]:
    """Return the calls of each of the living `threads` of clients of that `kind`, by its name, the innermost first:
    those of the library as it names them, then those in Python, each `file:line function`."""
    library = kind.stacks() if issubclass(kind, Traced) else {}
    python = sys._current_frames()
    found = {}
    for thread in threads:
        frame = python.get(thread.ident or 0)
        if frame is not None:
            calls = reversed(traceback.extract_stack(frame))
            here = [f"{Path(call.filename).name}:{call.lineno} {call.name}" for call in calls]
            found[thread.name] = [*library.get(thread.name, ()), *here]
    return found


def innermost(calls: Sequence[str]) -> str:
    """Return the call that says most: the innermost that is not the language's own waiting."""
    own = [call for call in calls if not call.startswith(_WAITING)]
    return (own or list(calls) or ["no call"])[0]
