"""The analysis at every size beside DuckDB: time and memory over ledgers of growing size.

    .venv/bin/python benchmarks/analysis/run.py [--ops 10000 --ops 100000 ...] [--dir DIR] [--picture FILE]

Ledgers are synthesized once into DIR (10^8 operations take about 4 GB) and judged by `brokerdrill analyze` in a
process of its own (from the shell), by a process that has judged a small one before (warm), and by `promises.sql` in
DuckDB with the same two threads and 4 GiB, which makes the promises' counts only; resident memory is sampled. All
counts must equal what was put in, on both sides. Exit status 1: a number is missed. A picture of the curve takes
matplotlib (`uv pip install --group picture`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from brokerdrill.analysis.events import Event
from brokerdrill.analysis.tables import served_spans
from brokerdrill.analysis.timeline import Timeline, timeline
from brokerdrill.ledger.contract import RunInfo, read_run

HERE = Path(__file__).parent
SIZES = (10**4, 3 * 10**4, 10**5, 3 * 10**5, 10**6, 2 * 10**6, 10**7, 10**8)
SMALL = 2 * 10**4
MEMORY_GIB, RATIO = 4.0, 1.3
# What a verdict may take beside the ratio (s): in a warm session, and from the shell; from so many operations on no
# longer than DuckDB.
WARM_S, SHELL_S = 4.0, 12.0
LARGEST = 10**8


def _usage(root: int) -> tuple[int, dict[int, float]]:
    """Resident bytes of a process and all its descendants, and the CPU seconds of each so far."""
    children: dict[int, list[int]] = {}
    pages: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        pages[pid] = int(fields[21])
        ticks[pid] = int(fields[11]) + int(fields[12])
    used: dict[int, float] = {}
    total, todo = 0, [root]
    while todo:
        pid = todo.pop()
        total += pages.get(pid, 0)
        used[pid] = ticks.get(pid, 0) / os.sysconf("SC_CLK_TCK")
        todo += children.get(pid, [])
    return total * os.sysconf("SC_PAGE_SIZE"), used


def make_ledger(folder: Path, operations: int) -> Path:
    """The synthesized run of this size, made where it is not there."""
    run_dir = folder / f"synthesized-{operations}"
    if not (run_dir / "synthesized.json").exists():
        # Each anomaly takes operations, of which a small ledger has few.
        anomalies = "all=3" if operations >= SMALL else "all=1"
        words = ["--ops", str(operations), "--anomalies", anomalies, "--out", str(run_dir)]
        subprocess.run([sys.executable, "-m", "brokerdrill", "synthesize", *words], check=True)
    return run_dir


class Took(NamedTuple):
    """What one side took: `seconds` by the wall clock and `cpu` (seconds of all its processes), which says more on a
    machine that others use too; `peak` is resident GiB."""

    seconds: float
    cpu: float
    peak: float

    def __str__(self) -> str:
        load = os.getloadavg()[0]
        return f"{self.seconds:.1f} s, {self.cpu:.1f} CPU s, peak {self.peak:.2f} GiB, load {load:.1f}"


def ours(run_dir: Path, command: Sequence[str]) -> tuple[Took, dict[str, Any], str]:
    """What `command` takes, starts of Python and of the JVM included, its verdict, and what it printed."""
    out = run_dir.parent / f"{run_dir.name}.json"
    out.unlink(missing_ok=True)
    begun = time.monotonic()
    words = [sys.executable, *command, str(run_dir), "--json", str(out)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    peak = 0
    cpu: dict[int, float] = {}
    while process.poll() is None:
        resident, used = _usage(process.pid)
        peak = max(peak, resident)
        cpu.update(used)
        # Looking takes some of the time that is measured: the longer it takes the less often.
        time.sleep(max(0.2, (time.monotonic() - begun) / 50))
    took = Took(time.monotonic() - begun, sum(cpu.values()), peak / 2**30)
    return took, json.loads(out.read_text()), process.stdout.read() if process.stdout else ""


def counts(result: dict[str, Any]) -> Counter[str]:
    """Units of each class and breaks of each promise that does not go by class."""
    found = Counter(result["messages"])
    for promise in result["promises"]:
        if promise["name"] not in ("no_phantoms", "no_loss", "no_duplicates", "no_dead_letters"):
            found[promise["name"]] += promise["count"]
    return +found


def expected(run_dir: Path) -> Counter[str]:
    """What was put in."""
    known = json.loads((run_dir / "synthesized.json").read_text())
    by_class = ("no_phantoms", "no_loss", "no_duplicates", "no_dead_letters")
    return +(Counter(known["classes"]) + Counter({k: n for k, n in known["counts"].items() if k not in by_class}))


def small_tables(run: RunInfo, times: Timeline) -> list[tuple[str, str, list[tuple[Any, ...]]]]:
    """What run.json and the events say: name, columns and rows of each table that `promises.sql` reads."""
    return [
        ("clocks", "clock TEXT, off BIGINT", [(name, clock.offset_ns) for name, clock in run.clocks.items()]),
        ("dead", "address TEXT, dead_letter TEXT", list(run.dead_letters.items())),
        ("drained", "address TEXT, drained BOOLEAN", list(run.drained.items())),
        ("phase", "drain_end BIGINT", [(times.drain_end,)]),
        ("loads", "load_begin BIGINT, load_end BIGINT", list(times.loads)),
        (
            "served",
            "server TEXT, home TEXT, e_store TEXT, epoch BIGINT, e_end BIGINT, span_from BIGINT, span_next BIGINT, "
            "span_to BIGINT",
            served_spans(times),
        ),
        ("overlapping", "moment BIGINT", [(start,) for _, _, start, _ in times.overlaps]),
        (
            "hits",
            "fault INT, hit_store TEXT, f_at BIGINT, f_u BIGINT",
            [(hit.fault.number, hit.epoch.store, hit.fault.at, hit.fault.u) for hit in times.hits],
        ),
        (
            "failbacks",
            "failback INT, store TEXT, healed_at BIGINT, back_at BIGINT, until BIGINT",
            [
                (n, back.store, back.healed_at, back.back_at, times.run_end if back.back_at is None else back.back_at)
                for n, back in enumerate(times.failbacks)
            ],
        ),
        ("unready", "store TEXT, n_from BIGINT, n_to BIGINT", [tuple(span) for span in times.unready]),
        (
            "specs",
            "name TEXT, side TEXT, bound BIGINT, check_period BIGINT",
            [
                (spec.name, spec.side, round((spec.bound_ms or 0) * 1e6), round((spec.check_period_ms or 0) * 1e6))
                for spec in run.promises
            ],
        ),
    ]


def duck(run_dir: Path) -> tuple[Took, Counter[str] | None]:
    """What the same promises take in DuckDB, in this process, and their counts (None: its memory was not enough, which
    counts as no time in which it is done)."""
    run = read_run(run_dir)
    events = []
    for line in (run_dir / "events" / "synthesized.jsonl").read_text().splitlines():
        row = json.loads(line)
        names = ("kind", "target", "instance", "store", "name", "value")
        events.append(Event(at=row["t_ns"], u=row.get("uncertainty_ns", 0), **{n: row.get(n) for n in names}))
    begun, before = time.monotonic(), time.process_time()
    spill = tempfile.mkdtemp(prefix="brokerdrill-duck-")
    base = duckdb.connect(
        config={"threads": 2, "memory_limit": "4GB", "temp_directory": spill, "preserve_insertion_order": False}
    )
    last = f"SELECT max(coalesce(end_ns, start_ns)) FROM read_parquet('{run_dir}/ops/*.parquet')"
    (ops_end,) = base.execute(last).fetchone() or (None,)
    for name, columns, rows in small_tables(run, timeline(events, run.stores, ops_end)):
        base.execute(f"CREATE TEMP TABLE {name} ({columns})")
        if rows:
            base.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' for _ in rows[0])})", rows)
    base.execute(f"CREATE TEMP VIEW raw AS SELECT * FROM read_parquet('{run_dir}/ops/*.parquet')")
    found = None
    try:
        base.execute((HERE / "promises.sql").read_text())
        found = +Counter(dict(base.fetchall()))
    except duckdb.OutOfMemoryException as error:
        print(
            f"DuckDB, {run_dir.name}, after {time.monotonic() - begun:.0f} s: {str(error).splitlines()[0]}", flush=True
        )
    finally:
        base.close()
        shutil.rmtree(spill)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    seconds = math.inf if found is None else time.monotonic() - begun
    return Took(seconds, time.process_time() - before, peak), found


class Row(NamedTuple):
    """A size's seconds on each side, and whether all else was as it must be."""

    size: int
    shell: float
    warm: float
    theirs: float
    right: bool

    def bound(self, more: float) -> float:
        """What our side may take (s) that starts with `more`; any time where DuckDB does not do it (inf)."""
        return self.theirs if self.size >= LARGEST else more + RATIO * self.theirs

    @property
    def within(self) -> bool:
        return self.right and self.warm <= self.bound(WARM_S) and self.shell <= self.bound(SHELL_S)


def row(folder: Path, size: int) -> Row:
    """Measure one size and print it."""
    run_dir, small = make_ledger(folder, size), make_ledger(folder, SMALL)
    theirs, found = duck(run_dir)
    shell, result, _ = ours(run_dir, ("-m", "brokerdrill", "analyze"))
    again, second, printed = ours(run_dir, (str(HERE / "warm.py"), str(small)))
    warm = float(printed.split()[-1])
    right = counts(result) == counts(second) == expected(run_dir) and result["as_expected"]
    right = right and (found is None or found == counts(result))
    peak = max(shell.peak, again.peak)
    one = Row(size, shell.seconds, warm, theirs.seconds, right and peak <= MEMORY_GIB)
    print(
        f"| {size} | {shell.seconds:.1f} of {one.bound(SHELL_S):.1f} s | {warm:.1f} of {one.bound(WARM_S):.1f} s | "
        f"{theirs.seconds:.1f} s | {shell.cpu:.1f} / {theirs.cpu:.1f} CPU s | {peak:.2f} GiB | {right} | "
        f"{os.getloadavg()[0]:.1f} |",
        flush=True,
    )
    return one


def draw(rows: Sequence[Row], picture: Path) -> None:
    """The curve, both axes in powers of ten; dashed: what may be taken."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    sizes = [one.size for one in rows]
    for name, colour, taken, bound in (
        ("analyze, from the shell", "#1f5fa8", [one.shell for one in rows], [one.bound(SHELL_S) for one in rows]),
        ("analyze, warm session", "#2a8c4a", [one.warm for one in rows], [one.bound(WARM_S) for one in rows]),
        ("DuckDB, promises only", "#888888", [one.theirs for one in rows], None),
    ):
        axes.plot(sizes, taken, marker="o", color=colour, label=name)
        if bound:
            axes.plot(sizes, bound, linestyle="--", linewidth=1, color=colour, label="its bound")
    axes.set(
        xscale="log", yscale="log", xlabel="operations", ylabel="seconds", title="From ledger to verdict, two cores"
    )
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(picture)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, action="append", help=f"A size; repeatable (default {SIZES}).")
    parser.add_argument("--dir", type=Path, help="Where the ledgers are kept (default: a temporary directory).")
    parser.add_argument("--picture", type=Path, help="Where the curve is drawn, .svg or .png.")
    words = parser.parse_args()
    folder = words.dir or Path(tempfile.mkdtemp(prefix="brokerdrill-analysis-"))
    folder.mkdir(parents=True, exist_ok=True)
    print("| operations | from the shell | warm | DuckDB, promises only | ours / DuckDB | peak | counts right | load |")
    print("|---|---|---|---|---|---|---|---|")
    rows = [row(folder, size) for size in sorted(words.ops or SIZES)]
    slower = any(before.shell > after.shell * 1.1 for before, after in pairwise(rows))
    print(
        f"to reach: warm ≤ {WARM_S} s + {RATIO} × DuckDB, shell ≤ {SHELL_S} s + {RATIO} × DuckDB, from {LARGEST} on "
        f"DuckDB; ≤ {MEMORY_GIB} GiB"
    )
    print(f"a size slower than a larger one: {slower}")
    if words.picture:
        draw(rows, words.picture)
    return 0 if all(one.within for one in rows) and not slower else 1


if __name__ == "__main__":
    sys.exit(main())
