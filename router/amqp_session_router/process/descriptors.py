"""File descriptor tables of processes: shared by clone(2) with CLONE_FILES, unshared, and emptied.

Imports nothing but the standard library: the supervisor loads it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import platform
import signal
from collections.abc import Iterable

_CLONE_FILES = 0x400
_CLONE_CHILD_SETTID = 0x01000000
_PR_GET_TID_ADDRESS = 40
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
HANDED_OVER = 75
"""The exit status of a process that a successor has relieved."""


def clone_sharing_files() -> int:
    """fork(), but the child shares this process's table of descriptors; raises OSError. Only without other threads."""
    number = _SYS_CLONE.get(platform.machine())
    if number is None:
        raise OSError(0, f"no clone(2) is known for {platform.machine()}")
    # The GIL is held all the time: the child has only this thread, and it goes on holding it.
    libc, api = ctypes.PyDLL(None, use_errno=True), ctypes.pythonapi
    # glibc keeps the thread's number where the kernel would clear it; the child's has to stand there in the child.
    place = ctypes.c_void_p()
    flags = _CLONE_FILES | signal.SIGCHLD
    if libc.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(place), 0, 0, 0) == 0 and place.value:
        flags |= _CLONE_CHILD_SETTID
    child = ctypes.c_long(place.value or 0)
    nothing = ctypes.c_long(0)
    collecting = gc.isenabled()
    # The child has copies of objects that nobody here uses any more: to collect them would close their descriptors for
    # this process, too, which closes the same numbers once more when they have become somebody else's.
    gc.disable()
    last = (child, nothing) if platform.machine() == "x86_64" else (nothing, child)
    api.PyOS_BeforeFork()
    pid = int(libc.syscall(ctypes.c_long(number), ctypes.c_long(flags), nothing, nothing, *last))
    if pid == 0:
        api.PyOS_AfterFork_Child()
        gc.freeze()
    else:
        api.PyOS_AfterFork_Parent()
    if collecting:
        gc.enable()
    if pid < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return pid


def unshare_files() -> None:
    """Have a table of descriptors of our own again, with copies of all that is open."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_FILES):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def close_all(numbers: Iterable[int]) -> None:
    """Close these descriptors; raises OSError."""
    for number in numbers:
        os.close(number)


def close_all_but(kept: set[int]) -> None:
    """Close every descriptor that is not in `kept`."""
    for number in [int(name) for name in os.listdir("/proc/self/fd")]:  # noqa: PTH208
        if number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)
