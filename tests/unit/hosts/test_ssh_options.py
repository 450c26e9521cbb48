"""Hosts are reached as the inventory says it to ssh: by a jump host, a command, other files; or not at all."""

from __future__ import annotations

import asyncio
import getpass
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.base.errors import InfrastructureError, UsageError
from brokerdrill.hosts.connection import connect
from brokerdrill.hosts.ssh_options import is_local, options
from brokerdrill.inventory.topology import Host
from tests.free_ports import free_port
from tests.unit.ssh_host import KEY, SshHost, ssh_host

NAME = getpass.getuser()


def host(**variables: Any) -> Host:
    return Host("web1", "192.0.2.7", 22, NAME, None, (), variables)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-J jump.example", {"tunnel": "jump.example"}),
        ("-Jops@a:2222,b", {"tunnel": "ops@a:2222,b"}),
        ("-o ProxyJump=ops@jump.example:2222", {"tunnel": "ops@jump.example:2222"}),
        ("-oProxyJump=jump -C -o 'StrictHostKeyChecking no'", {"tunnel": "jump", "known_hosts": None}),
        ("-o ProxyJump=none", {"tunnel": ()}),
        ("-o proxyjump=first -o ProxyJump=second", {"tunnel": "first"}),
        (
            """-o ProxyCommand="ssh -W %h:%p -q %r@jump.example 2>/dev/null # 100%%" """,
            {"proxy_command": ["/bin/sh", "-c", f"exec ssh -W 192.0.2.7:22 -q {NAME}@jump.example 2>/dev/null # 100%"]},
        ),
        (
            "-o 'ProxyCommand ssh -o StrictHostKeyChecking=no -W %h:%p gw'",
            {"proxy_command": ["/bin/sh", "-c", "exec ssh -o StrictHostKeyChecking=no -W 192.0.2.7:22 gw"]},
        ),
        (
            """-o ProxyCommand='ssh -q gw "nc %h %p"'""",
            {"proxy_command": ["/bin/sh", "-c", 'exec ssh -q gw "nc 192.0.2.7 22"']},
        ),
        (
            """-o 'ProxyCommand = "/opt/a tool" -H "%h"'""",
            {"proxy_command": ["/bin/sh", "-c", 'exec "/opt/a tool" -H "192.0.2.7"']},
        ),
        ("""-o 'User = "ops"' -o Port=2222""", {"username": "ops", "port": 2222}),
        ("-o UserKnownHostsFile=/a -o StrictHostKeyChecking=yes", {"known_hosts": ["/a"]}),
        ("-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null", {"known_hosts": None}),
        ("-i /keys/one -F /etc/ours -p 2222 -l ops", {
            "client_keys": ["/keys/one"], "config": ["/etc/ours"], "port": 2222, "username": "ops",
        }),
        ("-C -o ControlMaster=auto -o ControlPersist=60s -4 -v", {}),
        ("", {}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("variable", ["ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args"])
def test_words_for_ssh_are_heeded(variable: str, words: str, said: dict[str, Any]) -> None:
    assert options(host(**{variable: words})) == said


@pytest.mark.parametrize("name", ["ssh_args", "ssh_common_args", "ssh_extra_args"])
def test_ansibles_configuration_has_words_for_ssh_too(name: str) -> None:
    """They hold where the inventory has no words of the same kind."""
    configured = replace(host(), login={f"ANSIBLE_{name.upper()}": "-J jump.example"})
    assert options(configured) == {"tunnel": "jump.example"}
    assert options(replace(configured, vars={f"ansible_{name}": "-J other"})) == {"tunnel": "other"}
    assert options(replace(configured, vars={f"ansible_{name}": ""})) == {}


@pytest.mark.parametrize(
    ("configured", "variables", "checked"),
    [
        ("False", {}, False),
        ("True", {}, True),
        (None, {}, True),
        (None, {"ansible_host_key_checking": False}, False),
        (None, {"ansible_host_key_checking": "no"}, False),
        ("False", {"ansible_host_key_checking": "yes"}, True),
        ("True", {"ansible_host_key_checking": True, "ansible_ssh_host_key_checking": False}, False),
        ("False", {"ansible_ssh_args": "-o StrictHostKeyChecking=yes"}, True),
        ("False", {"ansible_ssh_common_args": "-o StrictHostKeyChecking=yes"}, False),
    ],
)
def test_keys_of_hosts_are_checked_as_ansible_does(
    configured: str | None, variables: dict[str, Any], checked: bool
) -> None:
    login = {"ANSIBLE_HOST_KEY_CHECKING": configured} if configured else {}
    assert ("known_hosts" not in options(replace(host(**variables), login=login))) is checked


def test_sshs_password_is_the_inventorys() -> None:
    assert options(replace(host(), password="of ssh")) == {"password": "of ssh"}


def test_what_the_inventory_says_goes_before_the_users_own_file() -> None:
    named = replace(host(ansible_user=NAME, ansible_port=22), key_file="/keys/two")
    assert options(named) == {"username": NAME, "port": 22, "client_keys": ["/keys/two"]}
    assert options(replace(host(), user="other", port=2200)) == {"username": "other", "port": 2200}


@pytest.mark.parametrize("how", ["docker", "community.docker.docker", "winrm", "kubectl", "aws_ssm", "chroot"])
def test_another_way_to_a_host_is_said(how: str) -> None:
    with pytest.raises(UsageError, match=f"host web1: ansible_connection is {how}: drills reach hosts by ssh, or"):
        asyncio.run(connect(host(ansible_connection=how)))


@pytest.mark.parametrize(
    ("how", "local"),
    [("local", True), ("ansible.builtin.local", True), ("ssh", False), ("smart", False), ("paramiko_ssh", False),
     ("ansible.builtin.ssh", False), ("ansible.netcommon.libssh", False), (None, False), ("", False)],
)  # fmt: skip
def test_ways_that_are_known(how: str | None, local: bool) -> None:
    assert is_local(host(ansible_connection=how)) is local


def test_words_that_are_no_command_line() -> None:
    with pytest.raises(UsageError, match="host web1: ansible_ssh_extra_args is no command line: No closing quotation"):
        options(host(ansible_ssh_extra_args="-o 'ProxyJump=a"))


@pytest.mark.parametrize(("words", "port"), [("-p abc", "abc"), ("-o Port=70000", "70000"), ("-p 0", "0")])
def test_a_port_that_is_none(words: str, port: str) -> None:
    with pytest.raises(UsageError, match=f"host web1: ssh's port is '{port}', which is no number from 1 to 65535"):
        options(host(ansible_ssh_extra_args=words))


@pytest.mark.parametrize("checked", [True, False])
def test_a_host_whose_key_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checked: bool) -> None:
    async def main() -> str:
        async with ssh_host(tmp_path, monkeypatch) as front:
            monkeypatch.setenv("HOME", str(tmp_path))
            there = replace(front.host, vars={}, login={"ANSIBLE_HOST_KEY_CHECKING": str(checked)})
            connection = await connect(there)
            try:
                return (await connection.sh("echo here")).out
            finally:
                await connection.close()

    if checked:
        with pytest.raises(
            InfrastructureError, match=r"Host key is not trusted.*log in once by ssh .* or say `host_key_checking"
        ):
            asyncio.run(main())
    else:
        assert asyncio.run(main()) == "here\n"


def test_a_key_of_ours_that_is_not_there() -> None:
    missing = replace(host(), key_file="/nowhere/id_ed25519")
    with pytest.raises(InfrastructureError, match=r"web1 .* cannot be reached: there is no key /nowhere/id_ed25519"):
        asyncio.run(connect(missing))


def test_the_benchs_key_before_there_is_a_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKERDRILL_CACHE", str(tmp_path))
    missing = replace(host(), key_file=str(tmp_path / "bench" / "id_ed25519"))
    with pytest.raises(InfrastructureError, match=r"id_ed25519, which `brokerdrill bench up` makes$"):
        asyncio.run(connect(missing))


def test_a_host_of_a_bench_that_is_not_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKERDRILL_CACHE", str(tmp_path))
    key = tmp_path / "bench" / "id_ed25519"
    key.parent.mkdir()
    key.write_bytes(KEY.export_private_key())
    nobody = replace(host(), address="127.0.0.1", port=free_port(), key_file=str(key))
    with pytest.raises(InfrastructureError, match=r"; `brokerdrill bench up` makes the hosts of a bench$"):
        asyncio.run(connect(nobody))


def reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Any, **changes: Any) -> str:
    """What a host answers that is reached by `words` of the inventory for ssh, which follow from the one before it."""

    async def main() -> str:
        async with ssh_host(tmp_path, monkeypatch) as front:
            monkeypatch.setenv("HOME", str(tmp_path))
            (tmp_path / ".ssh").mkdir()
            port = front.host.port
            key = KEY.export_public_key().decode()
            (tmp_path / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{port} {key}")
            there = replace(front.host, **changes) if changes else front.host
            there = replace(there, vars={**there.vars, "ansible_ssh_extra_args": words(front)})
            connection = await connect(there)
            try:
                return (await connection.sh("echo here")).out
            finally:
                await connection.close()

    return asyncio.run(main())


def test_a_host_behind_a_jump_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reached(tmp_path, monkeypatch, lambda front: f"-J root@127.0.0.1:{front.host.port}") == "here\n"


def test_a_jump_host_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InfrastructureError, match=r"host h .* cannot be reached"):
        reached(tmp_path, monkeypatch, lambda _: "-o ProxyJump=root@127.0.0.1:9")


def test_a_host_behind_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address is none that anybody reaches but by the command."""
    relay = tmp_path / "relay.py"
    relay.write_text(
        "import socket, sys, threading\n"
        "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "def up():\n"
        "    while data := sys.stdin.buffer.raw.read(65536):\n        s.sendall(data)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := s.recv(65536):\n    sys.stdout.buffer.write(data); sys.stdout.buffer.flush()\n"
    )
    words = f"-o ProxyCommand='python3 {relay} %p'"
    assert reached(tmp_path, monkeypatch, lambda _: words, address="broker.inside.example") == "here\n"


def test_the_users_own_file_says_where_a_host_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def words(front: SshHost) -> str:
        (tmp_path / ".ssh" / "config").write_text(
            f"Host inner\n  HostName 127.0.0.1\n  Port {front.host.port}\n  User root\n"
        )
        return ""

    assert reached(tmp_path, monkeypatch, words, address="inner", port=22, user=NAME) == "here\n"
