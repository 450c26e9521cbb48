"""Good histories and journals, spoiled anywhere: they are read, or refused with one sentence that names the file, and
nothing is left behind."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerdrill.base.errors import UsageError
from brokerdrill.interop.chaostoolkit import import_chaostoolkit
from brokerdrill.interop.jepsen import import_jepsen
from brokerdrill.interop.jepsen_export import export_jepsen

HERE = Path(__file__).parent / "histories"
GOOD = {name: (HERE / name).read_text() for name in ("tagged.edn", "pathological.edn", "drain.jsonl")}
JOURNAL = json.loads((HERE / "journal.json").read_text())
PIECES = [
    "{",
    "}",
    "[",
    "]",
    '"',
    ":",
    " nil ",
    "-1",
    ":time",
    ":process",
    "\\",
    "#",
    "\n",
    "1e999",
    "{}",
    "99999999999999999999",
]


def taken_or_refused(text: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, run = Path(folder) / name, Path(folder) / "run"
        path.write_text(text)
        try:
            if name.endswith("json"):
                import_chaostoolkit(path, run)
            else:
                import_jepsen(path, run)
        except UsageError as error:
            assert str(path) in str(error) and "\n" not in str(error).replace(text, "")
            assert not run.exists() and not [one for one in Path(folder).iterdir() if one != path]
            return
        if not name.endswith("json"):
            try:
                export_jepsen(run, Path(folder) / "again.edn")
            except UsageError as error:
                assert "there is no history to write" in str(error)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(sorted(GOOD)))
def test_spoiled_histories(data: st.DataObject, name: str) -> None:
    text = GOOD[name]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.sampled_from([0, 1, 5, 40]))
        text = text[:at] + data.draw(st.sampled_from(["", *PIECES])) + text[at + cut :]
    taken_or_refused(text, name)


WRONG: list[Any] = [None, 1, "soon", [], {}, True, "2026-03-01T10:00:00+99:00"]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += places(item, (*path, key))
    return found


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(places(JOURNAL)), st.sampled_from(WRONG))
def test_spoiled_journals(place: tuple[Any, ...], wrong: Any) -> None:
    spoiled = json.loads(json.dumps(JOURNAL))
    inner = spoiled
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = wrong
    taken_or_refused(json.dumps(spoiled), "j.json")


@pytest.mark.parametrize("content", [b"\xff\xfe", b""])
def test_what_is_no_text(tmp_path: Path, content: bytes) -> None:
    for name, read in (("h.edn", import_jepsen), ("j.json", import_chaostoolkit)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match=name):
            read(tmp_path / name, tmp_path / "run")  # type: ignore[operator]
