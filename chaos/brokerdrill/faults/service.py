"""Faults of a service that orders itself: a primary that is ordered to change places with its standby."""

from __future__ import annotations

from shlex import quote

from brokerdrill.faults.base import MOMENTARY, FaultType, HostChange, Parameters
from brokerdrill.inventory.descriptors import control
from brokerdrill.inventory.targets import Target


def _switchover(target: Target, params: Parameters, fault_id: str) -> list[HostChange]:
    changes = []
    for item in target.instances:
        command = control(item)
        another_leads = (
            f"{command} list --format json | python3 -c 'import json,sys; "
            f'leaders = [m["Member"] for m in json.load(sys.stdin) if m["Role"] == "Leader"]; '
            f'sys.exit(leaders in ([], ["{item.instance}"]))\''
        )
        order = f"{command} switchover {quote(str(item.store))} --leader {quote(item.instance)} --force"
        changes.append(
            HostChange(
                host=item.host,
                # patronictl exits 0 where Patroni refuses; its last line has the reason.
                effect=f'said=$({order} 2>&1); {another_leads} || {{ echo "$said" >&2; exit 1; }}',
                verify=another_leads,
                # Nothing to undo: the new primary is as good as the old one.
                heal=":",
                verify_heal=":",
                lasting=MOMENTARY,
                target=item.host,
                instance=item.instance,
            )
        )
    return changes


FAULTS = (
    FaultType(
        "switchover",
        "instance",
        "an orderly change of places with a standby, by the service itself",
        Parameters,
        _switchover,
        passes=lambda _: True,
        only_on=frozenset({"lease_db"}),
        only_active=True,
    ),
)
