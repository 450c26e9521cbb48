"""The report of a long run: the page's size and the time in which headless Chromium has it drawn, as ratios to what
they may be.

    .venv/bin/python benchmarks/report/run.py [--ops 10000000] [--keep DIR] [--only-fullest]

The run is synthesized, with one anomaly of every kind, so that the page has witnesses with their stories. Opened is a
page whose pictures are all drawn: from the order to load the file until two more frames were on the screen, each time
in a new document of one browser. The fullest page is one whose every list is as long as the analysis lets it become
(buckets, clients, witnesses and their stories, failovers, outages, ways to break): no run has a larger one, but for
the changes of roles and the faults themselves. `--keep` leaves run, page and screenshots (light and dark) in DIR.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.report import sample  # noqa: E402
from tests.report.browser import Browser  # noqa: E402

from brokerdrill.analysis.clients import MOST_CLIENTS  # noqa: E402
from brokerdrill.analysis.gaps import MOST_ROWS  # noqa: E402
from brokerdrill.analysis.measures import MOST_BUCKETS  # noqa: E402
from brokerdrill.analysis.stories import MOST_EVENTS, MOST_OPS  # noqa: E402
from brokerdrill.analysis.verdict import WITNESSES  # noqa: E402

PAGE_BYTES, OPEN_S = 5_000_000, 2.0
TIMES = 5
DRAWN = "document.documentElement.dataset.plots === 'ready'"


def brokerdrill(*words: str, allowed: tuple[int, ...] = (0,)) -> float:
    """Run the command line; return the seconds it took."""
    begun = time.monotonic()
    status = subprocess.run(
        [sys.executable, "-m", "brokerdrill", *words], cwd=ROOT, stdout=subprocess.DEVNULL
    ).returncode
    if status not in allowed:
        sys.exit(f"brokerdrill {words[0]} ended with {status}")
    return time.monotonic() - begun


def fullest(folder: Path) -> Path:
    """Write the page of a made-up run whose lists are all full."""
    run, result, series = sample.write_run(folder / "fullest"), sample.broken(), sample.series()
    step = sample.END // MOST_BUCKETS
    bucket = max(series["buckets"], key=len)
    series |= {
        "bucket_ns": step,
        "buckets": [bucket | {"start_ns": place * step} for place in range(MOST_BUCKETS)],
        "clients": [
            {"client": f"client-{lane}", "value": value, "start_ns": at, "end_ns": at + step, "failures": 1}
            for lane in range(MOST_CLIENTS)
            for value in ("served", "failed")
            for at in range(0, sample.END, 4 * step)
        ],
    }
    steps = sample.story("message", sample.KILL)
    for promise in result["promises"]:
        story = [steps[place % len(steps)] for place in range(MOST_OPS + MOST_EVENTS)]
        witness = {"message_id": "message", "address": "drill.q0", "class": "lost", "deliveries": 2, "story": story}
        promise |= {"verdict": "fail", "count": 10**6, "witnesses": [witness] * WITNESSES}
    for name, most in (("failover", MOST_ROWS), ("outages", MOST_ROWS), ("attribution", 200), ("redeliveries", 200)):
        result[name] = [result[name][place % len(result[name])] for place in range(most)]
    series |= {"failover": result["failover"], "outages": result["outages"]}
    return sample.write_report(run, result, series, folder / "fullest" / "report.html")


def show(name: str, page: Path, kept: Path | None) -> bool:
    """Measure a page, print the ratios, and tell whether it is within its bounds."""
    size, times = page.stat().st_size, opening(page, kept)
    middle, worst = statistics.median(times), max(times)
    print(f"{name}: {size:,} bytes = {size / PAGE_BYTES:.2f} × {PAGE_BYTES:,} (to reach: ≤ 1);", end=" ")
    print(
        f"drawn in {middle:.2f} s (median of {TIMES}) = {middle / OPEN_S:.2f} × {OPEN_S:.0f} s (to reach: ≤ 1),",
        end=" ",
    )
    print(f"slowest {worst:.2f} s = {worst / OPEN_S:.2f} ×")
    return size <= PAGE_BYTES and middle <= OPEN_S


def opening(page: Path, folder: Path | None) -> list[float]:
    """Return the seconds in which the page was drawn, each time anew."""
    found = []
    with Browser() as browser:
        browser.view(1300, 900)
        for _ in range(TIMES):
            browser.open(Path("/dev/null"), "true")
            begun = time.monotonic()
            browser.open(page, DRAWN)
            browser.frames()
            found.append(time.monotonic() - begun)
        if browser.errors:
            sys.exit(f"the page says: {browser.errors[0]}")
        for name, dark in (("light", False), ("dark", True)) if folder else ():
            browser.view(1300, 900, dark)
            browser.open(page, DRAWN)
            browser.frames()
            assert folder
            browser.screenshot(folder / f"{name}.png")
    return found


@contextlib.contextmanager
def place(kept: Path | None) -> Iterator[Path]:
    if kept:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="brokerdrill-report-") as folder:
        yield Path(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=int, default=10_000_000)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only-fullest", action="store_true")
    words = parser.parse_args()
    with place(words.keep) as folder:
        good = show("the fullest page", fullest(folder), None)
        if words.only_fullest:
            return int(not good)
        run = folder / f"run-{words.ops}"
        if not (run / "run.json").exists():
            made = brokerdrill("synthesize", "--ops", str(words.ops), "--anomalies", "all", "--out", str(run))
            print(f"synthesized {words.ops:,} operations in {made:.0f} s")
        took = brokerdrill("report", str(run), "--out", str(folder / "report"), allowed=(0, 1, 2))
        page = folder / "report" / run.name / "report.html"
        verdict = json.loads(page.with_name("verdict.json").read_text(encoding="utf-8"))
        stories = sum(len(w.get("story", ())) > 0 for p in verdict["promises"] for w in p["witnesses"])
        print(f"report of {words.ops:,} operations ({stories} witnesses with their stories) written in {took:.0f} s")
        good = show(f"page of {words.ops:,} operations", page, words.keep) and good
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
