"""Files and folders that appear whole or not at all, and are on the disk once they are there.

The new content is written beside its place under a hidden name of its own, flushed, and renamed; the folder's entry is
flushed too. A reader sees the old content or the new one, whatever crashes; of several writers the last one stands.
Standard library only and Python >= 3.10: the file is shipped to load hosts as it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from brokerdrill.base.errors import InfrastructureError


def beside(path: Path) -> Path:
    """Return a hidden path in `path`'s folder that no other writer, of this process or another, uses."""
    return path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:12]}.tmp")


def flush(path: Path) -> None:
    """Have the file, or the entries of the folder, at `path` on the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_tree(path: Path) -> None:
    """Have the file at `path`, or the folder with all that is in it, on the disk. Raises OSError."""
    if path.is_dir():
        for inner in path.iterdir():
            flush_tree(inner)
    flush(path)


def publish(written: Path, path: Path) -> Path:
    """Give the finished file or folder `written` its name `path`, on the same file system, and return that.

    Both are on the disk when this returns. A file takes the place of an old one; a folder only of none or an empty one.
    Raises OSError; `written` is then still there.
    """
    flush_tree(written)
    written.replace(path)
    flush(path.parent)
    return path


@contextlib.contextmanager
def _replacing(path: Path, kind: str) -> Iterator[Path]:
    """Yield where to write what shall become `path`; publish it, or remove what there is of it and raise."""
    written = beside(path)
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield written
            publish(written, path)
        finally:
            with contextlib.suppress(OSError):
                shutil.rmtree(written) if written.is_dir() else written.unlink()
    except OSError as error:
        raise InfrastructureError(f"{kind}{path} cannot be written: {error.strerror or error}") from None


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a binary file whose content becomes `path` when the block ends without an exception; folders are made.

    Raises InfrastructureError where the disk does not take it; `path` is then as it was, and nothing is left over.
    """
    with _replacing(path, "") as written, written.open("xb") as file:
        yield file


@contextlib.contextmanager
def new_folder(path: Path, kind: str = "folder") -> Iterator[Path]:
    """Yield an empty folder that becomes `path` when the block ends without an exception.

    Raises InfrastructureError (`kind` says what folder it is) where the disk does not take it, or where `path` is there
    with something in it; nothing is left over then.
    """
    with _replacing(path, f"{kind} ") as written:
        written.mkdir()
        yield written


def write(path: Path, content: bytes) -> Path:
    """Replace the file `path` by one with `content`, making missing folders, and return `path`.

    Raises InfrastructureError where the disk does not take it; `path` is then as it was.
    """
    with replacing(path) as file:
        file.write(content)
    return path


def write_json(path: Path, value: Any, indent: int | None = 2, default: Callable[[Any], Any] | None = None) -> Path:
    """Replace the file `path` by `value` as JSON (UTF-8, a newline at its end); as `write`."""
    return write(path, (json.dumps(value, ensure_ascii=False, indent=indent, default=default) + "\n").encode())
