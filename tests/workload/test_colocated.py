"""What the document on Artemis' high availability says of colocated backups, on real brokers: who asks whom and how
often, what the backups are called, and where they are found."""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from itertools import pairwise

from tests.workload.core_calls import wait_until
from tests.workload.ha_members import DEADLINE_S, Members, asked, send, take

ASKS, STARTS_ONE, IN_SYNC, TAKES_OVER = "AMQ221066", "AMQ221049", "AMQ221024", b"AMQ221037"
OFFSET, RETRIES, INTERVAL_MS = 7, 2, 400
WITHIN = 5
KINDS = ("primary", "backup")
# The fixture `members` makes these.
MEMBERS = ("a", "b", "c")


def policy(others: str, max_backups: int) -> str:
    """Replication, and a backup asked for; the connectors to the others stay as they are."""
    excluded = "".join(f"<connector-ref>{other}</connector-ref>" for other in others)
    return (
        "<ha-policy><replication><colocated><request-backup>true</request-backup>"
        f"<max-backups>{max_backups}</max-backups><backup-request-retries>{RETRIES}</backup-request-retries>"
        f"<backup-request-retry-interval>{INTERVAL_MS}</backup-request-retry-interval>"
        f"<backup-port-offset>{OFFSET}</backup-port-offset><excludes>{excluded}</excludes><master/><slave/>"
        "</colocated></replication></ha-policy>"
    )


def times(members: Members, name: str) -> list[float]:
    """When the broker asked for a backup."""
    return [datetime.fromisoformat(line[:23].replace(",", ".")).timestamp() for line in members.said(name, ASKS)]


def backups(members: Members, name: str) -> int:
    return len(members.said(name, STARTS_ONE))


def run(members: Members, told: dict[str, int]) -> bool:
    """Whether each of the brokers runs so many backups."""
    return all(backups(members, name) == count for name, count in told.items())


def backup_ports(members: Members, seen_by: str) -> dict[int, int]:
    """Port of each active broker that has a backup → its backup's, as a broker knows the cluster."""
    found = json.loads(asked(members[seen_by].url, "broker", "listNetworkTopology"))
    port = {(one["nodeID"], kind): int(one[kind].rpartition(":")[2]) for one in found for kind in KINDS if kind in one}
    return {port[node, "primary"]: backup for (node, kind), backup in port.items() if kind == "backup"}


def test_who_asks_and_who_runs_how_many(members: Members) -> None:
    """Three that start one after another; b may run two, the others one.

    Seen otherwise than told: a server asks without end whatever backup-request-retries says, and the backups are not
    evenly distributed.
    """
    within = {"within": f"vm://{WITHIN}"}
    for name, others, most in (("a", "bc", 1), ("b", "ac", 2), ("c", "ab", 1)):
        members.write(name, policy(others, most), acceptors=within, connectors=within)
    members.start("a")
    wait_until(lambda: len(times(members, "a")) > 2 * (1 + RETRIES), DEADLINE_S)
    asked_at = times(members, "a")
    gaps = [later - earlier for earlier, later in pairwise(asked_at)]
    assert INTERVAL_MS / 1000 - 0.01 <= min(gaps) < 2 * INTERVAL_MS / 1000, gaps
    for name, told in (("b", {"a": 1, "b": 1}), ("c", {"a": 1, "b": 2, "c": 0})):
        members.start(name)
        wait_until(partial(run, members, told), DEADLINE_S)
    ports = {name: members[name].port for name in "abc"}
    expected = {ports["a"]: ports["b"] + OFFSET, ports["b"]: ports["a"] + OFFSET, ports["c"]: ports["b"] + 2 * OFFSET}
    wait_until(lambda: backup_ports(members, "b") == expected, DEADLINE_S)
    assert backups(members, "c") == 0
    stored = sorted(path.name for path in members.data("b").iterdir() if path.name.startswith("journal"))
    assert stored == ["journal", "journalcolocated_backup_01", "journalcolocated_backup_11"]
    wait_until(lambda: len(members.said("b", IN_SYNC)) == 2, DEADLINE_S)
    send(members["c"].url, ["waits"])
    members["c"].kill()
    members.says("b", TAKES_OVER)
    second = f"tcp://127.0.0.1:{ports['b'] + 2 * OFFSET}"
    members.says("b", f"Acceptor at 127.0.0.1:{ports['b'] + 2 * OFFSET}".encode())
    assert take(second, count=1) == ["waits"]
    for kind in ("Acceptors", "Connectors"):
        found = {one["name"]: one["params"] for one in json.loads(asked(second, "broker", f"get{kind}AsJSON"))}
        assert found["within"]["serverId"] == WITHIN + 2 * OFFSET
        assert found["within"]["activemqServerName"] == "colocated_backup_11"
    assert found["a"]["port"] == str(ports["a"]), "one that is excluded stays as it is"
    assert found["b"]["port"] == str(ports["b"] + 2 * OFFSET)
