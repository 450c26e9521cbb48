"""A file or folder is there whole or not at all, whatever fails and whoever else writes."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from brokerdrill.base import atomic
from brokerdrill.base.errors import InfrastructureError


def test_missing_folders_are_made_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = atomic.write_json(tmp_path / "a" / "b.json", {"key": "wörd"})
    assert json.loads(path.read_text(encoding="utf-8")) == {"key": "wörd"}
    assert path.read_bytes().endswith(b"\n")
    assert [item.name for item in path.parent.iterdir()] == ["b.json"]


def test_a_new_file_has_the_rights_that_open_gives(tmp_path: Path) -> None:
    (tmp_path / "opened").touch()
    written = atomic.write(tmp_path / "written", b"x")
    assert stat.S_IMODE(written.stat().st_mode) == stat.S_IMODE((tmp_path / "opened").stat().st_mode)


def test_what_fails_leaves_the_old_content_and_no_rest(tmp_path: Path) -> None:
    path = atomic.write(tmp_path / "file", b"old")
    with pytest.raises(ZeroDivisionError), atomic.replacing(path) as file:
        file.write(b"half of the n")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    with pytest.raises(TypeError):
        atomic.write_json(path, {"no": object()})
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_disk_that_refuses_is_one_sentence(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = atomic.write(tmp_path / "file", b"old")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if step == "fsync":
        monkeypatch.setattr(os, "fsync", refuse)
    else:
        monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(InfrastructureError, match=rf"{path} cannot be written: No space left on device"):
        atomic.write(path, b"new")
    refused = pytest.raises(InfrastructureError, match=r"run directory .* cannot be written: No space left")
    with refused, atomic.new_folder(tmp_path / "run", "run directory") as folder:
        (folder / "inner").write_bytes(b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_content_is_on_the_disk_before_its_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def seen_fsync(handle: int) -> None:
        steps.append(f"fsync {'folder' if stat.S_ISDIR(os.fstat(handle).st_mode) else 'file'}")
        fsync(handle)

    def seen_replace(self: Path, target: Path) -> Path:
        steps.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(Path, "replace", seen_replace)
    atomic.write(tmp_path / "file", b"new")
    assert steps == ["fsync file", "rename", "fsync folder"]
    steps.clear()
    with atomic.new_folder(tmp_path / "run") as folder:
        (folder / "inner").write_bytes(b"new")
    assert steps == ["fsync file", "fsync folder", "rename", "fsync folder"]


def test_a_folder_takes_nobodys_place(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").touch()
    refused = pytest.raises(InfrastructureError, match=r"folder .*run cannot be written")
    with refused, atomic.new_folder(tmp_path / "run") as folder:
        (folder / "other").touch()
    assert [str(item.relative_to(tmp_path)) for item in sorted(tmp_path.rglob("*"))] == ["run", "run/mine"]


def test_of_several_writers_each_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [bytes([65 + number]) * 200_000 for number in range(8)]
    atomic.write(path, contents[0])
    torn = []
    with ThreadPoolExecutor(9) as pool:
        writers = [pool.submit(lambda one=one: [atomic.write(path, one) for _ in range(10)]) for one in contents]
        while not all(writer.done() for writer in writers):
            if (seen := path.read_bytes()) not in contents:
                torn.append(len(seen))
        for writer in writers:
            writer.result()
    assert not torn
    assert path.read_bytes() in contents
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


_KILLED = """
import os, signal, sys
from pathlib import Path
from brokerdrill.base import atomic
with atomic.replacing(Path(sys.argv[1])) as file:
    file.write(b"half of the n")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_writer_that_is_killed_leaves_the_old_content(tmp_path: Path) -> None:
    path = atomic.write(tmp_path / "file.json", b"old")
    done = subprocess.run([sys.executable, "-c", _KILLED, str(path)], check=False)
    assert done.returncode == -9
    assert path.read_bytes() == b"old"
    # What is left over is hidden, and no reader takes it for a file of that kind.
    (rest,) = (item.name for item in tmp_path.iterdir() if item != path)
    assert rest.startswith(".") and rest.endswith(".tmp")
    assert atomic.write(path, b"new").read_bytes() == b"new"
