"""RabbitMQ's PerfTest, unchanged, through two workers to a real RabbitMQ: all that was published is consumed."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from router_support import PASSWORD, USER, Broker, Router, config_of, router_of, wait_for
from test_workers import WORKERS, ctl, kill_worker, replace_all, wait_all_ready

# A version that Maven Central has (newer ones are published elsewhere), and the log that it needs and does not name.
ARTIFACTS = ("com.rabbitmq:perf-test:2.16.0", "ch.qos.logback:logback-classic:1.2.6")
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>test</groupId><artifactId>perftest</artifactId><version>1</version>
  <dependencies>{"".join(DEPENDENCY.format(*one.split(":")) for one in ARTIFACTS)}</dependencies>
</project>
"""
MAIN = "com.rabbitmq.perf.PerfTest"
# Ends by itself once each consumer has had its messages; what was lost would keep it until then.
DEADLINE_S = 240
QUORUM_QUEUE = ("--quorum-queue", "--queue", "perf-quorum", "--flag", "persistent")


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("perftest")
    (folder / "pom.xml").write_text(POM)
    words = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}/jars"]
    got = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert got.returncode == 0, got.stdout[-2000:]
    return folder / "jars"


@pytest.fixture(scope="module")
def two_workers(broker: Broker) -> Iterator[Router]:
    with router_of(config_of(broker.port, workers=WORKERS)) as router:
        wait_all_ready(router, 1)
        yield router


def started(jars: Path, router: Router, *options: str) -> subprocess.Popen[str]:
    """Start PerfTest with these options."""
    # By the environment: every user of the machine can read a process's words.
    told = {"RABBITMQ_PERF_TEST_ENV_PREFIX": "PERF_", "PERF_URI": f"amqp://{USER}:{PASSWORD}@127.0.0.1:{router.port}"}
    words = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{jars}/*", MAIN, *options]
    return subprocess.Popen(
        words, env={**os.environ, **told}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def ended_well(process: subprocess.Popen[str]) -> str:
    """Return what PerfTest said once it has ended, which it did in time and with 0."""
    try:
        said, _ = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
        raise AssertionError(f"not all was consumed: {said[-2000:]}") from None
    assert process.returncode == 0, said[-2000:]
    assert "exception" not in said.lower(), said[-4000:]
    assert re.search(r"receiving rate avg: [1-9]", said), said[-2000:]
    return said


def many(connections: int, messages: int) -> list[str]:
    """Options for as many producers and consumers, each pair with a queue of its own."""
    pair = ["--producers", str(connections), "--consumers", str(connections)]
    queues = ["--queue-pattern", "perf-%d", "--queue-pattern-from", "1", "--queue-pattern-to", str(connections)]
    return [*pair, *queues, "--pmessages", str(messages), "--cmessages", str(messages), "--auto-delete", "true"]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            ["--pmessages", "20000", "--cmessages", "20000", "--confirm", "100", "--qos", "200"], id="confirms"
        ),
        pytest.param(
            [*many(50, 400), "--confirm", "50", "--multi-ack-every", "10", "--qos", "100"], id="100 connections"
        ),
        # Without a prefetch PerfTest can block itself, with no router between, too: its connection's thread waits for
        # room for the 1,001st delivery, its consumer's for that thread to read Commit-Ok.
        pytest.param(
            ["--pmessages", "5000", "--cmessages", "5000", "--ptxsize", "10", "--ctxsize", "10", "--qos", "100"],
            id="transactions",
        ),
        pytest.param(["--pmessages", "500", "--cmessages", "500", "--size", "1000000", "--confirm", "10"], id="1 MB"),
        pytest.param([*many(5, 2000), "--producer-channel-count", "4", "--consumer-channel-count", "4"], id="channels"),
        pytest.param(
            ["--pmessages", "5000", "--cmessages", "5000", "--confirm", "50", *QUORUM_QUEUE],
            id="a quorum queue",
        ),
        pytest.param(["--pmessages", "500", "--cmessages", "500", "--rate", "50", "--heartbeat", "1"], id="heartbeats"),
    ],
)
def test_perftest(jars: Path, two_workers: Router, options: list[str]) -> None:
    print(ended_well(started(jars, two_workers, *options)).splitlines()[-2:])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_perftest_while_the_router_is_restarted_and_killed(jars: Path, two_workers: Router) -> None:
    def opened() -> dict[str, int]:
        """By session the worker that had it last: who follows a process says it again."""
        return {one["session"]: one["worker"] for one in two_workers.entries("opened")}

    process = started(jars, two_workers, *many(50, 2000), "--rate", "50", "--confirm", "50", "--qos", "50")
    # One more makes the queues.
    wait_for("its connections", lambda: len(ctl(two_workers, "CONN", "phase=open")) == 101)
    before = opened()
    replace_all(two_workers)
    for index in range(WORKERS):
        kill_worker(two_workers, index)
    print(ended_well(process).splitlines()[-2:])
    assert {*opened()} == {*before}, "a connection was made anew"
    assert {*before.values()} == {*range(WORKERS)}
