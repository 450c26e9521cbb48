"""All fault types by name. A new one is a tuple entry in its module and, for a new module, a line here."""

from __future__ import annotations

from typing import Any

from brokerdrill.base.errors import unknown_name
from brokerdrill.faults import client, clock, host, link, partition, process, service, session_router, store
from brokerdrill.faults.base import FaultType

MODULES = (process, host, service, session_router, link, partition, store, clock, client)
FAULTS: dict[str, FaultType[Any]] = {fault.name: fault for module in MODULES for fault in module.FAULTS}


def fault_type(name: str) -> FaultType[Any]:
    """Return the fault type `name`. Raises UsageError with the nearest name."""
    if name not in FAULTS:
        raise unknown_name("fault", name, FAULTS)
    return FAULTS[name]
