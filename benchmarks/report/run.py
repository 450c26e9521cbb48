"""The report of a long run: the page's size and the time in which headless Chromium has it drawn, as ratios to what
they may be.

    .venv/bin/python benchmarks/report/run.py [--ops 10000000] [--keep DIR]

The run is synthesized, with one anomaly of every kind, so that the page has witnesses with their stories. Opened is a
page whose pictures are all drawn: from the order to load the file until two more frames were on the screen, each time
in a new document of one browser. `--keep` leaves run, page and screenshots (light and dark) in DIR.
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

from tests.report.browser import Browser  # noqa: E402

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
    words = parser.parse_args()
    with place(words.keep) as folder:
        run = folder / f"run-{words.ops}"
        if not run.exists():
            made = brokerdrill("synthesize", "--ops", str(words.ops), "--anomalies", "all", "--out", str(run))
            print(f"synthesized {words.ops:,} operations in {made:.0f} s")
        took = brokerdrill("report", str(run), "--out", str(folder / "report"), allowed=(0, 1, 2))
        page = folder / "report" / run.name / "report.html"
        verdict = json.loads(page.with_name("verdict.json").read_text(encoding="utf-8"))
        stories = sum(len(w.get("story", ())) > 0 for p in verdict["promises"] for w in p["witnesses"])
        size = page.stat().st_size
        times = opening(page, words.keep)
    middle, worst = statistics.median(times), max(times)
    print(f"report of {words.ops:,} operations ({stories} witnesses with their stories) written in {took:.0f} s")
    print(f"page: {size:,} bytes = {size / PAGE_BYTES:.2f} × {PAGE_BYTES:,} (to reach: ≤ 1)")
    print(
        f"drawn in {middle:.2f} s (median of {TIMES}) = {middle / OPEN_S:.2f} × {OPEN_S:.0f} s (to reach: ≤ 1);",
        end=" ",
    )
    print(f"slowest {worst:.2f} s = {worst / OPEN_S:.2f} ×")
    return int(size > PAGE_BYTES or middle > OPEN_S)


if __name__ == "__main__":
    sys.exit(main())
