"""Real hosts on a real engine: two of them, on a subnet of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from brokerdrill.base import paths
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.bench import bench, engine
from brokerdrill.bench.keys import ssh_command
from brokerdrill.bench.labels import LABEL
from brokerdrill.cli.app import app
from brokerdrill.inventory.topology import Topology, load

pytestmark = pytest.mark.bench

SUBNET = "172.30.251"
INVENTORY = f"""\
# Two bare hosts, for the tests of the bench itself
all:
  vars: {{bench_subnet: {SUBNET}.0/24, bench_memory: 256m, ansible_user: root, drill_allowed: true}}
  hosts:
    one: {{ansible_host: {SUBNET}.11, bench_volumes: {{disk: {{path: /srv/disk, size: 8m}}}}}}
    two: {{ansible_host: {SUBNET}.12}}
"""


def inventory(directory: Path, text: str = INVENTORY) -> Topology:
    directory.mkdir(exist_ok=True)
    (directory / "hosts.yml").write_text(text)
    return load(directory)


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    found = inventory(tmp_path_factory.mktemp("inventories") / "bench_selftest")
    bench.down(found.name)
    bench.up(found)
    yield found
    bench.down(found.name)


def ssh(topology: Topology, host: str, script: str) -> subprocess.CompletedProcess[str]:
    command = [*ssh_command(topology.host(host)), script]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def ids(topology: Topology) -> dict[str, str]:
    client = engine.require().client()
    names = {host.name: f"{topology.name}-{host.name}" for host in topology.hosts}
    return {host: str(client.containers.get(name).id) for host, name in names.items()}


def test_hosts_run_systemd_and_answer_ssh(topology: Topology) -> None:
    rows = bench.status(topology)
    assert [(row["host"], row["state"], row["system"], row["limit_mib"]) for row in rows] == [
        ("one", "running", "running", 256),
        ("two", "running", "running", 256),
    ]
    assert all(0 < row["memory_mib"] <= 256 for row in rows)
    for host in topology.hosts:
        done = ssh(topology, host.name, "hostname; cat /proc/1/comm; java -version 2>&1 | head -n 1")
        assert done.returncode == 0, done.stderr
        hostname, init, java = done.stdout.splitlines()
        assert (hostname, init) == (host.name, "systemd")
        assert 'version "17' in java


def test_hosts_know_each_other_by_name(topology: Topology) -> None:
    done = ssh(topology, "one", "getent hosts two && exec 3<>/dev/tcp/two/22 && head -c 4 <&3")
    assert done.stdout.split() == [f"{SUBNET}.12", "two", "SSH-"], done.stderr


def test_up_again_keeps_the_hosts(topology: Topology) -> None:
    before = ids(topology)
    lines: list[str] = []
    bench.up(topology, progress=lines.append)
    assert ids(topology) == before
    assert lines == ["all 2 hosts of bench_selftest are up already"]


def test_up_starts_again_what_stopped_and_replaces_what_is_gone(topology: Topology) -> None:
    before = ids(topology)
    client = engine.require().client()
    ssh(topology, "one", "touch /root/kept")
    client.containers.get("bench_selftest-one").kill()
    client.containers.get("bench_selftest-two").remove(force=True)
    bench.up(topology)
    after = ids(topology)
    assert after["one"] == before["one"] and after["two"] != before["two"]
    assert ssh(topology, "one", "cat /root/kept").returncode == 0
    assert ssh(topology, "two", "true").returncode == 0, "the new host's key must be known"


def test_a_disk_with_a_size_outlives_a_restart_of_its_only_host(topology: Topology) -> None:
    written = ssh(topology, "one", "df --output=size -k /srv/disk | tail -1; echo kept > /srv/disk/file; sync")
    assert written.stdout.strip() == "8192", written.stderr
    host = engine.require().client().containers.get(f"{topology.name}-one")
    host.restart(timeout=2)
    bench.up(topology)
    # One that is stopped is started again by that.
    host.stop(timeout=2)
    bench.up(topology)
    assert ssh(topology, "one", "cat /srv/disk/file").stdout == "kept\n"


def test_fresh_makes_all_anew(topology: Topology) -> None:
    before = ids(topology)
    ssh(topology, "one", "touch /root/gone")
    bench.up(topology, fresh=True)
    assert not set(ids(topology).values()) & set(before.values())
    assert ssh(topology, "one", "! test -e /root/gone").returncode == 0


def test_what_faults_need_works_in_a_host(topology: Topology) -> None:
    """A unit can be killed, paused and undone by a timer; nftables redirects and `ss -K` ends a connection."""
    script = f"""set -e
    systemd-run --quiet --unit=victim python3 -m http.server 9000
    until ss -ltn | grep -q :9000; do sleep 0.1; done
    pid=$(systemctl show -p MainPID --value victim)
    kill -STOP $pid; until grep -q '^State:.T' /proc/$pid/status; do sleep 0.05; done; kill -CONT $pid
    nft add table inet drill
    nft add chain inet drill out '{{ type nat hook output priority -100; }}'
    nft add rule inet drill out meta skuid != 65534 ip daddr {SUBNET}.12 tcp dport 9001 redirect to :9000
    exec 3<>/dev/tcp/{SUBNET}.12/9001
    ss -Htn dst {SUBNET}.12 dport = 9001 | grep -q ESTAB
    ss -K dst {SUBNET}.12 dport = 9001 >/dev/null 2>&1
    ! ss -Htn dst {SUBNET}.12 dport = 9001 | grep -q ESTAB
    systemd-run --quiet --unit=ttl --on-active=1 --timer-property=AccuracySec=100ms nft delete table inet drill
    date +%s%N; while nft list table inet drill >/dev/null 2>&1; do sleep 0.05; done; date +%s%N
    systemctl kill -s KILL victim
    while systemctl is-active -q victim; do sleep 0.05; done
    """
    done = subprocess.run(
        [*ssh_command(topology.host("one")), "bash -s"], input=script, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    begun, ended = (int(line) for line in done.stdout.split())
    assert 0.5e9 < ended - begun < 2.5e9, "the timer must be true to its time"


def test_the_journal_drops_nothing(topology: Topology) -> None:
    lines = 20000
    write = f"systemd-run --quiet --wait --unit=flood seq {lines} && journalctl --sync"
    done = ssh(topology, "two", f"{write} && journalctl -u flood -o cat --no-pager | grep -cx '[0-9]*'")
    assert done.stdout.strip() == str(lines), done.stderr


def test_a_taken_subnet_is_one_sentence(topology: Topology, tmp_path: Path) -> None:
    other = inventory(tmp_path / "bench_rival")
    with pytest.raises(InfrastructureError, match=rf"subnet {SUBNET}.0/24 is taken .*; choose another bench_subnet"):
        bench.up(other)
    assert bench.down(other.name) == 0


def test_hosts_of_another_checkout_are_left_alone(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ids(topology)
    monkeypatch.setattr("brokerdrill.base.paths.ROOT", tmp_path)
    with pytest.raises(InfrastructureError, match="are up for the checkout"):
        bench.up(topology)
    assert ids(topology) == before


def test_down_leaves_nothing(topology: Topology) -> None:
    """By its name alone, as the command's refusals say it: its inventory is not among those that the command knows."""
    known = paths.cache() / "bench" / "known_hosts"
    assert SUBNET in known.read_text()
    assert len(ids(topology)) == 2
    done = CliRunner().invoke(app, ["bench", "down", topology.name])
    assert done.exit_code == 0, done.output
    client = engine.require().client()
    label: dict[str, Any] = {"label": f"{LABEL}={topology.name}"}
    assert client.containers.list(all=True, filters=label) == []
    assert client.networks.list(filters=label) == []
    assert SUBNET not in known.read_text()
    assert {row["state"] for row in bench.status(topology)} == {"absent"}
    assert bench.down(topology.name) == 0
    routes = subprocess.run(["ip", "-4", "route", "show"], capture_output=True, text=True).stdout
    assert SUBNET not in routes
