"""Kills a process at one of its system calls: before it, or after it and before the process knows (ptrace(2))."""

from __future__ import annotations

import ctypes
import os
import platform
import signal

_TRACEME, _CONT, _KILL, _SYSCALL, _SETOPTIONS, _GETREGSET, _SETREGSET = 0, 7, 8, 24, 0x4200, 0x4204, 0x4205
_TRACESYSGOOD, _EXITKILL, _NT_PRSTATUS = 1, 1 << 20, 1
_WORDS = 40
_MACHINES = {
    # where the call's number is among the registers, and its third argument; the numbers of the calls
    "x86_64": (15, 12, {"recvfrom": 45, "sendto": 44}),
    "aarch64": (8, 2, {"recvfrom": 207, "sendto": 206}),
}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _ptrace(request: int, pid: int, address: int | None = None, data: object = None) -> None:
    if _libc.ptrace(request, pid, address, data) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def stop_here() -> None:
    """Let the parent trace this process, and wait for it."""
    _ptrace(_TRACEME, 0)
    os.kill(os.getpid(), signal.SIGSTOP)


def kill_at(pid: int, call: str, after: bool, length: int | None = None) -> None:
    """Let the child `pid`, which stops itself, run into its next `call`, and kill it there; returns when it is dead.

    `after`: when the call is done; `length`: what its third argument is made to be. Raises OSError, and RuntimeError
    where the child ends without such a call.
    """
    number_at, length_at, numbers = _MACHINES[platform.machine()]
    os.waitpid(pid, 0)
    _ptrace(_SETOPTIONS, pid, None, _TRACESYSGOOD | _EXITKILL)
    entered = False
    while True:
        _ptrace(_SYSCALL, pid)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSTOPPED(status):
            raise RuntimeError(f"the child ended without {call}")
        if os.WSTOPSIG(status) != signal.SIGTRAP | 0x80:
            continue
        if entered:
            break
        words = (ctypes.c_ulong * _WORDS)()
        registers = _Vector(ctypes.cast(words, ctypes.c_void_p), ctypes.sizeof(words))
        _ptrace(_GETREGSET, pid, _NT_PRSTATUS, ctypes.byref(registers))
        entered = words[number_at] == numbers[call]
        if entered and length is not None:
            words[length_at] = length
            _ptrace(_SETREGSET, pid, _NT_PRSTATUS, ctypes.byref(registers))
        if entered and not after:
            break
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
