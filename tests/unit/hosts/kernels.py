"""What a host of the safety kernel has and says, and the kernel's own words run by themselves."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from tests.unit.safety_host import fault


def faults(kernel: Any) -> list[str]:
    return [record["fault"] for record in kernel.status()["faults"]]


def applied(kernel: Any, name: str, world: Path, token: str = "t", **values: Any) -> None:
    assert kernel.register(token, fault(name, world, **values))["rc"] == 0
    assert kernel.apply(token, name)["rc"] == 0


def changed(kernel: Any, name: str, **values: Any) -> None:
    """Have the record of a fault say something else."""
    kernel._write(kernel._path(name), {**kernel._record(name), **values})


def overdue(kernel: Any, name: str) -> None:
    """Have the time-to-live of a fault be over."""
    changed(kernel, name, due_ns=0)


def kernel_of(kernel: Any) -> dict[str, Any]:
    """The names in the file that `kernel` is of."""
    names: dict[str, Any] = type(kernel).take.__globals__
    return names


def kernel_refused(kernel: Any) -> type[Exception]:
    found: type[Exception] = kernel_of(kernel)["Refused"]
    return found


def subsets(letters: str) -> list[tuple[str, ...]]:
    return [one for size in range(len(letters) + 1) for one in itertools.combinations(letters, size)]
