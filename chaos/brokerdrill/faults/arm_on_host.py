"""Arms a link on the host that dials it. Run there: `python3 - API PROXY ADDRESS PORT USER TABLE`; never imported.

toxiproxy (its API at API, its user USER) gets a proxy that leads to ADDRESS:PORT and listens on a port that is free;
nftables redirect into it what this host, or a container behind one of its bridges, dials there; connections that are
older are ended, so that they dial again. The port stands in the rules and in the proxy for as long as the link is
armed. Who comes from elsewhere is refused there. Ends with a sentence where something of this cannot be.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Below the ports that the kernel gives to outgoing connections, so that it stays free while the proxy is switched off.
FIRST_PORT = 19000
ENDED_S = 5


def ask(method: str, path: str, body: dict[str, str] | None = None) -> tuple[int, Any]:
    """Return the status and the answer of toxiproxy's API."""
    data = json.dumps(body).encode() if body else None
    try:
        # It is on this host, whatever proxy leads from here to the world.
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(urllib.request.Request(f"http://{API}{path}", data, method=method), timeout=5) as reply:
            return reply.status, json.loads(reply.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace").strip()
    except OSError as error:
        sys.exit(f"toxiproxy at {API} does not answer: {error}")


def run(*words: str, given: str | None = None) -> str:
    """Run a command; return what it prints. Ends the program where it fails."""
    done = subprocess.run(words, input=given, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{words[0]}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def resolved() -> list[tuple[str, str]]:
    """Return the addresses that ADDRESS means here, each with its family for nftables."""
    try:
        found = {(one[0], str(one[4][0])) for one in socket.getaddrinfo(ADDRESS, PORT, type=socket.SOCK_STREAM)}
    except OSError as error:
        sys.exit(f"{ADDRESS}: this host knows no address of it: {error}")
    return sorted(("ip6" if kind == socket.AF_INET6 else "ip", text) for kind, text in found if "%" not in text)


def is_free(port: int) -> bool:
    """Whether nothing listens on the port, at whichever address."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    try:
        socket.create_server(("", port), family=family, dualstack_ipv6=family == socket.AF_INET6).close()
    except OSError:
        return False
    return True


def guard(port: int) -> None:
    """Let nobody into the proxy but who was redirected, or dials it on this host."""
    stranger = f"iifname != lo tcp dport {port} ct status & dnat == 0"
    run("nft", "-f", "-", given=f"""
        table inet {TABLE}
        delete table inet {TABLE}
        table inet {TABLE} {{
          chain guard {{ type filter hook input priority -10; {stranger} counter reject with tcp reset; }}
        }}""")  # fmt: skip


def proxied() -> int:
    """Return the port of the proxy, which is made where there is none."""
    upstream = f"[{ADDRESS}]:{PORT}" if ":" in ADDRESS else f"{ADDRESS}:{PORT}"
    status, said = ask("GET", f"/proxies/{PROXY}")
    if status == 200:
        if said["upstream"] != upstream:
            sys.exit(f"toxiproxy has a proxy {PROXY} that leads elsewhere: to {said['upstream']}")
        port = int(said["listen"].rpartition(":")[2])
        guard(port)
        return port
    end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in range(FIRST_PORT, max(end, FIRST_PORT + 1000)):
        if is_free(port):
            guard(port)
            status, said = ask("POST", "/proxies", {"name": PROXY, "upstream": upstream, "listen": f":{port}"})
            if status in (200, 201):
                return port
            # Another link that is armed at this moment may have taken it.
            if "in use" not in str(said):
                sys.exit(f"toxiproxy refuses a proxy: {said}")
    sys.exit(f"no port from {FIRST_PORT} on is free")


def redirect(addresses: list[tuple[str, str]], port: int) -> None:
    """Lead into the proxy at `port` what is dialled here, or by a container behind a bridge of this host."""
    links = json.loads(run("ip", "-j", "link", "show", "type", "bridge") or "[]")
    bridges = ", ".join(f'"{link["ifname"]}"' for link in links if "ifname" in link)
    own, bridged = [], []
    for family, address in addresses:
        what = f"{family} daddr {address} tcp dport {PORT} counter redirect to :{port}"
        own.append(f"meta skuid != {USER} {what}")
        bridged.append(f"iifname {{ {bridges} }} {what}")
    text = f"table inet {TABLE} {{ chain out {{ type nat hook output priority -100;\n" + "\n".join(own) + "\n}\n"
    # All that goes into the proxy, whoever dialled it: what a toxic meets (faults/link.py).
    text += f"chain passed {{ type filter hook input priority 10; tcp dport {port} counter; }}\n"
    if bridges:
        text += "chain bridged { type nat hook prerouting priority -100;\n" + "\n".join(bridged) + "\n}\n"
    run("nft", "-f", "-", given=text + "}")


def namespaces() -> Iterator[list[str]]:
    """Yield the command that gets into each network namespace of this host: containers have their own."""
    seen = {Path("/proc/self/ns/net").stat().st_ino}
    yield []
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            inode = path.stat().st_ino
        except OSError:
            continue
        if inode not in seen:
            seen.add(inode)
            yield ["nsenter", f"--net={path}"]


def established(command: list[str]) -> set[str]:
    """Return the ends on this side of the connections that `ss` finds."""
    return {line.split()[2] for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines()}


def end_old(addresses: list[tuple[str, str]]) -> None:
    """End the connections to the link's end, and see that they have ended."""
    for enter in namespaces():
        for _, address in addresses:
            there = ["dst", f"[{address}]" if ":" in address else address, "dport", "=", f":{PORT}"]
            look = [*enter, "ss", "-Htn", "state", "established", *there]
            old, until = established(look), time.monotonic() + ENDED_S
            # It is loud about what it did.
            subprocess.run([*enter, "ss", "-K", *there], capture_output=True)
            while old & established(look):
                if time.monotonic() > until:
                    sys.exit(f"ss -K does not end connections to {address} {PORT}: the kernel has no INET_DIAG_DESTROY")
                time.sleep(0.1)


API, PROXY, ADDRESS, PORT, USER, TABLE = sys.argv[1:]
found = resolved()
chosen = proxied()
redirect(found, chosen)
end_old(found)
print(chosen)
