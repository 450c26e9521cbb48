"""A fault of the load: a process of its clients is killed. At the heal the controller starts another in its place."""

from __future__ import annotations

from brokerdrill.faults.base import MOMENTARY, FaultType, HostChange, Parameters
from brokerdrill.inventory.targets import Target
from brokerdrill.ledger.coverage import Minimum

NAME = "client_killed"
LOAD = "load"
# The interpreters alone, not who asks for them. A load host has the workers of one run, the oldest first.
_WORKERS = r"pgrep -f '^[^ ]*python[^ ]* -u -m brokerdrill[.]workload[.]worker '"
_NOTE = "/run/brokerdrill/{fault}.pid"


def _killed(target: Target, params: Parameters, fault_id: str) -> list[HostChange]:
    note = _NOTE.replace("{fault}", fault_id)
    return [
        HostChange(
            host=item.host,
            prepare=f"{_WORKERS} | head -n 1 > {note}; [ -s {note} ] || {{ echo 'no client runs here' >&2; exit 1; }}",
            effect=f"kill -KILL $(cat {note})",
            verify=f"[ -e {note} ] && ! kill -0 $(cat {note}) 2>/dev/null",
            # Nothing is to be undone here: the controller has the configuration, and starts the other process.
            heal=f"rm -f {note}",
            verify_heal=f"[ ! -e {note} ]",
            lasting=MOMENTARY,
            # No instance of a broker is hit, and no unit's log tells of it.
            target=item.instance,
        )
        for item in target.instances
    ]


FAULTS = (
    FaultType(
        NAME,
        "instance",
        "SIGKILL to a process of the load's clients on a host of target `load`, in the middle of what they are at; at "
        "the heal another process takes its place, whose clients are new ones",
        Parameters,
        _killed,
        commands=("pgrep",),
        # Whom it killed did nothing more: what was in flight is all that it can have met.
        meets=Minimum(clients=1, operations=0),
        only_on=frozenset({LOAD}),
    ),
)
