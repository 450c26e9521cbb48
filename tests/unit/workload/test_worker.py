"""The worker as a process of its own, with a client that needs no broker."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.workload.stacks import innermost
from brokerdrill.workload.worker import CommandLines, EventPipe
from tests.workload.worker_process import WorkerProcess, judge, merged, rows_of

Start = Callable[..., WorkerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[WorkerProcess] = []

    def call(popen: dict[str, Any] | None = None, **changes: Any) -> WorkerProcess:
        config = {
            "run_id": "r",
            "worker": "w0",
            "clock": "w0",
            "client": "tests.workload.fake_client:FakeClient",
            "endpoints": [{"address": "10.0.0.1", "port": 1, "instance": "a1", "host": "h1"}],
            "credentials": {"username": "u", "password": "p4ss-word"},
            "addresses": ["q"],
            "producers": ["producer-0", "producer-1"],
            "consumers": ["consumer-0"],
            "rate": 2000,
            "spool": str(tmp_path / "w0.spool"),
        }
        started.append(WorkerProcess({**config, **changes}, **(popen or {})))
        return started[-1]

    yield call
    for one in started:
        one.kill()


def test_from_start_to_closed(start: Start, tmp_path: Path) -> None:
    worker = start()
    worker.until("ready")
    worker.tell("ping", n=7)
    pong = worker.until("pong")
    assert pong["n"] == 7 and pong["clock_ns"] >= 0
    worker.tell("start")
    worker.until("started")
    status = worker.until_status(lambda status: status["received"] >= 100)
    assert status["producers_running"] == 2 and status["served"].keys() == {"send", "receive"}
    worker.tell("stop_producers")
    worker.until("producers_stopped")
    sent = worker.status["sent_ok"]
    assert worker.status["producers_running"] == 0
    worker.until_status(lambda status: status["received"] == sent)
    last = worker.finish()
    assert last["sent_ok"] == sent
    assert 0 < sum(last["served"]["send"].values()) <= sent == sum(last["served"]["receive"].values())
    said = judge(rows_of(tmp_path / "w0.spool"))
    assert len(said.processed) == len(said.acknowledged) == sent
    assert "p4ss-word" not in (tmp_path / "w0.spool").read_text()


def test_with_a_backlog_consumers_begin_when_the_producers_are_told_to_stop(start: Start, tmp_path: Path) -> None:
    worker = start(backlog=True)
    worker.begin()
    worker.until_status(lambda status: status["sent_ok"] >= 200)
    assert worker.status["received"] == 0
    before = worker.status["clock_ns"]
    worker.tell("stop_producers")
    worker.until("producers_stopped")
    sent = worker.status["sent_ok"]
    worker.until_status(lambda status: status["received"] == sent)
    worker.finish()
    rows = rows_of(tmp_path / "w0.spool")
    first = min(row["start_ns"] for row in rows if row["op"] == "connect" and row["client"] == "consumer-0")
    # Those that a broker holds back can end what they are at once somebody consumes.
    assert first > before


def test_a_backlogs_consumers_begin_when_they_are_told_and_producers_go_on(start: Start, tmp_path: Path) -> None:
    worker = start(backlog=True)
    worker.tell("start_consumers")  # before the load has begun there is nothing to take
    worker.begin()
    worker.until_status(lambda status: status["sent_ok"] >= 200)
    assert worker.status["received"] == 0
    worker.tell("start_consumers")
    worker.until_status(lambda status: status["received"] >= 200)
    sent = worker.status["sent_ok"]
    worker.until_status(lambda status: status["sent_ok"] >= sent + 200)
    worker.tell("stop_producers")
    worker.until("producers_stopped")
    sent = worker.status["sent_ok"]
    worker.until_status(lambda status: status["received"] == sent)
    worker.finish()
    # Each began once.
    connects = [row["client"] for row in rows_of(tmp_path / "w0.spool") if row["op"] == "connect" and "end_ns" in row]
    assert len(connects) == len(set(connects))


def test_a_backlogs_consumers_need_not_begin(start: Start) -> None:
    worker = start(backlog=True)
    worker.begin()
    worker.until_status(lambda status: status["sent_ok"] >= 20)
    assert worker.finish()["received"] == 0


def test_producers_that_were_told_to_stop_do_not_begin(start: Start, tmp_path: Path) -> None:
    worker = start(subscriptions=True)
    worker.tell("start")
    worker.until("subscribed")
    worker.tell("stop_producers")
    worker.until("producers_stopped")
    worker.tell("start_producers")
    worker.finish()
    assert not [row for row in rows_of(tmp_path / "w0.spool") if row.get("client", "").startswith("producer")]


def test_with_subscriptions_producers_begin_when_they_are_told(start: Start, tmp_path: Path) -> None:
    worker = start(subscriptions=True)
    worker.tell("start_producers")  # before the load has begun
    worker.tell("start")
    worker.until("subscribed")
    worker.tell("ping", n=1)
    told = worker.until("pong")["clock_ns"]
    worker.tell("start_producers")
    worker.until_status(lambda status: status["sent_ok"] >= 200)
    worker.tell("stop_producers")
    worker.until("producers_stopped")
    sent = worker.status["sent_ok"]
    worker.until_status(lambda status: status["received"] == sent)
    worker.finish()
    ops = merged(rows_of(tmp_path / "w0.spool"))
    begun = {op["client"]: op["start_ns"] for op in ops if op["op"] == "connect"}
    assert begun["consumer-0"] < told < min(begun["producer-0"], begun["producer-1"])
    (made,) = (op for op in ops if op["op"] == "subscribe")
    (ended,) = (op for op in ops if op["op"] == "unsubscribe")
    assert made["end_ns"] < told < max(op["end_ns"] for op in ops if op["op"] == "commit") < ended["start_ns"]
    assert {(op["client"], op["address"], op["subscription"], op["outcome"]) for op in (made, ended)} == {
        ("consumer-0", "q", "consumer-0", "ok")
    }
    assert made["durable"]
    taken = [op for op in ops if op["op"] == "receive" and op["outcome"] == "ok"]
    assert len(taken) == sent and {op["subscription"] for op in taken} == {"consumer-0"}


def test_a_subscription_whose_connection_fails_may_be_there(start: Start, tmp_path: Path) -> None:
    worker = start(subscriptions=True, producers=[], url_params={"refuse_opens": "1"})
    worker.tell("start")
    worker.until("subscribed")
    worker.finish()
    made = [op for op in merged(rows_of(tmp_path / "w0.spool")) if op["op"] == "subscribe"]
    assert [(op["outcome"], op.get("error")) for op in made] == [
        ("unknown", "NOT_CONNECTED: nobody there"),
        ("ok", None),
    ]


def test_with_subscriptions_producers_need_not_begin(start: Start) -> None:
    worker = start(subscriptions=True)
    worker.tell("start")
    worker.until("subscribed")
    worker.tell("stop_producers")
    worker.until("producers_stopped")
    assert worker.finish()["sent_ok"] == 0


def test_the_rate_is_kept_and_caught_up(start: Start) -> None:
    worker = start(rate=400, transaction=4, consumers=[])
    worker.begin()
    first = worker.until_status(lambda status: status["sent_ok"] >= 100)
    last = worker.until_status(lambda status: status["sent_ok"] >= 900)
    seconds = (last["clock_ns"] - first["clock_ns"]) / 1e9
    assert (last["sent_ok"] - first["sent_ok"]) / seconds == pytest.approx(400, rel=0.15)


def test_dead_letters_are_browsed_at_the_end(start: Start, tmp_path: Path) -> None:
    worker = start(consumers=[], producers=["producer-0"])
    worker.begin()
    worker.until_status(lambda status: status["sent_ok"] >= 20)
    status = worker.finish(looks=[{"address": "DLQ", "instance": "a1"}])
    found = {
        op["message_id"] for op in merged(rows_of(tmp_path / "w0.spool")) if op["op"] == "browse" and "message_id" in op
    }
    assert len(found) == status["sent_ok"]


def test_killed_in_the_middle_of_a_commit(start: Start, tmp_path: Path) -> None:
    """SIGKILL leaves the intents of the commit and of its sends: the messages are in doubt, not unheard of."""
    worker = start(consumers=[], producers=["producer-0"], url_params={"commits": "ok,hang"})
    worker.begin()
    worker.until_status(lambda status: status["sent_ok"] == 10)
    spool = tmp_path / "w0.spool"
    end = time.monotonic() + 10
    while sum((row["op"], row["outcome"]) == ("commit", "unknown") for row in rows_of(spool)) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    worker.kill()
    ops = merged(rows_of(spool))
    commits = [(op["outcome"], "end_ns" in op) for op in ops if op["op"] == "commit"]
    assert commits == [("ok", True), ("unknown", False)]
    doubted = [op for op in ops if op["op"] == "send" and op["producer_seq"] >= 10]
    assert [op["message_id"] for op in doubted] == [f"producer-0-{n}" for n in range(10, 20)]
    assert all(op["outcome"] == "unknown" and "end_ns" not in op for op in doubted)


def test_a_torn_last_line_is_the_only_one(start: Start, tmp_path: Path) -> None:
    """Whatever moment SIGKILL hits, all lines but the last are whole: cut the file anywhere and read it."""
    worker = start(rate=None)
    worker.begin()
    worker.until_status(lambda status: status["sent_ok"] >= 500)
    worker.kill()
    spool = tmp_path / "w0.spool"
    data = spool.read_bytes()
    for cut in (len(data), len(data) - 7, len(data) // 2):
        spool.write_bytes(data[:cut])
        said = judge(rows_of(spool))
        assert said.processed <= said.attempted and not said.phantoms


def test_a_divided_ledger_is_readable_wherever_sigkill_hits(start: Start, tmp_path: Path) -> None:
    """Pieces are whole; the file that was written to last may end anywhere."""
    worker = start(rate=None, piece_bytes=5_000)
    worker.begin()
    worker.until_status(lambda status: status["sent_ok"] >= 500)
    worker.kill()
    spool = tmp_path / "w0.spool"
    pieces = sorted(tmp_path.glob("w0-*.spool"))
    assert len(pieces) > 3
    assert all(piece.read_bytes().endswith(b"\n") and piece.stat().st_size >= 5_000 for piece in pieces)
    data = spool.read_bytes()
    for cut in {len(data), max(0, len(data) - 7), len(data) // 2, 0}:
        spool.write_bytes(data[:cut])
        said = judge(rows_of(*pieces, spool))
        assert said.processed <= said.attempted and not said.phantoms


def test_a_divided_ledger_is_whole(start: Start, tmp_path: Path) -> None:
    worker = start(piece_bytes=10_000)
    worker.begin()
    worker.until_status(lambda status: status["sent_ok"] >= 1000)
    worker.tell("stop_producers")
    worker.until("producers_stopped")
    sent = worker.status["sent_ok"]
    worker.until_status(lambda status: status["received"] == sent)
    worker.finish()
    said = judge(rows_of(*sorted(tmp_path.glob("w0-*.spool")), tmp_path / "w0.spool"))
    assert len(said.processed) == len(said.acknowledged) == sent


@pytest.mark.parametrize("how", ["end of input", "SIGTERM"])
@pytest.mark.parametrize("hanging", [False, True])
def test_without_its_runner_it_ends_quickly(start: Start, tmp_path: Path, how: str, hanging: bool) -> None:
    worker = start(url_params={"commits": "ok,hang" if hanging else ""})
    worker.begin()
    worker.until_status(lambda status: status["sent_ok"] >= 10)
    if how == "SIGTERM":
        worker.process.send_signal(signal.SIGTERM)
    else:
        assert worker.process.stdin
        worker.process.stdin.close()
    assert worker.process.wait(10) == 0
    assert rows_of(tmp_path / "w0.spool")


def test_a_full_disk_stops_the_load_at_once(start: Start, tmp_path: Path) -> None:
    limit = 200_000

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    worker = start(popen={"preexec_fn": small_files}, rate=None)
    worker.until("ready")
    worker.tell("start")
    assert "cannot be written: File too large" in worker.until("fatal")["error"]
    assert worker.process.wait(10) == 3
    said = judge(rows_of(tmp_path / "w0.spool"))
    assert said.processed <= said.attempted, "what was delivered was announced"


def test_a_spool_that_cannot_be_made(start: Start, tmp_path: Path) -> None:
    worker = start(spool=str(tmp_path / "no" / "w0.spool"))
    assert "No such file" in worker.until("fatal")["error"]
    assert worker.process.wait(10) == 3


def test_a_bug_in_a_client_is_fatal(start: Start) -> None:
    worker = start(url_params={"commits": "ok,fatal"})
    worker.begin()
    assert "producer" in worker.until("fatal")["error"]
    assert worker.process.wait(10) == 3


def test_a_client_that_does_not_close(start: Start) -> None:
    worker = start(producers=["producer-0"], close_s=1.0, url_params={"commits": "ok,hang"})
    worker.begin()
    worker.until_status(lambda status: status["sent_ok"] >= 10)
    assert worker.finish()["sent_ok"] >= 10, "its connection is closed under it"


def test_who_is_waited_for_says_where_it_is(start: Start) -> None:
    worker = start(producers=["producer-0"], url_params={"commits": "ok,hang"})
    worker.begin()
    worker.until_status(lambda status: status["sent_ok"] >= 10)
    worker.tell("where")
    assert worker.until("where")["stacks"] == {}, "all are connected, and nothing else is waited for"
    worker.tell("stop_producers")
    worker.tell("where")
    stacks = worker.until("where")["stacks"]
    assert list(stacks) == ["producer-0"]
    assert innermost(stacks["producer-0"]).startswith("fake_client.py:")
    assert any(call.endswith(" commit") for call in stacks["producer-0"])
    worker.finish()


def test_the_innermost_call_is_not_the_languages_own() -> None:
    calls = ["java.lang.Object.wait:-2", "com.sun.messaging.Queue.get:7", "jms.py:1 commit"]
    assert innermost(calls) == calls[1]
    assert innermost(calls[:1]) == calls[0]
    assert innermost([]) == "no call"


@pytest.mark.parametrize(
    ("changes", "said", "code"),
    [
        ({"client": "nobody"}, "no client is called 'nobody'", 64),
        ({"rate": -1}, "rate must be above 0", 64),
        ({"url_params": {"no_process": "1"}}, "there can be no clients here", 3),
    ],
)
def test_bad_configuration(start: Start, changes: dict[str, Any], said: str, code: int) -> None:
    worker = start(**changes)
    assert said in worker.until("fatal")["error"]
    assert worker.process.wait(10) == code


def test_a_command_that_is_none(start: Start) -> None:
    worker = start()
    worker.until("ready")
    worker.tell("dance")
    assert worker.until("fatal")["error"] == "there is no command 'dance'"
    assert worker.process.wait(10) == 3


def test_a_runner_that_does_not_read_holds_nobody_up(tmp_path: Path) -> None:
    read, write = os.pipe()
    out = EventPipe(write)
    begun = time.monotonic()
    for _ in range(3000):
        out.say("status", filler="x" * 100)
    assert time.monotonic() - begun < 2 and out.crowded()
    os.close(read)


def test_lines_end_on_order() -> None:
    read, write = os.pipe()
    lines = CommandLines(read)
    os.write(write, b'{"a":1}\n{"b"')
    assert json.loads(next(lines)) == {"a": 1}
    lines.end()
    assert next(lines, None) is None


def test_only_the_standard_library_is_imported() -> None:
    """What is shipped to load hosts must run there: everything but JPype comes with Python or from this package."""
    code = (
        "import sys; before = set(sys.modules); import brokerdrill.workload.worker, brokerdrill.ledger.contract;"
        "names = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(names - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['brokerdrill']"
