"""What the role openmq computes and refuses: each rule by the smallest configuration that breaks it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.roles.test_plugins import plugin

openmq = plugin("filter", "openmq")
preflight = plugin("filter", "openmq_preflight")
topology = plugin("filter", "openmq_topology")


def member(number: int, **change: Any) -> dict[str, Any]:
    name = f"h{number}"
    return {
        "instance": name,
        "address": f"192.0.2.{number}",
        "port": 7676,
        "cluster_port": 7677,
        "cluster": "enhanced",
        "broker_id": name,
        "master": "h1",
        **change,
    }


def cluster(model: str, second: dict[str, Any] | None = None, **change: Any) -> dict[str, Any]:
    members = {"h1": member(1, cluster=model), "h2": member(2, **{"cluster": model, **(second or {})})}
    heartbeat = {"openmq_heartbeat_interval_s": 1, "openmq_heartbeat_threshold": 3, "openmq_monitor_interval_s": 2}
    return {
        "version": "6.5.1",
        "archive": {"coordinate": "a:b:c:zip", "sha256": "0"},
        "cluster": model,
        "members": members,
        "hosts": ["h1", "h2"],
        "leaving": [],
        "prefix_length": 24,
        "heartbeat": heartbeat,
        "jdbc_url": "jdbc:postgresql://192.0.2.9/broker",
        "allow": [],
        **change,
    }


@pytest.mark.parametrize("model", ["none", "conventional_master", "conventional_peers", "enhanced"])
def test_a_good_cluster_is_not_refused(model: str) -> None:
    assert preflight.openmq_problems(cluster(model)) == []


BROKEN = [
    (cluster("none", archive=None), "openmq_version 6.5.1 is not known"),
    (cluster("enhanced", jdbc_url=""), "openmq_cluster enhanced needs a database"),
    (cluster("conventional_peers", jdbc_url=""), "openmq_cluster conventional_peers needs a database"),
    (cluster("conventional_master", {"address": "127.0.0.1"}), "refuses loopback addresses"),
    (cluster("enhanced", {"address": "localhost"}), "refuses loopback addresses"),
    (cluster("enhanced", {"cluster": "conventional_peers"}), "conventional_peers and enhanced"),
    (cluster("conventional_master", {"master": "h2"}), "is not the same on all brokers: h1, h2"),
    (
        cluster("conventional_master", members={"h2": member(2, cluster="conventional_master")}),
        "openmq_cluster_master is h1, which is none of the brokers h2",
    ),
    (
        cluster("conventional_master", members={"h2": member(2, cluster="conventional_master")}, leaving=["h1"]),
        "openmq_cluster_master is h1, which leaves: make another broker the master first",
    ),
    (cluster("enhanced", leaving=["h3"]), "openmq_leaving names h3, which is none of the hosts h1, h2"),
    (cluster("enhanced", members={}, leaving=["h1", "h2"]), "openmq_leaving names all brokers of the cluster"),
    (cluster("enhanced", {"broker_id": "h1"}), "h1 and h2 have one openmq_broker_id, h1"),
    (cluster("enhanced", {"address": "198.51.100.2"}), "different subnets (192.0.2.0/24, 198.51.100.0/24)"),
    (cluster("enhanced", heartbeat={"openmq_heartbeat_interval_s": 0}), "openmq_heartbeat_interval_s is 0"),
    (cluster("enhanced", heartbeat={"openmq_monitor_interval_s": 0.5}), "openmq_monitor_interval_s is 0.5"),
]


@pytest.mark.parametrize(("config", "words"), BROKEN, ids=[words for _, words in BROKEN])
def test_what_the_documents_forbid_is_refused(config: dict[str, Any], words: str) -> None:
    (problem,) = preflight.openmq_problems(config)
    assert words in problem


@pytest.mark.parametrize(
    ("rule", "config"),
    [
        ("loopback", cluster("conventional_master", {"address": "127.0.0.1"})),
        ("subnet", cluster("enhanced", {"address": "198.51.100.2"})),
    ],
)
def test_a_drill_may_want_it_broken(rule: str, config: dict[str, Any]) -> None:
    assert preflight.openmq_problems({**config, "allow": [rule]}) == []


@pytest.mark.parametrize(
    ("user", "password", "expected"),
    # Both as the broker's own imqusermgr wrote them.
    [
        ("guest", "guest", "-2c3c4a34aa2c392f39edd112333c230d"),
        ("drill", "drillpass", "-509378117da45348d306209a3e02619f"),
    ],
)
def test_the_hash_of_a_password_is_the_products(user: str, password: str, expected: str) -> None:
    assert openmq.openmq_password_hash(password, user) == expected


def test_an_encoded_pass_file_is_read() -> None:
    # As the product's own imqusermgr encode wrote it.
    text = (
        "imq.imqcmd.password{13be1fc74D5101F4}="
        "-4dcec07bbf5ab978ac188ec38399846ca554768ab291113d462827d25567b092:c2VjcmV0LWFkbWlu\n"
        "imq.keystore.password{-3dc789394D5101F4}="
        "5e2c55162ac7b930e8a87af3d38e72a5809afa900a3f7d05fa02bf5fef83f6ee:a2V5cGFzcw==\n"
    )
    expected = {"imq.imqcmd.password": "secret-admin", "imq.keystore.password": "keypass"}
    assert openmq.openmq_passfile_decoded(text) == expected
    assert openmq.openmq_passfile_decoded(openmq.openmq_passfile(expected)) == {}


def test_only_missing_destinations_are_made() -> None:
    bean = 'com.sun.messaging.jms.server:desttype=q,name="drill.q0",subtype=Config,type=Destination'
    requests = openmq.openmq_destinations_to_make([bean], ["drill.q0", "drill.q1"], ["drill.q0"])
    assert [request["arguments"] for request in requests] == [["q", "drill.q1"], ["t", "drill.q0"]]


def test_the_first_certificate_of_a_bundle_is_the_hosts() -> None:
    one, two = (f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----" for body in ("AA", "BB"))
    assert openmq.openmq_first_certificate(f"key\n{one}\n{two}\n") == one
    with pytest.raises(ValueError, match="no certificate"):
        openmq.openmq_first_certificate("key\n")


def answer(states: dict[str, str], master: str | None = "192.0.2.1:7676", held: int = 5) -> str:
    """Return what Jolokia answers to the role's questions."""
    brokers = [{"Address": address, "StateLabel": state} for address, state in states.items()]
    values = [{"Address": master} if master else None, brokers, {"NumMsgs": held, "NumMsgsInDMQ": 2}]
    return json.dumps([{"status": 200, "value": value} for value in values])


def test_what_a_broker_says_of_its_cluster() -> None:
    view = topology.openmq_cluster_view(answer({"192.0.2.1:7676": "OPERATING"}))
    expected = {"master": "192.0.2.1:7676", "members": {"192.0.2.1:7676": "OPERATING"}, "messages": 3}
    assert view == expected
    nothing = {"master": "", "members": {}, "messages": None}
    for text in ("", "no JSON", "{}", json.dumps([{"status": 404}] * 3)):
        assert topology.openmq_cluster_view(text) == nothing


BOTH = {"192.0.2.1:7676": "OPERATING", "192.0.2.2:7676": "OPERATING"}


@pytest.mark.parametrize(
    ("states", "master", "words"),
    [
        (BOTH, "192.0.2.1:7676", []),
        ({**BOTH, "192.0.2.9:7676": "BROKER_DOWN"}, "192.0.2.1:7676", []),
        ({}, None, ["h1 does not say whom it sees"]),
        ({**BOTH, "192.0.2.2:7676": "BROKER_DOWN"}, "192.0.2.1:7676", ["h1 sees h2 (192.0.2.2:7676) as BROKER_DOWN"]),
        ({"192.0.2.1:7676": "OPERATING"}, "192.0.2.1:7676", ["h2 (192.0.2.2:7676) as no broker of its cluster"]),
        ({**BOTH, "192.0.2.9:7676": "OPERATING"}, "192.0.2.1:7676", ["a broker at 192.0.2.9:7676, which is none"]),
        (BOTH, "192.0.2.2:7676", ["h1 has h2 for its master, and openmq_cluster_master is h1"]),
        (BOTH, None, ["h1 has none for its master"]),
    ],
)
def test_a_cluster_that_is_not_what_the_inventory_says(
    states: dict[str, str], master: str | None, words: list[str]
) -> None:
    members = cluster("conventional_master")["members"]
    view = topology.openmq_cluster_view(answer(states, master))
    problems = topology.openmq_member_problems(view, "h1", members)
    if not problems:
        problems = topology.openmq_master_problems(view, "h1", members, "h1")
    assert len(problems) == len(words)
    assert all(said in problem for said, problem in zip(words, problems, strict=True))


def test_the_last_error_is_told_in_one_line() -> None:
    log = (
        "[12/Nov/2026:10:00:00 UTC] [B1060]: Loading persistent data...\n"
        "[12/Nov/2026:10:00:01 UTC] ERROR [B3015]: first\n"
        "[12/Nov/2026:10:00:02 UTC] ERROR [B3016]:   the   last\n\tat a.b.C(D.java:1)\n"
    )
    assert openmq.openmq_said(log) == "[B3016]: the last"
    assert openmq.openmq_said("WARNING [B2057]: no file", "B2057") == "[B2057]: no file"
    assert openmq.openmq_said("[B1039]: Broker ready") == ""


def test_the_tools_status_alone_does_not_say_that_there_are_tables() -> None:
    """What `imqdbmgr dump sharecc_tbl` of 6.5.1 wrote without tables, and `imqdbmgr query` with them: status 0."""
    said = "[#|2026-11-23T23:52:35.974+0000|SEVERE|6.5.1|main;|ERROR Can't find key B4331[MQ]\n|#]"
    assert not openmq.openmq_has_tables({"rc": 0, "stdout": "", "stderr": said})
    assert not openmq.openmq_has_tables({"rc": 1, "stdout": "", "stderr": ""})
    assert openmq.openmq_has_tables({"rc": 0, "stdout": "", "stderr": "[#|...|FORCE|6.5.1|[B1351]: Using shared"})
    there = "[#|2026-11-24T03:31:53.221+0000|SEVERE|6.5.1|main;|ERROR Database tables have already been created.\n|#]"
    assert openmq.openmq_has_tables({"rc": 0, "stdout": "", "stderr": there})
    assert not openmq.openmq_has_tables({"rc": 1, "stdout": "", "stderr": there})


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"rc": 1, "stdout": "Opening\nERROR [B3155]: no\n", "stderr": "later"}, "ERROR [B3155]: no"),
        (
            {"rc": 1, "stdout": "Opening\n", "stderr": "\n  java.sql.SQLException: away\n"},
            "java.sql.SQLException: away",
        ),
        ({"rc": 1, "stdout": "Opening\nConnection refused\n"}, "Connection refused"),
        (
            {
                "rc": 1,
                "stderr": "ERROR [B3026]: away\n\tat a.B\norg.postgresql.util.PSQLException: FATAL: no entry\n",
            },
            "FATAL: no entry (ERROR [B3026]: away)",
        ),
        ({"rc": 137}, "its tool ended with status 137 without a word"),
    ],
)
def test_why_a_tool_failed(result: dict[str, Any], reason: str) -> None:
    assert openmq.openmq_reason(result) == reason
