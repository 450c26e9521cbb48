"""From a ledger to a page: what the analysis hands over is what the report shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from brokerdrill.analysis.analyze import analyze_with_series
from brokerdrill.ledger.contract import EVENT_COLUMNS, OP_COLUMNS, json_line
from brokerdrill.ledger.series import Series
from brokerdrill.ledger.verdict import RunVerdict
from brokerdrill.report import write_report
from brokerdrill.report.shown import Shown

from . import sample
from .sample import ACTIVE_AGAIN, BACK, HEAL, KILL, MS, S
from .test_page import parsed, text_of, words_of

STEP = 100 * MS
LOAD_END = 48 * S


def operations(run_id: str) -> list[dict[str, Any]]:
    """Two producers and a consumer an address; while nobody is active a send returns when the next one is."""
    rows = []
    for number in range(2):
        producer = {
            "run_id": run_id, "clock": f"load1/worker-{number}", "client": f"producer-{number}", "session": 0,
            "address": f"drill.q{number}", "protocol": "core",
        }  # fmt: skip
        at, count = 2 * S, 0
        while at < LOAD_END:
            end = at + 4 * MS
            if KILL <= end < ACTIVE_AGAIN + 260 * MS:
                end = ACTIVE_AGAIN + 260 * MS
                at = KILL + 15 * MS
            instance = "artemis2" if ACTIVE_AGAIN <= end < BACK else "artemis1"
            if BACK - S <= end < BACK:
                at += STEP
                continue
            message = {
                "message_id": f"{number}-{count}", "broker": instance, "instance": instance, "payload_sha": "ab" * 32,
            }  # fmt: skip
            rows.append(
                producer
                | message
                | {"op_id": count, "op": "send", "outcome": "ok", "start_ns": at, "end_ns": end, "attempt": 0}
                | {"producer_seq": count, "durable": True}
            )
            consumer = {"client": f"consumer-{number}", "delivery": f"d-{number}-{count}"}
            received = producer | message | consumer | {"outcome": "ok", "start_ns": end, "redelivered": False}
            rows.append(received | {"op_id": 2 * count, "op": "receive", "end_ns": end + 3 * MS})
            rows.append(received | {"op_id": 2 * count + 1, "op": "ack", "end_ns": end + 5 * MS, "redelivered": None})
            count += 1
            at = max(at + STEP, end)
    # What was given is run time; the workers' clocks are as far from it as run.json says.
    offset_ns = sample.run_info().clocks["load1/worker-0"].offset_ns
    return [row | {name: row[name] - offset_ns for name in ("start_ns", "end_ns")} for row in rows]


def events(run_id: str) -> list[dict[str, Any]]:
    def event(at: int, kind: str, **values: Any) -> dict[str, Any]:
        return {"run_id": run_id, "clock": "controller", "t_ns": at, "kind": kind, "uncertainty_ns": MS} | values

    spans = sample.series()["roles"]
    roles = [
        event(row["start_ns"], "role", instance=row["instance"], store=row["store"], value=row["value"])
        for row in spans
    ]
    hit = {
        "target": "artemis1",
        "instance": "artemis1",
        "store": "orders_pair1",
        "name": "kill",
        "value": "kill active",
    }
    return [
        *roles,
        event(S, "phase", name="load", value="begin"),
        event(LOAD_END, "phase", name="load", value="end"),
        event(LOAD_END + S, "phase", name="drain", value="begin"),
        event(54 * S, "phase", name="drain", value="end"),
        event(KILL, "fault", **hit),
        event(HEAL, "heal", **hit),
    ]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunVerdict, Series]:
    run_dir = sample.write_run(tmp_path_factory.mktemp("ledger") / "run", run_id="run")
    for name, rows, columns in (("ops", operations("run"), OP_COLUMNS), ("events", events("run"), EVENT_COLUMNS)):
        (run_dir / name).mkdir()
        (run_dir / name / "all.jsonl").write_bytes(b"".join(json_line(row, columns) for row in rows))
    result, series = analyze_with_series([run_dir])
    return run_dir, result.runs[0], series["run"]


def test_the_series_are_understood(judged: tuple[Path, RunVerdict, Series]) -> None:
    _, result, series = judged
    shown = Shown.of(series)
    sends = sum(row["op"] == "send" for row in operations("run"))
    assert sum(bucket.sends for bucket in shown.buckets) == sends == result.count("ok")
    assert sum(bucket.deliveries for bucket in shown.buckets) == sends
    assert max(bucket.send_max_ms or 0 for bucket in shown.buckets) > 3000
    quiet = [bucket for bucket in shown.buckets if KILL + S <= bucket.start_ns < ACTIVE_AGAIN - S]
    assert quiet and not any(bucket.sends for bucket in quiet)
    assert {(role.instance, role.value) for role in series.roles} >= {("artemis1", "down"), ("artemis2", "active")}
    assert [(band.mark, band.name, band.start_ns, band.end_ns, band.healed) for band in shown.bands] == [
        ("F1", "kill", KILL, HEAL, True)
    ]
    assert [phase.name for phase in series.phases] == ["load", "drain"]
    assert {row.client for row in series.failover} == {"producer-0", "producer-1"}


def test_the_page_shows_them(judged: tuple[Path, RunVerdict, Series], tmp_path: Path) -> None:
    run_dir, result, series = judged
    page = parsed(write_report(run_dir, result, series, tmp_path / "report.html"))
    assert text_of(page.xpath("//h1")[0]).startswith("Kept, as expected"), result
    assert len(page.xpath("//*[@class='plot timed']")) == 3
    assert "1 failover; the slowest client's next acknowledged send came 3,9" in text_of(page)
    facts = words_of(page.xpath("//dl[@class='facts']")[0])
    assert "failovers 1" in facts
    assert words_of(page.xpath("//section[@id='faults']//tbody/tr")[0]).startswith("F1 kill kill active")
