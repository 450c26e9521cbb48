"""What a look at a queue tells, and when it is not whole."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from brokerdrill.ledger.spool import Header
from brokerdrill.workload import header
from brokerdrill.workload.client import Browsing, ClientError, Delivery, Message
from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, ClientSpec, WorkerConfig
from brokerdrill.workload.ledger_writer import ClientLedger, LedgerClock, Spool
from brokerdrill.workload.looking import Browser, Look, QueueContents
from tests.workload.fake_client import FakeClient
from tests.workload.worker_process import merged, rows_of

RUN, OTHER = "now", "before"
TAG, OTHER_TAG = header.tag_of(RUN), header.tag_of(OTHER)
CONFIG = WorkerConfig(
    run_id=RUN,
    worker="w0",
    clock="w0",
    client="core",
    endpoints=(BrokerEndpoint("192.0.2.1", 1, "b1", "h1"),),
    credentials=ClientAccount("u", "p"),
    addresses=("q",),
)


def message(number: int, run: str | None) -> Delivery:
    """A message that `run` sent; None: that no run did."""
    sent = Message(f"m-{number}", number, None, b"", "")
    text = header.write(header.tag_of(run), sent, 0) if run else None
    return header.delivery(TAG, "DLQ", text, f"ID:{number}", redelivered=False, body=b"", handle=None)


MIXED = [message(0, RUN), message(1, OTHER), message(2, None), message(3, RUN), message(4, None)]


class Broker(FakeClient):
    """A client of a broker that shows `messages`, or answers with an error."""

    messages: list[Delivery] | ClientError

    def browse(self, address: str, *, own: bool = False) -> Iterable[Delivery]:
        if isinstance(self.messages, ClientError):
            raise self.messages
        return [
            one for one in self.messages if not own or self.browsing != "selects" or not (one.foreign or one.left_by)
        ]


def looked(
    tmp_path: Path, shown: list[Delivery] | ClientError, browsing: Browsing, **look: Any
) -> tuple[QueueContents, list[dict[str, Any]]]:
    """What was seen, and the rows of the ledger."""
    client = Broker(CONFIG, "looker")
    client.messages, client.browsing = shown, browsing  # type: ignore[misc]
    heads = Header(RUN, "w0", "core", ["looker", "DLQ"], [("h1", "b1")])
    spool = Spool(str(tmp_path / "w0.spool"), None, heads.line())
    ledger = ClientLedger(spool.write, LedgerClock(), heads, "looker")
    one = Browser(CONFIG, ClientSpec("looker", ("DLQ",)), client, ledger, Event(), Look("DLQ", "b1", **look))
    one.run()
    spool.close()
    return one.seen, [row for row in merged(rows_of(tmp_path / "w0.spool")) if row["op"] == "browse"]


def outcomes(rows: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return sorted((row["outcome"], row.get("message_id")) for row in rows if row.get("message_id"))


@pytest.mark.parametrize("browsing", ["selects", "shows", "takes"])
def test_only_this_runs_messages_have_rows(tmp_path: Path, browsing: Browsing) -> None:
    seen, rows = looked(tmp_path, MIXED, browsing, messages=5, drills=True, own=True)
    assert outcomes(rows) == [("ok", "m-0"), ("ok", "m-3")]
    (look,) = [row for row in rows if not row.get("message_id")]
    assert (look["outcome"], look["address"], seen.error) == ("ok", "DLQ", None)


def test_whose_the_messages_are(tmp_path: Path) -> None:
    seen, _ = looked(tmp_path, MIXED, "shows", messages=5, drills=True)
    assert (seen.by_run, seen.foreign) == ({TAG: 2, OTHER_TAG: 1}, 2)
    assert [text.rpartition("ID:")[2] for text in seen.examples] == ["2", "4"]


@pytest.mark.parametrize(
    ("messages", "browsing", "look", "error"),
    [
        (MIXED, "shows", {"messages": 6, "own": True}, "the broker shows 5 of the 6 messages that it counts there"),
        (ClientError("JMSSecurityException: no"), "selects", {"own": True}, "JMSSecurityException: no"),
        (MIXED, "takes", {"messages": 5, "own": True}, "clients of core cannot look into DLQ but by taking"),
    ],
)
def test_a_look_that_was_not_whole_has_a_row_that_says_so(
    tmp_path: Path, messages: list[Delivery] | ClientError, browsing: Browsing, look: dict[str, Any], error: str
) -> None:
    seen, rows = looked(tmp_path, messages, browsing, **look)
    (row,) = [row for row in rows if not row.get("message_id")]
    assert row["outcome"] == "fail" and row["error"].startswith(error)
    assert seen.error == row["error"]


def test_a_queue_that_is_looked_through_for_this_runs_messages_may_have_many_others(tmp_path: Path) -> None:
    seen, rows = looked(tmp_path, MIXED, "selects", messages=100_000, own=True)
    assert seen.error is None and len(outcomes(rows)) == 2
