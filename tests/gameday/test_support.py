"""What a support bundle holds of a run's directory, and that no secret is in it."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import stat
import tarfile
from pathlib import Path

import pytest

from brokerdrill.base.masking import MASK
from brokerdrill.gameday import support
from brokerdrill.inventory.topology import Topology, load

SECRET = "hunter2-Xy"
# That no name tells.
KNOWN = "J7;k<2"


def test_what_is_taken_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ops", "events", "evidence"):
        (tmp_path / name).mkdir()
    (tmp_path / "run.json").write_text(json.dumps({"settings": {"store_password": SECRET}}))
    (tmp_path / "events" / "runner.jsonl").write_text(f'{{"said": "{KNOWN}"}}\n')
    (tmp_path / "evidence" / "artemis1.log.gz").write_bytes(gzip.compress(f"password={SECRET}\n".encode()))
    (tmp_path / "report.html").write_text("a page")
    (tmp_path / "ops" / "worker-0.jsonl").write_text("".join(f'{{"op_id": {n}}}\n' for n in range(100)))
    monkeypatch.setattr(support, "OPS_TAIL", 64)
    found = dict(support._of_run(tmp_path, [KNOWN]))
    assert set(found) == {"run.json", "events/runner.jsonl", "evidence/artemis1.log.gz", "ops-tail/worker-0.jsonl"}
    assert SECRET.encode() not in found["run.json"]
    assert gzip.decompress(found["evidence/artemis1.log.gz"]) == f"password={MASK}\n".encode()
    assert found["events/runner.jsonl"].decode() == f'{{"said": "{MASK}"}}\n'
    lines = [json.loads(line)["op_id"] for line in found["ops-tail/worker-0.jsonl"].splitlines()]
    assert lines[-1] == 99 and 2 <= len(lines) <= 5


def test_what_hosts_say_is_masked_and_the_bundle_is_not_for_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "inventory"
    here.mkdir()
    hosts = {"hosts": {"h1": {"some_password": KNOWN, "plain": "kept"}}, "vars": {"drill_allowed": True}}
    (here / "hosts.yml").write_text(json.dumps({"all": hosts}))

    async def asked(_: Topology, known: set[str]) -> dict[str, str]:
        known.add("of the host itself")
        return {"hosts/h1/said.txt": f'{KNOWN} of the host itself {{default_pass, <<"{SECRET}">>}} kept'}

    monkeypatch.setattr(support, "_ask_all", asked)
    before = os.umask(0o022)
    try:
        path = asyncio.run(support.bundle(load(here), tmp_path))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with tarfile.open(path) as archive:
        member = archive.extractfile(f"{tmp_path.name}/hosts/h1/said.txt")
        assert member is not None
        assert member.read().decode() == f'{MASK} {MASK} {{default_pass, <<"{MASK}">>}} kept'
