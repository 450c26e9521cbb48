"""What is said of a worker that does not do in time what it is waited for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brokerdrill.base.errors import Unmet
from brokerdrill.runner.evidence.files import keep_worker_errors
from brokerdrill.runner.load import worker as worker_module
from brokerdrill.runner.load.worker import Worker
from tests.unit.runner.load.test_clocks import Line

STACK = ["java.lang.Object.wait:-2", "com.sun.Queue.get:7", "jms.py:1 commit"]


def waited(answers: dict[str, Any] | None, run_dir: Path) -> str:
    """Wait for a worker that never stops its producers and answers `where` so; return what is said of it."""

    async def main() -> str:
        line = Line()
        worker = Worker("w", cast(Any, SimpleNamespace(name="load1")), "w", "/s", cast(Any, line))
        worker.reader = asyncio.ensure_future(worker.read(lambda: None))
        waiting = asyncio.ensure_future(worker.until("producers_stopped", 0.05))
        while not line.told:
            await asyncio.sleep(0)
        assert line.told == [{"cmd": "where"}]
        if answers is not None:
            line.says.put_nowait(json.dumps({"event": "where", "stacks": answers}))
        with pytest.raises(Unmet) as caught:
            await waiting
        worker.reader.cancel()
        await keep_worker_errors([worker], run_dir)
        return str(caught.value)

    return asyncio.run(main())


def test_the_client_that_hangs_is_named_with_its_call(tmp_path: Path) -> None:
    said = waited({"producer-0": STACK}, tmp_path)
    assert said == "worker w was not producers_stopped within 0 s; producer-0 is in com.sun.Queue.get:7"
    kept = (tmp_path / "evidence" / "w-stacks.txt").read_text()
    assert kept.splitlines() == ["producer-0", *(f"    {call}" for call in STACK)]


def test_a_worker_that_does_not_answer_is_said_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "PONG_S", 0.05)
    assert waited(None, tmp_path).endswith("within 0 s, nor does it say what its clients are at")
    assert not (tmp_path / "evidence").exists()
