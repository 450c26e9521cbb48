"""A worker process: `python3 -m brokerdrill.workload.worker`.

Its first line of input is its configuration (config.py; secrets come this way, never in argv), each further line a
command: `{"cmd": "ping", "n": k}`, `look` (with `looks`: where), `tamper` (with a `tampering`), `start`,
`start_consumers`, `stop_producers`, `where`, `stop` (with `looks` before the end). It answers in JSON lines: `ready`,
`pong`, `looked` (with what was `seen`), `tampered` (with the `problem`), `started`, `status` every 250 ms,
`producers_stopped`, `where` (with the `stacks` of the clients that are waited for), `closed`, `fatal`.
The end of its input, or SIGTERM, means that its runner is gone: it closes quickly and exits.

Exit status: 0 closed when stopped (or the input ended), 3 it failed (after a `fatal` event), 64 a wrong configuration.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import resource
import select
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from brokerdrill.base.errors import BrokerdrillError, InfrastructureError
from brokerdrill.ledger.spool import Header
from brokerdrill.workload import config as configuration
from brokerdrill.workload.client import Client, ClientError, client_type
from brokerdrill.workload.client_loop import ClientCounts, ClientLoop
from brokerdrill.workload.config import ClientSpec, WorkerConfig
from brokerdrill.workload.consumer import Consumer
from brokerdrill.workload.ledger_writer import ClientLedger, LedgerClock, LedgerError, Spool
from brokerdrill.workload.looking import Browser, Look, QueueContents
from brokerdrill.workload.producer import Producer, RoutedProducer, SendSchedule
from brokerdrill.workload.stacks import innermost, stacks
from brokerdrill.workload.tampering import Tampering, tamper
from brokerdrill.workload.windowed_producer import WindowedProducer

STATUS_S = 0.25
TAMPERER = "tamperer"
QUICK_CLOSE_S = 3.0
# Messages that may wait for a runner that does not read; more statuses are left out, other events never.
OUTBOX_LIMIT = 100


class EventPipe:
    """Says things on a pipe from a thread of its own: a runner that does not read holds up nobody else."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="out", daemon=True)
        self._thread.start()

    def say(self, event: str, **values: Any) -> None:
        self._queue.put(json.dumps({"event": event, **values}).encode() + b"\n")

    def crowded(self) -> bool:
        return self._queue.qsize() > OUTBOX_LIMIT

    def finish(self, timeout_s: float) -> None:
        """Wait until all is said, at most `timeout_s`."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (data := self._queue.get()) is not None:
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError:
                return  # nobody reads: the end of the input says so, too


class CommandLines:
    """Lines of a pipe, which a signal can end. Iterating blocks in the main thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = b""
        self._wake_r, self._wake_w = os.pipe()

    def end(self) -> None:
        """End the iteration; safe in a signal handler and from any thread."""
        with contextlib.suppress(OSError):
            os.write(self._wake_w, b"!")

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._fd, self._wake_r], [], [])
            if self._wake_r in ready:
                raise StopIteration
            data = os.read(self._fd, 65536)
            if not data:
                raise StopIteration
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace")


def own(config: WorkerConfig, spec: ClientSpec) -> WorkerConfig:
    """Return the configuration as the client of `spec` sees it: with the endpoints that it dials."""
    named = tuple(item for item in config.endpoints if item.instance in spec.instances)
    # Behind a router nobody chooses a broker.
    return replace(config, endpoints=named) if named else config


def spool_header(config: WorkerConfig, kind: type[Client]) -> Header:
    """What stands in every row of this worker, and the names that its rows say again and again."""
    texts = [spec.name for spec in (*config.producers, *config.consumers)]
    # What the ids of a producer's messages begin with.
    texts += [f"{spec.name}-" for spec in config.producers]
    places = [(endpoint.host, endpoint.instance) for endpoint in config.endpoints]
    return Header(config.run_id, config.clock, kind.protocol, [*texts, *config.addresses], places)


class WorkerClients:
    """All clients of this worker and their threads."""

    def __init__(
        self, config: WorkerConfig, kind: type[Client], clock: LedgerClock, spool: Spool | None, out: EventPipe
    ) -> None:
        self._config = config
        self._kind = kind
        self._clock = clock
        self._header = spool_header(config, kind)
        self._spool = spool
        self._out = out
        self._stop_producers = threading.Event()
        self._stop_consumers = threading.Event()
        self._threads: dict[Any, threading.Thread] = {}
        self._left = len(config.producers)
        self._left_lock = threading.Lock()
        self._tamperers = itertools.count()
        self._started = self._consuming = self._producing = False
        self.failed = threading.Event()
        self.on_failure: Callable[[], None] = lambda: None
        self._producers = [self._producer(number, spec) for number, spec in enumerate(config.producers)]
        self._consumers = [
            Consumer(config, spec, kind(own(config, spec), spec.name), self._ledger(spec.name), self._stop_consumers)
            for spec in config.consumers
        ]

    def _ledger(self, name: str) -> ClientLedger:
        return ClientLedger(
            self._spool.write if self._spool else None,
            self._clock,
            self._header,
            name,
        )

    def _producer(self, number: int, spec: ClientSpec) -> Producer:
        config = self._config
        share = len(config.producers)
        schedule = SendSchedule(config.rate, share, max(1, config.transaction), number / share) if config.rate else None
        client = self._kind(own(config, spec), spec.name)
        loop = RoutedProducer if spec.keys else WindowedProducer if config.window > 1 else Producer
        return loop(config, spec, client, self._ledger(spec.name), self._stop_producers, schedule)

    def start(self) -> None:
        """Start all clients, the consumers first. Once.

        With a backlog the consumers wait for `start_consumers` or `stop_producers`; with subscriptions the producers
        wait for `start_producers`: what is sent before the last subscription is there, it misses.
        """
        if self._started:
            return
        self._started = True
        if not self._config.backlog:
            self.start_consumers()
        if self._config.subscriptions:
            threading.Thread(target=self._say_subscribed, name="subscribed", daemon=True).start()
        else:
            self.start_producers()

    def start_producers(self) -> None:
        """Start the producers of a load that has started. Once, and not after they were stopped."""
        with self._left_lock:
            if not self._started or self._producing or self._stop_producers.is_set():
                return
            self._producing = True
        self._begin(self._producers)

    def start_consumers(self) -> None:
        """Start the consumers of a load that has started. Once."""
        if self._started and not self._consuming:
            self._consuming = True
            self._begin(self._consumers)

    def _begin(self, clients: Sequence[Producer | Consumer]) -> None:
        for client in clients:
            thread = threading.Thread(target=self._run, args=(client,), name=client.name, daemon=True)
            self._threads[client] = thread
            thread.start()

    def _run(self, client: Producer | Consumer | Browser) -> None:
        try:
            client.run()
        except LedgerError as error:
            self._fail(str(error))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            self._fail(f"client {client.name}: {type(error).__name__}: {error}")
        if isinstance(client, Producer):
            with self._left_lock:
                self._left -= 1
            self._say_stopped()

    def _fail(self, error: str) -> None:
        """Stop every client at once and say why; only the first reason counts."""
        with self._left_lock:
            if self.failed.is_set():
                return
            self.failed.set()
        self._out.say("fatal", error=error)
        self.abandon()
        self.on_failure()

    def _say_subscribed(self) -> None:
        for consumer in self._consumers:
            consumer.connected.wait()
        self._out.say("subscribed")

    def _say_stopped(self) -> None:
        if self._left == 0 and self._stop_producers.is_set() and not self.failed.is_set():
            self._out.say("status", **self.status())
            self._out.say("producers_stopped")

    def stop_producers(self) -> None:
        """Stop the producers; `producers_stopped` follows when the last has proven or given up its batch."""
        if self._stop_producers.is_set():
            return
        with self._left_lock:
            none_left = self._left == 0 or not self._producing
            self._stop_producers.set()
            if none_left:
                self._left = 0
        self.start_consumers()
        if none_left:
            self._say_stopped()

    def abandon(self) -> None:
        """Make every client end as soon as it can."""
        for client in [*self._producers, *self._consumers]:
            client.abandon()

    def look(self, looks: Sequence[Look], limit_s: float, *, recorded: bool = False) -> list[QueueContents]:
        """Look at each of `looks` in turn, and return what was seen; `recorded`: with rows in the ledger. Looks that
        are not over in half of `limit_s` are given up. Raises InfrastructureError where one cannot be ended."""
        end = time.monotonic() + limit_s
        found = []
        for number, look in enumerate(looks):
            name = f"{self._config.worker}-browser-{number}"
            spec = ClientSpec(name, (look.address,), (look.instance,))
            ledger = self._ledger(name) if recorded else ClientLedger(None, self._clock, self._header, name)
            client = self._kind(own(self._config, spec), name)
            browser = Browser(self._config, spec, client, ledger, threading.Event(), look)
            thread = threading.Thread(target=self._run, args=(browser,), name=name, daemon=True)
            self._threads = {browser: thread}
            thread.start()
            thread.join(max(0.0, (end - time.monotonic()) / 2))
            browser.abandon()
            self._join(end)
            found.append(browser.seen)
        return found

    def tamper(self, wanted: Tampering, limit_s: float) -> str | None:
        """Have a client outside of the load do what is `wanted`; return why it could not, None where it is done. After
        `limit_s` it is given up."""
        name = f"{self._config.worker}-{TAMPERER}-{next(self._tamperers)}"
        client = self._kind(own(self._config, ClientSpec(name, (wanted.address,))), name)
        said: list[str | None] = [f"it did not end within {limit_s:g} s"]

        def run() -> None:
            try:
                tamper(client, wanted, name)
                said[0] = None
            except ClientError as error:
                said[0] = str(error)
            except Exception as error:  # a thread's own would be said nowhere
                said[0] = f"{type(error).__name__}: {error}"

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        thread.join(limit_s)
        if thread.is_alive():
            client.close()
        return said[0]

    def stop(self, looks: Sequence[Look], limit_s: float) -> None:
        """Stop and close every client, then look. Raises InfrastructureError when that takes too long."""
        end = time.monotonic() + limit_s
        self._stop_consumers.set()
        self.stop_producers()
        self._join(end)
        if not self.failed.is_set():
            self.look(looks, end - time.monotonic(), recorded=True)

    def _join(self, end: float) -> None:
        """Wait for all threads until `end`; those that hang have their connections closed for the last part."""
        spare_s = max(0.0, end - time.monotonic()) / 5
        for thread in self._threads.values():
            thread.join(max(0.0, end - spare_s - time.monotonic()))
        hanging = [client for client, thread in self._threads.items() if thread.is_alive()]
        for client in hanging:
            client.abandon()
            threading.Thread(target=client.sever, daemon=True).start()
        for client in hanging:
            self._threads[client].join(max(0.0, end - time.monotonic()))
        still = stacks((self._threads[client] for client in hanging), self._kind)
        if still:
            self._out.say("where", stacks=still)
            names = ", ".join(f"{name}, in {innermost(calls)}," for name, calls in still.items())
            raise InfrastructureError(f"{names} did not close in time")

    def awaited(self) -> dict[str, list[str]]:
        """Return the calls, innermost first, that those clients are in that the load waits for: the producers once
        they are to stop, before that whoever has no connection yet."""
        stopping = self._stop_producers.is_set()
        wanted = self._producers if stopping else [*self._producers, *self._consumers]
        running = [
            self._threads[one] for one in wanted if one in self._threads and (stopping or not one.connected.is_set())
        ]
        return stacks(running, self._kind)

    def status(self) -> dict[str, Any]:
        """The worker's progress so far, summed over its clients."""
        counts: list[ClientCounts] = [client.counts for client in [*self._producers, *self._consumers]]
        return {
            "sent_ok": sum(item.sent_ok for item in counts),
            "sent_unknown": sum(item.sent_unknown for item in counts),
            "sent_fail": sum(item.sent_fail for item in counts),
            "received": sum(item.received for item in counts),
            "received_unknown": sum(item.received_unknown for item in counts),
            "left_by": dict(sum((Counter(item.left_by) for item in counts), Counter())),
            "served": {"send": _served(self._producers), "receive": _served(self._consumers)},
            # How many producers each instance has.
            "reached": Counter(client.counts.reached for client in self._producers if client.counts.reached),
            # Once stopped they catch up with nothing.
            "behind_s": 0.0
            if self._stop_producers.is_set()
            else max((client.behind_s() for client in self._producers), default=0.0),
            "producers_running": self._left if self._producing else 0,
            "clock_ns": self._clock.now(),
        }


def _served(clients: Iterable[ClientLoop]) -> Counter[str]:
    """How often each address had a success, summed over `clients`. Each is copied first: its thread goes on."""
    return sum((Counter(client.counts.served.copy()) for client in clients), Counter())


def _report(load: WorkerClients, out: EventPipe, ended: threading.Event) -> None:
    while not ended.wait(STATUS_S):
        if not out.crowded():
            out.say("status", **load.status())


def _looks(command: dict[str, Any]) -> list[Look]:
    """Return where a command says to look."""
    return [Look(**look) for look in command.get("looks") or ()]


def serve(config: WorkerConfig, clock: LedgerClock, lines: CommandLines, out: EventPipe) -> int:
    """Do what the commands in `lines` say until stopped; return the exit status.

    Raises BrokerdrillError, LedgerError.
    """
    kind = client_type(config.client)
    header = spool_header(config, kind).line()
    spool = Spool(config.spool, config.piece_bytes, header) if config.spool else None
    kind.start_process(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: lines.end())
    load = WorkerClients(config, kind, clock, spool, out)
    load.on_failure = lines.end
    ended = threading.Event()
    threading.Thread(target=_report, args=(load, out, ended), name="status", daemon=True).start()
    out.say("ready", clock_ns=clock.now(), pid=os.getpid())
    for line in lines:
        try:
            command = json.loads(line)
            name = command.get("cmd")
        except (ValueError, AttributeError):
            raise InfrastructureError("a command is no line of JSON") from None
        if name == "ping":
            out.say("pong", n=command.get("n"), clock_ns=clock.now())
        elif name == "look":
            found = load.look(_looks(command), config.close_s)
            out.say("looked", seen=[one.to_json() for one in found])
        elif name == "tamper":
            problem = load.tamper(Tampering(**command["tampering"]), command["limit_s"])
            out.say("tampered", problem=problem)
        elif name == "start":
            load.start()
            out.say("started", clock_ns=clock.now())
        elif name == "start_producers":
            load.start_producers()
        elif name == "start_consumers":
            load.start_consumers()
        elif name == "stop_producers":
            load.stop_producers()
        elif name == "where":
            out.say("where", stacks=load.awaited())
        elif name == "stop":
            load.stop(_looks(command), config.close_s)
            break
        else:
            raise InfrastructureError(f"there is no command {name!r}")
    else:
        load.abandon()
        with contextlib.suppress(InfrastructureError):
            load.stop((), QUICK_CLOSE_S)
    ended.set()
    if load.failed.is_set():
        return InfrastructureError.exit_status
    if spool:
        spool.close()
    out.say("status", **load.status())
    out.say("closed")
    return 0


def main() -> int:
    """Run the worker on standard input and output; return its exit status."""
    # A client takes several descriptors, and a login has 1,024 unless it asks for what it may have.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Libraries that print to standard output must not get between our lines.
    out = EventPipe(os.dup(1))
    os.dup2(2, 1)
    clock = LedgerClock()
    lines = CommandLines(0)
    status = InfrastructureError.exit_status
    try:
        first = next(lines, None)
        if first is None:
            return 0
        status = serve(configuration.from_json(first), clock, lines, out)
    except (BrokerdrillError, LedgerError) as error:
        out.say("fatal", error=str(error))
        status = error.exit_status if isinstance(error, BrokerdrillError) else status
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        out.say("fatal", error=f"{type(error).__name__}: {error}")
    finally:
        out.finish(2.0)
    return status


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Without waiting for clients that hang, nor for the JVM's shutdown.
    os._exit(code)
