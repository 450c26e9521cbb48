"""What goes over this machine's loopback, packet by packet: for tests of what can be read there. Asks for root."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

ALL_PROTOCOLS = 3
LARGEST = 1 << 17
TCP = 6


def tcp_payload(packet: bytes) -> tuple[int, int, bytes] | None:
    """Return source port, destination port and content of an Ethernet frame with TCP over IPv4; None of any other."""
    if packet[12:14] != b"\x08\x00" or packet[23] != TCP:
        return None
    segment = packet[14 + (packet[14] & 15) * 4 :]
    ports = int.from_bytes(segment[:2], "big"), int.from_bytes(segment[2:4], "big")
    return *ports, segment[(segment[12] >> 4) * 4 :]


class Wire:
    """What was seen so far."""

    def __init__(self) -> None:
        self._seen: list[tuple[int, int, bytes]] = []

    def add(self, packet: bytes) -> None:
        found = tcp_payload(packet)
        if found is not None:
            self._seen.append(found)

    def has(self, text: bytes, *, to: Collection[int] = (), beside: Collection[int] = ()) -> bool:
        """Whether the text was in a packet from or to one of the ports `to`, if any are given, and none of `beside`."""
        return any(
            text in content and not {source, target} & {*beside} and (not to or bool({source, target} & {*to}))
            for source, target, content in list(self._seen)
        )


@contextmanager
def listened() -> Iterator[Wire]:
    """Listen on loopback, where a machine's connections to its own addresses go, too."""
    wire = Wire()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS)) as one:
        one.bind(("lo", 0))
        one.settimeout(0.2)
        over = threading.Event()

        def listen() -> None:
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    wire.add(one.recv(LARGEST))

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        try:
            yield wire
        finally:
            over.set()
            thread.join()
