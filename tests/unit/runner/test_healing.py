"""`brokerdrill heal`: what can be healed is, whatever else cannot."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from brokerdrill.base.errors import InfrastructureError, UsageError
from brokerdrill.base.progress import Progress
from brokerdrill.cli import run
from brokerdrill.faults.executor import Healed
from brokerdrill.inventory.topology import Host
from brokerdrill.ledger import contract, journal
from brokerdrill.runner import healing
from brokerdrill.runner.evidence.run_dir import make_run_dir
from brokerdrill.runner.recording import Interrupted

HOSTS = {
    "gone": Host("gone", "127.0.0.1", 1, "root", None, (), {}),
    "here": Host("here", "127.0.0.1", 22, "root", None, (), {"ansible_connection": "local"}),
}


def test_a_host_that_is_gone_keeps_none_of_the_others_from_being_healed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tmp_path / "run"
    make_run_dir(run_dir)
    contract.write_run(run_dir, contract.RunInfo("run"))
    written = journal.Journal(run_dir)
    written.write("run", "", inventory=str(tmp_path), bench=None)
    for host in HOSTS:
        written.write("intent", f"t-{host}", host=host, fault="kill", resolved=host)
    written.close()

    async def heal_change(connection: Any, fault_id: str, by: str) -> Healed:
        return Healed(0, 0, by, "2026-01-01T00:00:00Z")

    monkeypatch.setattr(healing, "heal_change", heal_change)
    monkeypatch.setattr(healing, "load", lambda *_: SimpleNamespace(directory=tmp_path, host=HOSTS.__getitem__))
    (item,) = healing.unfinished(tmp_path)
    with pytest.raises(InfrastructureError, match=r"host gone \(127.0.0.1\) cannot be reached"):
        asyncio.run(healing.heal_run(item, cast(Progress, SimpleNamespace(step=Console(quiet=True).print))))
    assert [entry["host"] for entry in healing.unfinished(tmp_path)[0].faults] == ["gone"]


def test_a_run_whose_inventory_is_gone_keeps_none_of_the_others_from_being_healed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    healed: list[str] = []

    async def heal_run(item: str, _: Any) -> None:
        if item == "moved":
            raise UsageError("there is no inventory /moved")
        healed.append(item)

    monkeypatch.setattr(healing, "unfinished", lambda _: ["moved", "other"])
    monkeypatch.setattr(healing, "heal_run", heal_run)
    with pytest.raises(InfrastructureError, match="there is no inventory /moved"):
        run.heal(tmp_path)
    assert healed == ["other"]


def test_who_interrupts_a_heal_is_not_told_that_all_is_healed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    async def heal_run(item: str, _: Any) -> None:
        begun.append(item)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

    monkeypatch.setattr(healing, "unfinished", lambda _: ["one", "other"])
    monkeypatch.setattr(healing, "heal_run", heal_run)
    with pytest.raises(Interrupted, match="interrupted by SIGINT; what is not healed yet its host heals") as raised:
        run.heal(tmp_path)
    assert "every fault is healed" not in str(raised.value)
    assert begun == ["one"]
