"""The files of a run directory, local or at any Hadoop-compatible URI."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession

from brokerdrill.base.errors import UsageError
from brokerdrill.ledger.contract import RUN_FILE

_GLOB = "\\{}[]*?"


class Folder(Protocol):
    """A run directory: paths are relative to it, with `/`."""

    name: str

    def text(self, path: str) -> str:
        """Return a small file's text; raises UsageError where it cannot be read."""

    def files(self, path: str) -> list[str] | None:
        """Return the files below the folder `path`, sorted, hidden ones (`.` or `_` first) left out; None: no such
        folder."""

    def size(self, path: str) -> int:
        """Return a file's size in bytes."""

    def read(self, path: str) -> bytes:
        """Return a whole file."""

    def tail(self, path: str) -> bytes:
        """Return what follows a file's last newline."""

    def lines(self, path: str) -> Iterator[str]:
        """Yield a file's lines without their newlines; bytes that are no UTF-8 are replaced."""

    def spark_path(self, path: str) -> str:
        """Return the path as Spark reads it."""


def _hidden(path: str) -> bool:
    return any(part[0] in "._" for part in path.split("/"))


class LocalFolder:
    """A run directory of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)

    def text(self, path: str) -> str:
        file = self.path / path
        try:
            return file.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(f"{file} does not exist: {self.path} is no run directory") from None
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file} cannot be read: {error}") from None

    def files(self, path: str) -> list[str] | None:
        folder = self.path / path
        if not folder.is_dir():
            return None
        found = (file.relative_to(self.path) for file in folder.rglob("*") if file.is_file())
        return sorted(file.as_posix() for file in found if not _hidden(file.as_posix()))

    def size(self, path: str) -> int:
        return (self.path / path).stat().st_size

    def read(self, path: str) -> bytes:
        return (self.path / path).read_bytes()

    def tail(self, path: str) -> bytes:
        with (self.path / path).open("rb") as file:
            position = file.seek(0, 2)
            rest = b""
            while position > 0 and b"\n" not in rest:
                step = min(65536, position)
                position = file.seek(position - step)
                rest = file.read(step) + rest
            return rest.rpartition(b"\n")[2]

    def lines(self, path: str) -> Iterator[str]:
        with (self.path / path).open(encoding="utf-8", errors="replace", newline="\n") as file:
            for line in file:
                yield line.removesuffix("\n")

    def spark_path(self, path: str) -> str:
        whole = str((self.path / path).resolve())
        return "".join("\\" + letter if letter in _GLOB else letter for letter in whole)


class HadoopFolder:
    """A run directory at a URI (hdfs, s3a, abfs, file, ...), through Spark's own file systems."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self.name = uri.rstrip("/")
        self._jvm: Any = spark.sparkContext._jvm
        conf = spark.sparkContext._jsc.hadoopConfiguration()
        self._root = self._jvm.org.apache.hadoop.fs.Path(self.name)
        self._fs = self._root.getFileSystem(conf)

    def runs(self) -> list[str]:
        """Return the URIs of the runs in this folder, sorted, where it is none itself."""
        if self._fs.exists(self._path(RUN_FILE)) or not self._fs.exists(self._root):
            return []
        names = sorted(str(status.getPath().getName()) for status in self._fs.listStatus(self._root))
        return [
            f"{self.name}/{name}"
            for name in names
            if not _hidden(name) and self._fs.exists(self._path(f"{name}/{RUN_FILE}"))
        ]

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path)

    def _bytes(self, path: str, start: int, count: int) -> bytes:
        stream = self._fs.open(self._path(path))
        try:
            stream.seek(start)
            return bytes(stream.readNBytes(count))
        finally:
            stream.close()

    def text(self, path: str) -> str:
        if not self._fs.exists(self._path(path)):
            raise UsageError(f"{self.name}/{path} does not exist: {self.name} is no run directory")
        return self._bytes(path, 0, self.size(path)).decode("utf-8", "replace")

    def files(self, path: str) -> list[str] | None:
        folder = self._path(path)
        if not self._fs.exists(folder):
            return None
        base = str(self._fs.makeQualified(self._root))
        listing = self._fs.listFiles(folder, True)
        found = []
        while listing.hasNext():
            found.append(str(listing.next().getPath())[len(base) :].lstrip("/"))
        return sorted(file for file in found if not _hidden(file))

    def size(self, path: str) -> int:
        return int(self._fs.getFileStatus(self._path(path)).getLen())

    def read(self, path: str) -> bytes:
        return self._bytes(path, 0, self.size(path))

    def tail(self, path: str) -> bytes:
        position = self.size(path)
        rest = b""
        while position > 0 and b"\n" not in rest:
            step = min(65536, position)
            position -= step
            rest = self._bytes(path, position, step) + rest
        return rest.rpartition(b"\n")[2]

    def lines(self, path: str) -> Iterator[str]:
        rest, position, size = b"", 0, self.size(path)
        while position < size:
            block = self._bytes(path, position, min(1 << 20, size - position))
            position += len(block)
            *whole, rest = (rest + block).split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in whole)
        if rest:
            yield rest.decode("utf-8", "replace")

    def spark_path(self, path: str) -> str:
        whole = f"{self.name}/{path}"
        return "".join("\\" + letter if letter in _GLOB else letter for letter in whole)


def open_folder(spark: SparkSession | None, run_dir: Path | str) -> Folder:
    """Return the run directory: a URI (with `://`) through Hadoop's file systems, anything else as a local path."""
    if _is_uri(run_dir):
        assert spark is not None, "a URI is opened by Spark"
        return HadoopFolder(spark, str(run_dir))
    return LocalFolder(Path(run_dir))


def runs_of(run_dirs: Sequence[Path | str]) -> list[Path | str]:
    """Return the run directories: in place of a local folder of many runs (it has no run.json, folders in it have) each
    of those, sorted. Other paths and URIs stay as they are."""
    found: list[Path | str] = []
    for run_dir in run_dirs:
        inner: list[Path] = []
        if not _is_uri(run_dir) and not (Path(run_dir) / RUN_FILE).exists():
            inner = sorted(path.parent for path in Path(run_dir).glob(f"[!.]*/{RUN_FILE}"))
        found += inner or [run_dir]
    return found


def remote_runs_of(spark: SparkSession, run_dirs: Sequence[Path | str]) -> list[Path | str]:
    """As `runs_of`, for the URIs among `run_dirs`."""
    found: list[Path | str] = []
    for run_dir in run_dirs:
        inner: list[str] = []
        if _is_uri(run_dir):
            inner = HadoopFolder(spark, str(run_dir)).runs()
        found += inner or [run_dir]
    return found


def _is_uri(run_dir: Path | str) -> bool:
    return isinstance(run_dir, str) and "://" in run_dir


def qualified(spark: SparkSession, path: str) -> str:
    """Return a file's path as Spark's `_metadata.file_path` spells it; `path` is of `Folder.spark_path`."""
    jvm: Any = spark.sparkContext._jvm
    plain = path
    for letter in _GLOB:
        plain = plain.replace("\\" + letter, letter)
    made = jvm.org.apache.hadoop.fs.Path(plain)
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    # Spark writes a local URI without an authority and percent-encoded: file:/a%20b
    return str(made.getFileSystem(conf).makeQualified(made).toUri().toString()).replace("file:///", "file:/", 1)
