"""Faults of a whole host: it is started anew, in an orderly way or as if its power had failed for a moment."""

from __future__ import annotations

from collections import defaultdict
from shlex import quote
from typing import Literal

from pydantic import Field

from brokerdrill.faults.base import ALONE, MOMENTARY, UNDER_WAY, FaultType, HostChange, Parameters
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.targets import Target

_EFFECTS = {
    "orderly": "systemctl --no-wall reboot",
    # By a timer: a host that is gone at once could not say that it was asked. Nothing is stopped, written or unmounted.
    "abrupt": "systemd-run --quiet --collect --on-active=100ms --timer-property=AccuracySec=1ms "
    "systemctl reboot --force --force",
}
# A restart forgets what is in /run: the note is of the start before.
_NOTE = "/run/brokerdrill/{fault_id}.up"
_RESTARTED = (
    f'[ ! -e {{note}} ] || {{{{ [ "$(systemctl is-system-running)" = stopping ] && exit {UNDER_WAY}; exit 1; }}}}'
)


class RestartParameters(Parameters):
    """How the host goes down."""

    how: Literal["orderly", "abrupt"] = Field(
        "orderly",
        description="orderly: services are stopped, each as its unit says; abrupt: everything ends at once and nothing "
        "is written any more, as when its power fails",
    )


def _restart_host(target: Target, params: RestartParameters, fault_id: str) -> list[HostChange]:
    by_host: dict[str, list[Descriptor]] = defaultdict(list)
    for item in target.instances:
        by_host[item.host].append(item)
    note = _NOTE.format(fault_id=fault_id)
    changes = []
    for host, items in sorted(by_host.items()):
        units = " ".join(quote(item.unit) for item in items if item.unit)
        changes.append(
            HostChange(
                host=host,
                prepare=f"mkdir -p /run/brokerdrill && : >{note}",
                effect=_EFFECTS[params.how],
                verify=_RESTARTED.format(note=note),
                # A host is back by itself; what does not start with it is started here.
                heal=f"rm -f {note}; systemctl start --no-block {units}",
                # Asked one by one: of several, one that is active is enough for systemctl.
                verify_heal=f"for unit in {units}; do systemctl is-active --quiet $unit || exit 1; done",
                lasting=MOMENTARY,
                target=host,
                instance=items[0].instance,
                store=items[0].store,
                also=tuple((item.instance, item.store) for item in items[1:]),
                claims={"the host": ALONE},
                gradual=params.how == "orderly",
            )
        )
    return changes


FAULTS = (
    FaultType(
        "restart_host",
        "instance",
        "the instance's host is started anew, with all that runs on it",
        RestartParameters,
        _restart_host,
        commands=("systemctl",),
        passes=lambda _: True,
        whole_host=True,
        drawn=({}, {"how": "abrupt"}),
    ),
)
