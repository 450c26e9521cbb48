"""The protocol of a fault: plain data about what to do on which host, so that one executor serves them all.

A fault plans `HostChange`s. Each carries the scripts to make it, to see that it took effect, and to undo it. The undo
is always a script on the host itself: the runner, `brokerdrill heal` and the host's own time-to-live timer run the same
one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from brokerdrill.targets import Target


@dataclass(frozen=True)
class Toxic:
    """A call of the toxiproxy API on the host: on `proxy`, add this toxic, or set `enabled`, or create the proxy."""

    proxy: str
    upstream: str | None = None
    listen: str | None = None
    enabled: bool | None = None
    toxic: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class HostChange:
    """One reversible change on one host.

    prepare makes the effect last (it is not the fault yet); effect is the moment of the fault; verify and verify_heal
    exit 0 when the fault, or its end, can be seen; heal may run any number of times.
    """

    host: str
    effect: str
    verify: str
    heal: str
    verify_heal: str
    prepare: str = ":"
    api: Toxic | None = None
    target: str = ""
    instance: str | None = None
    store: str | None = None


Plan = Callable[[Target, Mapping[str, Any], str], list[HostChange]]


@dataclass(frozen=True)
class FaultType:
    """A kind of fault: `plan(target, params, fault_id)`, what it acts on, and its parameters with their defaults."""

    name: str
    acts_on: str
    description: str
    plan: Plan
    params: Mapping[str, Any]
