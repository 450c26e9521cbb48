"""What a backup costs Artemis: normal operation with a shared store and with replication, and how long a replicating
backup needs until it has everything.

    python benchmarks/replication/run.py [--rounds N] [--sends N] [--messages N ...]

On loopback, with brokers of its own whose journals are synced to the disk, as the product's are. Each figure is a ratio
within one run: a live-only server, the pair with a shared store and the replicating one take turns at the same sends,
one after another from one client; a synchronisation is set against that of an empty broker.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.workload.ha_members import Members, Q, connected, connection
from tests.workload.standalone_broker import unpack

BODY = b"x" * 1024
A_COMMIT = 1_000
MESSAGES = (0, 10_000, 100_000)
ANNOUNCED, IN_SYNC, SENDING = b"AMQ221031", b"AMQ221024", "AMQ221025"
# By kind of pair: what its live server and its backup are.
POLICIES = {
    "store": ("<shared-store><primary/></shared-store>", "<shared-store><backup/></shared-store>"),
    "replicated": ("<replication><primary/></replication>", "<replication><backup/></replication>"),
}
HEAP = "-Xms256m -Xmx256m -XX:+UseSerialGC -XX:-UsePerfData -Dlog4j2.disableJmx=true"


def pair(members: Members, live: str, backup: str, kind: str) -> None:
    """Write both brokers of a pair, each in a cluster of the two."""
    for name, other, policy in zip((live, backup), (backup, live), POLICIES[kind], strict=True):
        store = live if kind == "store" else name
        cluster = connection("cluster1", name, [other])
        members.write(name, f"<ha-policy>{policy}</ha-policy>", store=store, connections=cluster)


def sends(url: str, count: int) -> float:
    """Send persistent messages one after another; return how many a second were acknowledged."""
    with connected(f"{url}?blockOnDurableSend=true") as one:
        session = one.createSession(False, 1)
        producer = session.createProducer(session.createQueue(Q))
        message = bytes_message(session)
        producer.send(message)
        begun = time.perf_counter()
        for _ in range(count):
            producer.send(message)
        rate = count / (time.perf_counter() - begun)
        consumer = session.createConsumer(session.createQueue(Q))
        for _ in range(count + 1):
            assert consumer.receive(30_000) is not None
        return rate


def bytes_message(session: Any) -> Any:
    message = session.createBytesMessage()
    message.writeBytes(BODY)
    return message


def operation(members: Members, rounds: int, count: int) -> None:
    """Print the rates of the three kinds, and their ratios to the live-only server's."""
    members.write("alone", "", connections="")
    pair(members, "store", "store-backup", "store")
    pair(members, "replicated", "replicated-backup", "replicated")
    members.start("alone", "store", "replicated")
    members["store-backup"].launch()
    members["replicated-backup"].launch()
    members.says("store-backup", ANNOUNCED)
    members.says("replicated-backup", IN_SYNC)
    found: dict[str, list[float]] = {"alone": [], "store": [], "replicated": []}
    for turn in range(rounds + 1):
        for name, rates in found.items():
            rate = sends(members[name].url, count)
            if turn:  # the first is to warm up
                rates.append(rate)
    middle = {name: statistics.median(rates) for name, rates in found.items()}
    print(f"{rounds} rounds of {count} sends: " + ", ".join(f"{name} {rate:.0f}/s" for name, rate in middle.items()))
    for name in ("store", "replicated"):
        ratios = [one / alone for one, alone in zip(found[name], found["alone"], strict=True)]
        print(
            f"{name}: {statistics.median(ratios):.2f} of a live-only server's ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    members.clear()


def filled(url: str, count: int) -> None:
    with connected(url) as one:
        session = one.createSession(True, 0)
        producer = session.createProducer(session.createQueue(Q))
        message = bytes_message(session)
        for number in range(1, count + 1):
            producer.send(message)
            if number % A_COMMIT == 0 or number == count:
                session.commit()


def at(line: str) -> float:
    """When a line of a broker's log was written, in seconds."""
    return datetime.fromisoformat(line[:23].replace(",", ".")).timestamp()


def synchronised(members: Members, count: int) -> float:
    """Let a backup come to a broker with so many messages; return the seconds from the first file to the last word."""
    pair(members, "replicated", "replicated-backup", "replicated")
    members.start("replicated")
    filled(members["replicated"].url, count)
    members["replicated-backup"].launch()
    members.says("replicated-backup", IN_SYNC)
    begun = members.said("replicated", SENDING)[0]
    ended = members.said("replicated-backup", IN_SYNC.decode())[0]
    members.clear()
    return at(ended) - at(begun)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sends", type=int, default=300)
    parser.add_argument("--messages", type=int, nargs="*", default=list(MESSAGES))
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="brokerdrill-replication-") as folder:
        home = unpack(Path(folder) / "home")
        names = ["alone", *(f"{kind}{end}" for kind in POLICIES for end in ("", "-backup"))]
        members = Members(home, Path(folder), names, java_args=HEAP, datasync=True)
        try:
            if given.rounds:
                operation(members, given.rounds, given.sends)
            took = {count: synchronised(members, count) for count in given.messages}
            for count, seconds in took.items():
                ratio = seconds / took[given.messages[0]]
                print(f"synchronisation with {count} messages: {seconds:.2f} s, {ratio:.1f} times the first one's")
        finally:
            members.clear()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
