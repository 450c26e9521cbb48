"""What the instances of a host show to others: run there as root by `python3 -`, prints one JSON object.

Changes nothing: it makes one TLS connection to each listener, and reads modes of files, never what is in them. Only the
standard library: a host needs nothing but the Python that Ansible needs.
"""

import contextlib
import json
import re
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

TIMEOUT_S = 5
# `ss -ltnpH`: state, queues, local address, peer, processes.
LISTENING = re.compile(r"^LISTEN\s+\d+\s+\d+\s+(\S+):(\d+)\s+\S+(?:\s+(.*))?$")
PROCESS = re.compile(r"pid=(\d+)")
UNIT = re.compile(r"/([^/]+\.service)(?:/|$)")
# What files with secrets are called: roles', and the products' own.
SECRET = re.compile(
    r"secret|credential|password|passfile|users(?:-previous)?\.properties|cookie|\.key$|\.pem$|\.p12$|\.jks$|\.env$"
)
OPEN_TO_ALL = 0o004


def unit_of(pid: str) -> str:
    """Return the systemd unit of a process, "" where there is none."""
    with contextlib.suppress(OSError):
        found = UNIT.findall(Path("/proc", pid, "cgroup").read_text(encoding="utf-8"))
        return found[-1] if found else ""
    return ""


def listening() -> list[dict[str, Any]]:
    """Return address, port and unit of each listening TCP socket."""
    done = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    found = []
    for line in done.stdout.splitlines():
        if match := LISTENING.match(line.strip()):
            pids = PROCESS.findall(match[3] or "")
            address = match[1].strip("[]").partition("%")[0]
            found.append({"address": address, "port": int(match[2]), "unit": unit_of(pids[0]) if pids else ""})
    return found


def certificate(address: str, port: int, authority: str) -> dict[str, Any]:
    """Return when the certificate that is served there ends, and the authority's; or why it cannot be trusted
    (`distrusted`), or seen at all (`unseen`)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    try:
        context.load_verify_locations(authority)
        ends = [str(one["notAfter"]) for one in context.get_ca_certs()]
        with (
            socket.create_connection((address, port), timeout=TIMEOUT_S) as plain,
            context.wrap_socket(plain) as served,
        ):
            peer = served.getpeercert() or {}
        return {"ends": peer["notAfter"], "authority_ends": min(ends, key=ssl.cert_time_to_seconds)}
    except ssl.SSLCertVerificationError as error:
        return {"distrusted": error.verify_message}
    except (OSError, KeyError, ValueError) as error:
        return {"unseen": str(error) or type(error).__name__}


def readable(descriptor: dict[str, Any]) -> list[str]:
    """Return the files with secrets of an instance that every user of the host may read."""
    credentials, tls = descriptor.get("credentials") or {}, descriptor.get("tls") or {}
    files = [Path(one) for one in (credentials.get("file"), tls.get("bundle")) if one]
    folder = descriptor.get("config_dir")
    if folder and Path(folder).is_dir():
        files += [
            path for path in Path(folder).rglob("*") if SECRET.search(path.name) and path != Path(tls.get("ca", ""))
        ]
    return sorted({str(path) for path in files if path.is_file() and _reaches_all(path)})


def _reaches_all(path: Path) -> bool:
    # A folder that others may not enter keeps what is in it.
    return bool(path.stat().st_mode & OPEN_TO_ALL) and all(one.stat().st_mode & 0o001 for one in path.parents)


def exposed(folder: Path) -> dict[str, Any]:
    """Return all of it for the descriptors in `folder`."""
    instances = []
    for path in sorted(folder.glob("*.json")):
        descriptor = json.loads(path.read_text(encoding="utf-8"))
        if "product" not in descriptor:
            continue  # credentials lie there, too
        authority = (descriptor.get("tls") or {}).get("ca")
        listeners = [
            one
            | ({"certificate": certificate(one["address"], one["port"], authority)} if one["tls"] and authority else {})
            for one in descriptor.get("listeners", [])
        ]
        kept = {name: descriptor.get(name) for name in ("product", "instance", "unit")}
        instances.append({**kept, "listeners": listeners, "readable": readable(descriptor)})
    return {"instances": instances, "listening": listening()}


if __name__ == "__main__":
    print(json.dumps(exposed(Path(sys.argv[1]))))
