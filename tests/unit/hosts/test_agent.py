"""What runs on each host: a script's status and output, and no more of it than the host has room for."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.hosts import agent
from brokerdrill.hosts import packed as packing
from brokerdrill.hosts.packed import packed, unpacked

SOURCE = Path(agent.__file__).read_text(encoding="utf-8")
# What the agent may have besides the output, in bytes: Python, its threads' stacks, a message of the most output.
ROOM = 400 << 20


def asked(*scripts: str, stdin: str = "", timeout: float = 30, memory: int | None = None) -> list[dict[str, Any]]:
    """Return the answers to `scripts`, one after the other; `memory`: the most address space of the agent, in bytes."""

    def limited() -> None:
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    found = []
    with subprocess.Popen(
        [sys.executable, "-c", SOURCE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=limited
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        # An answer that does not come is none for ever.
        watch = threading.Timer(timeout + 20, process.kill)
        watch.start()
        for number, script in enumerate(scripts):
            request = {"id": number, "sh": script, "stdin": stdin, "timeout": timeout}
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            found.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        watch.cancel()
    return found


def test_status_output_and_input() -> None:
    (one,) = asked("cat; echo no >&2; exit 3", stdin="ä" * 200_000)
    assert (one["rc"], one["out"], one["err"]) == (3, "ä" * 200_000, "no\n")
    assert asked("exit 0", stdin="x" * 200_000)[0]["rc"] == 0
    assert asked("cat", stdin="\ud800")[0]["out"] == "?"
    assert asked("printf '\\377'")[0]["out"] == "\ufffd"


def test_one_that_does_not_end_in_time() -> None:
    late, kept = asked("sleep 60 & echo begun; wait", "echo next", timeout=1)
    assert (late["rc"], late["err"]) == (124, "no end within 1 s")
    assert kept["out"] == "next\n"


@pytest.mark.parametrize("where", ["1", "2"])
def test_a_flood_is_ended_and_takes_no_more_of_the_hosts_memory(where: str) -> None:
    flood, kept = asked(f"yes abcdefgh >&{where}", "echo next", memory=ROOM)
    assert flood["rc"] == 125 and flood["err"] == "more than 16 MiB of output, which was not kept"
    assert kept["out"] == "next\n"


def test_as_much_as_may_be_comes_whole() -> None:
    (one,) = asked(f"yes | head -c {agent.MOST_OUTPUT}", memory=ROOM)
    assert (one["rc"], len(one["out"])) == (0, agent.MOST_OUTPUT)


def test_a_long_log_comes_packed() -> None:
    (one,) = asked(packed("seq 4000000"), memory=ROOM)
    assert one["rc"] == 0
    assert unpacked(one["out"]) == "".join(f"{number}\n" for number in range(1, 4_000_001))


def test_a_packed_script_has_the_status_and_the_errors_of_its_command() -> None:
    (one,) = asked(packed("echo begun; echo why >&2; (exit 7)"))
    assert (one["rc"], unpacked(one["out"]), one["err"]) == (7, "begun\n", "why\n")


def test_what_came_in_part_is_none() -> None:
    (one,) = asked(packed("seq 1000"))
    for cut in (
        one["out"][: len(one["out"]) // 2 // 4 * 4],
        "no base64!",
        "",
        f"{one['out'][:8]}\ufffd{one['out'][9:]}",
    ):
        with pytest.raises(InfrastructureError, match="output of a host's command"):
            unpacked(cut)


def test_a_script_that_cannot_be_run_is_answered_all_the_same() -> None:
    nul, lone, kept = asked("echo '\0'", "echo '\ud800'", "echo next", timeout=5)
    for one in (nul, lone):
        assert one["rc"] == 126 and one["err"]
    assert kept["out"] == "next\n"


@pytest.mark.parametrize("byte", ["\\0", "\\377"])
def test_binary_output_needs_no_more_memory_than_text(byte: str) -> None:
    (one,) = asked(f"head -c {agent.MOST_OUTPUT} /dev/zero | tr '\\0' '{byte}'", memory=ROOM)
    assert (one["rc"], len(one["out"])) == (0, agent.MOST_OUTPUT)


def test_output_in_tiny_pieces_takes_no_more_than_its_size() -> None:
    class Tiny:
        left = 100_000

        def read(self, _: int) -> bytes:
            self.left -= 1
            return os.urandom(4) if self.left >= 0 else b""

    tracemalloc.start()
    try:
        agent._collect(Tiny(), bytearray())
        assert tracemalloc.get_traced_memory()[1] < 2 * 4 * 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("goes_on", "status"), [("wait", 124), ("yes", 125)])
def test_what_is_given_up_leaves_nothing_behind(goes_on: str, status: int, tmp_path: Path) -> None:
    (one,) = asked(f"sleep 300 & echo $! > {tmp_path}/left; {goes_on}", timeout=1 if status == 124 else 30)
    assert one["rc"] == status
    state = Path("/proc") / (tmp_path / "left").read_text().strip() / "stat"
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_what_a_script_left_to_itself_goes_on(tmp_path: Path) -> None:
    (one,) = asked(f"sleep 30 >/dev/null 2>&1 </dev/null & echo $! > {tmp_path}/left", timeout=10)
    left = int((tmp_path / "left").read_text())
    assert one["rc"] == 0
    os.kill(left, signal.SIGKILL)


def test_what_would_fill_the_controllers_memory_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = asked(packed("head -c 3000000 /dev/zero"))
    monkeypatch.setattr(packing, "MOST_UNPACKED", 3_000_000)
    assert len(unpacked(one["out"])) == 3_000_000
    monkeypatch.setattr(packing, "MOST_UNPACKED", 2_999_999)
    with pytest.raises(InfrastructureError, match="more than"):
        unpacked(one["out"])
