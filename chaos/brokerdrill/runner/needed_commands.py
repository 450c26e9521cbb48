"""What a drill's faults call on the hosts, looked for before the load: not in the middle of the method."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.faults.link import ARM
from brokerdrill.faults.registry import fault_type
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.scenario.model import Action, Scenario

# On the load hosts: what a worker that outlived its runner is found by.
OF_LOAD = ("pgrep",)


def commands(scenario: Scenario) -> list[str]:
    """Return the commands that the scenario's faults call and not every system has."""
    types = [fault_type(step.fault) for step in scenario.method if isinstance(step, Action)]
    return sorted({command for one in [*types, *([ARM] if scenario.links else [])] for command in one.commands})


async def refuse_without(wanted: Sequence[str], hosts: Sequence[HostConnection]) -> None:
    """Raise InfrastructureError while one of `hosts` lacks one of the commands `wanted`."""
    if not wanted:
        return
    script = f"for c in {' '.join(wanted)}; do command -v $c >/dev/null || echo $c; done"
    answers = await asyncio.gather(*(host.sh(script, check=True) for host in hosts))
    lacking = [
        f"{host.name} has no {' and no '.join(answer.out.split())}"
        for host, answer in zip(hosts, answers, strict=True)
        if answer.out.split()
    ]
    if lacking:
        raise InfrastructureError(
            f"{'; '.join(lacking)}, which this drill calls: deploy again, which installs common_drill_packages where "
            "drill_allowed is true"
        )
