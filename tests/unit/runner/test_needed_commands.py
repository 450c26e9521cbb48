"""What faults call is looked for on every host before the load."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.hosts.connection import Result
from brokerdrill.runner.needed_commands import commands, refuse_without
from brokerdrill.scenario.drill import load_drill


@dataclass
class LackingHost:
    """A host on which these commands are missing."""

    name: str
    missing: tuple[str, ...] = ()

    async def sh(self, script: str, **_: Any) -> Result:
        return Result(0, "".join(f"{command}\n" for command in self.missing if command in script), "", 0, 0)


@pytest.mark.parametrize(
    ("drill", "wanted"),
    [("kill_active", []), ("active_cut_off", ["ip", "nft"]), ("lost_reply", ["ip", "nft", "ss"])],
)
def test_a_drill_wants_what_its_faults_call(drill: str, wanted: list[str]) -> None:
    assert commands(load_drill(drill).scenario) == wanted


def test_a_bare_host_is_named_before_the_load() -> None:
    hosts: Any = [LackingHost("a"), LackingHost("b", ("nft", "ss")), LackingHost("c", ("ss",))]
    with pytest.raises(InfrastructureError, match="b has no nft and no ss; c has no ss, which this"):
        asyncio.run(refuse_without(["nft", "ss"], hosts))
    asyncio.run(refuse_without([], hosts))
    asyncio.run(refuse_without(["nft"], hosts[::2]))
