"""How busy hosts are: what the kernels' files say, and the events that come of it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.base.clock import now_ns
from brokerdrill.hosts.connection import connected
from brokerdrill.hosts.control_groups import read_here
from brokerdrill.inventory.topology import Host
from brokerdrill.ledger.events import EventWriter
from brokerdrill.runner.watching.pressure import (
    LONGEST_SPAN_NS,
    Counters,
    PressureSpan,
    PressureWatch,
    _counts_for,
    between,
    joined,
    parse,
)

S = 1_000_000_000
STAT = """\
cpu  52321 4360 32014 82562 1900 0 914 {steal} 0 0
cpu0 18967 2760 13325 51605 316 0 143 812 0 0
cpu1 33354 1599 18689 30956 1584 0 771 927 0 0
intr 17 0 9
btime {btime}
"""


def counters(cpu_us: int = 0, steal_ticks: int = 0, btime: int = 1795929644) -> Any:
    full = "full avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"
    return parse(
        {
            "/proc/pressure/cpu": f"some avg10=0.80 avg60=3.38 avg300=22.55 total={cpu_us}\n{full}",
            "/proc/pressure/io": f"some avg10=0.00 avg60=0.53 avg300=1.35 total=22795363\n{full}",
            "/proc/stat": STAT.format(steal=steal_ticks, btime=btime),
        }
    )


def test_shares_are_of_the_time_that_passed_and_unknown_resources_are_left_out() -> None:
    span = between(counters(), counters(cpu_us=500_000, steal_ticks=50), 10 * S, 12 * S)
    assert span == PressureSpan(10 * S, 12 * S, {"cpu": S // 2, "io": 0, "steal": S // 4})
    assert span and span.shares == {"cpu": 0.25, "io": 0.0, "steal": 0.125}


def test_a_kernel_that_was_started_anew_gives_no_span() -> None:
    assert between(counters(cpu_us=900_000), counters(cpu_us=5), 0, S) is None


def test_a_kernel_without_pressure_files_says_nothing_of_pressure() -> None:
    found = parse({"/proc/stat": "cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\nbtime 17\n"})
    assert (dict(found.waited_ns), found.started_s) == ({("", "steal"): 80_000_000}, 17)


def of_services(**totals_us: int) -> Counters:
    """Counters of the groups /g/NAME."""
    files = {f"/g/{name}/cpu.pressure": f"some avg10=0.80 total={total}\n" for name, total in totals_us.items()}
    return parse(files, frozenset({"/g/own", "/g/broker"}))


def test_what_services_waited_for_is_added_up_and_no_longer_than_the_time() -> None:
    span = between(of_services(own=100_000, broker=7), of_services(own=300_000, broker=400_007), 0, S)
    assert span == PressureSpan(0, S, {"cpu": 600_000_000}, "services")
    span = between(of_services(own=0, broker=0), of_services(own=800_000, broker=800_000), 0, S)
    assert span and span.stalled_ns == {"cpu": S}


def test_a_service_that_was_started_anew_counts_from_0() -> None:
    assert between(of_services(own=5, broker=900_000), of_services(own=5, broker=300_000), 0, S) == PressureSpan(
        0, S, {"cpu": 300_000_000}, "services"
    )
    assert between(of_services(own=5), of_services(own=5, broker=200_000), 0, S) == PressureSpan(
        0, S, {"cpu": 200_000_000}, "services"
    )


def test_groups_and_hosts_are_not_compared_with_one_another() -> None:
    assert between(counters(), of_services(own=5), 0, S) is None
    assert joined(PressureSpan(0, S, {"cpu": 4}), PressureSpan(S, 2 * S, {"cpu": 4}, "services")) is None


def test_calm_spans_that_follow_one_another_are_one() -> None:
    calm, busy = PressureSpan(0, 2 * S, {"cpu": 4}), PressureSpan(2 * S, 4 * S, {"cpu": S})
    assert joined(calm, PressureSpan(2 * S, 4 * S, {"cpu": 6})) == PressureSpan(0, 4 * S, {"cpu": 10})
    assert joined(calm, busy) is None
    assert joined(busy, PressureSpan(4 * S, 6 * S, {"cpu": S})) is None, "when hosts were busy is to be known"
    assert joined(calm, PressureSpan(3 * S, 4 * S, {"cpu": 4})) is None, "a gap between them was not measured"
    assert joined(calm, PressureSpan(2 * S, LONGEST_SPAN_NS + 1, {"cpu": 4})) is None
    assert joined(calm, PressureSpan(2 * S, 4 * S, {"cpu": 4, "io": 0})) is None


def test_what_can_be_read_of_a_host_is_read(tmp_path: Path) -> None:
    there, binary = tmp_path / "there", tmp_path / "binary"
    there.write_text("two\nlines\n")
    binary.write_bytes(b"\xff1")
    host = Host("here", "127.0.0.1", 22, "root", None, (), {"ansible_connection": "local"})

    async def read() -> dict[str, str]:
        async with connected([host]) as connections:
            return await connections["here"].read([str(there), str(tmp_path / "missing"), str(tmp_path), str(binary)])

    assert asyncio.run(read()) == {str(there): "two\nlines\n", str(binary): "\N{REPLACEMENT CHARACTER}1"}


def test_a_controller_whose_pressure_files_cannot_be_read_still_says_the_rest(tmp_path: Path) -> None:
    """A folder stands for a file that is there and cannot be read."""
    stat = tmp_path / "stat"
    stat.write_text("cpu 1\n")
    assert asyncio.run(read_here([str(tmp_path), str(stat)])) == {str(stat): "cpu 1\n"}


def test_a_login_within_a_services_group_counts_there() -> None:
    around = frozenset({"/g/user.slice"})
    files = {"/g/user.slice/cpu.pressure": "some total=1\n"}
    assert _counts_for("/g/user.slice/session-3.scope", around, files)
    assert not _counts_for("/g/user.slice2", around, files)
    assert not _counts_for("/g/user.slice/session-3.scope", around, {})


@pytest.fixture
def spinning() -> Iterator[None]:
    """More tasks that want a processor than there are: some wait all the time."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    yield
    for process in busy:
        process.kill()
        process.wait()


def rows(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in (run_dir / "events").iterdir() for line in path.read_text().splitlines()]


def test_a_host_that_has_no_processor_left_is_seen(tmp_path: Path, spinning: None) -> None:
    host = Host("here", "127.0.0.1", 22, "root", None, (), {"ansible_connection": "local"})
    # A kernel may be built without; then nothing is claimed of its pressure.
    counts_pressure = Path("/proc/pressure/cpu").exists()

    async def main() -> None:
        events = EventWriter(tmp_path, "run", now_ns())
        async with connected([host]) as connections:
            watch = PressureWatch(connections, {}, events)
            watch.period_s = 0.2  # type: ignore[misc]
            watch.start()
            watch.record()
            async with asyncio.timeout(60):
                while len(watch.spans) < 2 or not all(
                    span.shares["cpu"] > 0.5 if counts_pressure else "cpu" not in span.shares
                    for span in watch.spans.values()
                ):
                    await asyncio.sleep(0.1)
            await watch.stop()
        events.close()

    asyncio.run(main())
    for name in ("here", "controller"):
        found = [row for row in rows(tmp_path) if row["target"] == name]
        assert {row["kind"] for row in found} == {"pressure"}
        assert ("cpu" in {row["name"] for row in found}) == counts_pressure
        steal = [row for row in found if row["name"] == "steal"]
        begins, ends = [int(row["detail"]["since_ns"]) for row in steal], [row["t_ns"] for row in steal]
        assert begins[1:] == ends[:-1], "the spans leave no gap"
