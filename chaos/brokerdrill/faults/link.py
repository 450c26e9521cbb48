"""Faults of a link that was armed before the load: its connections pass a toxiproxy on the dialling host.

Arming redirects the real destination into the proxy by nftables, except for toxiproxy's own user (`arm_on_host.py`); no
broker's or client's configuration names the proxy. A disarmed link costs nothing.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.faults import nft
from brokerdrill.faults.base import ALONE, NEEDED, FaultType, HostChange, Parameters, answers
from brokerdrill.inventory.descriptors import Endpoint, ToxiproxyDescriptor
from brokerdrill.inventory.targets import Link, Target
from brokerdrill.ledger.coverage import NOTHING, Minimum

_ARM_ON_HOST = (Path(__file__).parent / "arm_on_host.py").read_text()
# A request of toxiproxy's API, and what its answer must be; no answer is none of these. `done`: it does as asked;
# `there`, `gone`: or that was so before; `has`, `lacks`: the text is in the answer or not; `absent`: no such thing.
_REQUEST = """python3 - {words} <<'PY'
import sys, urllib.error, urllib.request
api, method, path, body, expect, text = sys.argv[1:]
request = urllib.request.Request("http://" + api + path, data=body.encode() or None, method=method)
said = ""
try:
    # It is on this host, whatever proxy leads from here to the world.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=5) as reply:
        said = reply.read().decode().replace(" ", "")
except urllib.error.HTTPError as error:
    if {"there": 409, "gone": 404, "lacks": 404, "absent": 404}.get(expect) != error.code:
        sys.exit(f"toxiproxy refuses {method} {path}: {error.read().decode().strip() or error}")
except OSError as error:
    print(f"toxiproxy at {api} does not answer: {error}", file=sys.stderr)
    sys.exit(1 if "refused" in str(error) else 2)  # where nobody is, its proxies are gone, too
if expect == "has" and text not in said or expect == "lacks" and text in said or expect == "absent" and said:
    sys.exit(f"toxiproxy says of {path}: {said or 'nothing'}")
PY"""


def _request(
    api: Endpoint, method: str, path: str, expect: str, *, text: str = "", body: Mapping[str, Any] | None = None
) -> str:
    words = (str(api), method, path, "" if body is None else json.dumps(body), expect, text)
    return _REQUEST.replace("{words}", shlex.join(words))


def _toxiproxy(link: Link) -> ToxiproxyDescriptor:
    """The toxiproxy that the link can pass. Raises InfrastructureError where its host has none."""
    if link.toxiproxy is None:
        raise InfrastructureError(f"host {link.dialler} has no descriptor of a toxiproxy, which {link.name} would pass")
    return link.toxiproxy


def proxy_name(link: Link) -> str:
    """The proxy's name on the dialling host: ASCII, one for each destination."""
    return f"bd-{link.address.replace('.', '-').replace(':', '-')}-{link.port}"


def _passed(link: Link) -> str:
    """Return a script that prints what has gone into the link's proxy (`arm_on_host.redirect`)."""
    return nft.counted(nft.table(proxy_name(link)), "passed")


def _arm(target: Target, params: Parameters, fault_id: str) -> list[HostChange]:
    changes = []
    for link in target.links:
        proxy, name = _toxiproxy(link), proxy_name(link)
        table, words = nft.table(name), (proxy.api, name, link.address, link.port, proxy.user, nft.table(name))
        changes.append(
            HostChange(
                host=link.dialler,
                effect=f"python3 - {shlex.join(map(str, words))} <<'PY'\n{_ARM_ON_HOST}PY",
                verify=f"{nft.there(table)} && " + _request(proxy.api, "GET", f"/proxies/{name}", "has", text=name),
                heal=f"{nft.delete(table)}\n" + _request(proxy.api, "DELETE", f"/proxies/{name}", "gone"),
                verify_heal=f"! {nft.there(table)} && " + _request(proxy.api, "GET", f"/proxies/{name}", "absent"),
                target=link.name,
                claims={f"proxy {name}": ALONE, answers(proxy.instance): NEEDED},
            )
        )
    return changes


class Latency(Parameters):
    """Every packet comes later."""

    latency: int = Field(0, ge=0, description="ms")
    jitter: int = Field(0, ge=0, description="ms, more or less, at random")


class Bandwidth(Parameters):
    """So much passes and no more."""

    rate: int = Field(ge=0, description="kB a second")


class SlowClose(Parameters):
    """The end of a connection comes later."""

    delay: int = Field(ge=0, description="ms")


class Timeout(Parameters):
    """Nothing passes, and the connection ends after a time."""

    timeout: int = Field(ge=0, description="ms; 0: the connection stays, and nothing passes while the fault lasts")


class ResetPeer(Parameters):
    """The connection is reset after a time."""

    timeout: int = Field(0, ge=0, description="ms")


class Slicer(Parameters):
    """Data comes in small pieces."""

    average_size: int = Field(gt=0, description="bytes")
    size_variation: int = Field(0, ge=0, description="bytes, more or less; below average_size")
    delay: int = Field(0, ge=0, description="µs between pieces")


class LimitData(Parameters):
    """The connection ends after so much data."""

    bytes: int = Field(ge=0, description="bytes")


# By toxiproxy's names, which takes what it does not know for nothing: so the attributes are checked here.
TOXICS: Mapping[str, type[Parameters]] = MappingProxyType(
    {
        "latency": Latency,
        "bandwidth": Bandwidth,
        "slow_close": SlowClose,
        "timeout": Timeout,
        "reset_peer": ResetPeer,
        "slicer": Slicer,
        "limit_data": LimitData,
    }
)


def attributes_text() -> str:
    """What each type of toxic takes: `latency: latency (ms), jitter (ms)`, …"""
    return "; ".join(
        f"{name}: " + ", ".join(f"{key} ({field.description})" for key, field in model.model_fields.items())
        for name, model in TOXICS.items()
    )


class ToxicParameters(Parameters):
    """A toxic of toxiproxy."""

    type: Literal["latency", "bandwidth", "slow_close", "timeout", "reset_peer", "slicer", "limit_data"] = Field(
        "latency", description="what it does to the stream"
    )
    stream: Literal["upstream", "downstream"] = Field(
        "downstream", description="upstream: what the dialling side sends; downstream: what it gets"
    )
    toxicity: float = Field(1.0, ge=0, le=1, description="the share of connections that it hits")
    attributes: dict[str, Any] = Field({}, description=f"by type ({attributes_text()})")

    @model_validator(mode="after")
    def _known_attributes(self) -> ToxicParameters:
        _attributes(self)
        return self


def _attributes(params: ToxicParameters) -> Parameters:
    """The attributes, checked. Raises ValueError, one sentence."""
    model = TOXICS[params.type]
    try:
        return model.model_validate(params.attributes)
    except ValidationError as error:
        first = error.errors()[0]
        name = first["loc"][0]
        known = ", ".join(model.model_fields)
        if first["type"] == "extra_forbidden":
            raise ValueError(f"a toxic of type {params.type} has no attribute {name} (it has {known})") from None
        raise ValueError(f"attribute {name} of a toxic of type {params.type}: {first['msg']}") from None


def _toxic(target: Target, params: ToxicParameters, fault_id: str) -> list[HostChange]:
    spec = params.given() | {"name": fault_id, "attributes": _attributes(params).given()}
    changes = []
    for link in target.links:
        api, path = _toxiproxy(link).api, f"/proxies/{proxy_name(link)}/toxics"
        changes.append(
            HostChange(
                host=link.dialler,
                effect=_request(api, "POST", path, "done", body=spec),
                verify=_request(api, "GET", path, "has", text=fault_id),
                heal=_request(api, "DELETE", f"{path}/{fault_id}", "gone"),
                # A toxic goes with its proxy.
                verify_heal=_request(api, "GET", path, "lacks", text=fault_id),
                count=_passed(link),
                target=link.name,
                claims={answers(_toxiproxy(link).instance): NEEDED},
            )
        )
    return changes


def _cut(target: Target, params: Parameters, fault_id: str) -> list[HostChange]:
    changes = []
    for link in target.links:
        name = proxy_name(link)
        api, path = _toxiproxy(link).api, f"/proxies/{name}"
        changes.append(
            HostChange(
                host=link.dialler,
                effect=_request(api, "POST", path, "done", body={"enabled": False}),
                verify=_request(api, "GET", path, "has", text='"enabled":false'),
                heal=_request(api, "POST", path, "gone", body={"enabled": True}),
                verify_heal=_request(api, "GET", path, "lacks", text='"enabled":false'),
                count=_passed(link),
                target=link.name,
                claims={f"proxy {name} is enabled": ALONE, answers(_toxiproxy(link).instance): NEEDED},
            )
        )
    return changes


# A connection that passes a proxy, or a packet that a rule stops, shows that a link was hit at all.
_PASSED = Minimum(packets=1)
ARM = FaultType(
    "arm",
    "link",
    "the link's connections pass a toxiproxy from now on",
    Parameters,
    _arm,
    ("nft", "ss", "ip"),
    meets=NOTHING,
)
_DRAWN: tuple[dict[str, Any], ...] = (
    {"attributes": {"latency": 100, "jitter": 50}},
    {"attributes": {"latency": 1000}},
    {"type": "slicer", "attributes": {"average_size": 64, "size_variation": 32, "delay": 1000}},
    {"type": "bandwidth", "attributes": {"rate": 20}},
    {"type": "limit_data", "attributes": {"bytes": 20000}},
    {"type": "reset_peer", "attributes": {"timeout": 0}},
    {"type": "timeout", "attributes": {"timeout": 0}},
    {"type": "timeout", "stream": "upstream", "attributes": {"timeout": 0}},
)
FAULTS = (
    FaultType(
        "toxic",
        "armed link",
        "a toxic of toxiproxy on the link",
        ToxicParameters,
        _toxic,
        meets=_PASSED,
        drawn=_DRAWN,
    ),
    FaultType("cut", "armed link", "the link's connections end, and new ones are refused", Parameters, _cut),
)
