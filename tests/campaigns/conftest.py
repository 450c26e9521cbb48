"""What stands in for hosts and Spark while a plan is carried out."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerdrill.campaigns import execute

from .fake import Fake


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Made-up hosts, whose runs are below `tmp_path`."""
    made = Fake(tmp_path / "runs")
    for name in ("run_playbook", "record", "judge"):
        monkeypatch.setattr(execute, name, getattr(execute, name))  # put back afterwards
    made.install()
    return made
