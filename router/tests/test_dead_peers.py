"""Who is taken for dead: a peer that acknowledges nothing, and never one that only takes no more for a while."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time

import pytest
from router_support import apart, config_of, local_router_of, wait_for
from test_sessions import Client, FakeBroker, Peer

from amqp_session_router.amqp import frames

DEAD = 1.0
BODY = frames.frame(b"x" * 100_000, 1, kind=3)


def stalled(sender: socket.socket) -> int:
    """Send bodies until nothing more is taken for half a second; return how many bytes went."""
    sender.settimeout(0.5)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while True:
            sent += sender.send(memoryview(BODY)[sent % len(BODY) :])
    sender.settimeout(60)
    return sent


def read_all(sock: socket.socket, count: int) -> None:
    """Read so many bytes; raises EOFError where there are fewer."""
    while count:
        if not (data := sock.recv(min(count, 1 << 20))):
            raise EOFError
        count -= len(data)


@pytest.mark.parametrize("stalls", ["broker", "client"])
def test_who_takes_no_more_for_longer_than_a_dead_peer_may_be_silent_lives(stalls: str) -> None:
    """A broker in alarm does not read its publishers, a consumer takes its time: both acknowledge the window probes."""
    broker = FakeBroker()
    with local_router_of(config_of(broker.port, timeouts={"dead_peer": DEAD})) as router:
        client = Client(router.port).opened()
        ends: tuple[Peer, Peer] = (client, broker.peer())
        writer, reader = (one.sock for one in (ends if stalls == "broker" else ends[::-1]))
        sent = stalled(writer)
        until = time.monotonic() + 6 * DEAD
        while time.monotonic() < until:
            assert not router.entries("closed")
            time.sleep(0.1)
        read_all(reader, sent)
        writer.sendall(b"y" * (len(BODY) - sent % len(BODY)))


def cut_off(port: int) -> None:
    """Drop all packets from and to a port of this network namespace."""
    for side in ("--sport", "--dport"):
        subprocess.run(["iptables", "-A", "INPUT", "-p", "tcp", side, str(port), "-j", "DROP"], check=True)


def vanish(who: str) -> None:
    """In a network namespace of its own: cut one peer off while bytes go to it, and print how the session ends."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    broker = FakeBroker()
    with local_router_of(config_of(broker.port, timeouts={"dead_peer": DEAD})) as router:
        client = Client(router.port).opened()
        writer, cut, counted = (
            (client.sock, broker.port, "from_client")
            if who == "broker"
            else (broker.peer().sock, router.port, "from_broker")
        )
        threading.Thread(target=stalled, args=(writer,), daemon=True).start()
        wait_for("bytes on their way", lambda: router.ctl("CONN")[0][counted] > 1 << 16)
        cut_off(cut)
        ended = wait_for("the end of the session", lambda: router.entries("closed"), 60)
        print(ended[0]["how"], ended[0]["text"])


@pytest.mark.parametrize("who", ["broker", "client"])
def test_who_acknowledges_nothing_is_dead(who: str) -> None:
    assert apart("test_dead_peers", "vanish", who).startswith(f"{who}_lost the {who} acknowledges nothing")
