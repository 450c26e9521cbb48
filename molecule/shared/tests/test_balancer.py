"""What a deployment left of the balancer, seen from inside after a drill."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from conftest import Instance, descriptors, topology


def servers(instance: Instance, host: Any) -> list[dict[str, str]]:
    """Return what HAProxy counts of each broker behind a listener."""
    counts = host.check_output(instance["evidence"]["counts"].replace("%", "%%")).lstrip("# ")
    rows = csv.DictReader(io.StringIO(counts))
    return [row for row in rows if row["svname"] not in ("FRONTEND", "BACKEND")]


def test_every_broker_with_the_acceptor_is_behind_it_and_up(instance: Instance, host: Any) -> None:
    brokers = {item["instance"] for one in topology().group("artemis") for item in descriptors(one.name)
               if item["product"] == "artemis"}  # fmt: skip
    for listener in (one for one in instance["listeners"] if one.get("relays")):
        behind = {row["svname"]: row["status"] for row in servers(instance, host) if row["pxname"] == listener["name"]}
        assert set(behind) == brokers
        assert set(behind.values()) == {"UP"}


def test_none_of_the_package_s_own_runs(instance: Instance, host: Any) -> None:
    own = host.service("haproxy")
    assert not own.is_running
    assert not own.is_enabled


def test_it_takes_its_own_file(instance: Instance, host: Any) -> None:
    done = host.run("/usr/sbin/haproxy -c -f %s/haproxy.cfg", instance["config_dir"])
    assert done.rc == 0, done.stderr


def test_a_reload_keeps_the_process_that_systemd_knows(instance: Instance, host: Any) -> None:
    shown = "systemctl show --value -p MainPID -p NRestarts %s"
    before = host.check_output(shown, instance["unit"])
    host.check_output("systemctl kill --kill-who=main --signal=SIGUSR2 %s", instance["unit"])
    ready = json.dumps(instance["management"]["url"] + "/ready")
    host.check_output("python3 -c %s", f"import urllib.request as r; r.urlopen({ready}, timeout=10)")
    assert host.check_output(shown, instance["unit"]) == before
