"""A spool is in the run's directory whole or not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.ledger import contract
from brokerdrill.runner.spools import fetch_spool


class Host:
    """A host whose spool is `content`; one that `breaks` sends half of it."""

    def __init__(self, content: str, breaks: bool = False) -> None:
        self.content, self.breaks = content, breaks
        self.commands: list[str] = []

    async def fetch(self, _: str, target: Path) -> None:
        target.write_text(self.content[: len(self.content) // (2 if self.breaks else 1)])
        if self.breaks:
            raise InfrastructureError("the connection to load1 is lost")

    async def sh(self, command: str) -> None:
        self.commands.append(command)


def fetched(host: Host, run_dir: Path) -> Path:
    (run_dir / contract.OPS_DIR).mkdir()
    return asyncio.run(fetch_spool(cast(HostConnection, host), "/var/spool/w/worker-0.jsonl", run_dir))


def test_a_whole_spool_is_taken_from_its_host(tmp_path: Path) -> None:
    host = Host("abcd")
    assert fetched(host, tmp_path).read_text() == "abcd"
    assert [command.split(";")[0] for command in host.commands] == ["rm -f /var/spool/w/worker-0.jsonl"]


def test_a_torn_one_is_not_here_and_stays_on_its_host(tmp_path: Path) -> None:
    host = Host("abcd", breaks=True)
    with pytest.raises(InfrastructureError, match="load1 is lost"):
        fetched(host, tmp_path)
    assert not host.commands and not any((tmp_path / contract.OPS_DIR).iterdir())
