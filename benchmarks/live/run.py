"""The live page while a drill goes on: how far behind it is, what watching costs the load, how soon an abort heals.

    .venv/bin/python benchmarks/live/run.py TOPOLOGY [--clients N] [--windows N] [--aborts N]

TOPOLOGY is deployed; its active broker has a standby. `brokerdrill serve` watches a folder of its own. In one run at
full pace spans without watchers and with as many as a room has browsers take turns: the load's pace in the one against
the other, and the server's processor time against the machine's. Then N clients watch at once, and each state that
reaches one of them is set against the time of its newest sample. Then, some times, the active broker is killed and the
run aborted from the page, until the journal says that a heal has begun. Exit status 1: a number is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from brokerdrill.base.json_lines import entries
from brokerdrill.ledger.journal import JOURNAL
from brokerdrill.runner.watching.live_file import LIVE_FILE

BEHIND_S, COST, HEAL_S = 1.0, 0.02, 1.0
BROWSERS = 3
WINDOW_S = 10.0
CLIENTS_S = 20.0
DEADLINE_S = 180.0
PACE = {
    "extends": "defaults",
    "title": "As fast as the replies come, while somebody watches",
    "description": "No fault: what watching costs the load.",
    "set": {"load.rate": None},
}
KILL = {
    "extends": "defaults",
    "title": "Kill the active broker, and be ended from the page",
    "description": "The abort heals the fault before the drill would.",
    "needs": ["standby"],
    "method": [
        {"type": "action", "name": "kill-active", "fault": "kill", "target": "active", "ttl": 120},
        {"type": "probe", "name": "waits", "until": "acknowledged", "count": 1, "timeout": 60, "pauses": {"after": 60}},
        {"type": "heal", "name": "restart", "of": "kill-active"},
    ],
}


def until(what: Callable[[], Any], failure: str) -> Any:
    """Return what `what` returns once it is true. Raises SystemExit after DEADLINE_S."""
    end = time.monotonic() + DEADLINE_S
    while not (found := what()):
        if time.monotonic() > end:
            raise SystemExit(failure)
        time.sleep(0.002)
    return found


@contextmanager
def served(runs: Path, token: str) -> Iterator[tuple[str, int]]:
    """The address of a server of `runs` and its process id."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "brokerdrill", "serve", "--runs", str(runs), "--port", str(port)]
    server = subprocess.Popen(command, env={**os.environ, "BROKERDRILL_TOKEN": token}, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx.get(f"{address}/state.json").is_success
        except httpx.HTTPError:
            return False

    try:
        until(answers, "the server does not start")
        yield address, server.pid
    finally:
        server.terminate()
        server.wait()


@contextmanager
def drilled(
    drill: dict[str, Any], topology: str, runs: Path, folder: Path
) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A run of `drill` that goes on: its directory, once it writes samples, and its process."""
    file = folder / "drill.yml"
    file.write_text(yaml.safe_dump(drill))
    run_dir = runs / f"run-{secrets.token_hex(4)}"
    command = [sys.executable, "-m", "brokerdrill", "run", str(file), topology, "--run-dir", str(run_dir)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        until(
            lambda: any(row.get("sent_ok") for row in entries(run_dir / LIVE_FILE)) or process.poll() is not None,
            "the load does not begin",
        )
        if process.poll() is not None:
            raise SystemExit(f"the drill ended with status {process.returncode}")
        yield run_dir, process
    finally:
        process.terminate()
        process.wait()


@asynccontextmanager
async def watching(address: str, clients: int) -> AsyncIterator[list[tuple[float, int]]]:
    """So many clients follow the events; yields what reached them: when (s, monotonic), and how many
    messages were acknowledged by then."""
    seen: list[tuple[float, int]] = []
    host, port = address.removeprefix("http://").split(":")

    async def follow() -> None:
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 24)
        writer.write(f"GET /events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        try:
            while line := await reader.readline():
                if line.startswith(b"data: {"):
                    # Only times count: parsing what a hundred clients read would take the load's processor.
                    seen.append((time.monotonic(), _acknowledged(line)))
        finally:
            writer.close()

    tasks = [asyncio.create_task(follow()) for _ in range(clients)]
    try:
        yield seen
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _acknowledged(line: bytes) -> int:
    begin = line.index(b'"acknowledged": ') + len(b'"acknowledged": ')
    return int(line[begin : line.index(b",", begin)])


def told(kept: bool, *words: str) -> None:
    """Print a number and whether it is kept."""
    print("ok  " if kept else "MISS", "; ".join(words), flush=True)


def processor_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pace(run_dir: Path, begin: float, end: float) -> float:
    """Messages acknowledged a second between two moments (s, on the run's clock)."""
    rows = [row for row in entries(run_dir / LIVE_FILE) if begin <= row["t_ns"] / 1e9 <= end]
    return float((rows[-1]["sent_ok"] - rows[0]["sent_ok"]) / ((rows[-1]["t_ns"] - rows[0]["t_ns"]) / 1e9))


def base_s(run_dir: Path) -> float:
    """The run's beginning on the monotonic clock (s), as the soonest of some samples shows it."""
    path, found, known = run_dir / LIVE_FILE, [], len(entries(run_dir / LIVE_FILE))
    end = time.monotonic() + 3
    while time.monotonic() < end:
        rows = entries(path)
        if len(rows) > known:
            found.append(time.monotonic() - rows[-1]["t_ns"] / 1e9)
            known = len(rows)
        time.sleep(0.002)
    return min(found)


async def page(address: str, server: int, run_dir: Path, clients: int, windows: int) -> bool:
    """Measure what watching costs and how far behind many clients are; print it, and return whether it is kept."""
    base = base_s(run_dir)
    paces: dict[int, list[float]] = {0: [], BROWSERS: []}
    used: list[float] = []
    for _ in range(windows):
        for watchers in paces:
            async with watching(address, watchers):
                begin, before = time.monotonic(), processor_s(server)
                await asyncio.sleep(WINDOW_S)
                end = time.monotonic()
                if watchers:
                    used.append((processor_s(server) - before) / (end - begin) / (os.cpu_count() or 1))
            paces[watchers].append(pace(run_dir, begin - base, end - base))
    share, without, along = statistics.median(used), paces[0], paces[BROWSERS]
    told(
        share < COST,
        f"processor time of the server with {BROWSERS} watchers: {share:.2%} of the machine's (limit < {COST:.0%})",
        f"pace without {statistics.median(without):.0f}/s, with {statistics.median(along):.0f}/s, "
        f"ratio {statistics.median(along) / statistics.median(without):.3f}",
        f"span by span {' '.join(f'{one:.0f}' for one in without)} and {' '.join(f'{one:.0f}' for one in along)}",
    )
    async with watching(address, clients) as seen:
        await asyncio.sleep(CLIENTS_S)
    # A state is as old as the newest sample that it tells of; of samples that tell the same the first is meant.
    samples = [row for row in entries(run_dir / LIVE_FILE) if "sent_ok" in row]
    at = {row["sent_ok"]: row["t_ns"] / 1e9 for row in reversed(samples)}
    behind = sorted(moment - base - at[acknowledged] for moment, acknowledged in seen if acknowledged in at)
    told(
        behind[-1] <= BEHIND_S,
        f"behind the drill with {clients} clients: at most {behind[-1]:.2f} s (limit ≤ {BEHIND_S} s)",
        f"99 % within {behind[int(len(behind) * 0.99)]:.2f} s, median {statistics.median(behind):.2f} s, "
        f"of {len(behind)} states",
    )
    return share < COST and behind[-1] <= BEHIND_S


def abort(address: str, token: str, run_dir: Path) -> float:
    """Abort the run from the page while its fault is in effect; return the seconds until a heal has begun."""
    journal = run_dir / JOURNAL
    until(lambda: any(row["phase"] == "injected" for row in entries(journal)), "the fault does not come")
    begin = time.monotonic()
    httpx.post(f"{address}/abort", headers={"Authorization": f"Bearer {token}"}).raise_for_status()
    until(lambda: any(row["phase"] == "heal_intent" for row in entries(journal)), "no heal begins")
    return time.monotonic() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topology")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--windows", type=int, default=6)
    parser.add_argument("--aborts", type=int, default=5)
    words = parser.parse_args()
    token = secrets.token_urlsafe(24)
    with tempfile.TemporaryDirectory(prefix="brokerdrill-live-") as place:
        folder = Path(place)
        runs = folder / "runs"
        runs.mkdir()
        with served(runs, token) as (address, server):
            lasts = 2 * words.windows * WINDOW_S + CLIENTS_S + 20
            step = {"type": "probe", "name": "goes-on", "until": "acknowledged", "count": 1, "timeout": 60}
            drill = {**PACE, "method": [{**step, "pauses": {"after": lasts}}]}
            with drilled(drill, words.topology, runs, folder) as (run_dir, _):
                kept = asyncio.run(page(address, server, run_dir, words.clients, words.windows))
            took = []
            for _ in range(words.aborts):
                with drilled(KILL, words.topology, runs, folder) as (run_dir, process):
                    took.append(abort(address, token, run_dir))
                    process.wait()
    healed = max(took) <= HEAL_S
    told(
        healed,
        f"abort from the page to the first heal: at most {max(took):.2f} s (limit ≤ {HEAL_S} s)",
        f"of {' '.join(f'{one:.2f}' for one in took)}",
    )
    return 0 if kept and healed else 1


if __name__ == "__main__":
    sys.exit(main())
