"""What a real Artemis says of queues whose messages wait on its disk (pages)."""

from __future__ import annotations

import time

import jpype

from tests.workload.ha_members import DEADLINE_S, Members, Q, send, take

# The fixture `members` makes these.
MEMBERS = ("a",)
PAGES = (
    '<address-settings><address-setting match="#"><max-size-bytes>100K</max-size-bytes>'
    "<page-size-bytes>50K</page-size-bytes></address-setting></address-settings>"
)
COUNT = 2_000


def told(members: Members) -> tuple[int, bool]:
    """How many messages the broker counts in the queue, and whether its address has pages."""
    kind = jpype.JClass("org.apache.activemq.artemis.api.core.management.SimpleManagement")
    management = kind(members["a"].url, None, None)
    try:
        management.open()
        counted = management.simpleManagementLong(f"queue.{Q}", "getMessageCount")
        return int(counted), bool(management.simpleManagementBoolean(f"address.{Q}", "isPaging"))
    finally:
        management.close()


def test_an_address_has_pages_until_all_is_taken(members: Members) -> None:
    """Drills take an address with pages for one that is not empty, whatever its queue counts."""
    members.write("a", "", more=PAGES, connections="")
    members.start("a")
    for _ in range(0, COUNT, 500):
        send(members["a"].url, ("x" * 2000 for _ in range(500)))
    members["a"].kill()
    members.start("a")
    assert told(members) == (COUNT, True)
    assert len(take(members["a"].url, count=COUNT)) == COUNT
    deadline = time.monotonic() + DEADLINE_S
    while (found := told(members)) != (0, False):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
