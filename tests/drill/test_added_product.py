"""The toy product, added as docs/adding-a-product.md says, deployed and drilled on bench hosts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.toy import checkout


def brokerdrill(at: Path, *arguments: str) -> None:
    """Run brokerdrill in the checkout `at`; its exit status says whether all went well."""
    command = [sys.executable, "-m", "brokerdrill", *arguments]
    done = subprocess.run(command, cwd=at, env=checkout.environment(at), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[Path]:
    """A checkout with the toy product, its topology up and deployed."""
    made = checkout.make(tmp_path / "checkout")
    brokerdrill(made, "bench", "up", "toy", "--fresh")
    try:
        brokerdrill(made, "deploy", "toy")
        yield made
    finally:
        brokerdrill(made, "bench", "down", "toy")


def test_a_kill_loses_nothing_that_it_acknowledged(deployed: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    brokerdrill(deployed, "run", "kill_toy", "toy", "--runs", str(runs))
    (run,) = (path.parent for path in runs.glob("*/run.json"))
    brokerdrill(deployed, "analyze", str(run), "--json", str(tmp_path / "verdict.json"))
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    promises = {promise["name"]: promise for promise in verdict["promises"]}
    assert promises["no_loss"]["count"] == promises["no_phantoms"]["count"] == 0
    assert verdict["messages"]["ok"] > 0
