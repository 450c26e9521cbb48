"""The name server that the role resolver writes, asked as its health is, and what the role refuses."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.products.health import resolver
from tests.free_ports import free_port
from tests.roles.conftest import render_all
from tests.roles.test_plugins import plugin

filters = plugin("filter", "resolver")
HOSTS = """
all:
  children:
    resolver:
      hosts:
        watch1: {ansible_host: 127.0.0.1}
    rabbitmq:
      hosts:
        rabbit1: {ansible_host: 172.30.60.21}
        rabbit2: {ansible_host: "fd00::22"}
"""


def rendered(work: Path, **extra: Any) -> dict[str, Any]:
    inventory = work / "inventory"
    inventory.mkdir()
    (inventory / "hosts.yml").write_text(HOSTS)
    files = {"dnsmasq.conf": "dnsmasq.conf.j2"}
    shown = ["__resolver_descriptor"]
    return render_all(work, "resolver", "resolver", files, shown, inventory=inventory, **extra)["watch1"]


@contextmanager
def running(work: Path, text: str) -> Iterator[None]:
    """Run dnsmasq by a file with this `text`, as this user."""
    program = shutil.which("dnsmasq", path="/usr/sbin:/usr/bin")
    assert program, "make setup-tests installs it"
    file = work / "dnsmasq.conf"
    file.write_text(text)
    process = subprocess.Popen([program, "--keep-in-foreground", f"--conf-file={file}"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def health(descriptor: dict[str, Any]) -> resolver.Health:
    """Ask until somebody answers."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return resolver.read(descriptor)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_it_knows_the_hosts_of_the_inventory(tmp_path: Path) -> None:
    port = free_port()
    options = {"resolver_port": port, "resolver_names": {"rabbit2": "172.30.60.99", "front.far": "172.30.60.98"}}
    host = rendered(tmp_path, resolver_user="root", **options)
    descriptor = host["variables"]["__resolver_descriptor"]
    with running(tmp_path, host["files"]["dnsmasq.conf"]):
        assert health(descriptor).state == "active"
        for name in ("rabbit1.internal", "RABBIT2.internal", "front.far.internal"):
            assert health({**descriptor, "asks": name}).state == "active", name
        unknown = health({**descriptor, "asks": "rabbit9.internal"})
        assert (unknown.state, unknown.in_sync) == ("failed", False)
        # Nobody else is asked.
        assert health({**descriptor, "asks": "rabbit1.example"}).state == "failed"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            line.settimeout(10)
            line.sendto(resolver.question("front.far.internal"), ("127.0.0.1", port))
            assert line.recv(512).endswith(socket.inet_aton("172.30.60.98"))


@pytest.mark.parametrize("reply", [b"", b"\x00\x01" + bytes(10), resolver.question("a.b")[:2] + b"\x81\x83" + bytes(8)])
def test_what_is_no_answer_says_so(reply: bytes) -> None:
    with pytest.raises(ValueError, match=r"cut off|another question|error 3"):
        resolver.answers(reply)


@pytest.mark.parametrize(
    ("names", "domain", "words"),
    [
        ({"a": "10.0.0.1", "b-1.c": "fd00::1"}, "internal", ""),
        ({"a": "10.0.0.1"}, "a.b.example", ""),
        ({"a": "b.c"}, "internal", "the name a has the address 'b.c', which is none: resolver_names says one"),
        ({"a_b": "10.0.0.1"}, "internal", "'a_b' is no host name"),
        ({"a": "10.0.0.1"}, "", "'' is no host name"),
        ({"a": "10.0.0.1"}, "in ternal", "'in ternal' is no host name"),
    ],
)
def test_preflight(names: dict[str, str], domain: str, words: str) -> None:
    problems = filters.resolver_problems(names, domain)
    assert problems == ([words] if words else [])
