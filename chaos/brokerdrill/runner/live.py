"""The run as it goes on, for those who watch it: RUN_DIR/live.jsonl, one sample a line. No part of the evidence."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.runner.watches import Watched

LIVE_FILE = "live.jsonl"
SAMPLE_PERIOD_S = 0.25


def sample(watched: Watched) -> dict[str, Any]:
    """Return the clients' totals and the newest roles, at their time on the run's clock (ns)."""
    totals = asdict(watched.load.totals()) if watched.load.workers else {}
    return {"t_ns": now_ns() - watched.executor.base_ns, **totals, "roles": watched.system.roles}


async def write_samples(watched: Watched) -> str:
    """Write a sample each SAMPLE_PERIOD_S until cancelled; a disk that takes none ends nothing but the watching."""
    path: Path = watched.run_dir / LIVE_FILE
    try:
        with path.open("ab", buffering=0) as file:
            while True:
                file.write((json.dumps(sample(watched)) + "\n").encode())
                await asyncio.sleep(SAMPLE_PERIOD_S)
    except (OSError, InfrastructureError):  # a worker that failed ends the run elsewhere, with its reason
        return await asyncio.Future()
