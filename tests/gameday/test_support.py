"""What a support bundle holds of a run's directory, and that no secret is in it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from brokerdrill.gameday import support
from brokerdrill.gameday.support import MASK, masked

SECRET = "hunter2-Xy"


@pytest.mark.parametrize(
    "text",
    [
        f"<cluster-password>{SECRET}</cluster-password>",
        f'<property name="trustStorePassword" value="{SECRET}"/>',
        f"<entry key='password' value='{SECRET}' />",
        f'<acceptor name="a">tcp://0.0.0.0:61616?keyStorePassword={SECRET};protocols=CORE</acceptor>',
        f"<uri>tcp://h:1?sslEnabled=true&amp;trustStorePassword={SECRET}</uri>",
        f'{{"username": "u", "password": "{SECRET}", "port": 1}}',
        f"password = {SECRET}",
        f"default_pass = {SECRET}",
        f"db.password: '{SECRET}'",
        f"Environment=DB_PASSWORD={SECRET}",
        f"java -Dkeystore.password={SECRET} -jar x",
        f"tool --password {SECRET} --port 1",
        f"amqp://user:{SECRET}@host:5672/",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
        f"api_token: {SECRET}",
    ],
)
def test_secrets_are_masked(text: str) -> None:
    assert SECRET not in masked(text)
    assert MASK in masked(text)


@pytest.mark.parametrize(
    "text",
    [
        '<property name="brokerName" value="artemis1"/>',
        "<max-size-bytes>10485760</max-size-bytes>",
        "tcp://artemis1:61616?tcpNoDelay=true;protocols=CORE",
        "the compass shows north",
        '{"username": "drill", "port": 61616}',
    ],
)
def test_the_rest_stays(text: str) -> None:
    assert masked(text) == text


def test_what_is_taken_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ops", "events", "evidence"):
        (tmp_path / name).mkdir()
    (tmp_path / "run.json").write_text(json.dumps({"settings": {"store_password": SECRET}}))
    (tmp_path / "events" / "runner.jsonl").write_text("{}\n")
    (tmp_path / "evidence" / "artemis1.log.gz").write_bytes(gzip.compress(f"password={SECRET}\n".encode()))
    (tmp_path / "report.html").write_text("a page")
    (tmp_path / "ops" / "worker-0.jsonl").write_text("".join(f'{{"op_id": {n}}}\n' for n in range(100)))
    monkeypatch.setattr(support, "OPS_TAIL", 64)
    found = dict(support._of_run(tmp_path))
    assert set(found) == {"run.json", "events/runner.jsonl", "evidence/artemis1.log.gz", "ops-tail/worker-0.jsonl"}
    assert SECRET.encode() not in found["run.json"]
    assert gzip.decompress(found["evidence/artemis1.log.gz"]) == f"password={MASK}\n".encode()
    lines = [json.loads(line)["op_id"] for line in found["ops-tail/worker-0.jsonl"].splitlines()]
    assert lines[-1] == 99 and 2 <= len(lines) <= 5
