"""A server of the page, as `brokerdrill serve` runs it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

TOKEN = "a-token-that-is-long-enough"
DEADLINE_S = 60


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Start a server of tmp_path/runs with further words; return its address."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str, token: str | None = TOKEN, scheme: str = "http") -> str:
        (tmp_path / "runs").mkdir(exist_ok=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        environment = {name: value for name, value in os.environ.items() if name != "BROKERDRILL_TOKEN"}
        if token:
            environment["BROKERDRILL_TOKEN"] = token
        command = [sys.executable, "-m", "brokerdrill", "serve", "--runs", str(tmp_path / "runs"), "--port", str(port)]
        started.append(subprocess.Popen([*command, *words], env=environment))
        address = f"{scheme}://127.0.0.1:{port}"
        end = time.monotonic() + DEADLINE_S
        while True:
            try:
                httpx.get(f"{address}/state.json", verify=False, timeout=5)
                return address
            except httpx.HTTPError:
                assert started[-1].poll() is None and time.monotonic() < end, "the server does not start"
                time.sleep(0.1)

    yield start
    for process in started:
        process.terminate()
        assert process.wait(10) is not None
