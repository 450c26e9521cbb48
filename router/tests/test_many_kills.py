"""Two hundred kills at random moments of handovers, while real clients work with a real RabbitMQ."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter

import pika
import pytest
from router_support import PASSWORD, USER, Broker, Router, config_of, router_of, wait_for
from test_workers import WORKERS, children, ctl, replace_all, supervisor, wait_all_ready

from amqp_session_router.base.errors import RouterError

KILLS = 200
CLIENTS = 20
# Where a handover may stand when one of its processes is killed, as the router's log says it.
STEPS = ("being made", "taking over", "settling")


class Client:
    """A connection that publishes with confirms and consumes what it published, over and over; the first thing that
    goes wrong ends it and stands in `lost`."""

    def __init__(self, port: int, number: int, ends: threading.Event) -> None:
        self.rounds = 0
        self.lost: str | None = None
        self._number, self._ends = number, ends
        credentials = pika.PlainCredentials(USER, PASSWORD)
        self._connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", port, "/", credentials, stack_timeout=30, socket_timeout=30)
        )
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        try:
            channel = self._connection.channel()
            channel.confirm_delivery()
            queue = channel.queue_declare("", exclusive=True).method.queue
            bodies = channel.consume(queue)
            while not self._ends.is_set():
                body = f"{self._number}.{self.rounds}.".encode() * 50
                channel.basic_publish("", queue, body, mandatory=True)
                method, _, got = next(bodies)
                assert got == body, "another message than the one that was published"
                assert method is not None
                channel.basic_ack(method.delivery_tag)
                self.rounds += 1
            self._connection.close()
        except Exception as error:
            self.lost = f"client {self._number} after {self.rounds} messages: {type(error).__name__}: {error}"


def step_of(router: Router, index: int, begun: Counter[str]) -> str:
    """Where the handover of a worker stands, by what its log has more than in `begun`."""
    seen = said(router, index)
    if seen["ready"] > begun["ready"]:
        return "settling"
    return "taking over" if seen["handed over"] > begun["handed over"] else "being made"


def said(router: Router, index: int) -> Counter[str]:
    """How often a worker said that it is ready, and that it handed all over."""
    return Counter(
        {what: sum(one["worker"] == index for one in router.entries(what)) for what in ("ready", "handed over")}
    )


def settled(router: Router) -> bool:
    """Whether each worker is one process again, and all answer."""
    if any(len(children(supervisor(router, index))) != 1 for index in range(WORKERS)):
        return False
    try:
        return len(ctl(router, "CONN")) == CLIENTS
    except RouterError:  # who had the control socket was killed
        return False


def any_lost(clients: list[Client]) -> bool:
    return any(client.lost for client in clients)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_no_session_is_lost_by_kills_in_handovers(broker: Broker) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    hit: Counter[tuple[str, str]] = Counter()
    with router_of(config_of(broker.port, workers=WORKERS, log={"level": "info"})) as router:
        wait_all_ready(router, 1)
        ends = threading.Event()
        clients = [Client(router.port, number, ends) for number in range(CLIENTS)]
        wait_for("work", lambda: all(client.rounds for client in clients))
        begin = time.monotonic()
        replace_all(router)
        took = time.monotonic() - begin
        for number in range(KILLS):
            index = rng.randrange(WORKERS)
            # There may be two: a restart that was asked for while one was under way follows it.
            old = children(supervisor(router, index))[0]
            begun = said(router, index)
            assert router.process is not None
            router.process.send_signal(signal.SIGUSR2)
            new = wait_for("a successor", lambda old=old, index=index: new_of(router, index, old))[0]  # type: ignore[misc]
            time.sleep(rng.uniform(0, took))
            victim = rng.choice(children(supervisor(router, index)))
            hit[step_of(router, index, begun), {old: "predecessor", new: "successor"}.get(victim, "its follower")] += 1
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(victim, signal.SIGKILL)
            wait_for(f"one process a worker after kill {number}", lambda: settled(router) or any_lost(clients), 60)
            lost = [client.lost for client in clients if client.lost]
            assert not lost, (number, lost, router.log.read_text()[-8000:])
        before = [client.rounds for client in clients]
        wait_for("more work", lambda: all(c.rounds > b for c, b in zip(clients, before, strict=True)))
        ends.set()
        for client in clients:
            client.thread.join(30)
        assert not [client.lost for client in clients if client.lost]
        print(f"a planned handover takes {took:.2f} s; {sum(c.rounds for c in clients)} messages; killed: {dict(hit)}")
        assert sum(hit.values()) == KILLS
        assert {step for step, _ in hit} == {*STEPS}, hit
        assert {who for _, who in hit} >= {"predecessor", "successor"}, hit


def new_of(router: Router, index: int, old: int) -> list[int]:
    """The processes of a worker beside `old`."""
    return [pid for pid in children(supervisor(router, index)) if pid != old]
