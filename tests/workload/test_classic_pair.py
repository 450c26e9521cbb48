"""What the document on Artemis' high availability says of a classic replicating pair, on real brokers: whom a backup
without a group name follows, the way back, and the time-out that a backup has for it once it is active."""

from __future__ import annotations

from tests.workload.ha_members import Members, asked, send, take
from tests.workload.standalone_broker import Relay

IN_SYNC, TAKES_OVER, GIVES_WAY, LISTENS = b"AMQ221024", b"AMQ221037", b"AMQ221039", b"AMQ221020"
TIMED_OUT = "AMQ229114"
SYNC_TIMEOUT_MS = 1_700
ASKS_FOR_ITS_PLACE = b"not-a-default\xff"
# The fixture `members` makes these.
MEMBERS = ("a", "b")


MASTER = (
    "<ha-policy><replication><master>{group}<check-for-live-server>true</check-for-live-server></master>"
    "</replication></ha-policy>"
)
SLAVE = (
    "<ha-policy><replication><slave><allow-failback>true</allow-failback>"
    f"<initial-replication-sync-timeout>{SYNC_TIMEOUT_MS}</initial-replication-sync-timeout>"
    "</slave></replication></ha-policy>"
)


def failed_over(members: Members) -> None:
    """The backup has taken over with a message, and its former live server is gone."""
    members.start("a")
    members["b"].launch()
    members.says("b", IN_SYNC)
    send(members["a"].url, ["before"])
    members["a"].kill()
    members.says("b", TAKES_OVER)
    members.says("b", LISTENS)


def test_a_backup_without_a_group_follows_a_server_that_has_one(members: Members) -> None:
    members.write("a", MASTER.format(group="<group-name>fish</group-name>"))
    members.write("b", SLAVE)
    members.start("a")
    members["b"].launch()
    members.says("b", IN_SYNC)


def test_a_backup_that_has_taken_over_gives_way(members: Members) -> None:
    """By the older names of both."""
    members.write("a", MASTER.format(group=""))
    members.write("b", SLAVE)
    failed_over(members)
    send(members["b"].url, ["after"])
    node = asked(members["b"].url, "broker", "getNodeID")
    members["a"].launch()
    members.says("b", GIVES_WAY)
    members.says("a", TAKES_OVER)
    members.says("a", LISTENS)
    assert asked(members["a"].url, "broker", "getNodeID") == node
    assert take(members["a"].url) == ["before", "after"]


class Deaf(Relay):
    """A relay that lets nothing of what the broker says through once somebody asks it for its place."""

    def _to_broker(self, data: bytes) -> None:
        # The only message in which the account is followed by the wish to fail back.
        if ASKS_FOR_ITS_PLACE in data:
            self.hold()


def test_the_way_back_has_the_time_out_of_the_backup(members: Members) -> None:
    """What the backup sends to its returned live server is held back, so that it never hears that all has arrived."""
    relay = Deaf(members["b"].port)
    try:
        at_relay = {"b": f"tcp://127.0.0.1:{relay.port}"}
        members.write("a", MASTER.format(group=""), connectors=at_relay)
        members.write("b", SLAVE, connectors=at_relay)
        failed_over(members)
        assert not members.said("b", TIMED_OUT)
        members["a"].launch()
        members.says("b", TIMED_OUT.encode())
        (said, *_) = members.said("b", TIMED_OUT)
        assert f"after waiting {SYNC_TIMEOUT_MS} milliseconds" in said.replace(",", "")
        assert not members.said("b", GIVES_WAY.decode())
        assert take(members["b"].url, count=1) == ["before"]
    finally:
        relay.close()
