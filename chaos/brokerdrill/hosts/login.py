"""How a host lets the runner in: SSH, and sudo where its user is not root."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncssh

from brokerdrill.base import paths
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.hosts import ssh_options
from brokerdrill.inventory.topology import Host

CONNECT_TIMEOUT_S = 15
# A connection over which nothing comes for three of these is lost.
KEEPALIVE_S = 5


class AnotherHost(InfrastructureError):
    """Who answers at a host's address has not that host's key: to try again would change nothing."""


async def log_in(host: Host, client: type[asyncssh.SSHClient], timeout_s: float) -> asyncssh.SSHClientConnection:
    """Return an SSH connection to `host` whose `get_owner()` is a new `client`.

    Raises UsageError where the inventory's words for ssh are none, AnotherHost where its key is not the known one,
    InfrastructureError, naming the host, where it does not let us in within `timeout_s`.
    """
    options = ssh_options.options(host)
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncssh.connect(
                host.address,
                keepalive_interval=KEEPALIVE_S,
                client_factory=client,
                **options,
            )
    except TimeoutError:
        raise InfrastructureError(f"host {host.name} ({host.address}) does not answer within {timeout_s:g} s") from None
    except asyncssh.HostKeyNotVerifiable as error:
        raise AnotherHost(
            f"host {host.name} ({host.address}) cannot be reached: {error}; log in once by ssh to say that it is the "
            "host that you mean, or say `host_key_checking = false` in Ansible's configuration"
        ) from None
    except (OSError, asyncssh.Error) as error:
        raise InfrastructureError(
            f"host {host.name} ({host.address}) cannot be reached: {_reason(options, error)}"
        ) from None


def _reason(options: Mapping[str, Any], error: Exception) -> str:
    """Why the host was not reached: a key that is not there, else `error`; of a host of the bench, what makes it."""
    keys = [Path(key) for key in options.get("client_keys", [])]
    of_bench = any(key.parent == paths.cache().resolve() / "bench" for key in keys)
    gone = [key for key in keys if not key.exists()]
    if gone:
        return f"there is no key {gone[0]}{', which `brokerdrill bench up` makes' if of_bench else ''}"
    return f"{error}{'; `brokerdrill bench up` makes the hosts of a bench' if of_bench else ''}"


def asks_password(host: Host) -> bool:
    """Whether sudo asks for the password on that host."""
    return host.user != "root" and host.become_password is not None


def root_words(host: Host, words: str) -> str:
    """`words` for a shell of the host's user, run by root. Where sudo asks for a password it reads it as the first line
    of the input: each time (-k), so that none is left over for the words themselves."""
    if host.user == "root":
        return words
    how = "-k -S -p ''" if asks_password(host) else "-n"
    return f"sudo {how} /bin/sh -c {shlex.quote(words)}"


async def _may_be_root(host: Host, ssh: asyncssh.SSHClientConnection) -> Host:
    """Return `host` as its sudo is: without the password of the inventory where sudo asks for none.

    Raises InfrastructureError where the host's user cannot become root.
    """
    # Where the inventory says nobody it is the user's ~/.ssh/config that does.
    host = replace(host, user=str(ssh.get_extra_info("username") or host.user))
    if host.user == "root":
        return host
    method = host.vars.get("ansible_become_method", "sudo")
    if str(method).removeprefix("ansible.builtin.") != "sudo":
        raise InfrastructureError(
            f"host {host.name}: a drill becomes root by sudo, not by {method} (ansible_become_method)"
        )
    without = replace(host, become_password=None)
    if (await ssh.run("sudo -k -n /bin/sh -c :")).exit_status == 0:
        return without
    if host.become_password is None:
        raise InfrastructureError(
            f"host {host.name}: sudo asks {host.user} for a password, and the inventory has none "
            "(ansible_become_password, or become_password_file of Ansible's configuration)"
        )
    tried = await ssh.run(root_words(host, ":"), input=f"{host.become_password}\n")
    if tried.exit_status != 0:
        lines = str(tried.stderr or "").strip().splitlines()
        raise InfrastructureError(
            f"host {host.name}: sudo does not take the inventory's password for {host.user}"
            f"{f': {lines[-1]}' if lines else ''}"
        )
    return host


async def with_sudo(host: Host, ssh: asyncssh.SSHClientConnection) -> Host:
    """As `_may_be_root`, in time: sudo may wait for a directory service that a fault has cut off. Where it raises, the
    connection is closed."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return await _may_be_root(host, ssh)
    except BaseException as error:
        ssh.close()
        if isinstance(error, TimeoutError):
            raise InfrastructureError(f"host {host.name}: sudo does not answer within {CONNECT_TIMEOUT_S} s") from None
        if isinstance(error, (OSError, asyncssh.Error)):
            raise InfrastructureError(f"host {host.name} ({host.address}) cannot be reached: {error}") from None
        raise
