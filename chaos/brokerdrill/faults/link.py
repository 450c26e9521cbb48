"""Faults of a link that was armed before the load: its connections pass a toxiproxy on the dialling host.

Arming redirects the real destination into the proxy by nftables, except for toxiproxy's own user; no broker's or
client's configuration names the proxy (see design.md, "Links"). A disarmed link costs nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from brokerdrill.faults.base import FaultType, HostChange, Toxic
from brokerdrill.targets import Link, Target

API = "http://127.0.0.1:8474"
_FIRST_PORT = 19000
_PORTS = 4000
_REQUEST = """python3 - {method} {path} '{body}' {expect} <<'PY'
import sys, urllib.request, urllib.error
method, path, body, expect = sys.argv[1:5]
request = urllib.request.Request("{api}" + path, data=body.encode() or None, method=method)
try:
    with urllib.request.urlopen(request, timeout=5) as reply:
        text = reply.read().decode()
except urllib.error.HTTPError as error:
    text = ""
    if error.code != 404:
        raise SystemExit(str(error))
if expect == "absent":
    sys.exit(1 if text else 0)
if expect != "any":
    sys.exit(0 if expect in text.replace(" ", "") else 1)
PY"""


def _request(method: str, path: str, body: str = "", expect: str = "any") -> str:
    filled = _REQUEST.replace("{api}", API).replace("{method}", method).replace("{path}", path)
    return filled.replace("{body}", body).replace("{expect}", f"'{expect}'")


def proxy_name(link: Link) -> str:
    """The proxy's name on the dialling host: ASCII, one for each destination."""
    return f"bd-{link.address.replace('.', '-').replace(':', '-')}-{link.port}"


def proxy_port(link: Link) -> int:
    """The loopback port of the link's proxy: the same for the same destination, in a range of its own."""
    digest = hashlib.sha256(f"{link.address}:{link.port}".encode()).digest()
    return _FIRST_PORT + int.from_bytes(digest[:4], "big") % _PORTS


def _arm(target: Target, params: Mapping[str, Any], fault_id: str) -> list[HostChange]:
    changes = []
    for link in target.links:
        name, port = proxy_name(link), proxy_port(link)
        table = f"brokerdrill_{name.replace('-', '_')}"
        rule = f"meta skuid != toxi ip daddr {link.address} tcp dport {link.port} redirect to :{port}"
        # NAT sees new connections only: end the old ones, so that they dial again (ss is loud about what it did).
        end_old = f"ss -K dst {link.address} dport = {link.port} >/dev/null 2>&1 || :"
        changes.append(
            HostChange(
                host=link.dialler,
                effect=(
                    f"nft -f - <<'NFT'\ntable inet {table} {{\n chain out {{ type nat hook output priority -100;\n"
                    f"  {rule}\n }}\n}}\nNFT\n{end_old}"
                ),
                api=Toxic(name, upstream=f"{link.address}:{link.port}", listen=f"127.0.0.1:{port}"),
                verify=f"nft list table inet {table} >/dev/null && " + _request("GET", f"/proxies/{name}", expect=name),
                heal=f"nft delete table inet {table} 2>/dev/null || :\n" + _request("DELETE", f"/proxies/{name}"),
                verify_heal=(
                    f"! nft list table inet {table} >/dev/null 2>&1 && "
                    + _request("GET", f"/proxies/{name}", expect="absent")
                ),
                target=link.name,
            )
        )
    return changes


def _toxic(target: Target, params: Mapping[str, Any], fault_id: str) -> list[HostChange]:
    spec = {
        "name": fault_id,
        "type": params["type"],
        "stream": params["stream"],
        "toxicity": params["toxicity"],
        "attributes": dict(params["attributes"]),
    }
    return [
        HostChange(
            host=link.dialler,
            effect=":",
            api=Toxic(proxy_name(link), toxic=spec),
            verify=_request("GET", f"/proxies/{proxy_name(link)}/toxics", expect=fault_id),
            heal=_request("DELETE", f"/proxies/{proxy_name(link)}/toxics/{fault_id}"),
            verify_heal=f"! ( {_request('GET', f'/proxies/{proxy_name(link)}/toxics', expect=fault_id)}\n)",
            target=link.name,
        )
        for link in target.links
    ]


def _cut(target: Target, params: Mapping[str, Any], fault_id: str) -> list[HostChange]:
    return [
        HostChange(
            host=link.dialler,
            effect=":",
            api=Toxic(proxy_name(link), enabled=False),
            verify=_request("GET", f"/proxies/{proxy_name(link)}", expect='"enabled":false'),
            heal=_request("POST", f"/proxies/{proxy_name(link)}", body='{"enabled":true}'),
            verify_heal=_request("GET", f"/proxies/{proxy_name(link)}", expect='"enabled":true'),
            target=link.name,
        )
        for link in target.links
    ]


ARM = FaultType("arm", "link", "the link's connections pass a toxiproxy from now on", _arm, {})
FAULTS = (
    FaultType(
        "toxic",
        "armed link",
        "a toxic of toxiproxy on the link: latency, bandwidth, slicer, timeout, reset_peer, limit_data, slow_close",
        _toxic,
        {"type": "latency", "stream": "downstream", "toxicity": 1.0, "attributes": {}},
    ),
    FaultType("cut", "armed link", "the link's connections end, and new ones are refused", _cut, {}),
)
