"""The run as it goes on, for those who watch it: RUN_DIR/live.jsonl, one sample a line. No part of the evidence."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.runner.live_run import LiveRun

LIVE_FILE = "live.jsonl"
SAMPLE_PERIOD_S = 0.25


def sample(run: LiveRun) -> dict[str, Any]:
    """Return the clients' totals and the newest roles, at their time on the run's clock (ns)."""
    totals = asdict(run.load.totals()) if run.load.workers else {}
    return {"t_ns": now_ns() - run.executor.base_ns, **totals, "roles": run.system.roles}


async def write_samples(run: LiveRun) -> str:
    """Write a sample each SAMPLE_PERIOD_S until cancelled; a disk that takes none ends nothing but the watching."""
    path: Path = run.run_dir / LIVE_FILE
    try:
        with path.open("ab", buffering=0) as file:
            while True:
                file.write((json.dumps(sample(run)) + "\n").encode())
                await asyncio.sleep(SAMPLE_PERIOD_S)
    except (OSError, InfrastructureError):  # a worker that failed ends the run elsewhere, with its reason
        return await asyncio.Future()
