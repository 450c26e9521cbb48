"""The role `gameday` on a real host with systemd: its timer holds a game day, and a killed runner's is reported."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
import yaml
from tests.control_host import project
from tests.roles.conftest import BIN

from brokerdrill.base import paths
from brokerdrill.bench import bench
from brokerdrill.bench.keys import ssh_command
from brokerdrill.inventory.topology import Topology, load

pytestmark = [pytest.mark.bench, pytest.mark.long]

SUBNET = "172.30.250"
HOME = "/opt/project"
DATA = "/var/lib/brokerdrill-gameday"
DEADLINE_S = 180
# Of the environment what a game day needs that holds no drill; the whole would be gigabytes.
LEFT_OUT = ("pyspark/jars", "ansible_collections", "jpype", "mypy", "duckdb", "molecule", "ansiblelint", "ruff")
# Where the game day asks Ansible what is deployed, it waits until it is killed.
WAITS = """#!/bin/sh
exec sleep 600
"""
DAY = {"title": "Its own timer", "topologies": [f"{HOME}/here/inventory"], "due_every_h": 1000}
INVENTORY = {
    "all": {
        "vars": {"bench_subnet": f"{SUBNET}.0/24", "bench_memory": "2g", "ansible_user": "root", "drill_allowed": True},
        "children": {
            "gameday": {
                "hosts": {"control": {"ansible_host": f"{SUBNET}.11"}},
                "vars": {
                    "gameday_home": HOME,
                    "gameday_program": f"{HOME}/brokerdrill",
                    "gameday_environment": {"PATH": f"{HOME}/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
                    # Every minute: the first one comes soon.
                    "gameday_calendar": "*:0/1",
                    "gameday_random_delay_s": 0,
                    "gameday_metrics_dir": "/srv/metrics",
                    "gameday_days": [
                        {"name": "closed", "file": {**DAY, "blackouts": [
                            {"first": "2000-01-01", "last": "2999-12-31", "why": "always"}]}},
                        {"name": "open", "calendar": "2100-01-01", "file": DAY},
                    ],
                },
            }
        },
    }
}  # fmt: skip


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    folder = tmp_path_factory.mktemp("inventories") / "gameday_selftest"
    folder.mkdir()
    (folder / "hosts.yml").write_text(yaml.safe_dump(INVENTORY))
    found = load(folder)
    bench.down(found.name)
    bench.up(found)
    yield found
    bench.down(found.name)


def ssh(topology: Topology, script: str, stdin: bytes = b"") -> str:
    command = [*ssh_command(topology.host("control")), script]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def until(what: Callable[[], bool], failure: Callable[[], str]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < end, failure()
        time.sleep(0.5)


def play(topology: Topology, *more: str) -> subprocess.CompletedProcess[str]:
    key = ssh_command(topology.host("control"))
    options = ["--ssh-common-args", " ".join(key[1:-1])]
    command = [str(BIN / "ansible-playbook"), "-i", str(topology.directory), *options, *more, "playbooks/gameday.yml"]
    return subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, env=paths.child_environment())


def days(topology: Topology, name: str) -> list[dict[str, object]]:
    text = ssh(topology, f"cat {DATA}/www/{name}/gamedays.json 2>/dev/null || echo []")
    return list(json.loads(text))


def test_a_control_host_without_the_project_is_refused(topology: Topology) -> None:
    done = play(topology)
    assert done.returncode != 0
    assert "set gameday_home to a checkout with `make setup` done, or gameday_repository" in done.stdout


@pytest.fixture(scope="module")
def installed(topology: Topology) -> Topology:
    files = {"bin/ansible-playbook": (WAITS, 0o755), "here/inventory/hosts.yml": (yaml.safe_dump(INVENTORY), 0o644)}
    unpack = f"mkdir -p {HOME} && install -d -m 1777 /srv/metrics && tar -xf - -C {HOME}"
    ssh(topology, unpack, project(HOME, LEFT_OUT, files))
    done = play(topology)
    assert done.returncode == 0, done.stdout
    return topology


def test_its_files_are_for_its_group_and_its_unit_is_hardened(installed: Topology) -> None:
    modes = ssh(installed, f"stat -c '%a %U %G' {DATA} /etc/brokerdrill-gameday /etc/brokerdrill-gameday/open.yml")
    assert modes.splitlines() == [
        "750 brokerdrill brokerdrill-gameday", "750 root brokerdrill-gameday", "640 root brokerdrill-gameday",
    ]  # fmt: skip
    unit = "brokerdrill-gameday-open.service"
    shown = ssh(installed, f"systemctl show {unit} -p UMask,ProtectSystem,NoNewPrivileges,Group,TimeoutStopUSec")
    found = dict(line.split("=", 1) for line in shown.splitlines())
    asked = int(
        ssh(
            installed,
            f"runuser -u brokerdrill -- {HOME}/brokerdrill gameday stop-time /etc/brokerdrill-gameday/open.yml",
        )
    )
    assert asked > 60
    minutes, seconds = divmod(asked, 60)
    assert found.pop("TimeoutStopUSec") == f"{minutes}min{f' {seconds}s' if seconds else ''}"
    assert found == {
        "UMask": "0027",
        "ProtectSystem": "strict",
        "NoNewPrivileges": "yes",
        "Group": "brokerdrill-gameday",
    }
    assert ssh(installed, f"systemd-analyze verify {unit} 2>&1") == ""


def test_a_second_run_changes_nothing(installed: Topology) -> None:
    done = play(installed)
    assert "changed=0" in done.stdout, done.stdout


def test_the_timer_holds_the_game_day_which_a_blackout_refuses(installed: Topology) -> None:
    journal = "journalctl --no-pager -u brokerdrill-gameday-closed.service"
    until(lambda: bool(days(installed, "closed")), lambda: ssh(installed, journal))
    found = days(installed, "closed")[0]
    assert (found["state"], found["why"]) == ("refused", "blackout from 2000-01-01 to 2999-12-31: always")
    ssh(installed, "systemctl stop brokerdrill-gameday-closed.timer")
    everybody = ssh(installed, f"find {DATA} -name .ansible -prune -o -path {DATA}/cache -prune -o -perm /007 -print")
    assert everybody == "", everybody
    metrics = ssh(installed, "cat /srv/metrics/brokerdrill-gameday-closed.prom")
    assert 'brokerdrill_gameday_state{gameday="closed",state="refused"} 1' in metrics
    assert "<title>Its own timer" in ssh(installed, f"cat {DATA}/www/closed/index.html")


def test_a_game_day_whose_runner_is_killed_is_reported_at_once(installed: Topology) -> None:
    unit = "brokerdrill-gameday-open.service"
    ssh(installed, f"systemctl start --no-block {unit}")
    record = f"cat {DATA}/runs/gamedays/open.jsonl 2>/dev/null || true"
    journal = f"journalctl --no-pager -u {unit}"
    until(lambda: '"phase": "begin"' in ssh(installed, record), lambda: ssh(installed, journal))
    ssh(installed, f"systemctl kill --signal=KILL --kill-whom=main {unit}")
    until(lambda: bool(days(installed, "open")), lambda: ssh(installed, journal))
    found = days(installed, "open")
    assert [(day["state"], day["why"]) for day in found] == [("crashed", "its runner ended without a word")]


def test_a_calendar_that_systemd_does_not_understand_is_refused(topology: Topology) -> None:
    done = play(topology, "--extra-vars", json.dumps({"gameday_calendar": "Mondays"}))
    assert done.returncode != 0
    assert "Failed to parse calendar specification 'Mondays'" in done.stdout
