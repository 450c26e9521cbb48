"""A run that goes on, as its runner writes it: the real writers, and a lock that is held."""

from __future__ import annotations

import contextlib
import datetime
import json
from pathlib import Path

from brokerdrill.base.clock import now_ns
from brokerdrill.base.locks import held
from brokerdrill.inventory.planned import load_hosts
from brokerdrill.ledger import contract
from brokerdrill.ledger.events import EventWriter
from brokerdrill.ledger.journal import Journal
from brokerdrill.runner.evidence.run_dir import LOCK_FILE, make_run_dir
from brokerdrill.runner.watching.live_file import LIVE_FILE
from brokerdrill.scenario.drill import load_drill, resolve
from tests.gameday.pair import PAIR, topology


class Running(contextlib.ExitStack):
    """A run of kill_active on a pair; `roles` and `sent` go into each sample."""

    def __init__(self, runs: Path, name: str = "20261123T080000-kill_active-pair-1") -> None:
        super().__init__()
        self.run_dir = runs / name
        make_run_dir(self.run_dir)
        loaded = resolve(load_drill("kill_active"), [*PAIR, *load_hosts(topology())], "pair")
        self.scenario = loaded.scenario
        self.info = contract.new_run(
            name,
            scenario=contract.ScenarioText(loaded.name, loaded.text, loaded.sha256),
            topology="pair",
            started_at=datetime.datetime.now(datetime.UTC).isoformat(),
            stores={"orders": ("artemis1", "artemis2")},
        )
        contract.write_run(self.run_dir, self.info)
        self.base_ns = now_ns()
        self.journal = Journal(self.run_dir)
        self.events = EventWriter(self.run_dir, name, self.base_ns)
        self.roles = {"artemis1": "active", "artemis2": "passive"}
        self.sent = 0
        self.enter_context(held(self.run_dir / LOCK_FILE, "busy"))

    def sample(self, sent: int = 0, at_s: float | None = None) -> None:
        """Write a sample, with `sent` more messages acknowledged, as of `at_s` (s of run time; now without it)."""
        self.sent += sent
        t_ns = now_ns() - self.base_ns if at_s is None else int(at_s * 1e9)
        sample = {"t_ns": t_ns, "sent_ok": self.sent, "received": self.sent, "sent_unknown": 2, "roles": self.roles}
        sample["received_unknown"] = 3
        with (self.run_dir / LIVE_FILE).open("a") as file:
            file.write(json.dumps(sample) + "\n")

    def load(self) -> None:
        self.events.write("phase", at_ns=now_ns(), name="load", value="begin")

    def kill(self) -> None:
        """Write what the executor writes of a fault that is in effect."""
        at = now_ns() - self.base_ns
        told = {"name": "kill-active", "fault": "kill", "resolved": "artemis1", "host": "artemis1", "ttl_s": 120}
        self.journal.write("intent", "f1", at_ns=at, verify_heal=":", **told)
        self.journal.write("injected", "f1", at_ns=at)
        self.events.write(
            "fault", at_ns=now_ns(), target="artemis1", instance="artemis1", store="orders", name="kill",
            value="kill-active",
        )  # fmt: skip
        self.roles = {**self.roles, "artemis1": "down"}

    def heal(self) -> None:
        self.journal.write("healed", "f1", by="runner")
