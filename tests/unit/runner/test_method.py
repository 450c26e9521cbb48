"""Steps of a method that reach out of the run: what they are given, and how."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from brokerdrill.base.errors import Unmet
from brokerdrill.runner import method
from brokerdrill.runner.method import Method
from brokerdrill.scenario.model import Operation, Probe


def test_the_variables_of_a_playbook_are_in_no_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """One may be a secret, and every user of the machine sees the commands that run."""
    given: list[Any] = []

    async def operate(_topology: Any, playbook: str, _progress: Any, extra: Any) -> None:
        assert [one for one in extra if "s3cret" in one] == []
        given.extend(json.loads(Path(one.removeprefix("@")).read_text()) for one in extra if one.startswith("@"))

    def nothing(*_: Any, **__: Any) -> None:
        pass

    async def renew() -> None:
        pass

    monkeypatch.setattr(method, "operate", operate)
    written: list[dict[str, str]] = []

    def write(*_: Any, detail: dict[str, str], **__: Any) -> None:
        written.append(detail)

    outages = SimpleNamespace(admit_operation=lambda _: ["artemis1", "zk1"], over=nothing)
    parts: dict[str, Any] = dict.fromkeys(Method.__dataclass_fields__)
    parts |= {
        "injections": SimpleNamespace(outages=outages),
        "events": SimpleNamespace(write=write),
        "progress": SimpleNamespace(step=nothing),
        "system": SimpleNamespace(renew=renew),
    }
    said = {"type": "operation", "name": "it", "playbook": "site", "variables": {"artemis_admin_password": "s3cret"}}
    step = Operation.model_validate(said)
    asyncio.run(Method(**parts)._operate(step))
    assert given == [{"artemis_admin_password": "s3cret"}]
    # Another instance's end is not of its doing.
    assert written[0] == {"operation": "begin", "instances": "artemis1\nzk1"}


@pytest.mark.parametrize("required", [True, False])
def test_a_probe_that_is_not_required_lets_the_method_go_on(required: bool) -> None:
    written: list[str] = []

    async def until(_condition: Any, _timeout: float, what: str) -> None:
        raise Unmet(what)

    def write(*_: Any, value: str, **__: Any) -> None:
        written.append(value)

    system = SimpleNamespace(until=until, instances={}, brokers=list, in_sync=bool)
    load = SimpleNamespace(totals=lambda: SimpleNamespace(sent_ok=0))
    parts: dict[str, Any] = dict.fromkeys(Method.__dataclass_fields__)
    parts |= {
        "system": system,
        "load": load,
        "injections": SimpleNamespace(injected=lambda _: None),
        "events": SimpleNamespace(write=write),
        "progress": SimpleNamespace(step=lambda _: None),
    }
    step = Probe(type="probe", name="whole", until="in_sync", required=required)
    if required:
        with pytest.raises(Unmet, match="probe whole: not in_sync"):
            asyncio.run(Method(**parts)._probe(step))
    else:
        asyncio.run(Method(**parts)._probe(step))
    assert written == ([] if required else ["not in_sync"])
