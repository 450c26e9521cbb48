"""What the runner keeps running on each host: it executes scripts at once and tells when, on that host's own clock.

The whole file is handed to `python3 -c` over one SSH channel that stays open, so that a fault costs one round trip and
no login. Requests and replies are JSON lines; each request runs in a thread of its own, so a slow one delays no other.
Only the standard library: a host needs nothing but the Python that Ansible needs.
"""

import json
import pathlib
import subprocess
import sys
import threading
import time

_write_lock = threading.Lock()


def _reply(message: dict) -> None:
    with _write_lock:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def _run(request: dict) -> None:
    t0 = time.monotonic_ns()
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", request["sh"]],
            input=request.get("stdin", ""),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=request.get("timeout", 30),
        )
        rc, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        rc, out, err = 124, "", f"no end within {request.get('timeout', 30)} s"
    _reply({"id": request["id"], "rc": rc, "out": out, "err": err, "t0": t0, "t1": time.monotonic_ns()})


def _serve() -> None:
    # Which start of the host it is: another one has a monotonic clock of its own.
    boot_id = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    _reply({"id": -1, "rc": 0, "out": boot_id, "err": "", "t0": time.monotonic_ns(), "t1": time.monotonic_ns()})
    for line in sys.stdin:
        request = json.loads(line)
        if "sh" in request:
            threading.Thread(target=_run, args=(request,), daemon=True).start()
        else:
            now = time.monotonic_ns()
            _reply({"id": request["id"], "rc": 0, "out": "", "err": "", "t0": now, "t1": now})


if __name__ == "__main__":
    _serve()
