"""The documentation for people: every link leads somewhere, and the README stays short."""

from __future__ import annotations

import datetime
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.base import paths
from brokerdrill.base.errors import UsageError
from brokerdrill.scenario.table import KeptResults

README_BYTES = 8_000
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def _pages() -> list[Path]:
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [paths.ROOT / name for name in tracked.stdout.split()]


@pytest.mark.parametrize("page", _pages(), ids=lambda page: str(page.relative_to(paths.ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    targets = [target.partition("#")[0] for target in _LINK.findall(page.read_text(encoding="utf-8"))]
    missing = [target for target in targets if target and "://" not in target and not (page.parent / target).exists()]
    assert not missing


def test_the_readme_is_short() -> None:
    assert (paths.ROOT / "README.md").stat().st_size <= README_BYTES


@pytest.mark.parametrize("maker", ["statements", "measured", "clients"])
def test_the_pages_of_kept_runs_say_what_was_seen(maker: str) -> None:
    """`make docs` makes them of the statements, the drills' names and the kept runs."""
    done = subprocess.run(
        [sys.executable, f"docs/{maker}.py", "--check"], cwd=paths.ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def maker_of_pages(maker: str) -> Any:
    """docs/MAKER.py, which is no module of a package."""
    name = f"{maker}_of_documents"
    spec = importlib.util.spec_from_file_location(name, paths.ROOT / "docs" / f"{maker}.py")
    assert spec and spec.loader
    if str(paths.ROOT / "docs") not in sys.path:
        sys.path.append(str(paths.ROOT / "docs"))
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def statements() -> Any:
    return maker_of_pages("statements")


def told(statements: Any, work: Path, *said: dict[str, Any]) -> Any:
    source = work / "one.yml"
    source.write_text(json.dumps({"title": "t", "product": "openmq", "sections": {"first": list(said)}}))
    return statements.load(source)


HERE = "tests/unit/test_docs.py"
GOOD: list[dict[str, Any]] = [
    {"says": "a", "drills": ["kill_broker openmq_peers", "full_speed"]},
    {"says": "b", "tests": [f"{HERE}::test_the_readme_is_short"], "rendered": [f"{HERE}::test_the_readme_is_short"]},
    {"says": "c", "refused": ["plugins/filter/openmq_preflight.py::_cluster"], "found": "e"},
    {"says": "d", "rendered": [f"{HERE}::test_the_readme_is_short"]},
    {"says": "e", "findings": ["Open MQ 6.5.1, conventional and enhanced clusters"]},
]


def test_a_page_says_what_holds_each_statement(statements: Any, tmp_path: Path) -> None:
    seen = {
        ("full_speed", "openmq_master"): KeptResults(3, 2, versions={"openmq": "6.5.1"}),
        ("kill_broker", "openmq_master"): KeptResults(1, 1, versions={"openmq": "6.5.1"}),
    }
    page = statements.page(told(statements, tmp_path, *GOOD), seen)
    assert "Of 5 statements 1 have a drill (1 of them one with kept runs), 1 more a test" in page
    assert "1 more are about what is refused before anything is deployed, 1 more are only rendered; 1 have n" in page
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    link = f"[test_the_readme_is_short]({statements.REPOSITORY}/blob/main/{HERE})"
    assert rows == [
        "| a | `kill_broker`: no run kept on openmq_peers<br>`full_speed`: openmq_master 2/3 (6.5.1) |  |",
        f"| b | test {link}<br>rendered: {link} |  |",
        "| c | refused: [plugins/filter/openmq_preflight.py](../plugins/filter/openmq_preflight.py) | e |",
        f"| d | rendered, not drilled: {link} |  |",
        "| e | **not drilled** | Finding: [Open MQ 6.5.1, conventional and enhanced clusters](../FINDINGS.md). |",
    ]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"drills": ["kill_brokers"]}, "kill_brokers"),
        (
            {"drills": ["kill_broker openmq_enhanced"]},
            "'a' names the drill kill_broker on openmq_enhanced, where it do",
        ),
        ({"tests": ["tests/unit/nobody.py::test_x"]}, "names tests/unit/nobody.py, which is not there"),
        ({"tests": [f"{HERE}::test_nobody"]}, f"names test_nobody, which is not in {HERE}"),
        ({"tests": [f"{HERE}::told"]}, "which is no test"),
        ({"rendered": [HERE]}, "which is no test"),
        ({"refused": ["plugins/filter/openmq_preflight.py::_nobody"]}, "_nobody, which is not in"),
        ({"findings": ["Open MQ"]}, "the finding Open MQ, which FINDINGS.md does not have"),
        ({"says": "a | b"}, "neither"),
        ({"drill": "kill_broker"}, "Extra inputs"),
    ],
)
def test_what_a_statement_names_is_there(statements: Any, tmp_path: Path, said: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        told(statements, tmp_path, {"says": "a", **said})


def measured_row(topology: str, verdicts: dict[str, tuple[str, bool]], failovers: list[float | None]) -> dict[str, Any]:
    return {
        "topology": topology,
        "drill": "kill_active",
        "as_expected": all(met for _, met in verdicts.values()),
        "messages": {"ok": 1500, "lost": 1},
        "versions": {"artemis": "2.56.0"},
        "machine": "a machine",
        "started_at": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
        "promises": [{"name": name, "verdict": word, "as_expected": met} for name, (word, met) in verdicts.items()],
        "failover_ms": failovers,
    }


def test_what_was_measured_counts_verdicts_and_spans() -> None:
    rows = [
        measured_row("b", {"no_loss": ("fail", True), "ordered": ("pass", True)}, [float(one) for one in range(1, 11)]),
        measured_row("b", {"no_loss": ("fail", False), "ordered": ("unknown", False)}, [4000.0, None]),
        measured_row("elsewhere", {"no_loss": ("pass", True)}, []),
    ]
    text = maker_of_pages("measured").page(rows, ["a", "b"])
    assert "## a" not in text and "elsewhere" not in text
    assert "2 runs of 1 drills, 1 as expected; 3,002 messages were judged. artemis 2.56.0. On a machine" in text
    assert "| `no_loss` | 0 | 2 | 1 | 0 |" in text and "| `ordered` | 1 | 0 | 0 | 1 |" in text
    assert "| `kill_active` | 12, 1 without an end | 0.01 (0.00 to 0.01) | 4.00 |" in text


def test_what_clients_saw_is_counted_by_drill_and_topology() -> None:
    rows: list[dict[str, Any]] = []
    for lost, verdict, took in ((0, "pass", [1000.0]), (30, "fail", [3000.0]), (0, "unknown", [2000.0, None])):
        row = measured_row("b", {"no_loss": (verdict, True)}, list[float | None](took))
        row["promises"][0]["count"] = lost
        rows.append(row)
    clients = maker_of_pages("clients")
    one = {"configuration": "c", "expect": "e", "do": "d", "drills": ["kill_active", "lost_reply"]}
    given = clients.Page.model_validate({"title": "t", "note": "n", "clients": {"x": one}})
    text = clients.page(given, rows)
    assert "| `kill_active` | b | 3 | 0 to 30? | – | – | 2.00 | 3.00 (1 without an end) |" in text
    assert "| `lost_reply` | no run kept |" in text
    with pytest.raises(UsageError):
        clients.page(
            clients.Page.model_validate({**given.model_dump(), "clients": {"x": {**one, "drills": ["no"]}}}), []
        )
