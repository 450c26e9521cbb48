"""Faults of a session router: its operator takes a broker out of service and back, with the router's own commands."""

from __future__ import annotations

from shlex import quote

from pydantic import Field

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.faults.base import FaultType, HostChange, Parameters
from brokerdrill.inventory.targets import Target

_LOOK = """{control} --json BACKEND PRINT | python3 -c '
import json, sys
rows = [row for row in json.load(sys.stdin) if row["name"] == sys.argv[1]]
sys.exit(not rows or not all({seen} for row in rows))
' {backend}"""


class DrainParameters(Parameters):
    """How a broker is drained."""

    rate: float = Field(
        50.0, ge=0, description="sessions that each router disconnects gracefully a second; 0: none, the old ones stay"
    )


def _drain(target: Target, params: DrainParameters, fault_id: str) -> list[HostChange]:
    changes = []
    # Several links to one broker are one backend of the router's.
    for link in {(link.dialler, link.instance): link for link in target.links}.values():
        if link.control is None:
            raise InfrastructureError(f"{link.name}: the descriptor of who dials says no `control` command")
        control, backend = link.control, quote(link.instance)

        def look(seen: str, control: str = control, backend: str = backend) -> str:
            return _LOOK.format(control=control, backend=backend, seen=seen)

        effect = f"{control} BACKEND DRAIN {backend}"
        if params.rate:
            effect += f" && {control} BACKEND DISCONNECT_GRACEFUL {backend} {params.rate:g}"
        changes.append(
            HostChange(
                host=link.dialler,
                effect=effect,
                verify=look('row["drain"] and not row["active"]' if params.rate else 'row["drain"]'),
                heal=f"{control} BACKEND UNDRAIN {backend}",
                verify_heal=look('not row["drain"]'),
                target=link.name,
            )
        )
    return changes


FAULTS = (
    FaultType(
        "drain",
        "link",
        "a session router gives the broker no new sessions, and takes its old ones away from it",
        DrainParameters,
        _drain,
    ),
)
