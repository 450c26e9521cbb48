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


def certificate(address: str, port: int, authority: str, bundle: str = "") -> dict[str, Any]:
    """Return when the certificate that is served there ends, and the authority's; or why it cannot be trusted
    (`distrusted`), or seen at all (`unseen`). Where nobody listens, as at a passive broker, what `bundle` would serve
    is looked at in its place, and `unserved` says why."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    unserved = {}
    try:
        context.load_verify_locations(authority)
        ends = [str(one["notAfter"]) for one in context.get_ca_certs()]
        try:
            with (
                socket.create_connection((address, port), timeout=TIMEOUT_S) as plain,
                context.wrap_socket(plain) as served,
            ):
                peer = served.getpeercert() or {}
        except ConnectionRefusedError as error:
            unserved = {"unserved": str(error)}
            peer = would_serve(context, bundle)
        return {"ends": peer["notAfter"], "authority_ends": min(ends, key=ssl.cert_time_to_seconds), **unserved}
    except ssl.SSLCertVerificationError as error:
        return {"distrusted": error.verify_message, **unserved}
    except (OSError, KeyError, ValueError) as error:
        return {"unseen": unserved.get("unserved") or str(error) or type(error).__name__}


def would_serve(context: ssl.SSLContext, bundle: str) -> dict[str, Any]:
    """Return the certificate that a peer with `context` would see of a server with the files in `bundle`: both are
    here, and speak in memory. Raises OSError, as a connection would."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(bundle)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = context.wrap_bio(to_client, to_server)
    turns = peer, server.wrap_bio(to_server, to_client, server_side=True)
    for side in turns * 2:
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return peer.getpeercert() or {}


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


def _certificate(listener: dict[str, Any], tls: dict[str, Any]) -> dict[str, Any]:
    return certificate(listener["address"], listener["port"], tls["ca"], tls.get("bundle") or "")


def exposed(folder: Path) -> dict[str, Any]:
    """Return all of it for the descriptors in `folder`."""
    instances = []
    for path in sorted(folder.glob("*.json")):
        descriptor = json.loads(path.read_text(encoding="utf-8"))
        if "product" not in descriptor:
            continue  # credentials lie there, too
        tls = descriptor.get("tls") or {}
        listeners = [
            one | ({"certificate": _certificate(one, tls)} if one["tls"] and tls.get("ca") else {})
            for one in descriptor.get("listeners", [])
        ]
        kept = {name: descriptor.get(name) for name in ("product", "instance", "unit")}
        instances.append({**kept, "listeners": listeners, "readable": readable(descriptor)})
    return {"instances": instances, "listening": listening()}


if __name__ == "__main__":
    print(json.dumps(exposed(Path(sys.argv[1]))))
