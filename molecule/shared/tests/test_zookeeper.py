"""What a deployment left of ZooKeeper, seen from inside after a drill."""

from __future__ import annotations

from typing import Any

from conftest import Instance


def test_zookeeper_wants_a_certificate(instance: Instance, host: Any) -> None:
    (client,) = [item for item in instance["listeners"] if item["name"] == "client"]
    connect_to = f"-connect {client['address']}:{client['port']} -CAfile {instance['tls']['ca']} -quiet -no_ign_eof"
    bundle = instance["tls"]["bundle"]
    asked = f"printf srvr | timeout 10 openssl s_client {connect_to} -verify_return_error"
    assert "Mode:" in host.run(f"{asked} -cert {bundle} -key {bundle} -ign_eof").stdout
    assert "Mode:" not in host.run(asked).stdout
