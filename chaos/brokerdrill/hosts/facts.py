"""What a host has that a drill needs or meets: run there as root by `python3 -`, prints one JSON object.

Changes nothing. Arguments: commands to look for, then `--`, then folders whose free space is asked for, then `--`, then
ports that clients connect to. Only the standard library: a host needs nothing but the Python that Ansible needs.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

# Faults redirect and drop; `-c` only checks that the kernel would take it.
RULES = """table inet brokerdrill_check {
 chain out { type nat hook output priority -100; tcp dport 1 redirect to :2; }
 chain dropped { type filter hook output priority -10; tcp dport 1 drop; }
}
"""
FOREIGN = ("firewalld", "ufw", "nftables")
TIMEOUT_S = 10


def run(*words: str, given: str = "") -> tuple[int, str]:
    """Return (exit status, output) of a command; 127 where it is not there or does not end."""
    try:
        done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=TIMEOUT_S, errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return done.returncode, (done.stdout or done.stderr).strip()


def ends_connections() -> bool:
    """Whether `ss -K` ends a connection: one of this script's own, to itself."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = server.getsockname()[1]
        client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=2))
        run("ss", "-K", "dst", "127.0.0.1", "dport", "=", str(port))
        try:
            client.settimeout(0.2)
            return client.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True


def firewalls() -> dict:
    """Which services here have firewall rules of their own, and whether one flushes all rules when it starts."""
    active = [name for name in FOREIGN if run("systemctl", "is-active", "--quiet", name)[0] == 0]
    flushes = False
    with contextlib.suppress(OSError):
        lines = Path("/etc/nftables.conf").read_text(errors="replace").splitlines()
        flushes = any(line.strip().startswith("flush ruleset") for line in lines)
    enabled = run("systemctl", "is-enabled", "--quiet", "nftables")[0] == 0
    return {"active": active, "flushes": flushes and enabled}


def peers(ports: list[str]) -> dict[str, int]:
    """From which addresses established connections to these ports come, and how many from each."""
    found: dict[str, int] = {}
    status, out = run("ss", "-Htn", "state", "established")
    for line in out.splitlines() if status == 0 else ():
        fields = line.split()
        if len(fields) >= 4 and fields[2].rpartition(":")[2] in ports:
            peer = fields[3].rpartition(":")[0].strip("[]").removeprefix("::ffff:")
            found[peer] = found.get(peer, 0) + 1
    return found


def facts(commands: list[str], folders: list[str], ports: list[str]) -> dict:
    """All of it."""
    free = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            free[folder] = shutil.disk_usage(folder).free >> 20
    nft = run("nft", "-c", "-f", "-", given=RULES) if shutil.which("nft") else (127, "")
    return {
        "root": os.geteuid() == 0,
        "lacking": [name for name in commands if not shutil.which(name)],
        "nft": nft[0] == 0,
        "nft_said": nft[1].splitlines()[:1],
        "ends_connections": ends_connections() if shutil.which("ss") else None,
        "time_namespaces": Path("/proc/self/ns/time").exists(),
        "faketime": any(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")),
        "firewalls": firewalls(),
        "free_mib": free,
        "synchronized": run("timedatectl", "show", "-p", "NTPSynchronized", "--value")[1],
        "wall_ns": time.time_ns(),
        "peers": peers(ports),
    }


def main(words: list[str]) -> None:
    """Print the facts that `words` ask for."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "--":
            parts.append([])
        else:
            parts[-1].append(word)
    commands, folders, ports = (*parts, [], [])[:3]
    print(json.dumps(facts(commands, folders, ports)))


if __name__ == "__main__":
    main(sys.argv[1:])
