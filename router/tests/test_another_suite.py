"""The integration tests of another client library, unchanged, through two workers to a real RabbitMQ."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from router_support import CTL, Broker, Router, config_of, router_of
from test_workers import WORKERS, wait_all_ready

SUITE = "github.com/rabbitmq/amqp091-go"
VERSION = "v1.10.0"
GUEST = "guest"
# Fewer would mean that the library no longer builds them as it did.
FEWEST = 130
# Examples for its documentation need a broker at the standard port of this machine. The other one is run by itself.
CONCURRENT = "TestConcurrentClose"
APART = f"^(Example|{CONCURRENT}$)"


@pytest.fixture
def two_workers(broker: Broker) -> Iterator[Router]:
    # The suite speaks as this user, whatever its URL says.
    broker.ctl("add_user", GUEST, GUEST)
    broker.ctl("set_permissions", "-p", "/", GUEST, ".*", ".*", ".*")
    with router_of(config_of(broker.port, workers=WORKERS)) as router:
        wait_all_ready(router, 1)
        yield router
    broker.ctl("delete_user", GUEST)


def control_of(broker: Broker, directory: Path) -> Path:
    """Return a command that is rabbitmqctl for `broker`, which a test of the suite asks for."""
    told = [
        f"{name}={value}" for name, value in broker.environment.items() if name.startswith(("RABBITMQ", "ERL", "HOME"))
    ]
    command = directory / "ctl"
    command.write_text(f'#!/bin/sh\nexec env {shlex.join(told)} {CTL} "$@"\n')
    command.chmod(0o700)
    return command


@pytest.fixture
def suite(two_workers: Router, broker: Broker, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the suite's tests with these options."""
    (tmp_path / "fetch").mkdir()
    words = ["go", "mod", "download", "-json", f"{SUITE}@{VERSION}"]
    got = subprocess.run(words, cwd=tmp_path / "fetch", capture_output=True, text=True)
    assert got.returncode == 0, got.stderr
    # The module cache is read-only, and the suite's tests write beside their source.
    source = Path(shutil.copytree(json.loads(got.stdout)["Dir"], tmp_path / "suite", copy_function=shutil.copyfile))
    source.chmod(0o755)
    environment = broker.environment | {
        "HOME": str(Path.home()),
        "AMQP_URL": f"amqp://{GUEST}:{GUEST}@127.0.0.1:{two_workers.port}/",
        "RABBITMQ_RABBITMQCTL_PATH": str(control_of(broker, tmp_path)),
    }

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        words = ["go", "test", "-tags", "integration", "-json", *options, "."]
        return subprocess.run(words, cwd=source, env=environment, capture_output=True, text=True)

    return run


@pytest.mark.long
@pytest.mark.timeout(900)
def test_amqp091_go(suite: Callable[..., subprocess.CompletedProcess[str]], two_workers: Router) -> None:
    done = suite("-count=1", "-skip", APART)
    ended: dict[str, str] = {}
    said: dict[str, list[str]] = {}
    for line in filter(str.strip, done.stdout.splitlines()):
        event = json.loads(line)
        test = event.get("Test", "")
        if event["Action"] in ("pass", "fail", "skip") and test:
            ended[test] = event["Action"]
        said.setdefault(test, []).append(event.get("Output", ""))
    failed = {test: "".join(said[test])[-2000:] for test, how in ended.items() if how == "fail"}
    assert done.returncode == 0 and not failed, (failed, done.stderr[-2000:], "".join(said.get("", []))[-2000:])
    assert {*ended.values()} == {"pass"}, "a test was skipped"
    assert len(ended) >= FEWEST
    print(f"{len(ended)} passed")
    sessions = two_workers.entries("opened")
    assert {one["worker"] for one in sessions} == {*range(WORKERS)}, "not all workers had sessions of it"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_amqp091_go_closes_from_many_threads(suite: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Who calls Close while another thread's Close is answered is not told of an end of stream before it.

    The library may fail by itself there, with 503: of its two closed channels it takes either.
    """
    done = suite("-count=50", "-run", f"^{CONCURRENT}$")
    assert f"--- PASS: {CONCURRENT}" in done.stdout, done.stderr
    assert '\\"EOF\\"' not in done.stdout
