"""What the router's tests share: a real RabbitMQ, a router process, waiting."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pamqp import decode
from tests.free_ports import free_port

from amqp_session_router.control.commands import Control
from amqp_session_router.control.service import Service
from amqp_session_router.net import event_loop
from amqp_session_router.process.supervisor import KEEPER
from amqp_session_router.session.listeners import Listeners
from amqp_session_router.session.session_table import SessionTable
from amqp_session_router.telemetry.log import Log

T = TypeVar("T")

SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
CTL = "/usr/lib/rabbitmq/bin/rabbitmqctl"
USER, PASSWORD = "app", "secret-of-the-tests"


def wait_for(what: str, probe: Callable[[], T], timeout: float = 120.0) -> T:
    """Return what `probe` returns once it is true; raises AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"no {what} within {timeout} s")
        time.sleep(0.02)


def apart(module: str, function: str, *words: str) -> str:
    """Call a function of a module of the tests in a network namespace of its own; return what it prints.

    Raises AssertionError if it fails.
    """
    here = Path(__file__).parent
    code = f"import {module}; {module}.{function}(*{words!r})"
    done = subprocess.run(
        ["unshare", "--map-root-user", "--net", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (here, here.parent.parent)))},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def table(inside: bytes) -> dict[str, Any]:
    """Return the fields of a table's inside."""
    return decode.field_table(len(inside).to_bytes(4, "big") + inside)[1]


def accepts(port: int) -> bool:
    """Does something listen on `port` of loopback?"""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _hash(password: str) -> str:
    salt = b"salt"
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


class Broker:
    """A RabbitMQ of Debian's package, as a process of our own in a directory of its own."""

    def __init__(
        self,
        directory: Path,
        settings: str = "",
        vhosts: tuple[str, ...] = ("/", "other", "closed"),
        plugins: tuple[str, ...] = (),
        more: dict[str, Any] | None = None,
    ) -> None:
        """`more`: of the definitions to load."""
        self.directory = directory
        self.port = free_port()
        self.distribution, self.mapper = free_port(), free_port()
        definitions = directory / "definitions.json"
        definitions.write_text(
            json.dumps(
                {
                    "vhosts": [{"name": name} for name in vhosts],
                    "users": [
                        {
                            "name": USER,
                            "password_hash": _hash(PASSWORD),
                            "hashing_algorithm": "rabbit_password_hashing_sha256",
                            "tags": "",
                        }
                    ],
                    "permissions": [
                        {"user": USER, "vhost": name, "configure": ".*", "write": ".*", "read": ".*"}
                        for name in vhosts
                        if name != "closed"
                    ],
                }
                | (more or {})
            )
        )
        (directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nload_definitions = {definitions}\n"
            f"log.console = false\nlog.file.level = warning\n{settings}\n"
        )
        (directory / "plugins").write_text(f"[{', '.join(plugins)}].\n")
        self.environment = os.environ | {
            "HOME": str(directory),
            "RABBITMQ_NODENAME": f"router-test-{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_DIST_PORT": str(self.distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none",
            "ERL_EPMD_PORT": str(self.mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_RELAXED_COMMAND_CHECK": "1",
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start and wait until it accepts."""
        self.process = subprocess.Popen(
            [SERVER],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=(self.directory / "out").open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        wait_for("RabbitMQ", lambda: self._alive() and accepts(self.port), 240)

    def _alive(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError("RabbitMQ ended: " + (self.directory / "out").read_text()[-2000:])
        return True

    def ctl(self, *words: str) -> str:
        """Run rabbitmqctl."""
        done = subprocess.run([CTL, *words], env=self.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _group_lives(self) -> bool:
        """Whether a process of the broker's group is there, the dead ones reaped."""
        assert self.process is not None
        self.process.poll()
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> None:
        """Kill the broker, which is a child of the shell that was started."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        wait_for("the broker's end", lambda: not self._group_lives(), 20)

    def stop(self) -> None:
        """End the broker and the port mapper that it started."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            deadline = time.monotonic() + 20
            # The shell that was started goes first; the broker itself may hang in its shutdown.
            while self._group_lives():
                if time.monotonic() > deadline:
                    os.killpg(self.process.pid, signal.SIGKILL)
                time.sleep(0.05)
        subprocess.run(["epmd", "-kill"], env=self.environment, capture_output=True, timeout=20)


class Router:
    """An `amqp-session-router run` of its own."""

    def __init__(self, directory: Path, config: dict[str, Any], *options: str) -> None:
        self.directory = directory
        self.config = config
        self.control = directory / "control.sock"
        config.setdefault("control", {"socket": str(self.control)})
        self.file = directory / "router.yaml"
        self.options = options
        self.log = directory / "router.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """The first listener's port."""
        return int(next(iter(self.config["listeners"].values()))["port"])

    def start(self) -> None:
        """Start and wait until it says that it is ready."""
        self.file.write_text(yaml.safe_dump(self.config))
        program = Path(sys.executable).with_name("amqp-session-router")
        self.process = subprocess.Popen(
            [str(program), "run", "--config", str(self.file), *self.options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.log.open("ab"),
        )
        wait_for("router", lambda: self._alive() and self.entries("ready"))

    def _alive(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError("the router ended: " + self.log.read_text()[-3000:])
        return True

    def entries(self, message: str) -> list[dict[str, Any]]:
        """Return the log's entries with this message."""
        found = []
        for line in self.log.read_text().splitlines() if self.log.exists() else ():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if entry.get("message") == message:
                    found.append(entry)
        return found

    def ctl(self, *words: str) -> Any:
        """Return the answer of a verb as data."""
        program = Path(sys.executable).with_name("amqp-session-router")
        done = subprocess.run(
            [str(program), "ctl", "--socket", str(self.control), "--json", *words],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def faults(self) -> list[str]:
        """Return lines of the log that only a fault of the router writes."""
        lines = self.log.read_text().splitlines()
        return [text for at, line in enumerate(lines) if "Traceback" in line for text in lines[at : at + 40]][:80]

    def stop(self) -> None:
        """End it; raises AssertionError if it had a fault."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(20)
                raise AssertionError("the router did not end: " + self.log.read_text()[-2000:]) from None
        assert not (found := self.faults()), found


def children_of(pid: int) -> list[int]:
    """Return a process's children, the oldest first."""
    return sorted(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def workers_of(supervisor: int) -> list[int]:
    """Return a supervisor's workers, the oldest first; its other children keep files for one of them."""

    def is_keeper(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/comm").read_text().strip() == KEEPER
        except OSError:  # it has just ended
            return True

    return [pid for pid in children_of(supervisor) if not is_keeper(pid)]


def config_of(*backends: int, **more: Any) -> dict[str, Any]:
    """Return a configuration with one listener and a farm of the backends at these ports of loopback."""
    names = {f"b{number}": {"host": "127.0.0.1", "port": port} for number, port in enumerate(backends)}
    data: dict[str, Any] = {
        "listeners": {"plain": {"host": "127.0.0.1", "port": free_port()}},
        "backends": names,
        "farms": {"all": {"members": [*names]}},
        "default": {"farm": "all"},
        "status": None,
    }
    return data | more


@contextlib.contextmanager
def router_of(config: dict[str, Any], *options: str) -> Iterator[Router]:
    """Run a router for the length of a block."""
    with tempfile.TemporaryDirectory(prefix="router-") as directory:
        router = Router(Path(directory), config, *options)
        try:
            router.start()
            yield router
        finally:
            router.stop()


class Hook(ThreadingHTTPServer):
    """An authorisation hook that notes what it is asked and answers `reply`."""

    def __init__(self, reply: dict[str, Any]) -> None:
        self.asked: list[dict[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:
                self.asked.append(json.loads(handler.rfile.read(int(handler.headers["Content-Length"]))))
                body = json.dumps(reply).encode()
                handler.send_response(200)
                handler.send_header("Content-Length", str(len(body)))
                handler.end_headers()
                handler.wfile.write(body)

            def log_message(handler, *_: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class LocalRouter:
    """A router in a thread of this process, for tests of sessions: it is there at once."""

    def __init__(self, directory: Path, config: dict[str, Any]) -> None:
        self.config = config
        config["control"] = None
        self._file = directory / "router.yaml"
        self._file.write_text(yaml.safe_dump(config))
        self._log = io.StringIO()
        self._ready = threading.Event()
        self._failed: list[BaseException] = []
        self._loop: asyncio.AbstractEventLoop
        self._service: Service
        self.sessions: SessionTable
        self.listeners: Listeners
        self.thread = threading.Thread(target=self._run)

    @property
    def port(self) -> int:
        """The first listener's port."""
        return int(next(iter(self.config["listeners"].values()))["port"])

    def _run(self) -> None:
        try:
            event_loop.run(self._serve())
        except BaseException as error:
            self._failed.append(error)
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda _, context: self._failed.append(RuntimeError(str(context))))
        log = Log(self._log)
        service = self._service = Service(self._file, log_to=log)
        routing = service.routing
        self.sessions = SessionTable(self._loop, routing, service.limits, service.authorizer, routing.client_name)
        self.listeners = Listeners(self.sessions)
        try:
            await service.start(self.listeners)
            self._ready.set()
            await self.sessions.gone.wait()
        finally:
            self.listeners.close()
            await service.stop()
            logging.getLogger("amqp_session_router").removeHandler(log.console)

    def start(self) -> None:
        """Start and wait until it listens."""
        self.thread.start()
        assert self._ready.wait(30) and not self._failed, self._failed

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what the coroutine returns, in the router's event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)

    def ctl(self, *words: str) -> Any:
        """Return the answer of a verb as data."""

        async def call() -> Any:
            return await Control(self._service).call(words)

        reply = self.do(call())
        return reply.get("rows", reply.get("data", reply))

    def reload(self, config: dict[str, Any]) -> None:
        """Have the file say `config`, and go by it; raises RouterError."""
        self._file.write_text(yaml.safe_dump(config | {"control": None}))
        self.ctl("CONFIG", "RELOAD")

    def cancel(self, coroutine: str) -> int:
        """Cancel the tasks of its event loop that run the coroutine of this name; returns how many there are."""

        async def found() -> int:
            tasks = [one for one in asyncio.all_tasks() if getattr(one.get_coro(), "__qualname__", "") == coroutine]
            return sum(task.cancel() for task in tasks)

        return self.do(found())

    def exit(self, drain: float) -> None:
        """Tell it to leave."""
        self._loop.call_soon_threadsafe(self._service.exit, drain)

    def entries(self, message: str) -> list[dict[str, Any]]:
        """Return the log's entries with this message."""
        found = [json.loads(line) for line in self._log.getvalue().splitlines()]
        return [entry for entry in found if entry["message"] == message]

    def stop(self) -> None:
        """End it; raises AssertionError if it had a fault."""
        if self.thread.is_alive() and not self._failed:
            self.exit(0.0)
        self.thread.join(30)
        assert not self.thread.is_alive()
        assert not self._failed, self._failed
        assert "a session failed" not in self._log.getvalue(), self._log.getvalue()[-3000:]


@contextlib.contextmanager
def local_router_of(config: dict[str, Any]) -> Iterator[LocalRouter]:
    """Run a router in a thread for the length of a block."""
    with tempfile.TemporaryDirectory(prefix="router-") as directory:
        router = LocalRouter(Path(directory), config)
        try:
            router.start()
            yield router
        finally:
            router.stop()
