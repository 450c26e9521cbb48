"""The run's events, written to RUN_DIR/events/ as they become known, on the controller's clock."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.ledger.contract import EVENT_COLUMNS, EVENTS_DIR, json_line

CONTROLLER_CLOCK = "controller"
# Below the folder of events.
FILE = "runner.jsonl"


class EventWriter:
    """Appends events of run `run_id`; `base_ns` is the controller's monotonic time at the run's start."""

    def __init__(self, run_dir: Path, run_id: str, base_ns: int) -> None:
        folder = run_dir / EVENTS_DIR
        folder.mkdir(exist_ok=True)
        self.run_id = run_id
        self.base_ns = base_ns
        self._file = (folder / FILE).open("ab", buffering=0)

    def write(
        self,
        kind: str,
        *,
        at_ns: int,
        uncertainty_ns: int = 0,
        target: str | None = None,
        instance: str | None = None,
        store: str | None = None,
        name: str | None = None,
        value: str | None = None,
        detail: Mapping[str, str] | None = None,
    ) -> None:
        """Append one event that happened at `at_ns` of the controller's monotonic clock, ± `uncertainty_ns`.

        Raises InfrastructureError when the disk does not take it.
        """
        row = {
            "run_id": self.run_id,
            "clock": CONTROLLER_CLOCK,
            "t_ns": max(0, at_ns - self.base_ns),
            "kind": kind,
            "target": target,
            "instance": instance,
            "store": store,
            "name": name,
            "value": value,
            "uncertainty_ns": uncertainty_ns,
            "detail": dict(detail) if detail else None,
        }
        try:
            self._file.write(json_line(row, EVENT_COLUMNS))
        except OSError as error:
            raise InfrastructureError(f"the ledger cannot be written: {error.strerror}: {self._file.name}") from None

    def close(self) -> None:
        self._file.close()
