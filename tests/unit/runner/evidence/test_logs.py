"""What is read and kept of the instances' logs."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from brokerdrill.base.clock import ClockOffset
from brokerdrill.base.progress import Progress
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.ledger.contract import EVENTS_DIR, LOG_READ, OPS_DIR
from brokerdrill.ledger.events import EventWriter
from brokerdrill.products.amqp_router import PRODUCT
from brokerdrill.products.artemis import PRODUCT as ARTEMIS
from brokerdrill.runner.evidence.logs import (
    LOG_MARGIN_S,
    Logged,
    has_own_log,
    log_text,
    parse_journal,
    processes,
    read_log,
    write_log,
)
from brokerdrill.runner.evidence.process_ends import Entry

ACTIVE = "AMQ221007: Server is now active"


def row(at_us: int, message: str, boot: str = "b1", **more: str) -> str:
    """A line of a journal, as journalctl writes it."""
    return json.dumps({"__MONOTONIC_TIMESTAMP": str(at_us), "MESSAGE": message, "_BOOT_ID": boot, **more})


@dataclass
class Answer:
    out: str


def as_packed(text: str) -> str:
    """What a script of `packed` has as its output."""
    return base64.b64encode(gzip.compress(text.encode())).decode()


class Connection:
    """A host that was started twice, whose clock was 1 s behind and then 10 s. Answers what the journal of the unit is,
    and what it has of each start."""

    name = "h"
    boot_id = "b-2"

    def __init__(self) -> None:
        self.scripts: list[str] = []
        self.boots = {"b-1": ClockOffset(10**9, 1_000_000), "b-2": ClockOffset(10 * 10**9, 2_000_000)}
        self.answer = row(2_000_000, ACTIVE)
        self.starts = [start("b1", 0, 9_000_000, stop=9_000_000), start("b2", 100_000, 500_000)]

    async def sh(self, script: str, **_: Any) -> Answer:
        self.scripts.append(script)
        return Answer("\n".join(self.starts) if "--list-boots" in script else as_packed(self.answer))


def start(boot: str, first: int, last: int, stop: int | None = None) -> str:
    """What the journal has of one start: its first and last line, and where it ended (µs)."""
    lines = {"first": first, "last": last, "stop": stop}
    told = {name: None if at is None else {"__MONOTONIC_TIMESTAMP": str(at)} for name, at in lines.items()}
    return json.dumps({"boot": boot, **told})


@pytest.mark.parametrize(
    ("more", "own"),
    [({}, True), ({"log": "journal"}, True), ({"log": None}, False), ({"unit": None}, False)],
)
def test_a_shared_log_proves_nothing(more: dict[str, Any], own: bool) -> None:
    told = {"schema": 1, "product": "artemis", "instance": "a", "host": "h", "unit": "artemis.service", **more}
    assert has_own_log(Descriptor.model_validate(told)) == own


def test_a_process_is_read_once_for_all_instances_in_it() -> None:
    def instance(name: str, host: str, unit: str | None) -> Any:
        told = {"schema": 1, "product": "artemis", "instance": name, "host": host, "unit": unit}
        return SimpleNamespace(descriptor=Descriptor.model_validate(told))

    told = [instance("a", "h1", "u"), instance("b", "h2", "u"), instance("a2", "h1", "u"), instance("c", "h1", None)]
    assert [(one.descriptor.instance, others) for one, others in processes(told)] == [("a", ("a2",)), ("b", ())]


def test_no_more_of_a_log_is_read_than_the_run_and_the_minute_before() -> None:
    told = {"schema": 1, "product": "artemis", "instance": "a", "host": "h", "unit": "artemis.service"}
    connection = Connection()
    asyncio.run(read_log(connection, Descriptor.model_validate(told), 29.5))  # type: ignore[arg-type]
    assert f" --since=-{30 + LOG_MARGIN_S}s;" in connection.scripts[0]
    # Without it journalctl has null for what is longer than 4096 bytes.
    assert " --all " in connection.scripts[0]


def test_a_log_is_kept_in_the_time_of_the_run() -> None:
    told = [Entry(500_000_000, "starts"), Entry(1_500_000_000, "waits"), Entry(13_236_000_000, "is active")]
    kept = gzip.decompress(log_text(told, 1_000_000_000)).decode()
    assert kept == "    -0.500  starts\n     0.500  waits\n    12.236  is active\n"


def test_what_a_router_led_becomes_connects_of_the_run(tmp_path: Path) -> None:
    def line(at_us: int, key: str) -> str:
        said = json.dumps({"message": "opened", "backend": "rabbit2", "key": key})
        return row(at_us, said)

    # The host's clock is 1 s behind; the run began at 5 s of the controller's.
    connection = Connection()
    connection.answer = "\n".join([line(3_000_000, "before"), line(4_500_000, "p-1"), line(6_000_000, "p-2")])
    told = {"schema": 1, "product": "amqp_router", "instance": "router1", "host": "h1", "unit": "r.service"}
    listener = {"name": "amqp", "address": "10.0.0.1", "port": 5672, "protocol": "amqp091", "tls": False}
    router: Any = SimpleNamespace(
        descriptor=Descriptor.model_validate({**told, "log": "journal", "listeners": [listener]}),
        product=PRODUCT,
        connection=connection,
    )
    (tmp_path / OPS_DIR).mkdir()
    (tmp_path / EVENTS_DIR).mkdir()
    events = EventWriter(tmp_path, "run", 5 * 10**9)
    asyncio.run(
        write_log(router, (), (0, 9 * 10**9), events, tmp_path, Progress(Console(quiet=True)), {"rabbit2": "h2"})
    )
    rows = [json.loads(row) for row in (tmp_path / OPS_DIR / "router1.jsonl").read_text().splitlines()]
    assert [(row["key"], row["instance"], row["broker"], row["client"], row["session"]) for row in rows] == [
        ("p-1", "rabbit2", "h2", "router1", 0),
        ("p-2", "rabbit2", "h2", "router1", 1),
    ]
    told = [json.loads(row) for row in (tmp_path / EVENTS_DIR / "runner.jsonl").read_text().splitlines()]
    assert [(row["name"], row["target"], row["instance"]) for row in told if row["kind"] == "routed"] == [
        ("router1", "p-1", "rabbit2"),
        ("router1", "p-2", "rabbit2"),
    ]
    # The line's time, and how far it is known: the journal's 5 ms and the clocks' 1 ms.
    assert [(row["start_ns"], row["end_ns"]) for row in rows] == [
        (494_000_000, 506_000_000),
        (1_994_000_000, 2_006_000_000),
    ]


def test_what_was_before_the_run_is_kept_and_proves_nothing(tmp_path: Path) -> None:
    connection = Connection()
    connection.answer = "\n".join([row(2_000_000, ACTIVE), row(6_000_000, ACTIVE)])
    told = {"schema": 1, "product": "artemis", "instance": "a", "host": "h", "unit": "a.service", "log": "journal"}
    broker: Any = SimpleNamespace(descriptor=Descriptor.model_validate(told), product=ARTEMIS, connection=connection)
    (tmp_path / EVENTS_DIR).mkdir()
    events = EventWriter(tmp_path, "run", 5 * 10**9)
    asyncio.run(write_log(broker, (), (5 * 10**9, 9 * 10**9), events, tmp_path, Progress(Console(quiet=True)), {}))
    kept = gzip.decompress((tmp_path / "evidence" / "a.log.gz").read_bytes()).decode()
    assert [row.split()[0] for row in kept.splitlines()] == ["-2.000", "2.000"]
    rows = [json.loads(row) for row in (tmp_path / EVENTS_DIR / "runner.jsonl").read_text().splitlines()]
    assert [(row["kind"], row["t_ns"]) for row in rows if row["kind"] == "role"] == [("role", 2 * 10**9)]


def notes(tmp_path: Path, connection: Connection, span: tuple[int, int]) -> list[dict[str, Any]]:
    """What reading the log of a broker there leaves, of a run that began at 5 s of the controller's clock."""
    told = {"schema": 1, "product": "artemis", "instance": "a", "host": "h", "unit": "a.service", "log": "journal"}
    broker: Any = SimpleNamespace(descriptor=Descriptor.model_validate(told), product=ARTEMIS, connection=connection)
    (tmp_path / EVENTS_DIR).mkdir()
    events = EventWriter(tmp_path, "run", 5 * 10**9)
    asyncio.run(write_log(broker, ("b",), span, events, tmp_path, Progress(Console(quiet=True)), {}))
    return [json.loads(line) for line in (tmp_path / EVENTS_DIR / "runner.jsonl").read_text().splitlines()]


SPAN = 5 * 10**9, 11 * 10**9


def test_each_line_is_placed_by_the_clock_of_its_own_start(tmp_path: Path) -> None:
    connection = Connection()
    connection.answer = "\n".join([row(6_000_000, ACTIVE), row(200_000, ACTIVE, "b2"), row(300_000, ACTIVE, "unknown")])
    (active,) = (one for one in notes(tmp_path, connection, SPAN) if one["kind"] == "role")
    assert (active["t_ns"], active["uncertainty_ns"]) == (2 * 10**9, 7_000_000)
    kept = gzip.decompress((tmp_path / "evidence" / "a.log.gz").read_bytes()).decode()
    assert [line.split()[0] for line in kept.splitlines()] == ["2.000", "5.200"]


@pytest.mark.parametrize(
    ("starts", "read"),
    [
        # Orderly ended: from the end to the next start nothing ran.
        ([start("b1", 0, 9_000_000, stop=9_000_000), start("b2", 100_000, 500_000)], [("0", "6000000000", "2")]),
        # Cut off: what the last moments wrote may never have come to the disk.
        (
            [start("b1", 0, 8_000_000), start("b2", 100_000, 500_000)],
            [("0", "4000000000", "1"), ("5100000000", "6000000000", "1")],
        ),
        # A journal that is not kept over a restart.
        ([start("b2", 100_000, 500_000)], [("5100000000", "6000000000", "1")]),
        # A start that nobody met, so that its lines have no place.
        (
            [start("b1", 0, 8_000_000, stop=8_000_000), '{"boot": "b9"}', start("b2", 100_000, 500_000)],
            [("0", "4000000000", "1"), ("5100000000", "6000000000", "1")],
        ),
        # Rotated away: the first line that is left is of the middle of the run.
        (
            [start("b1", 7_000_000, 9_000_000, stop=9_000_000), start("b2", 100_000, 500_000)],
            [("3000000000", "6000000000", "2")],
        ),
        # journald ended and began again, and the host was cut off afterwards.
        (
            [start("b1", 0, 8_500_000, stop=7_000_000), start("b2", 100_000, 500_000)],
            [("0", "4500000000", "1"), ("5100000000", "6000000000", "1")],
        ),
        ([], []),
    ],
    ids=["orderly", "cut off", "not kept", "unknown", "rotated", "journald", "nothing"],
)
def test_a_log_counts_as_read_where_it_was(tmp_path: Path, starts: list[str], read: list[tuple[str, str, str]]) -> None:
    connection = Connection()
    connection.starts = starts
    found = [one["detail"] for one in notes(tmp_path, connection, SPAN) if one["name"] == LOG_READ]
    assert [(one["from_ns"], one["until_ns"], one["boots"]) for one in found] == read
    assert all(one["instances"] == "a\nb" for one in found)


def test_lines_that_journald_left_out_are_counted(tmp_path: Path) -> None:
    connection = Connection()
    connection.answer = "\n".join(
        [
            row(6_000_000, "Suppressed 12 messages from a.service", N_DROPPED="12"),
            row(100_000, "…", "b2", N_DROPPED="3"),
        ]
    )
    found = [one["detail"]["lost"] for one in notes(tmp_path, connection, SPAN) if one["name"] == LOG_READ]
    assert found == ["15"]


def test_the_log_of_what_has_no_product_tells_its_ends(tmp_path: Path) -> None:
    """A voter that a fault killed: without its log nobody knows that it ended by that alone."""
    connection = Connection()
    connection.answer = "\n".join([row(6_000_000, ACTIVE)])
    told = {"schema": 1, "product": "zookeeper", "instance": "zk1", "host": "zk1", "unit": "zookeeper.service"}
    voter = Logged(None, Descriptor.model_validate({**told, "log": "journal"}), connection)  # type: ignore[arg-type]
    (tmp_path / EVENTS_DIR).mkdir()
    events = EventWriter(tmp_path, "run", 5 * 10**9)
    asyncio.run(write_log(voter, (), (5 * 10**9, 9 * 10**9), events, tmp_path, Progress(Console(quiet=True)), {}))
    rows = [json.loads(line) for line in (tmp_path / EVENTS_DIR / "runner.jsonl").read_text().splitlines()]
    assert [(row["kind"], row["instance"], row["name"]) for row in rows] == [("note", "zk1", "log read")]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("one", "one"),
        (None, ""),
        ([111, 255], "o\ufffd"),
        (["one", "two"], "one\ntwo"),
        ([[111, 255], "two"], "o\ufffd\ntwo"),
        ([], ""),
    ],
)
def test_what_a_message_may_be(message: Any, text: str) -> None:
    """systemd's Journal JSON Format: text, null, a list of bytes where it is binary, or, of a field that was given more
    than once, a list of these."""
    line = {
        "__MONOTONIC_TIMESTAMP": "1",
        "_BOOT_ID": "b-1",
        "MESSAGE": message,
        "_PID": ["7", "8"],
        "N_DROPPED": ["1", "2"],
    }
    log = parse_journal(json.dumps(line), {"b-1": ClockOffset(0, 0)})
    assert [entry.text for entry in log.entries] == [text]
    assert log.lost == 3
