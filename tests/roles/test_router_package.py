"""Where the router's package comes from: a wheel, a URL, a version, or the source; preflight tells if it is none."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import sys
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.roles.conftest import ROOT, playbook
from tests.roles.test_plugins import cached

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
BOOK = """
- hosts: localhost
  gather_facts: false
  connection: local
  tasks:
    - ansible.builtin.include_role: {name: brokerdrill.ha.amqp_router, tasks_from: controller}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The router's own wheel without compiled parts."""
    work = tmp_path_factory.mktemp("router")
    (work / "out").mkdir()
    source = {
        "project": str(ROOT / "router"), "python_version": "3.99", "machine": "none",
        "build_variable": "AMQP_SESSION_ROUTER_BUILD",
    }  # fmt: skip
    cached._build("router", source, work, work / "out")
    (made,) = (work / "wheels").glob("*.whl")
    return Path(made)


def pip(**more: str) -> dict[str, Any]:
    return {"requirements": "", "python_version": PYTHON, "platforms": [], "machine": "x86_64"} | more


def packages(made: dict[str, Any]) -> set[str]:
    with tarfile.open(made["path"]) as archive:
        return {name.split("/")[0] for name in archive.getnames()}


def test_a_wheel_of_the_controllers(tmp_path: Path, wheel: Path) -> None:
    made = cached.keep(tmp_path, "router.tar", "pip", pip(wheel=str(wheel)))
    assert "amqp_session_router" in packages(made)
    with pytest.raises(Exception, match="is pinned"):
        cached.keep(tmp_path, "other.tar", "pip", pip(wheel=str(wheel), wheel_sha256="0" * 64))


def test_a_wheel_by_its_url(tmp_path: Path, wheel: Path) -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(wheel.parent))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/{wheel.name}"
        sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
        made = cached.keep(tmp_path, "router.tar", "pip", pip(wheel=url, wheel_sha256=sha256))
        assert "amqp_session_router" in packages(made)
    finally:
        server.shutdown()
        server.server_close()


def test_a_version_of_the_index(tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip asks the index that the controller has set up: here a folder."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    version = wheel.name.split("-")[1]
    made = cached.keep(tmp_path, "router.tar", "pip", pip(wheel=f"amqp-session-router=={version}", platforms=["any"]))
    assert "amqp_session_router" in packages(made)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("amqp_session_router-0.1.0-py3-none-any.whl", None),
        ("amqp_session_router-0.1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", None),
        ("amqp_session_router-0.1.0-cp313-cp313-manylinux_2_17_x86_64.whl", "for cp313, and the host has Python 3.11"),
        ("amqp_session_router-0.1.0-cp311-cp311-manylinux_2_17_aarch64.whl", "and the host is x86_64"),
        ("amqp_session_router-0.1.0.tar.gz", "it is no wheel"),
    ],
)
def test_a_wheel_for_other_hosts_is_refused(name: str, said: str | None) -> None:
    problem = cached.wheel_problem(name, "3.11", "x86_64")
    assert problem is None if said is None else problem and said in problem


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, ""),
        ({"amqp_router_source": "/nowhere"}, "no source of the router is in /nowhere: set amqp_router_wheel"),
        ({"amqp_router_source": "/nowhere", "amqp_router_version": "0.1.0"}, ""),
        ({"amqp_router_wheel": "/nowhere/x.whl"}, "there is no wheel /nowhere/x.whl on the controller"),
        ({"amqp_router_wheel": "https://example.com/x.whl"}, "amqp_router_wheel_sha256 is not set"),
    ],
)
def test_preflight_says_what_is_missing(tmp_path: Path, variables: dict[str, str], said: str) -> None:
    (tmp_path / "book.yml").write_text(BOOK)
    (tmp_path / "hosts.yml").write_text("all: {hosts: {localhost: {}}}\n")
    words = ["-i", str(tmp_path / "hosts.yml"), str(tmp_path / "book.yml"), "-e", json.dumps(variables)]
    done = playbook(words, tmp_path / "cache")
    assert (done.returncode == 0) == (said == ""), done.stdout + done.stderr
    assert said in " ".join((done.stdout + done.stderr).split())
