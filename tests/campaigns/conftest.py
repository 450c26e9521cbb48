"""What stands in for hosts and Spark while a plan is carried out."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerdrill.campaigns import deployments, execute

from .fake import Fake


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Made-up hosts, whose runs are below `tmp_path`."""
    made = Fake(tmp_path / "runs")
    for module, name in ((deployments, "run_playbook"), (execute, "record"), (execute, "judge"), (execute, "away")):
        monkeypatch.setattr(module, name, getattr(module, name))  # put back afterwards
    made.install()
    return made
