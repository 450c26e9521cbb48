"""`chaos/setup.sh` on a machine that lacks a Debian package; what installs and builds are stand-ins that note it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = "sh dirname sed head sha256sum cat mkdir rm mvn go git ssh ip tar gcc haproxy dnsmasq iptables mmdebstrap"


def tool(path: Path, text: str) -> None:
    """Make a script; never through a link, which would lead out of here."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x") as file:
        file.write(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("built", [False, True], ids=["set-up", "set-up for tests"])
def test_what_follows_the_missing_packages_is_done(tmp_path: Path, built: bool) -> None:
    checkout, tools, notes = tmp_path / "checkout", tmp_path / "tools", tmp_path / "notes"
    (checkout / "chaos").mkdir(parents=True)
    shutil.copy(ROOT / "chaos/setup.sh", checkout / "chaos")
    shutil.copytree(ROOT / "router/amqp_session_router", checkout / "router/amqp_session_router")
    for name in ("requirements.lock", "pyproject.toml", "router/pyproject.toml", "router/setup.py"):
        shutil.copy(ROOT / name, checkout / name)
    tools.mkdir()
    for name in NEEDED.split():
        # Where one is not here it is not what this test is about.
        (tools / name).symlink_to(shutil.which(name) or "/bin/true")
    note = f'printf "%s\\n" "$*" >>{notes}'
    for path, text in {
        tools / "id": "echo 0",
        tools / "java": "echo 'openjdk version \"17\"' >&2",
        tools / "python3": f'exec {sys.executable} "$@"',
        tools / "apt-get": note,
        checkout / ".venv/bin/python": note,
    }.items():
        tool(path, text)
    # chromium is not there; nor is it in the system's directories that the script looks into.
    words = ["/bin/sh", str(checkout / "chaos/setup.sh"), *(["--tests"] if built else [])]
    subprocess.run(words, env={"PATH": str(tools), "HOME": str(tmp_path)}, check=True)
    said = notes.read_text()
    assert ("-e router" in said) == built
    assert ("chromium" in said) == built
