"""What the inventory says of SSH beyond address, port and user, in the words of OpenSSH, for asyncssh."""

from __future__ import annotations

import getpass
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from brokerdrill.base.errors import UsageError
from brokerdrill.inventory.topology import Host

# Where Ansible has them, from the general to the particular; its configuration has the same names in capitals.
VARIABLES = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
# Of what Ansible takes for these, the later one counts.
CHECKING = ("ansible_host_key_checking", "ansible_ssh_host_key_checking")
TRUE = ("y", "yes", "on", "1", "true", "t", "1.0")
LOCAL = ("local", "ansible.builtin.local", "ansible.legacy.local")
# Ansible's ways to a host that are SSH.
SSH = ("ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh", "ansible.builtin.paramiko_ssh")
SSH_TOO = ("ansible.legacy.ssh", "ansible.netcommon.libssh", "ansible.netcommon.paramiko")
# Short options of OpenSSH that have a value.
_WITH_VALUE = "BbcDEeFIiJLlmOopQRSWw"
# A line of ssh_config: a keyword, spaces or one "=", and the rest, which may have more of both.
_LINE = re.compile(r"\s*(\w*)(?:\s*=\s*|\s+|$)(.*?)\s*", re.DOTALL)


def is_local(host: Host) -> bool:
    """Whether the host is this machine. Raises UsageError where it is reached neither directly nor by SSH."""
    how = str(host.vars.get("ansible_connection") or "ssh")
    if how in LOCAL:
        return True
    if how not in (*SSH, *SSH_TOO):
        raise UsageError(
            f"host {host.name}: ansible_connection is {how}: drills reach hosts by ssh, or directly (local)"
        )
    return False


def given(host: Host) -> dict[str, list[str]]:
    """Return what the inventory's words for ssh say, or where it has none those of Ansible's configuration: keyword of
    ssh_config in lower case → its values, in the order in which Ansible gives them.

    Raises UsageError where the words are not those of a command line.
    """
    found: dict[str, list[str]] = {}
    for variable in VARIABLES:
        said = host.vars.get(variable)
        try:
            words = shlex.split(str((host.login.get(variable.upper()) if said is None else said) or ""))
        except ValueError as error:
            raise UsageError(f"host {host.name}: {variable} is no command line: {error}") from None
        for keyword, value in _pairs(iter(words)):
            found.setdefault(keyword, []).append(value)
        # (Ansible has it after the first of them.)
        if variable == VARIABLES[0] and not _checks_keys(host):
            found.setdefault("stricthostkeychecking", []).append("no")
    return found


def _checks_keys(host: Host) -> bool:
    said = [host.vars[name] for name in CHECKING if host.vars.get(name) is not None]
    return str([host.login.get(CHECKING[0].upper(), "true"), *said][-1]).lower() in TRUE


def _pairs(words: Iterator[str]) -> Iterator[tuple[str, str]]:
    keywords = {"J": "proxyjump", "i": "identityfile", "F": "configfile", "l": "user", "p": "port"}
    for word in words:
        if not word.startswith("-") or len(word) < 2 or word[1] not in _WITH_VALUE:
            continue
        value = word[2:] or next(words, "")
        if word[1] == "o":
            if line := _LINE.fullmatch(value):
                yield line[1].lower(), _unquoted(line[1].lower(), line[2])
        elif word[1] in keywords:
            yield keywords[word[1]], value


def _unquoted(keyword: str, said: str) -> str:
    # (A command is the shell's to read: OpenSSH leaves its quotes.)
    quoted = None if keyword == "proxycommand" else re.fullmatch(r'"([^"]*)"', said)
    return quoted[1] if quoted else said


def options(host: Host) -> dict[str, Any]:
    """Return the options with which asyncssh reaches `host` as ssh does: those of the inventory, and of the user's
    ~/.ssh/config what the inventory does not say. Raises UsageError as `given`, and where a port is none."""
    said = given(host)
    found: dict[str, Any] = {}
    keys = [host.key_file] if host.key_file else []
    if keys := keys + [_path(value) for value in said.get("identityfile", [])]:
        found["client_keys"] = keys
    if "configfile" in said:
        found["config"] = [_path(said["configfile"][0])]
    if host.password is not None:
        found["password"] = host.password
    # (Of values that are said twice OpenSSH takes the first.)
    if said.get("stricthostkeychecking", [""])[0].lower() in ("no", "off"):
        found["known_hosts"] = None
    elif "userknownhostsfile" in said:
        found["known_hosts"] = [_path(value) for value in said["userknownhostsfile"][0].split()]
    if jump := said.get("proxyjump", [""])[0]:
        found["tunnel"] = () if jump.lower() == "none" else jump.removeprefix("ssh://")
    elif (command := said.get("proxycommand", [""])[0]) and command.lower() != "none":
        found["proxy_command"] = ["/bin/sh", "-c", f"exec {_filled(command, host)}"]
    if _inventory_says(host, ("ansible_user", "ansible_ssh_user")) or host.user != getpass.getuser():
        found["username"] = host.user
    elif "user" in said:
        found["username"] = said["user"][0]
    if _inventory_says(host, ("ansible_port", "ansible_ssh_port")) or host.port != 22:
        found["port"] = host.port
    elif "port" in said:
        found["port"] = _port(said["port"][0], host)
    return found


def _inventory_says(host: Host, names: tuple[str, ...]) -> bool:
    return any(host.vars.get(name) for name in names)


def _port(value: str, host: Host) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", value) or not 1 <= int(value) <= 65535:
        raise UsageError(f"host {host.name}: ssh's port is {value!r}, which is no number from 1 to 65535")
    return int(value)


def _path(value: str) -> str:
    return str(Path(value).expanduser())


def _filled(command: str, host: Host) -> str:
    """A ProxyCommand with its tokens filled in."""
    tokens: Mapping[str, str] = {"%%": "%", "%h": host.address, "%p": str(host.port), "%r": host.user, "%n": host.name}
    parts = command.split("%%")
    for token, value in tokens.items():
        if token != "%%":
            parts = [part.replace(token, shlex.quote(value)) for part in parts]
    return "%".join(parts)
