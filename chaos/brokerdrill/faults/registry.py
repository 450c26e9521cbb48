"""All fault types by name. A new one is a tuple entry in its module and, for a new module, a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from brokerdrill.errors import UsageError, unknown_name
from brokerdrill.faults import clock, link, partition, process, service, store
from brokerdrill.faults.base import FaultType

FAULTS: dict[str, FaultType] = {
    fault.name: fault for module in (process, service, link, partition, store, clock) for fault in module.FAULTS
}


HOWS = {"partition": ("drop", "reject"), "lock_file": ("delete", "change")}


def fault_type(name: str) -> FaultType:
    """Return the fault type `name`. Raises UsageError with the nearest name."""
    if name not in FAULTS:
        raise unknown_name("fault", name, FAULTS)
    return FAULTS[name]


def complete_params(fault: FaultType, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return `given` over the type's defaults. Raises UsageError for a parameter that the type does not have."""
    for name in given:
        if name not in fault.params:
            raise unknown_name(f"parameter of fault {fault.name!r}", name, fault.params)
    merged = {**fault.params, **given}
    if "how" in merged and merged["how"] not in HOWS[fault.name]:
        raise UsageError(f"fault {fault.name}: how is {' or '.join(HOWS[fault.name])}, not {merged['how']!r}")
    return merged
