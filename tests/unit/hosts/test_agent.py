"""What runs on each host: a script's status and output, and no more of it than the host has room for."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.hosts import agent
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
        for number, script in enumerate(scripts):
            request = {"id": number, "sh": script, "stdin": stdin, "timeout": timeout}
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            found.append(json.loads(process.stdout.readline()))
        process.stdin.close()
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
    for cut in (one["out"][: len(one["out"]) // 2 // 4 * 4], "no base64!", ""):
        with pytest.raises(InfrastructureError, match="output of a host's command"):
            unpacked(cut)
