"""Listings for other programs: one JSON object with the number of its schema, tables that are not wrapped, and what a
shell completes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from brokerdrill.cli.app import app

TOPOLOGY = "artemis_shared_store"


def listed(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("topologies", {"topologies": {"name", "description"}}),
        ("scenarios", {"drills": {"name", "breaks", "title", "needs"}}),
        (
            f"scenarios {TOPOLOGY}",
            {"drills": {"name", "breaks", "title", "needs", "expected"}, "not_applicable": {"drills", "why"}},
        ),
        ("faults", {"faults": {"name", "acts_on", "description", "parameters"}}),
        (
            f"plan {TOPOLOGY}",
            {"instances": {"host", "product", "instance", "version", "role", "store", "listens on"}},
        ),
        (
            f"bench status {TOPOLOGY}",
            {"hosts": {"host", "address", "container", "state", "system", "memory_mib", "limit_mib"}},
        ),
    ],
)
def test_each_listing_is_an_object_with_the_number_of_its_schema(words: str, fields: dict[str, set[str]]) -> None:
    found = listed(*words.split())
    assert found.pop("schema") == 1
    assert found.keys() == fields.keys()
    for kind, names in fields.items():
        assert found[kind] and all(one.keys() == names for one in found[kind]), kind


def test_objects_and_tables_list_the_same() -> None:
    table = CliRunner().invoke(app, ["scenarios", TOPOLOGY]).stdout
    found = listed("scenarios", TOPOLOGY)
    away = [name for one in found["not_applicable"] for name in one["drills"]]
    assert all(one["name"] in table for one in found["drills"])
    assert len({*(one["name"] for one in found["drills"]), *away}) == len(listed("scenarios")["drills"])


@pytest.mark.parametrize("words", ["topologies", "faults"])
def test_a_table_that_is_not_for_a_terminal_has_a_line_a_row_and_no_spaces_after_it(words: str) -> None:
    environment = os.environ | {"COLUMNS": "40"}
    command = [sys.executable, "-m", "brokerdrill", words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 1 + len(listed(words)[words])
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize(
    ("words", "one", "other"),
    [
        ("brokerdrill scen", "scenarios", "topologies"),
        ("brokerdrill plan classic_", "classic_lease", "artemis_quorum"),
        ("brokerdrill run kill_", "kill_active", "power_lost"),
        ("brokerdrill run kill_active artemis_q", "artemis_quorum", "artemis_peers"),
    ],
)
def test_a_shell_completes_commands_topologies_and_drills(words: str, one: str, other: str) -> None:
    environment = os.environ | {
        "_BROKERDRILL_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    program = str(Path(sys.executable).with_name("brokerdrill"))
    done = subprocess.run([program], capture_output=True, text=True, env=environment)
    assert one in done.stdout.split() and other not in done.stdout.split()
    assert (done.returncode, done.stderr) == (0, "")
