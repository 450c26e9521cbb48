"""What a deployment left of toxiproxy, seen from inside after a drill."""

from __future__ import annotations

from typing import Any

from conftest import Instance


def test_toxiproxy_listens_on_loopback_only(instance: Instance, host: Any) -> None:
    user = host.user(instance["user"])
    assert user.uid == instance["uid"]
    lines = host.check_output("ss -Hltnp").splitlines()
    mine = [line.split()[3] for line in lines if "toxiproxy" in line]
    assert mine
    assert all(address.startswith("127.0.0.1:") for address in mine), mine
    assert "toxiproxy" in host.check_output("%s --version", instance["cli"])
