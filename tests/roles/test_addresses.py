"""A host whose own name leads to loopback there, as Debian's installer writes it, is told before anything listens."""

from __future__ import annotations

import pytest

from tests.roles.test_plugins import plugin

addresses = plugin("filter", "addresses")
DEBIAN = "127.0.1.1       STREAM zk1.example.org\n127.0.1.1       DGRAM\n127.0.1.1       RAW\n"
SOUND = "192.0.2.7       STREAM zk1\n192.0.2.7       DGRAM\n2001:db8::7     STREAM\nfe80::1%eth0    STREAM\n"


@pytest.mark.parametrize(("said", "where"), [(DEBIAN, "127.0.1.1"), ("::1 STREAM zk1\n", "::1"), (SOUND, ""), ("", "")])
def test_names_that_lead_to_loopback(said: str, where: str) -> None:
    found = addresses.loopback_problem("zk1", said)
    assert found.startswith(f"zk1 leads to {where} on that host itself") if where else found == ""


def test_one_loopback_among_others_is_one_too_many() -> None:
    assert "127.0.1.1 on that host" in addresses.loopback_problem("zk1", SOUND + DEBIAN)
