"""Faults of a session router, by its own means: a broker is taken out of service and back, sessions wait, it runs by
something other than its file, or a new process takes the place of the one that serves."""

from __future__ import annotations

from functools import partial
from shlex import join, quote

from pydantic import Field

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.faults.base import ALONE, MOMENTARY, NEEDED, FaultType, HostChange, Parameters, answers
from brokerdrill.inventory.descriptors import control
from brokerdrill.inventory.targets import Target

# Exits with 0 where the router answers a verb, and `seen` is so of its rows that have this name in `column`.
_LOOK = """{control} --json {verb} | python3 -c '
import json, sys
rows = [row for row in json.load(sys.stdin) if row["{column}"] == sys.argv[1]]
sys.exit(not ({seen}))
' {name}"""


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
        command, backend = link.control, quote(link.instance)
        look = partial(_LOOK.format, control=command, verb="BACKEND PRINT", column="name", name=backend)
        effect = f"{command} BACKEND DRAIN {backend}"
        if params.rate:
            effect += f" && {command} BACKEND DISCONNECT_GRACEFUL {backend} {params.rate:g}"
        changes.append(
            HostChange(
                host=link.dialler,
                effect=effect,
                verify=look(
                    seen='rows and all(row["drain"] and not row["active"] for row in rows)'
                    if params.rate
                    else 'rows and all(row["drain"] for row in rows)'
                ),
                heal=f"{command} BACKEND UNDRAIN {backend}",
                verify_heal=look(seen='rows and not any(row["drain"] for row in rows)'),
                # A session may be there for a moment while it is moved.
                lasting=look(seen='all(row["drain"] for row in rows)'),
                target=link.name,
                claims={f"backend {backend} of {command}": ALONE, answers(link.caller): NEEDED},
            )
        )
    return changes


class HoldParameters(Parameters):
    """Whose sessions wait."""

    vhost: str = Field("/", description="the vhost whose sessions wait, and those that come")


def _hold(target: Target, params: HoldParameters, fault_id: str) -> list[HostChange]:
    changes = []
    for item in target.instances:
        command, vhost = control(item), quote(params.vhost)
        look = partial(_LOOK.format, control=command, verb="VHOST PRINT", column="vhost", name=vhost)
        paused = 'any(row["paused"] for row in rows)'
        # A vhost without sessions is not in the list any more.
        over = look(seen=f"not {paused}")
        changes.append(
            HostChange(
                host=item.host,
                effect=f"{command} VHOST PAUSE {vhost}",
                verify=look(seen=paused),
                # To end a pause that is over is an error to the router; one that does not answer has ended none.
                heal=f"if {look(seen=paused)}; then {command} VHOST UNPAUSE {vhost}; else {over}; fi",
                verify_heal=over,
                lasting=look(seen='all(row["paused"] for row in rows)'),
                target=item.host,
                instance=item.instance,
                claims={f"vhost {vhost} of {command}": ALONE, answers(item.instance): NEEDED},
            )
        )
    return changes


class DriftParameters(Parameters):
    """What is other than in the file."""

    change: str = Field(
        "LIMIT TOTAL_CONN DEFAULT 1",
        min_length=1,
        description="a command of the router that edits its running configuration",
    )


# Exits with 0 where a router answers whether a section of its running configuration is not the file's, and it is `so`.
_DRIFTS = """{control} --json DRIFT | python3 -c '
import json, sys
sys.exit(any("file" in row["differs"].split(", ") for row in json.load(sys.stdin)) is not {so})
'"""


def _drift(target: Target, params: DriftParameters, fault_id: str) -> list[HostChange]:
    changes = []
    for item in target.instances:
        command = control(item)
        changes.append(
            HostChange(
                host=item.host,
                effect=f"{command} {join(params.change.split())}",
                verify=_DRIFTS.format(control=command, so=True),
                heal=f"{command} CONFIG RELOAD",
                verify_heal=_DRIFTS.format(control=command, so=False),
                target=item.host,
                instance=item.instance,
                claims={f"running configuration of {command}": ALONE, answers(item.instance): NEEDED},
            )
        )
    return changes


class ReplaceParameters(Parameters):
    """It has none."""


# The processes that serve: the main one's children, or where it has several workers theirs.
_SERVING = """main=$(systemctl show -p MainPID --value {unit}) && [ "$main" -gt 0 ]
for child in $(pgrep -P "$main"); do pgrep -P "$child" || echo "$child"; done"""
# One that gives its sessions away ends with the last of them.
_REPLACED = 'for pid in $(cat {note}); do ! kill -0 "$pid" 2>/dev/null || exit 1; done; [ "$({serving})" ]'


def _replace(target: Target, params: ReplaceParameters, fault_id: str) -> list[HostChange]:
    changes = []
    for item in target.instances:
        unit, note = quote(item.unit or ""), f"/run/brokerdrill/{fault_id}.replaced"
        serving = _SERVING.format(unit=unit)
        changes.append(
            HostChange(
                host=item.host,
                prepare=f"({serving}) > {note} && [ -s {note} ]",
                effect=f"systemctl kill --kill-who=main --signal=SIGUSR2 {unit}",
                verify=_REPLACED.format(note=note, serving=serving),
                # Nothing is to be undone: the new process goes on.
                heal=f"rm -f {note}",
                verify_heal=f"[ ! -e {note} ]",
                lasting=MOMENTARY,
                target=item.host,
                instance=item.instance,
            )
        )
    return changes


FAULTS = (
    FaultType(
        "replace",
        "instance",
        "a session router gives its sessions to a new process, as at an upgrade",
        ReplaceParameters,
        _replace,
        only_on=frozenset({"amqp_router"}),
        commands=("pgrep",),
        passes=lambda _: True,
    ),
    FaultType(
        "drift",
        "instance",
        "a session router runs by something other than its file, as after a change by hand that nobody saved",
        DriftParameters,
        _drift,
        only_on=frozenset({"amqp_router"}),
    ),
    FaultType(
        "hold",
        "instance",
        "a session router has the sessions of a vhost wait, and answers their heartbeats",
        HoldParameters,
        _hold,
        only_on=frozenset({"amqp_router"}),
    ),
    FaultType(
        "drain",
        "link",
        "a session router gives the broker no new sessions, and takes its old ones away from it",
        DrainParameters,
        _drain,
        only_on=frozenset({"amqp_router"}),
    ),
)
