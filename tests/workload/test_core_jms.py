"""The CORE client and the worker against a real broker: what every outcome in the ledger rests on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jpype
import pytest

from brokerdrill.workload import header
from brokerdrill.workload.client import ClientError, Delivery, Message, Outcome
from brokerdrill.workload.config import WorkerConfig
from brokerdrill.workload.header import sha
from brokerdrill.workload.stacks import innermost
from tests.pausing import pause
from tests.workload.conftest import config_for, specs
from tests.workload.core_calls import (
    WAITS_MS,
    OpenClient,
    Q,
    StartWorker,
    batch,
    drain,
    in_thread,
    send,
    through,
    until_blocked,
    wait_until,
)
from tests.workload.standalone_broker import QUEUES, Broker, Relay
from tests.workload.worker_process import WorkerProcess, judge, merged, rows_of


def test_what_is_sent_is_received(broker: Broker, client: OpenClient) -> None:
    config = config_for(broker)
    one = client(config, [Q], [Q])
    big = os.urandom(300_000)
    sent = [Message("p-0", 0, "group", b"", sha(b"")), Message("p-1", 1, "group", big, sha(big))]
    send(one, sent, attempt=2)
    assert one.commit(resent=False) == Outcome("ok")
    for message in sent:
        got = one.receive(5.0)
        assert got is not None
        assert got[:7] == (Q, message.message_id, 2, message.seq, "group", False, message.sha)
    assert one.commit(resent=False) == Outcome("ok")
    assert one.served_by() == config.endpoints[0]


def test_a_batch_is_what_its_messages_are_one_by_one(broker: Broker, client: OpenClient) -> None:
    config = config_for(broker, duplicate_detection=True)
    one = client(config, [Q], [Q])
    bodies = [os.urandom(size) for size in (0, 1, 300_000, 256, 0)]
    sent = [Message(f"p-{n}", n, f"group-{n}", body, sha(body)) for n, body in enumerate(bodies)]
    before = time.monotonic_ns()
    outcome, ends = one.send_batch(Q, sent, 1)
    after = time.monotonic_ns()
    assert outcome == Outcome("ok")
    assert len(ends) == len(sent) and ends == sorted(ends) and before <= ends[0] and ends[-1] <= after
    assert one.commit(resent=False) == Outcome("ok")
    for message in sent:
        got = one.receive(5.0)
        assert got is not None
        assert got[:7] == (Q, message.message_id, 1, message.seq, message.key, False, message.sha)
    assert one.commit(resent=False) == Outcome("ok")
    assert one.send_batch(Q, sent[3:], 2)[0] == Outcome("ok")
    assert one.commit(resent=True) == Outcome("ok", "duplicate"), "each bears its duplicate id"


def test_a_batch_ends_with_the_first_send_that_is_not_ok(broker: Broker, client: OpenClient) -> None:
    one = client(config_for(broker), [Q], [Q])
    producer, sent = one._producers[Q], list[object]()

    def third_fails(message: object) -> None:
        if len(sent) == 2:
            raise jpype.JClass("javax.jms.JMSException")("no more")
        producer.send(message)
        sent.append(message)

    one._producers[Q] = jpype.JProxy("javax.jms.MessageProducer", dict={"send": third_fails})
    before = time.monotonic_ns()
    outcome, ends = one.send_batch(Q, batch(0, 5), 0)
    assert (outcome.result, outcome.error) == ("unknown", "JMSException: no more")
    assert len(ends) == 3 and before <= ends[0] <= ends[1] <= ends[2] <= time.monotonic_ns()
    assert one.commit(resent=False) == Outcome("ok")
    assert drain(one) == ["p-0", "p-1"]


def test_rolled_back_is_gone_and_may_be_sent_again(broker: Broker, client: OpenClient) -> None:
    one = client(config_for(broker), [Q], [Q])
    send(one, batch(0))
    assert one.rollback() == Outcome("ok")
    assert one.receive(0.5) is None
    send(one, batch(0), attempt=1)
    assert one.commit(resent=True) == Outcome("ok"), "a rolled back batch leaves no ids behind"
    assert drain(one) == ["p-0", "p-1", "p-2"]


def test_an_uncommitted_delivery_comes_again_flagged(broker: Broker, client: OpenClient) -> None:
    one = client(config_for(broker), [Q], [Q])
    send(one, batch(0, 1))
    one.commit(resent=False)
    first = one.receive(5.0)
    assert one.rollback() == Outcome("ok")
    second = one.receive(5.0)
    assert first and second and (first.redelivered, second.redelivered) == (False, True)


def test_what_a_session_rolls_back_comes_late_and_not_flagged_to_another(broker: Broker, client: OpenClient) -> None:
    """Why `ordered` excuses it (docs/ledger.md). Nobody has taken anything of what two consumers were handed when one
    gives its part back, so that all that the other takes first it takes after that."""
    config = config_for(broker)
    near, far, third = client(config, [], [Q]), client(config, [], [Q]), client(config, [Q], [Q])
    send(third, batch(0, 99))
    assert third.commit(resent=False) == Outcome("ok")
    # When it has taken all that it was handed, all was handed out.
    taken = drain(third)
    third.close()
    assert far.rollback() == Outcome("ok")
    found: list[Delivery] = []
    while delivery := near.receive(1.0):
        found.append(delivery)
    assert near.commit(resent=False) == Outcome("ok")
    late = [
        one.redelivered
        for place, one in enumerate(found)
        if any((one.seq or 0) < (other.seq or 0) for other in found[:place])
    ]
    assert late and not any(late)
    assert len({*taken, *(one.message_id for one in found), *drain(far)}) == 99


def test_identical_retry_is_refused_as_duplicate(broker: Broker, client: OpenClient) -> None:
    one = client(config_for(broker), [Q], [Q])
    send(one, batch(0))
    one.commit(resent=False)
    send(one, batch(0), attempt=1)
    assert one.commit(resent=True) == Outcome("ok", "duplicate")
    send(one, batch(0))
    refused = one.commit(resent=False)
    assert refused.result == "fail" and str(refused.error).startswith("DUPLICATE_ID_REJECTED")
    send(one, batch(3))
    assert one.commit(resent=False) == Outcome("ok"), "the session can be used on"
    assert drain(one) == [f"p-{n}" for n in range(6)]


def test_without_detection_the_retry_is_a_second_message(broker: Broker, client: OpenClient) -> None:
    one = client(config_for(broker, duplicate_detection=False), [Q], [Q])
    for attempt in (0, 1):
        send(one, batch(0, 1), attempt)
        assert one.commit(resent=attempt > 0) == Outcome("ok")
    assert drain(one) == ["p-0", "p-0"]


def test_ids_of_another_run_are_others(broker: Broker, client: OpenClient) -> None:
    for config in (config_for(broker), config_for(broker)):
        one = client(config, [Q])
        send(one, batch(0, 1))
        assert one.commit(resent=False) == Outcome("ok")
    other = client(config_for(broker), [], [Q])
    assert all(name.startswith("foreign-") for name in drain(other))


def test_single_sends_and_acknowledgements(broker: Broker, client: OpenClient) -> None:
    config = config_for(broker, transaction=0)
    one = client(config, [Q], [Q], transacted=False)
    send(one, batch(0, 2))
    got = one.receive(5.0)
    assert got and one.ack(got) == Outcome("ok")
    one.close()
    again = client(config, [], [Q], transacted=False)
    left = again.receive(5.0)
    assert left and left.message_id == "p-1"


def test_browse_takes_nothing(broker: Broker, client: OpenClient) -> None:
    one = client(config_for(broker), [Q], [])
    send(one, batch(0))
    one.commit(resent=False)
    for _ in range(2):
        assert [item.message_id for item in one.browse(Q)] == ["p-0", "p-1", "p-2"]


def test_nobody_there_and_wrong_password(broker: Broker, client: OpenClient) -> None:
    config = config_for(broker)
    with pytest.raises(ClientError, match="SECURITY_EXCEPTION"):
        client(replace(config, credentials=replace(config.credentials, password="wrong")), [Q])
    broker.kill()
    with pytest.raises(ClientError, match="NOT_CONNECTED"):
        client(config, [Q])


def test_killed_in_a_transaction_is_proven_rolled_back(broker: Broker, client: OpenClient) -> None:
    one = client(config_for(broker), [Q], [Q])
    before = one.connection_id()
    send(one, batch(0))
    broker.kill()
    killed_ns = time.monotonic_ns()
    broker.start()
    # A commit while the library is still failing over would be in doubt, though it was never sent.
    wait_until(lambda: one.connection_id() != before)
    assert list(one.browse(Q)) == []
    outcome = one.commit(resent=False)
    assert (outcome.result, outcome.usable) == ("fail", True), outcome
    assert str(outcome.error).startswith("TRANSACTION_ROLLED_BACK")
    times = one.reconnect()
    assert times and killed_ns - 10**9 < times.lost_ns < times.back_ns
    send(one, batch(0), attempt=1)
    assert one.commit(resent=True) == Outcome("ok")
    assert drain(one) == ["p-0", "p-1", "p-2"]


def test_killed_before_it_read_the_commit_is_unknown(broker: Broker, relay: Relay, client: OpenClient) -> None:
    one = client(config_for(broker, endpoints=through(relay), call_timeout_ms=WAITS_MS), [Q], [Q])
    send(one, batch(0))
    pause(broker.pid)
    result = in_thread(lambda: one.commit(resent=False))
    until_blocked()
    relay.restart(broker)
    outcome = result()
    assert (outcome.result, outcome.usable) == ("unknown", True)
    assert str(outcome.error).startswith("TRANSACTION_OUTCOME_UNKNOWN")
    send(one, batch(0), attempt=1)
    assert one.commit(resent=True) == Outcome("ok"), "it had not happened: the retry is taken"
    assert drain(one) == ["p-0", "p-1", "p-2"]


@pytest.mark.parametrize("detection", [True, False])
def test_lost_reply_is_unknown_and_the_retry_tells(
    broker: Broker, relay: Relay, client: OpenClient, detection: bool
) -> None:
    config = config_for(broker, duplicate_detection=detection)
    one = client(replace(config, endpoints=through(relay)), [Q])
    other = client(config, [], [Q])
    send(one, batch(0))
    relay.hold()
    result = in_thread(lambda: one.commit(resent=False))
    assert drain(other) == ["p-0", "p-1", "p-2"], "the broker has committed"
    relay.cut()
    outcome = result()
    assert (outcome.result, outcome.usable) == ("unknown", True)
    send(one, batch(0), attempt=1)
    assert one.commit(resent=True) == Outcome("ok", "duplicate" if detection else None)
    assert drain(other) == ([] if detection else ["p-0", "p-1", "p-2"])


def test_silent_broker_is_unknown_after_the_call_timeout(broker: Broker, client: OpenClient) -> None:
    one = client(config_for(broker, call_timeout_ms=500), [Q])
    send(one, batch(0, 1))
    pause(broker.pid)
    outcome = in_thread(lambda: one.commit(resent=False))()
    assert outcome.result == "unknown"
    assert "TIMEDOUT" in str(outcome.error) or "OUTCOME_UNKNOWN" in str(outcome.error)


def test_blocked_single_send_is_unknown(broker: Broker, relay: Relay, client: OpenClient) -> None:
    config = config_for(broker, endpoints=through(relay), transaction=0, call_timeout_ms=WAITS_MS)
    one = client(config, [Q], transacted=False)
    send(one, batch(0, 1))  # a producer's first send waits for credit, and goes out after the failover
    pause(broker.pid)
    result = in_thread(lambda: one.send(Q, batch(1, 1)[0], 0))
    until_blocked()
    relay.restart(broker)
    outcome = result()
    assert outcome.result == "unknown", outcome


def worker_config(broker: Broker, spool: Path, **changes: object) -> WorkerConfig:
    values = {"producers": specs("producer", 2), "consumers": specs("consumer", 2), "spool": str(spool)}
    return config_for(broker, **{**values, **changes})


def test_worker_writes_a_whole_ledger(broker: Broker, tmp_path: Path, worker: StartWorker) -> None:
    spool = tmp_path / "w0.spool"
    one = worker(worker_config(broker, spool, rate=200.0, keys=2, payload_bytes=(10, 3000)))
    one.begin()
    one.until_status(lambda status: status["sent_ok"] >= 200)
    one.tell("stop_producers")
    one.until("producers_stopped")
    sent = one.status["sent_ok"]
    one.until_status(lambda status: status["received"] >= sent)
    status = one.finish(looks=[{"address": "DLQ", "instance": "a1"}])
    assert (status["sent_ok"], status["received"], status["producers_running"]) == (sent, sent, 0)

    rows = rows_of(spool)
    seen: set[tuple[str, int]] = set()
    for row in rows:
        op = (row["client"], row["op_id"])
        assert ("end_ns" in row) == (op in seen), f"an intent first, then its end: {row}"
        seen.add(op)
    ops = merged(rows)
    assert all(0 <= op["start_ns"] <= op["end_ns"] for op in ops)
    sends = [op for op in ops if op["op"] == "send"]
    assert {(op["broker"], op["instance"], op["durable"], op["protocol"]) for op in sends} == {
        ("h1", "a1", True, "core")
    }
    for producer in ("producer-0", "producer-1"):
        own = sorted((op for op in sends if op["client"] == producer), key=lambda op: op["op_id"])
        assert [op["producer_seq"] for op in own] == list(range(len(own)))
        assert len({op["message_id"] for op in own}) == len(own)
    shas = {op["message_id"]: op["payload_sha"] for op in sends}
    received = [op for op in ops if op["op"] == "receive" and op["outcome"] == "ok"]
    assert {op["message_id"]: op["payload_sha"] for op in received} == shas
    assert len({op["delivery"] for op in received}) == len(received)
    assert {op["outcome"] for op in ops if op["op"] in ("connect", "close", "browse", "commit")} == {"ok"}
    said = judge(rows)
    assert len(said.acknowledged) == sent == len(said.processed)
    assert not said.lost | said.duplicated | said.phantoms


def test_a_client_that_waits_for_a_silent_broker_says_where(
    broker: Broker, tmp_path: Path, worker: StartWorker
) -> None:
    one = worker(worker_config(broker, tmp_path / "w0.spool", producers=specs("producer", 1)))
    one.begin()
    one.until_status(lambda status: status["sent_ok"] >= 100)
    pause(broker.pid)
    counts: list[int] = []

    def sends_no_more(status: dict[str, Any]) -> bool:
        counts.append(status["sent_ok"])
        return len(counts) > 2 and len(set(counts[-3:])) == 1

    # One that is told to stop between two transactions waits for nobody.
    one.until_status(sends_no_more)
    one.tell("stop_producers")
    stacks: dict[str, list[str]] = {}
    end = time.monotonic() + 20

    def blocked() -> bool:
        calls = stacks.get("producer-0", ())
        return innermost(calls).startswith("org.apache.activemq.") and any(call.endswith(" commit") for call in calls)

    # A look may find the client still sending, on a busy machine for a while.
    while not blocked():
        assert time.monotonic() < end, stacks
        one.tell("where")
        stacks = one.until("where")["stacks"]
    os.kill(broker.pid, signal.SIGCONT)
    one.until("producers_stopped")
    one.finish()


def test_worker_without_transactions(broker: Broker, tmp_path: Path, worker: StartWorker) -> None:
    spool = tmp_path / "w0.spool"
    one = worker(worker_config(broker, spool, transaction=0, rate=100.0))
    one.begin()
    one.until_status(lambda status: status["sent_ok"] >= 50)
    one.tell("stop_producers")
    one.until("producers_stopped")
    sent = one.status["sent_ok"]
    one.until_status(lambda status: status["received"] >= sent)
    one.finish()
    ops = merged(rows_of(spool))
    acks = {op["delivery"] for op in ops if op["op"] == "ack" and op["outcome"] == "ok"}
    received = {op["delivery"] for op in ops if op["op"] == "receive" and op["outcome"] == "ok"}
    assert len(acks) == sent and acks == received
    assert not any("txn" in op for op in ops)


def test_broker_killed_under_load(broker: Broker, tmp_path: Path, worker: StartWorker) -> None:
    spool = tmp_path / "w0.spool"
    one = worker(worker_config(broker, spool, rate=400.0))
    one.begin()
    one.until_status(lambda status: status["received"] >= 200)
    broker.kill()
    broker.start()
    behind = one.status["sent_ok"]
    one.until_status(lambda status: status["sent_ok"] >= behind + 400)
    one.tell("stop_producers")
    one.until("producers_stopped")
    # Not counted as received: what was taken by a commit whose reply the kill has swallowed.
    one.until_status(lambda status: not judge(rows_of(spool)).lost)
    one.finish()
    rows = rows_of(spool)
    ops = merged(rows)
    for client in ("producer-0", "producer-1", "consumer-0", "consumer-1"):
        connects = [op for op in ops if op["client"] == client and op["op"] == "connect" and op["outcome"] == "ok"]
        assert [op["session"] for op in sorted(connects, key=lambda op: op["op_id"])] == [0, 1]
    said = judge(rows)
    assert said.attempted == said.acknowledged == said.delivered
    assert not said.lost | said.duplicated | said.phantoms


def test_worker_killed_in_a_transaction(
    broker: Broker, tmp_path: Path, worker: StartWorker, client: OpenClient
) -> None:
    """With its last rows cut off anywhere, what others then receive is what its ledger says was attempted."""
    config = worker_config(broker, tmp_path / "w0.spool", consumers=())
    one = worker(config)
    one.begin()
    one.until_status(lambda status: status["sent_ok"] >= 300)
    one.kill()
    second = worker(
        replace(
            config,
            worker="w1",
            clock="w1",
            producers=(),
            consumers=specs("consumer", 2),
            spool=str(tmp_path / "w1.spool"),
        )
    )
    second.begin()
    spools = (tmp_path / "w0.spool", tmp_path / "w1.spool")
    looking = client(config_for(broker), [Q])
    second.until_status(lambda status: not judge(rows_of(*spools)).lost and not list(looking.browse(Q)))
    second.finish()
    said = judge(rows_of(*spools))
    assert said.acknowledged <= said.processed <= said.attempted
    assert not said.lost | said.duplicated | said.phantoms


def test_tls(distribution: Path, tmp_path: Path, worker: StartWorker) -> None:
    """A private CA; the broker's name is checked, and a foreign CA is refused."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, cwd=tmp_path, capture_output=True)

    def authority(name: str) -> None:
        subject = ["-subj", f"/CN={name}", "-days", "2", "-nodes", "-x509", "-newkey", "ec"]
        openssl("req", *subject, "-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", f"{name}.key", "-out", f"{name}.pem")

    authority("ca")
    authority("foreign")
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "b.key")
    openssl("req", "-new", "-subj", "/CN=broker", "-key", "b.key", "-out", "b.csr")
    (tmp_path / "ext").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "ext"]
    openssl("x509", "-req", "-in", "b.csr", *signed, "-out", "b.pem")
    bundle = tmp_path / "bundle.pem"
    bundle.write_text((tmp_path / "b.key").read_text() + (tmp_path / "b.pem").read_text())
    options = f"sslEnabled=true;keyStoreType=PEM;keyStorePath={bundle}"
    broker = Broker(distribution, tmp_path / "tls-broker", QUEUES, options)
    try:
        broker.start()
        one = worker(worker_config(broker, tmp_path / "ok.spool", tls_ca=str(tmp_path / "ca.pem")))
        one.begin()
        one.until_status(lambda status: status["received"] >= 20)
        one.tell("stop_producers")
        one.until("producers_stopped")
        one.finish()
        two = worker(worker_config(broker, tmp_path / "no.spool", tls_ca=str(tmp_path / "foreign.pem")))
        two.begin()
        two.until_status(lambda status: any(row["outcome"] == "fail" for row in rows_of(tmp_path / "no.spool")))
        two.finish()
        connects = [op for op in merged(rows_of(tmp_path / "no.spool")) if op["op"] == "connect"]
        assert {op["outcome"] for op in connects} == {"fail"}
    finally:
        broker.kill()


def test_missing_jars(tmp_path: Path, broker: Broker, worker: StartWorker) -> None:
    one = worker(worker_config(broker, tmp_path / "w0.spool", jars=str(tmp_path)))
    assert "lacks the client's jars" in one.until("fatal")["error"]
    assert one.process.wait(10) == 3


def test_a_look_for_this_runs_messages_goes_through_all_of_a_queue(
    broker: Broker, worker: Callable[..., WorkerProcess]
) -> None:
    """Another application's dead letters may be many: the broker looks through them, and sends none."""
    silent: dict[str, Any] = {"producers": specs("producer", 1), "rate": None, "transaction": 500}
    other = worker(config_for(broker, run_id="other", **silent))
    other.begin()
    other.until_status(lambda status: status["sent_ok"] >= 5000)
    sent = other.finish()["sent_ok"]
    one = worker(config_for(broker, run_id="now", **silent))
    one.begin()
    one.until_status(lambda status: status["sent_ok"] >= 500)
    own = one.finish()["sent_ok"]
    looking = worker(config_for(broker, run_id="now"))
    looking.until("ready")
    look = {"address": Q, "instance": "a1", "messages": sent + own}
    looking.tell("look", looks=[{**look, "own": True}, look])
    mine, whole = looking.until("looked")["seen"]
    assert (mine["by_run"], mine["foreign"], mine["error"]) == ({header.tag_of("now"): own}, 0, None)
    assert whole["by_run"] == {header.tag_of("now"): own, header.tag_of("other"): sent}
    assert looking.finish()["received"] == 0
