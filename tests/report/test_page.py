"""The HTML pages as text: well-formed, self-contained, escaped, in order, and there for every kind of run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lxml import etree, html

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.ledger.series import Stay
from brokerdrill.ledger.verdict import Failover, RunVerdict
from brokerdrill.report.index import repeat_bounds, strip
from brokerdrill.report.pictures import draw
from brokerdrill.report.pictures.failover import MAX_BARS, failover_bars
from brokerdrill.report.pictures.figures import mark_rows, merged_bands, plain
from brokerdrill.report.pictures.latency import log_ticks
from brokerdrill.report.pictures.routes import until_elsewhere

from . import sample

EVIL = "<img src=x onerror=alert(1)></script><!--'\"&$$x$$\x00\x1b[31m"


def text_of(node: Any) -> str:
    return " ".join(node.text_content().split())


def words_of(node: Any) -> str:
    """The text with a space between elements, as a reader sees them apart."""
    return " ".join(" ".join(node.itertext()).split())


def parsed(path: Path) -> Any:
    """The page by a parser that reports what a browser would silently mend (tags it does not know are HTML 5's)."""
    text = path.read_text(encoding="utf-8")
    parser = etree.HTMLParser(recover=True, huge_tree=True)
    root = etree.fromstring(text.encode(), parser, base_url="")
    problems = [entry.message for entry in parser.error_log if not re.match(r"Tag \w+ invalid", entry.message)]
    assert problems == []
    assert root is not None
    return html.fromstring(text)


def own_nesting(text: str) -> None:
    """Every element that is opened is closed, in order (scripts and styles set aside)."""
    void = {"meta", "link", "br", "input", "img"}
    open_tags: list[str] = []
    stripped = re.sub(r"(?s)<(script|style)>.*?</\1>", "", text)
    for close, name, rest in re.findall(r"<(/?)([a-z][a-z0-9]*)\b((?:[^>\"]|\"[^\"]*\")*)>", stripped):
        if close:
            assert open_tags and open_tags.pop() == name, f"</{name}> closes nothing"
        elif name not in void and not rest.endswith("/"):
            open_tags.append(name)
    assert open_tags == []


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    run_dir = sample.write_run(folder / "kept")
    kept = sample.write_report(run_dir, sample.result(), sample.series(), run_dir / "report.html")
    other = sample.write_run(folder / "broken", run_id="broken", outcome="aborted", drained={"drill.q0": False})
    broken = sample.write_report(other, sample.broken(), sample.series(2), other)
    index = sample.write_index([(run_dir, sample.result()), (other, sample.broken())], folder / "index.html")
    return {"kept": kept, "broken": broken, "index": index}


@pytest.mark.parametrize("name", ["kept", "broken", "index"])
def test_well_formed_and_self_contained(pages: dict[str, Path], name: str) -> None:
    page = parsed(pages[name])
    own_nesting(pages[name].read_text(encoding="utf-8"))
    loading = page.xpath("//@src | //link/@href | //@srcset | //object/@data | //iframe | //base")
    assert [str(item) for item in loading] == ["data:,"]
    styles = " ".join(page.xpath("//style/text()"))
    assert "@import" not in styles and "url(" not in styles
    policy = page.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")[0]
    assert "default-src 'none'" in policy and "unsafe-eval" not in policy and "http" not in policy
    ids = page.xpath("//@id")
    assert len(ids) == len(set(ids))
    assert pages[name].stat().st_size <= 2_000_000


def test_order_of_the_report(pages: dict[str, Path]) -> None:
    page = parsed(pages["kept"])
    heads = [text_of(node) for node in page.xpath("//h1 | //h2")]
    assert heads == [
        "Kept, as expected – all 8 promises hold",
        "Promises",
        "What happened when",
        "Failover, part by part",
        "Throughput and latency by phase",
        "Messages by class",
        "Faults",
        "Environment",
        "Run it again",
        "Counts",
    ]
    assert len(page.xpath("//*[contains(@class, 'plot ') or @class='plot']")) == 6


def test_promises_with_bounds_and_witnesses(pages: dict[str, Path]) -> None:
    page = parsed(pages["broken"])
    rows = {text_of(row[0]): text_of(row) for row in page.xpath("//table[contains(@class,'promises')]/tbody/tr")}
    failover = next(text for name, text in rows.items() if name.startswith("failover_within"))
    assert "kept" in failover and "6,000 ms" in failover and "4,127 ms" in failover
    assert any("should be kept" in text and "broken" in text for text in rows.values())
    witnesses = page.xpath("//details[.//summary[contains(., 'no_duplicates')]]")[0]
    assert witnesses.get("open") is not None
    for index in range(3):
        assert f"4711-producer-{index}-000{index}42" in text_of(witnesses)
    notes = text_of(page.xpath("//ul[@class='notes']")[0])
    assert "aborted" in notes and "torn last line" in notes and "Not drained at the end: drill.q0" in notes


def test_each_witness_tells_its_story(pages: dict[str, Path]) -> None:
    stories = parsed(pages["broken"]).xpath("//details[@class='story']")
    assert len(stories) == 3
    assert text_of(stories[0].xpath("./summary")[0]) == "The whole story: 7 steps"
    steps = [words_of(row) for row in stories[0].xpath(".//tbody/tr")]
    assert steps[0] == "1.000 s artemis1 is active orders_pair1"
    assert "no answer" in steps[1] and "attempt 1" in steps[1] and "AMQ219014: Timed out" in steps[1]
    assert steps[2].endswith("F1 kill injected") and steps[-1].endswith("F1 kill healed")
    assert steps[3].startswith("16.004 s 2 ms producer-0 send, attempt 2 ok artemis1")
    assert "receive, flagged as redelivered ok artemis2" in steps[5] and "delivery d-2" in steps[5]
    # A witness without a story is a row as before.
    assert "4711-producer-2-00187" in text_of(parsed(pages["broken"]).xpath("//table[contains(@class,'promises')]")[0])


def test_quantiles_by_phase_are_a_table(pages: dict[str, Path]) -> None:
    rows = [words_of(row) for row in parsed(pages["kept"]).xpath("//section[@id='phases']//tbody/tr")]
    assert rows == [
        "before the fault 14.20 s send 8,211 578 / s 3.80 ms 9.40 ms 17.2 ms 4,127 ms",
        "end-to-end 8,211 578 / s 3.80 ms 9.40 ms 17.2 ms 4,127 ms",
        "fault in effect 14.80 s send 6,003 406 / s 3.80 ms 9.40 ms 17.2 ms 4,127 ms",
        "end-to-end 6,003 406 / s 3.80 ms 9.40 ms 17.2 ms 4,127 ms",
        "after the heal 18.00 s nothing was sent or delivered",
    ]


def test_rounds_are_side_by_side(tmp_path: Path) -> None:
    run = sample.write_run(tmp_path / "run")
    page = sample.write_report(run, sample.result(rounds=sample.rounds()), sample.series(), tmp_path)
    table = parsed(page).xpath("//section[@id='rounds']//tbody/tr")
    assert [words_of(row) for row in table] == [
        "1 5.000 s 35.00 s 1 4,127 ms 6,528 ms 0 –",
        "2 40.000 s 16.00 s 2 3,902 ms – 3 failback_within 1, no_loss 2",
    ]
    page = sample.write_report(run, sample.result(), sample.series(), tmp_path)
    assert not parsed(page).xpath("//section[@id='rounds']")


def test_who_was_hit_under_which_fault(pages: dict[str, Path]) -> None:
    page = parsed(pages["broken"])
    tables = [[words_of(row) for row in table.xpath(".//tbody/tr")] for table in page.xpath("//table[@class='blame']")]
    assert tables[0] == [
        "drill.q0 acknowledged sends 15.184 s 3.98 s F1 kill artemis1 producer-1 at artemis1 producer-0 at artemis2"
    ]
    assert tables[1] == [
        "duplicated no_duplicates F1 kill artemis1 artemis2 consumer-0 3",
        "lost no_loss no fault – producer-2 1",
    ]
    assert tables[2][0] == "flagged not in doubt F1 kill artemis1 artemis2 consumer-0 33"


def test_routing_keys_have_a_picture_and_a_table(pages: dict[str, Path]) -> None:
    text = pages["kept"].read_text(encoding="utf-8")
    section = text.split('<figure id="routes">')[1].split("</figure>")[0]
    assert "3 keys connected 60 times; 1 times a key reached another store than before" in section
    assert "Of the keys 33.3 % moved, each move excused, and 0 % without an excuse." in section
    assert "chi-square 0.3 with 2 stores" in section
    assert "the fullest store has 1.33 times its even part" in section
    assert "<td>orders_pair2</td>" in section


def test_a_routing_key_is_where_it_connected_until_it_connects_elsewhere() -> None:
    kept, moved, other = (
        Stay(key, store, at, at, 1) for key, store, at in (("k", "a", 1), ("k", "b", 9), ("o", "a", 2))
    )
    assert until_elsewhere([moved, other, kept], 20) == {kept: 9, moved: 20, other: 20}


def test_clients_have_lanes(pages: dict[str, Path]) -> None:
    section = text_of(parsed(pages["kept"]).xpath("//section[@id='time']")[0])
    assert "Brokers, clients and faults" in section
    assert "The 3 clients with most failures and longest waits; 37 more are not drawn." in section


def test_faults_as_asked_and_as_resolved(pages: dict[str, Path]) -> None:
    rows = [words_of(row) for row in parsed(pages["kept"]).xpath("//section[@id='faults']//tbody/tr")]
    assert len(rows) == 3
    assert rows[0].startswith("F1 kill kill active signal = KILL active artemis1 15.204 s ± 1.40 ms 15.265 s 30.012 s")
    assert rows[1].startswith("F2 partition") and rows[2].startswith("F2 partition")


def test_where_and_with_what_it_ran(pages: dict[str, Path]) -> None:
    section = parsed(pages["kept"]).xpath("//section[@id='environment']")[0]
    pairs = dict(zip(section.xpath(".//dt/text()"), section.xpath(".//dd/text()"), strict=False))
    assert pairs["recording hosts"] == "controller, load1"
    assert pairs["brokers of each store"] == "orders_pair1: artemis1, artemis2"
    assert pairs["artemis"] == "2.56.0" and pairs["seed"] == "4711" and pairs["inventory's SHA-256"] == "5c" * 32
    assert len(pairs["scenario's SHA-256"]) == 64


def test_how_to_run_it_again(pages: dict[str, Path]) -> None:
    commands = parsed(pages["kept"]).xpath("//section[@id='again']//code/text()")
    assert commands[0] == "brokerdrill run kill_active artemis_quorum --seed 4711"
    assert commands[1] == "brokerdrill analyze kept --json verdict.json"


def test_index_links_to_each_report(pages: dict[str, Path]) -> None:
    page = parsed(pages["index"])
    assert page.xpath("//table//a/@href") == ["kept/report.html", "broken/report.html"]
    assert "1 of 2 runs as expected" in text_of(page.xpath("//h1")[0])


def evil_story() -> list[dict[str, Any]]:
    ids = dict.fromkeys(("client", "instance", "op", "outcome", "txn", "delivery", "message_id", "error"), EVIL)
    return [
        {"t_ns": 1, "kind": "op", "end_ns": None, **ids},
        {"t_ns": 1, "kind": "role", "instance": EVIL, "value": EVIL, "store": EVIL},
        {"t_ns": 1, "kind": "fault", "name": EVIL, "target": EVIL},
        {"t_ns": 1, "kind": "heal", "name": EVIL, "target": EVIL},
    ]


def everything_evil() -> tuple[dict[str, Any], dict[str, Any]]:
    """A verdict and series whose every name and text is hostile."""
    result = sample.broken(EVIL)
    result["notes"] = [EVIL]
    for promise in result["promises"]:
        promise["witnesses"] = [{"message_id": EVIL, EVIL: EVIL, "nested": {EVIL: [EVIL]}, "story": evil_story()}]
    for row in [*result["attribution"], *result["redeliveries"]]:
        row |= dict.fromkeys(("class", "fault", "target", "instance", "client"), EVIL)
    result["phases"][0]["phase"] = EVIL
    for row in result["failover"]:
        row["client"] = EVIL
    result["rounds"] = [{"round": EVIL, "broken": {EVIL: 3}}]
    for outage in result["outages"]:
        outage |= {"fault": EVIL, "address": EVIL}
    series = sample.series()
    for row in series["clients"]:
        row["client"] = EVIL
    for row in series["roles"]:
        row |= {"instance": f"{row['instance']}{EVIL}", "store": EVIL}
    for row in series["faults"]:
        row |= {"name": EVIL, "target": EVIL, "instance": EVIL}
    for row in series["phases"]:
        row["name"] = EVIL
    for row in [*series["routes"]["stores"], *series["routes"]["spans"]]:
        row["store"] += EVIL
    for row in series["routes"]["spans"]:
        row["key"] += EVIL
    series["endings"] = [
        {"at_ns": 1, "instance": series["roles"][0]["instance"], "how": EVIL, "status": EVIL, "last": EVIL}
    ]
    series["alerts"] = [{"name": EVIL, "instance": EVIL, "store": EVIL, "start_ns": 1, "end_ns": 2}]
    return result, series


@pytest.mark.parametrize("meant", [False, True])
def test_ends_that_no_fault_explains_are_marked(tmp_path: Path, meant: bool) -> None:
    series = sample.series()
    ending = {"instance": "artemis1", "at_ns": 5_000_000_000, "how": "out of memory", "status": "3", "meant": meant}
    series["endings"] = [ending | {"last": "java.lang.OutOfMemoryError: Java heap space"}]
    run_dir = sample.write_run(tmp_path / "run")
    page = sample.write_report(run_dir, sample.result(), series, tmp_path / "report.html").read_text(encoding="utf-8")
    assert ("a process ended that no fault had touched" in page) is not meant
    assert ("out of memory, 3" in page) is not meant


@pytest.mark.parametrize("fired", [False, True])
def test_alerts_have_a_lane(tmp_path: Path, fired: bool) -> None:
    series = sample.series()
    alert = {"name": "BrokerDown", "instance": "artemis1", "store": "pair", "start_ns": 20_000_000_000}
    series["alerts"] = [alert | {"end_ns": 34_000_000_000, "cleared": True}] if fired else []
    run_dir = sample.write_run(tmp_path / "run")
    page = sample.write_report(run_dir, sample.result(), series, tmp_path / "report.html").read_text(encoding="utf-8")
    assert ("alert of Prometheus fires" in page) is fired
    assert ("BrokerDown" in page) is fired
    assert ("34.000 s" in page) is fired


def test_everything_from_files_is_escaped(tmp_path: Path) -> None:
    from brokerdrill.ledger import contract

    run_dir = sample.write_run(
        tmp_path / "run",
        scenario=contract.ScenarioText(EVIL, f"title: {EVIL!r}\ndescription: x\n", EVIL),
        topology=EVIL,
        versions={EVIL: EVIL},
        outcome="crashed",
        drained={EVIL: False},
        clocks={EVIL: contract.Clock(EVIL)},
    )
    entry = {"phase": "intent", "fault_id": EVIL, "fault": EVIL, "name": EVIL, "asked": EVIL, "resolved": EVIL}
    with (run_dir / "journal.jsonl").open("a", encoding="utf-8") as out:
        import json

        out.write(json.dumps(entry | {"host": EVIL, "params": {EVIL: EVIL}, "instance": EVIL}) + "\n")
        out.write(json.dumps({"phase": "heal_failed", "fault_id": EVIL, "error": EVIL}) + "\n")
        out.write('{"phase": "inte')
    result, series = everything_evil()
    text = sample.write_report(run_dir, result, series, tmp_path / "report.html").read_text(encoding="utf-8")
    index = sample.write_index([(run_dir, result), (tmp_path / "none", {"error": EVIL})], tmp_path / "index.html")
    for page in (text, index.read_text(encoding="utf-8")):
        outside = re.sub(r"(?s)<(script|style)>.*?</\1>", "", page)
        assert "<img" not in outside and "onerror=alert(1)" in outside
        assert "\x00" not in page and "\x1b" not in page
        own_nesting(page)
    scripts = re.findall(r"(?s)<script>(.*?)</script>", text)
    assert len(scripts) == 6, "a name ended a script early"
    assert not any("<!--" in script for script in scripts)


def test_a_run_without_a_send(tmp_path: Path) -> None:
    run_dir = sample.write_run(tmp_path / "run")
    (run_dir / "journal.jsonl").unlink()
    result = sample.result(verdict="unknown", as_expected=False, failover=[], outages=[])
    result["messages"] = dict.fromkeys(result["messages"], 0)
    for promise in result["promises"]:
        promise |= {"verdict": "unknown", "measured": None, "as_expected": False}
    for empty in ({}, {"buckets": [], "roles": [], "faults": [], "phases": [], "bucket_ns": 1, "end_ns": 0}):
        page = parsed(sample.write_report(run_dir, result, empty, tmp_path / "report.html"))
        assert text_of(page.xpath("//h1")[0]).startswith("Unknown, not as expected")
        body = text_of(page)
        assert "No failover happened in this run." in body
        assert "No message was sent or delivered." in body
        assert "No fault was injected." in body
        assert not page.xpath("//*[@class='plot timed']")


def test_a_run_whose_files_are_gone(tmp_path: Path) -> None:
    error = "run.json, line 3: not JSON"
    result = {"run_id": None, "run_dir": "runs/gone", "verdict": "unknown", "as_expected": False, "error": error}
    page = parsed(sample.write_report(tmp_path / "gone", result, {}, tmp_path / "report.html"))
    assert "run.json, line 3: not JSON" in text_of(page.xpath("//h1")[0])
    assert "run.json does not exist" in text_of(page.xpath("//ul[@class='notes']")[0])


def test_an_expected_violation_is_said_to_be_one(tmp_path: Path) -> None:
    run_dir = sample.write_run(tmp_path / "run")
    result = sample.result(verdict="fail")
    duplicates = next(promise for promise in result["promises"] if promise["name"] == "no_duplicates")
    duplicates |= {"verdict": "fail", "count": 1, "expected": "violated", "as_expected": True}
    page = parsed(sample.write_report(run_dir, result, sample.series(), tmp_path / "report.html"))
    assert text_of(page.xpath("//h1")[0]) == "Broken, as expected – no_duplicates does not hold"
    assert "good" in page.xpath("//section[1]/@class")[0]
    # The other way round: what should have been caught was not.
    duplicates |= {"verdict": "pass", "count": 0, "as_expected": False}
    result |= {"verdict": "pass", "as_expected": False}
    page = parsed(sample.write_report(run_dir, result, sample.series(), tmp_path / "report.html"))
    assert text_of(page.xpath("//h1")[0]) == "Kept, not as expected – no_duplicates should have been broken"
    assert "good" not in page.xpath("//section[1]/@class")[0]


def test_a_disk_that_does_not_take_the_page(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(InfrastructureError, match=r"report\.html cannot be written"):
        sample.write_report(tmp_path, sample.result(), {}, blocked / "report.html")
    with pytest.raises(InfrastructureError, match=r"index\.html cannot be written"):
        sample.write_index([], blocked / "index.html")


def test_faults_of_one_step_share_a_mark() -> None:
    bands = sample.shown(sample.series(), {}).bands
    assert [band.mark for band in bands] == ["F1", "F2", "F2"]
    merged = merged_bands(bands)
    assert [band.mark for band in merged] == ["F1", "F2"]
    assert merged[1].target == "link artemis1→artemis2, link artemis2→artemis1"
    assert merged[1].end_ns == sample.PARTITION_HEALED + 2 * sample.MS
    (open_band,) = sample.shown({"faults": [{"name": "kill", "start_ns": 5, "end_ns": None}], "end_ns": 99}, {}).bands
    assert (open_band.end_ns, open_band.healed) == (99, False)


def test_marks_that_would_touch_take_other_rows() -> None:
    assert mark_rows([0, 1, 2, 50], 100) == [0, 1, 2, 0]
    assert set(mark_rows([float(at) for at in range(0, 100, 2)], 100)) == {0, 1, 2}


def test_failover_parts_are_stacked_in_the_order_they_were_reached() -> None:
    row: dict[str, Any] = {"fault": "kill", "t_ns": 0, "client": "p", "detection_ms": None, "activation_ms": 30.0}
    bars, left_out = failover_bars([Failover(**row, first_send_ms=50.0, first_delivery_ms=40.0)], ())
    assert bars[0].milestones == (("activation", 30.0), ("first_delivery", 40.0), ("first_send", 50.0))
    assert left_out == 0
    never, _ = failover_bars([Failover(**row)], ())
    assert never[0].first_send_ms is None


def test_too_many_failovers_keep_each_faults_worst_client() -> None:
    rows = [
        Failover(fault="kill", t_ns=fault * 10**10, client=f"p{client}", first_send_ms=100.0 * client)
        for fault in range(10)
        for client in range(4)
    ]
    bars, left_out = failover_bars(rows, ())
    assert len(bars) == 10 <= MAX_BARS and left_out == 30
    assert {bar.client for bar in bars} == {"p3"}
    # A client that was never served again is the worst.
    rows[0] = replace(rows[0], first_send_ms=None)
    assert failover_bars(rows, ())[0][0].client == "p0"


def test_names_for_a_canvas() -> None:
    assert plain("orders-broker-east-1", 13) == "orders…east-1"
    assert "$$" not in plain("a$$b$$")
    assert len(plain("x" * 99, 15)) == 15


def test_ticks_of_a_logarithmic_axis() -> None:
    assert log_ticks(0.8, 70) == [1, 2, 5, 10, 20, 50]
    assert log_ticks(1, 10_000) == [1, 10, 100, 1_000, 10_000]
    assert log_ticks(0.004, 0.03) == pytest.approx([0.005, 0.01, 0.02])


def test_one_bucket_is_a_picture() -> None:
    series = sample.shown({"bucket_ns": 10**9, "buckets": [{"start_ns": 0, "sends": 1, "send_p50_ms": 2.0}]}, {})
    assert set(draw(series, {"ok": 1}, None).divs) == {"throughput", "latency", "classes"}


def test_buckets_in_which_nothing_happened_are_there() -> None:
    sparse = {"bucket_ns": 10, "end_ns": 60, "buckets": [{"start_ns": 40, "sends": 2}, {"start_ns": 10, "sends": 1}]}
    series = sample.shown(sparse, {})
    assert [bucket.start_ns for bucket in series.buckets] == [0, 10, 20, 30, 40, 50]
    assert [bucket.sends for bucket in series.buckets] == [0, 1, 0, 0, 2, 0]


def test_repeats_bound_what_they_did_not_see() -> None:
    kept = [sample.result(f"run-{index}") for index in range(20)]
    bounds = {row.name: row for row in repeat_bounds([*map(RunVerdict.from_json, kept)])}
    assert bounds["all"].trials == 20 and bounds["all"].violations == 0
    assert bounds["all"].upper == pytest.approx(0.1391, abs=5e-5)
    bounds = {row.name: row for row in repeat_bounds([*map(RunVerdict.from_json, [*kept, sample.broken()])])}
    assert (bounds["all"].trials, bounds["all"].violations) == (21, 1)
    assert (bounds["no_phantoms"].trials, bounds["no_phantoms"].violations) == (21, 0)
    assert (bounds["failback_within"].trials, bounds["failback_within"].unjudged) == (20, 1)


def test_strip_of_failover_times() -> None:
    assert strip([], 6000) is None
    found = strip([4000.0, 4000.0, 5000.0], 6000)
    assert found is not None
    assert [dot.level for dot in found.dots] == [0, 1, 0]
    assert all(0 <= item.x <= 100 for item in [*found.dots, *found.ticks])
    assert found.bound is not None and 90 < found.bound <= 100
