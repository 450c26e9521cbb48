"""What the document on Artemis' high availability says of servers and backups that scale down, on real brokers: where
messages and prepared transactions get to, in which order, and how the one that takes them is found."""

from __future__ import annotations

import secrets
from typing import Any

import jpype

from tests.free_ports import free_port
from tests.workload.core_calls import wait_until
from tests.workload.ha_members import DEADLINE_S, Members, connected, send, take
from tests.workload.standalone_broker import QUEUES

TAKEN, SENT = QUEUES
ANNOUNCED, SCALED_DOWN, SCALED_DOWN_AS_BACKUP = b"AMQ221031", b"AMQ221078", b"AMQ221047"
SUCCESS, RECOVERED = 0x4000000, 0x1800000
# The fixture `members` makes these.
MEMBERS = ("a", "b", "c")


def prepare(url: str) -> None:
    """Leave a transaction prepared in which what waits on a queue first is taken, and something is sent to another."""
    with connected(url, "ActiveMQXAConnectionFactory", "createXAConnection") as one:
        session = one.createXASession()
        resource = session.getXAResource()
        kind = jpype.JClass("org.apache.activemq.artemis.core.transaction.impl.XidImpl")
        xid = kind(secrets.token_bytes(8), 1, secrets.token_bytes(8))
        resource.start(xid, 0)
        assert session.createConsumer(session.createQueue(TAKEN)).receive(30_000) is not None
        session.createProducer(session.createQueue(SENT)).send(session.createTextMessage("prepared"))
        resource.end(xid, SUCCESS)
        assert resource.prepare(xid) == 0


def commit_prepared(url: str) -> int:
    """Commit all that is prepared at a broker; return how many transactions that were."""
    with connected(url, "ActiveMQXAConnectionFactory", "createXAConnection") as one:
        resource: Any = one.createXASession().getXAResource()
        found = resource.recover(RECOVERED)
        for xid in found:
            resource.commit(xid, False)
        return len(found)


def test_a_backup_scales_down_instead_of_serving(members: Members) -> None:
    """Of a pair with a shared store; c is beside it. The backup's group name is nobody's: seen not to count.

    The order is the document's own example: what waited at the other server comes after all that waited here.
    """
    group = "<group-name>nobodys</group-name>"
    target = "<connectors><connector-ref>c</connector-ref></connectors>"
    members.write("a", "<ha-policy><shared-store><master/></shared-store></ha-policy>")
    slave = f"<slave><scale-down>{group}{target}</scale-down><restart-backup>false</restart-backup></slave>"
    members.write("b", f"<ha-policy><shared-store>{slave}</shared-store></ha-policy>", store="a")
    members.write("c", "")
    members.start("a", "c")
    members["b"].launch()
    members.says("b", ANNOUNCED)
    first, other = members["a"].url, members["c"].url
    send(first, ["taken", *(str(number) for number in range(2, 11, 2))])
    send(other, [str(number) for number in range(1, 11, 2)])
    prepare(first)
    members["a"].kill()
    members.says("b", SCALED_DOWN_AS_BACKUP)
    assert not members.said("b", "AMQ221010"), "it served as a backup that has become active"
    assert not members.said("b", "Started EPOLL Acceptor")
    assert take(other, SENT) == []
    assert commit_prepared(other) == 1
    assert take(other, SENT) == ["prepared"]
    assert take(other, TAKEN) == [*"13579", *"2468", "10"]


def discovered(group_port: int, own: str) -> str:
    """The elements of a broker that is announced by multicast on loopback, and hears of others that are."""
    place = (
        "<local-bind-address>127.0.0.1</local-bind-address><group-address>231.7.7.7</group-address>"
        f"<group-port>{group_port}</group-port>"
    )
    return (
        f'<broadcast-groups><broadcast-group name="tell">{place}<broadcast-period>250</broadcast-period>'
        f"<connector-ref>{own}</connector-ref></broadcast-group></broadcast-groups>"
        f'<discovery-groups><discovery-group name="my-discovery-group">{place}</discovery-group></discovery-groups>'
    )


def by_discovery(own: str) -> str:
    """A cluster connection to who is announced."""
    return (
        f'<cluster-connection name="cluster1"><connector-ref>{own}</connector-ref>'
        "<message-load-balancing>OFF</message-load-balancing>"
        '<discovery-group-ref discovery-group-name="my-discovery-group"/></cluster-connection>'
    )


def test_a_stopped_server_scales_down_to_who_is_discovered(members: Members) -> None:
    """The document's example of a live-only server with a discovery group."""
    port = free_port()
    target = '<scale-down><discovery-group-ref discovery-group-name="my-discovery-group"/></scale-down>'
    for name, policy in (("a", f"<ha-policy><live-only>{target}</live-only></ha-policy>"), ("c", "")):
        members.write(name, policy, more=discovered(port, name), connections=by_discovery(name))
    members.start("a", "c")
    first, other = members["a"].url, members["c"].url
    send(first, ["2", "4"])
    send(other, ["1", "3"])
    # Each knows of the other one.
    wait_until(lambda: all(len(members.said(name, "AMQ221027")) == 1 for name in "ac"), DEADLINE_S)
    members["a"].stop()
    assert members.said("a", SCALED_DOWN.decode())
    assert take(other) == ["1", "3", "2", "4"]


def purple_and_tiddles(group: str, backup_group: str) -> str:
    """The document's last example with two changes: a backup is asked for, and every second; and cluster connections
    have the one name that the broker has."""
    return (
        "<ha-policy><replication><colocated><backup-request-retries>44</backup-request-retries>"
        "<backup-request-retry-interval>1000</backup-request-retry-interval><max-backups>3</max-backups>"
        "<request-backup>true</request-backup><backup-port-offset>33</backup-port-offset>"
        f"<master><group-name>{group}</group-name><check-for-live-server>true</check-for-live-server>"
        "<cluster-name>cluster1</cluster-name></master>"
        f"<slave><group-name>{backup_group}</group-name>"
        "<max-saved-replicated-journals-size>22</max-saved-replicated-journals-size>"
        "<cluster-name>cluster1</cluster-name><restart-backup>false</restart-backup>"
        "<scale-down><group-name>boo!</group-name>"
        '<discovery-group-ref discovery-group-name="my-discovery-group"/></scale-down></slave>'
        "</colocated></replication></ha-policy>"
    )


ASKS, ANSWERS, STARTS_ONE, IN_SYNC = "AMQ221066", "AMQ221063", "AMQ221049", b"AMQ221024"


def test_the_last_example_starts_backups_once_its_groups_match(members: Members) -> None:
    """Where every server has the document's two, purple and tiddles, none starts a backup for another: a backup's group
    has to be that of the server it is for."""
    port = free_port()
    for groups, starts in ((("purple", "tiddles"), False), (("purple", "purple"), True)):
        for name in "ab":
            members[name].kill()
            more, connections = discovered(port, name), by_discovery(name)
            members.write(name, purple_and_tiddles(*groups), more=more, connections=connections)
        members.start("a", "b")
        if not starts:
            # Each is asked thrice, and would run three: to none it says yes.
            wait_until(lambda: all(len(members.said(name, ANSWERS)) >= 3 for name in "ab"), DEADLINE_S)
            assert all("backupAvailable=true" in line for name in "ab" for line in members.said(name, ANSWERS))
            assert not any(members.said(name, STARTS_ONE) for name in "ab")
    members.says("b", IN_SYNC)
