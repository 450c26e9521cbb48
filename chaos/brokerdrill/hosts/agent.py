"""What the runner keeps running on each host: it executes scripts at once and reports when, on that host's own clock.

The whole file is handed to `python3 -c` over one SSH channel that stays open, so that a fault costs one round trip and
no login. Requests and replies are JSON lines; each request runs in a thread of its own, so a slow one delays no other.
Requests of the host's safety kernel are answered by the file that is installed there, or by the one that a request
brings along to install. Only the standard library: a host needs nothing but the Python that Ansible needs.
"""

import codecs
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import types
import typing
from pathlib import Path

KERNEL = "/var/lib/brokerdrill/safety/safety_kernel.py"
# What a request of the kernel ends with: refused in one sentence, broken, there is none.
REFUSED, BROKEN, MISSING = 1, 2, 3
# Bytes of a script's output that are kept: a broker has its host's memory, and whoever looks at it must not take that.
MOST_OUTPUT = 16 << 20
_LOOK_S = 0.1
_PART = 1 << 16
_write_lock = threading.Lock()
_load_lock = threading.Lock()
_loaded: dict = {}


def _reply(message: dict, **long: typing.Any) -> None:
    """Answer. `long`: more of the message as UTF-8, which is written in parts: as JSON it may be six times as long."""
    with _write_lock:
        sys.stdout.write(json.dumps(message)[:-1])
        for name, text in long.items():
            sys.stdout.write(f', "{name}": "')
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            for at in range(0, len(text), _PART):
                sys.stdout.write(json.dumps(decoder.decode(text[at : at + _PART]))[1:-1])
            sys.stdout.write(json.dumps(decoder.decode(b"", final=True))[1:])
        sys.stdout.write("}\n")
        sys.stdout.flush()


class _TooMuch(Exception):
    """A script has written more than is kept of it."""


def _collect(stream: typing.Any, kept: bytearray) -> None:
    """Keep what comes from `stream` until it ends or is closed. Beyond MOST_OUTPUT the rest is left to whoever does."""
    with contextlib.suppress(OSError, ValueError):
        while len(kept) <= MOST_OUTPUT and (part := stream.read(_PART)):
            kept += part


def _feed(stream: typing.Any, given: bytes) -> None:
    with contextlib.suppress(OSError, ValueError), stream:
        while given:
            given = given[stream.write(given) :]


def _done(script: str, given: bytes, timeout: float) -> tuple:
    """Run a script; its status and what it wrote. Raises TimeoutExpired, _TooMuch, and what keeps it from being begun;
    what it had begun is killed then."""
    end = time.monotonic() + timeout
    # Without buffers a stream can be closed while somebody reads from it.
    pipes: dict = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
    out, err = bytearray(), bytearray()
    with subprocess.Popen(["/bin/sh", "-c", script], start_new_session=True, **pipes) as process:
        work = ((_collect, process.stdout, out), (_collect, process.stderr, err), (_feed, process.stdin, given))
        threads = [threading.Thread(target=do, args=of, daemon=True) for do, *of in work]
        try:
            for one in threads:
                one.start()
            # To the end of its output, which may come after its own.
            while True:
                for one in threads[:2]:
                    one.join(_LOOK_S)
                if max(len(out), len(err)) > MOST_OUTPUT:
                    raise _TooMuch
                if not any(one.is_alive() for one in threads[:2]):
                    break
                if time.monotonic() > end:
                    raise subprocess.TimeoutExpired(script, timeout)
            rc = process.wait(max(_LOOK_S, end - time.monotonic()))
        except BaseException:
            # With what it has begun, which would keep the host busy, and its pipes open.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return rc, out, err


def _run(request: dict) -> None:
    t0 = time.monotonic_ns()
    timeout = request.get("timeout", 30)
    out: typing.Any = b""
    try:
        rc, out, err = _done(request["sh"], request.get("stdin", "").encode(errors="replace"), timeout)
    except subprocess.TimeoutExpired:
        rc, err = 124, f"no end within {timeout} s".encode()
    except _TooMuch:
        rc, err = 125, f"more than {MOST_OUTPUT >> 20} MiB of output, which was not kept".encode()
    except Exception as error:  # as a script that is too long, or is none, or no memory: whoever asked waits for it
        rc, err = 126, (str(error) or type(error).__name__).encode(errors="replace")
    _reply({"id": request["id"], "rc": rc, "t0": t0, "t1": time.monotonic_ns()}, out=out, err=err)


def _read(request: dict) -> None:
    """Read files without a process: for what is asked all through a run. One that cannot be read is left out."""
    t0 = time.monotonic_ns()
    found = {}
    for name in request["read"]:
        with contextlib.suppress(OSError, ValueError):
            found[name] = Path(name).read_text(encoding="utf-8", errors="replace")
    _reply({"id": request["id"], "rc": 0, "out": json.dumps(found), "err": "", "t0": t0, "t1": time.monotonic_ns()})


def _kernel(source: str) -> types.ModuleType:
    """The kernel's module: of `source`, of an earlier request, or of the installed file, which may be missing."""
    with _load_lock:
        if source or not _loaded:
            if not source:
                source = Path(KERNEL).read_text(encoding="utf-8")
            module = types.ModuleType("safety_kernel")
            exec(compile(source, KERNEL, "exec"), module.__dict__)
            _loaded["module"] = module
        return _loaded["module"]


def _ask(request: dict) -> None:
    t0 = time.monotonic_ns()
    rc, out, err = 0, "", ""
    refusal: type = ()  # type: ignore[assignment]
    try:
        module = _kernel(request["with"].get("source", ""))
        refusal = module.Refused
        out = json.dumps(getattr(module.Kernel(), request["kernel"])(**request["with"]))
    except FileNotFoundError as error:
        rc, err = (MISSING if error.filename == KERNEL else BROKEN), str(error)
    except Exception as error:
        refused = isinstance(error, refusal)
        rc, err = (REFUSED, str(error)) if refused else (BROKEN, f"{type(error).__name__}: {error}")
    _reply({"id": request["id"], "rc": rc, "out": out, "err": err, "t0": t0, "t1": time.monotonic_ns()})


def _serve() -> None:
    # Which start of the host it is: another one has a monotonic clock of its own.
    boot_id = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    _reply({"id": -1, "rc": 0, "out": boot_id, "err": "", "t0": time.monotonic_ns(), "t1": time.monotonic_ns()})
    for line in sys.stdin:
        request = json.loads(line)
        of = [answer for name, answer in (("sh", _run), ("kernel", _ask), ("read", _read)) if name in request]
        if of:
            threading.Thread(target=of[0], args=(request,), daemon=True).start()
        else:
            now = time.monotonic_ns()
            _reply({"id": request["id"], "rc": 0, "out": "", "err": "", "t0": now, "t1": now})


if __name__ == "__main__":
    _serve()
