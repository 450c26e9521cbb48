"""Orders: what an instance is told by its own control command, and what is to come of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from shlex import join

from brokerdrill.base.errors import Unmet
from brokerdrill.hosts.connection import HostConnection, Result
from brokerdrill.inventory.descriptors import control
from brokerdrill.inventory.targets import Target
from brokerdrill.scenario.model import Order


def came(order: Order) -> str:
    """Return in a word what is to come of `order`."""
    return "done" if order.refused is None else "refused"


def problem(order: Order, result: Result) -> str | None:
    """Return what came instead of what `order` says, None where it came so. A control command's exit status is 0 where
    it was done."""
    said = " ".join(f"{result.out} {result.err}".split())
    if order.refused is None:
        return None if result.rc == 0 else f"refused: {said[:400]}"
    if result.rc == 0:
        return "done, not refused"
    return None if re.search(order.refused, said) else f"refused in other words than {order.refused!r}: {said[:400]}"


async def give(order: Order, target: Target, connections: Mapping[str, HostConnection]) -> None:
    """Give `order` to the instances of `target`, one after the other. Raises Unmet where something else comes of it
    than it says, InfrastructureError where an instance has no control command or its host does not answer."""
    for item in target.instances:
        script = f"{control(item)} {join(order.words.split())}"
        wrong = problem(order, await connections[item.host].sh(script, timeout=order.timeout, once=True))
        if wrong:
            raise Unmet(f"order {order.name}: {item.instance} was told {order.words!r}, and it was {wrong}")
