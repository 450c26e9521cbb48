"""A real PostgreSQL on loopback, of the version that the role lease_db takes, from binaries that Maven has."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from brokerdrill.base import paths
from tests.free_ports import free_port
from tests.roles.test_plugins import cached
from tests.unpacking import unpack

VERSION = "15.8.0"
# By machine: what the artifact calls it, and its checksum.
BINARIES = {
    "x86_64": ("amd64", "adc52238447f0f37777e949c16dcb65066a643721014e4e5e70952aaf8fd1569"),
    "aarch64": ("arm64v8", "a28b6f63c247c8c23fd040eab48eb23961b44f6d0e38b665d90bf2113efa204a"),
}
USER = "broker"
DEADLINE_S = 60.0
# Every statement with its time and its parameters; nothing here has to survive a power loss.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "logging_collector": "on",
    "log_destination": "jsonlog",
    "log_directory": "log",
    "log_filename": "all",
    "log_statement": "all",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


class Said(NamedTuple):
    """A statement that a client made: when (Unix time in s), its text, and its parameters in their order."""

    at: float
    text: str
    parameters: tuple[str, ...]


class SqlError(Exception):
    """What the database refused."""


class Postgres:
    """A server with a folder of its own, which is gone when it is stopped. Started at once."""

    def __init__(self) -> None:
        # It refuses to be root, and nobody else may look into pytest's folders.
        self._folder = Path(tempfile.mkdtemp(prefix="brokerdrill-postgres-"))
        self._user = "nobody" if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        try:
            self._unpack()
            self._run("initdb", "-D", self._data, "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
            settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
            command = [str(self._program("postgres")), "-D", self._data, "-p", str(self.port), *settings]
            with (self._folder / "out").open("wb") as out:
                self._process = subprocess.Popen(command, stdout=out, stderr=out, user=self._user, cwd=self._folder)
            self._until_it_answers()
        except BaseException:
            self.stop()
            raise

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def _program(self, name: str) -> Path:
        return self._folder / "home" / "bin" / name

    def _unpack(self) -> None:
        name, sha256 = BINARIES[platform.machine()]
        artifact = f"embedded-postgres-binaries-linux-{name}"
        source = {"coordinate": f"io.zonky.test.postgres:{artifact}:{VERSION}", "sha256": sha256}
        kept = cached.keep(paths.cache() / "archives", f"{artifact}-{VERSION}.jar", "maven", [source])
        with zipfile.ZipFile(kept["path"]) as jar:
            (inner,) = (one for one in jar.namelist() if one.endswith(".txz"))
            jar.extract(inner, self._folder)
        unpack(self._folder / inner, self._folder / "home")
        if self._user:
            for place in (self._folder, *self._folder.rglob("*")):
                shutil.chown(place, self._user)

    def _run(self, program: str, *words: str) -> None:
        command = [str(self._program(program)), *words]
        subprocess.run(command, check=True, capture_output=True, user=self._user, cwd=self._folder)

    def _until_it_answers(self) -> None:
        end = time.monotonic() + DEADLINE_S
        while True:
            try:
                self.ask("select 1")
                return
            except (OSError, SqlError):
                assert self._process and self._process.poll() is None, (self._folder / "out").read_text()
                assert time.monotonic() < end
                time.sleep(0.1)

    def make(self, database: str) -> str:
        """Make a database, and return the URL by which JDBC gets there."""
        self.ask(f'create database "{database}"')
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{database}"

    def ask(self, statement: str, database: str = "postgres") -> list[tuple[str | None, ...]]:
        """Return the rows of an answer, as text. Raises SqlError, or OSError where nobody answers."""
        with socket.create_connection(("127.0.0.1", self.port), 30) as sock, sock.makefile("rb") as answers:
            words = f"user\0{USER}\0database\0{database}\0\0".encode()
            sock.sendall(struct.pack("!ii", len(words) + 8, 196608) + words)
            _answer(answers)
            query = statement.encode() + b"\0"
            sock.sendall(b"Q" + struct.pack("!i", len(query) + 4) + query)
            return _answer(answers)

    def said(self, database: str, pattern: str) -> list[Said]:
        """Return the statements that clients of a database have made so far and whose text has `pattern` (a regular
        expression, in either case), in their order."""
        found = []
        for line in (self._folder / "data" / "log" / "all.json").read_text().splitlines():
            # The last line may not be whole yet.
            if not line.endswith("}"):
                continue
            entry = json.loads(line)
            text = re.sub(r"^(execute [^:]*|statement): ", "", entry.get("message", ""))
            if entry.get("dbname") != database or entry.get("error_severity") != "LOG":
                continue
            if text != entry["message"] and re.search(pattern, text, re.IGNORECASE):
                at = datetime.strptime(entry["timestamp"], "%Y-%m-%d %H:%M:%S.%f %Z").replace(tzinfo=UTC)
                parameters = re.findall(r"\$\d+ = (?:'([^']*)'|NULL)", entry.get("detail", ""))
                found.append(Said(at.timestamp(), text, tuple(parameters)))
        return found

    def stop(self) -> None:
        """SIGQUIT, for there is nothing to keep."""
        if self._process:
            self._process.send_signal(3)
            self._process.wait(30)
            self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)


def _answer(answers: object) -> list[tuple[str | None, ...]]:
    """Read messages of the protocol up to the one that says that the server waits for the next statement."""
    rows: list[tuple[str | None, ...]] = []
    refused = None
    while True:
        kind, size = struct.unpack("!ci", answers.read(5))  # type: ignore[attr-defined]
        body = answers.read(size - 4)  # type: ignore[attr-defined]
        if kind == b"Z":
            break
        if kind == b"E":
            refused = body.replace(b"\0", b" ").decode()
            if b"FATAL" in body:
                break
        if kind == b"D":
            rows.append(_row(body))
    if refused:
        raise SqlError(refused)
    return rows


def _row(body: bytes) -> tuple[str | None, ...]:
    at, values = 2, []
    for _ in range(struct.unpack_from("!h", body)[0]):
        (size,) = struct.unpack_from("!i", body, at)
        at += 4
        values.append(None if size < 0 else body[at : at + size].decode())
        at += max(size, 0)
    return tuple(values)
