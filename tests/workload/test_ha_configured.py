"""What the document on Artemis' high availability says of how an HA policy is configured, on real brokers: what holds
without any, what the older configuration still does, and what a broker that waits for its store does meanwhile."""

from __future__ import annotations

import os
import signal

import pytest

from tests.workload.core_calls import wait_until
from tests.workload.ha_members import ACTIVE, DEADLINE_S, Members, asked

CONSOLE = b"AMQ241002"
WAITS_FOR_THE_LOCK = b"AMQ221034"
# Where a start stands that waits for the lock of its store.
WAITING = "FileLockNodeManager.startPrimaryNode"
# The fixture `members` makes these.
MEMBERS = ("a", "b")
WITH_CONSOLE = True


def policy_of(members: Members, policy: str) -> str:
    members.write("a", policy)
    members.start("a")
    return asked(members["a"].url, "broker", "getHAPolicy")


def test_live_only_is_the_default(members: Members) -> None:
    assert policy_of(members, "") == "Primary Only"
    members.clear()
    assert policy_of(members, "<ha-policy><live-only/></ha-policy>") == "Primary Only"


@pytest.mark.parametrize(
    "element",
    [
        "<backup>true</backup>",
        "<shared-store>true</shared-store>",
        "<check-for-live-server>true</check-for-live-server>",
    ],
)
def test_what_stood_in_the_root_before_ha_policy_is_refused(members: Members, element: str) -> None:
    """The document has it honoured as well as can be."""
    members.write("a", element)
    members["a"].launch()
    wait_until(lambda: not members["a"].running(), DEADLINE_S)
    name = element[1:].partition(">")[0]
    assert members.said("a", f"""Invalid content was found starting with element '{{"urn:activemq:core":{name}}}'""")


def dump(members: Members, name: str) -> str:
    """The calls that the process's main thread is in."""
    log = members[name].log
    before = len(log.read_bytes())
    os.kill(members[name].pid, signal.SIGQUIT)
    wait_until(lambda: b"JNI global refs" in log.read_bytes()[before:], DEADLINE_S)
    _, _, rest = log.read_bytes()[before:].decode().partition('"main" ')
    return rest.partition("\n\n")[0]


@pytest.mark.parametrize("waits", [True, False])
def test_a_start_waits_for_the_store_or_goes_on_without(members: Members, waits: bool) -> None:
    """By the older names of the roles, which are taken with a word on today's."""
    setting = f"<wait-for-activation>{str(waits).lower()}</wait-for-activation>"
    for name in "ab":
        members.write(
            name, f"<ha-policy><shared-store><master>{setting}</master></shared-store></ha-policy>", store="a"
        )
    members.start("a")
    assert asked(members["a"].url, "broker", "getHAPolicy") == "Shared Store Primary"
    (said,) = members.said("a", "AMQ221038")
    assert "'master' is deprecated and will be removed in a future version. Use 'primary' instead" in said
    members["b"].launch()
    members.says("b", WAITS_FOR_THE_LOCK)
    if waits:
        wait_until(lambda: WAITING in dump(members, "b"), DEADLINE_S)
        assert CONSOLE not in members["b"].log.read_bytes()
    else:
        members.says("b", CONSOLE)
        assert WAITING not in dump(members, "b")
    assert ACTIVE not in members["b"].log.read_bytes()
    members["a"].kill()
    members.says("b", ACTIVE)
    members.says("b", CONSOLE)
