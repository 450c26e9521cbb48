"""Damaged bytes at the listeners all the while that the router is restarted, reloaded, paused and killed."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from router_support import Router, config_of, router_of, wait_for
from test_fuzz import CLIENT, PROXY, mutate
from test_workers import WORKERS, children, ctl, kill_worker, peers, replace_all, supervisor, wait_all_ready
from tests.free_ports import free_port

ATTACKERS = 3
SESSIONS = 8
ROUNDS = 3
KEPT, PAUSED = "kept", "paused"
CHANNEL_0, BLOCKED, UNBLOCKED = b"\0\0", b"\0\x0a\0\x3c", b"\0\x0a\0\x3d"


class Attack:
    """Connections with damaged handshakes, one after the other, from some threads."""

    def __init__(self, plain: int, proxied: int, seed: int) -> None:
        self.made = 0
        self._plain, self._proxied = plain, proxied
        self._ends = threading.Event()
        rngs = [random.Random(seed + number) for number in range(ATTACKERS)]
        self._threads = [threading.Thread(target=self._work, args=(rng,), daemon=True) for rng in rngs]
        for thread in self._threads:
            thread.start()

    def _work(self, rng: random.Random) -> None:
        while not self._ends.is_set():
            sent = mutate(CLIENT, rng)
            port = rng.choice((self._plain, self._proxied))
            if port == self._proxied:
                sent = mutate(rng.choice(PROXY), rng) + sent
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
                    for at in range(0, len(sent), step := rng.choice((1 << 20, 300, 40))):
                        sock.sendall(sent[at : at + step])
                    if rng.random() < 0.9:
                        sock.shutdown(socket.SHUT_WR)
                        while sock.recv(65536):
                            pass
            except OSError:
                pass
            self.made += 1

    def end(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


@contextmanager
def attacked(router: Router, proxied: int, seed: int) -> Iterator[Attack]:
    """Attack a router's listeners for the length of a block, and be sure that the attack goes on all the while."""
    attack = Attack(router.port, proxied, seed)
    try:
        wait_for("an attack", lambda: attack.made > ATTACKERS)
        yield attack
    finally:
        attack.end()


def frames_in(data: bytes) -> Iterator[bytes]:
    """The whole frames at the beginning of `data`."""
    at = 0
    while len(data) >= at + 7 and len(data) >= (end := at + int.from_bytes(data[at + 3 : at + 7], "big") + 8):
        yield data[at:end]
        at = end


def all_come_back(socks: list[socket.socket]) -> None:
    """What each session sends comes back to it, whole, whatever it is told of a pause meanwhile."""
    sent = peers.message(100)
    for sock in socks:
        sock.settimeout(60)
        sock.sendall(sent)
        data = got = b""
        while len(got) < len(sent):
            more = sock.recv(65536)
            assert more, "a session was lost"
            data += more
            told = [frame for frame in frames_in(data) if frame[1:3] == CHANNEL_0]
            assert {frame[7:11] for frame in told} <= {BLOCKED, UNBLOCKED}, told
            got = b"".join(frame for frame in frames_in(data) if frame[1:3] != CHANNEL_0)
        assert got == sent


def descriptors(router: Router) -> int:
    """How many descriptors the workers have open."""
    pids = [pid for index in range(WORKERS) for pid in children(supervisor(router, index))]
    return sum(len([*Path(f"/proc/{pid}/fd").iterdir()]) for pid in pids)


@pytest.mark.timeout(600)
def test_damage_meets_restarts_reloads_pauses_and_kills(echoes: list[int]) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    config = config_of(*echoes, workers=WORKERS)
    proxied = free_port()
    config["listeners"]["proxied"] = {
        "host": "127.0.0.1",
        "port": proxied,
        "proxy_protocol": True,
        "trusted": ["127.0.0.0/8"],
    }
    with router_of(config) as router:
        wait_all_ready(router, 1)
        kept, paused = ([peers.dial(router.port, vhost) for _ in range(SESSIONS)] for vhost in (KEPT, PAUSED))
        all_come_back(kept + paused)
        ours = {row["id"] for row in ctl(router, "CONN")}
        before = descriptors(router)
        with attacked(router, proxied, seed) as attack:
            for number in range(ROUNDS):
                made = attack.made
                for act in (
                    lambda: replace_all(router),
                    lambda: ctl(router, "CONFIG", "RELOAD"),
                    lambda number=number: kill_worker(router, number % WORKERS),  # type: ignore[misc]
                ):
                    ctl(router, "VHOST", "PAUSE", PAUSED)
                    act()
                    all_come_back(kept)
                    ctl(router, "VHOST", "UNPAUSE", PAUSED)
                    all_come_back(kept + paused)
                assert attack.made > made
            print(f"{attack.made} damaged connections")
        wait_for("nobody but the sessions", lambda: len(ctl(router, "CONN")) == 2 * SESSIONS)
        wait_for("no more descriptors than before", lambda: descriptors(router) <= before + WORKERS)
        assert not router.entries("a session failed")
        # One of the attack's may be: it was open, and its client gone, when its process was killed.
        assert not ours & {one["session"] for one in router.entries("a session is lost")}
        assert ours == {row["id"] for row in ctl(router, "CONN")}
        all_come_back(kept + paused)
        for sock in kept + paused:
            sock.close()
