"""What a unit's journal tells of ended processes, as systemd writes it."""

from __future__ import annotations

import json

import pytest

from brokerdrill.base.clock import ClockOffset
from brokerdrill.runner.evidence.logs import parse_journal
from brokerdrill.runner.evidence.process_ends import (
    PROCESS_EXIT,
    UNIT_OUT_OF_MEMORY,
    UNIT_SUCCESS,
    Entry,
    ProcessEnd,
    process_ends,
)

KILLED = "Main process exited, code=killed, status=9/KILL"
EXIT = "Main process exited, code=exited, status=3/NOTIMPLEMENTED"
# As systemd 252 wrote it when a unit's process was killed, without the fields that are not asked for.
JOURNAL = [
    {"__MONOTONIC_TIMESTAMP": "1000000", "MESSAGE": "Server is now active", "_PID": "195"},
    {
        "__MONOTONIC_TIMESTAMP": "1900000",
        "MESSAGE": "artemis.service: Sent signal SIGKILL to main process",
        "_PID": "1",
    },
    {
        "__MONOTONIC_TIMESTAMP": "2000000",
        "MESSAGE": f"artemis.service: {KILLED}",
        "MESSAGE_ID": PROCESS_EXIT,
        "EXIT_CODE": "killed",
        "EXIT_STATUS": "9",
        "_PID": "1",
    },
    {
        "__MONOTONIC_TIMESTAMP": "2000100",
        "MESSAGE": "artemis.service: Failed with result 'signal'.",
        "MESSAGE_ID": "d9b373ed55a64feb8242e02dbe79a49c",
    },
]


def test_the_journal_tells_how_a_process_ended() -> None:
    (found,) = process_ends(
        parse_journal("\n".join(json.dumps({**row, "_BOOT_ID": "b"}) for row in JOURNAL), {"b": ClockOffset()}).entries
    )
    assert found == ProcessEnd(2_000_000_000, "killed", "KILL", ("Server is now active",))


def test_a_line_of_the_journal_may_have_what_some_take_for_the_end_of_a_line() -> None:
    said = "odd body: \u2028 and \x85"
    row = {"__MONOTONIC_TIMESTAMP": "1000000", "MESSAGE": said, "_PID": "195", "_BOOT_ID": "b"}
    text = json.dumps(row, ensure_ascii=False) + "\n"
    assert [entry.text for entry in parse_journal(text, {"b": ClockOffset()}).entries] == [said]


@pytest.mark.parametrize(
    ("entries", "how", "status", "last"),
    [
        ([Entry(1, EXIT, PROCESS_EXIT, "exited", "3")], "exited", "3", ()),
        ([Entry(1, "done"), Entry(2, "Deactivated successfully.", UNIT_SUCCESS)], "exited", "0", ("done",)),
        (
            [
                Entry(1, "java.lang.OutOfMemoryError: Java heap space"),
                Entry(2, "\tat java.base/java.util.Arrays.copyOf(Arrays.java:3537)"),
                Entry(3, EXIT, PROCESS_EXIT, "exited", "3"),
            ],
            "out of memory",
            "3",
            ("java.lang.OutOfMemoryError: Java heap space",),
        ),
        (
            [
                Entry(1, "A process of this unit has been killed by the OOM killer.", UNIT_OUT_OF_MEMORY),
                Entry(2, KILLED, PROCESS_EXIT, "killed", "9"),
            ],
            "killed for memory",
            "KILL",
            (),
        ),
    ],
)
def test_how_it_ended(entries: list[Entry], how: str, status: str, last: tuple[str, ...]) -> None:
    (found,) = process_ends(entries)
    assert (found.how, found.status, found.last) == (how, status, last)


def test_other_processes_of_a_unit_are_not_its_main_one() -> None:
    control = "Control process exited, code=exited, status=1/FAILURE"
    assert process_ends([Entry(1, control, PROCESS_EXIT, "exited", "1")]) == []


def test_each_end_has_its_own_last_words() -> None:
    entries = [
        Entry(1, "OutOfMemoryError"),
        Entry(2, EXIT, PROCESS_EXIT, "exited", "3"),
        Entry(3, "starts"),
        Entry(4, KILLED, PROCESS_EXIT, "killed", "9"),
    ]
    assert [(one.how, one.last) for one in process_ends(entries)] == [
        ("out of memory", ("OutOfMemoryError",)),
        ("killed", ("starts",)),
    ]
