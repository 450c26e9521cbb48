"""A host that has the safety kernel, and what faults break on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.safety_host import SafetyHost


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SafetyHost]:
    monkeypatch.setenv("PATH", os.environ["PATH"])
    made = SafetyHost(tmp_path / "host")
    made.install()
    yield made
    made.close()


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return tmp_path / "broken"
