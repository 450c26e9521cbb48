"""`brokerdrill describe`: descriptors of brokers that this project did not deploy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from brokerdrill.base.errors import UsageError
from brokerdrill.cli.console import console
from brokerdrill.cli.options import TopologyArgument

app = typer.Typer()


@app.command()
def describe(
    topology: TopologyArgument,
    product: Annotated[str, typer.Argument(help="What runs there, and the group of its hosts.")],
    host: Annotated[list[str] | None, typer.Option(help="Only this host of the group; may be given again.")] = None,
    unit: Annotated[str | None, typer.Option(help="The broker's systemd unit, where a host has several.")] = None,
    store: Annotated[
        str | None, typer.Option(help="The store that these brokers share, where no file says it.")
    ] = None,
    ca: Annotated[
        str | None, typer.Option(help="The file on the hosts with the CA of the brokers' certificates.")
    ] = None,
    management_url: Annotated[str | None, typer.Option(help="Where the one broker is managed.")] = None,
    drill_address: Annotated[
        list[str] | None,
        typer.Option(
            help="An address that is a drill's, to send to, take from and empty; may be given again. Drills touch "
            "no other."
        ),
    ] = None,
    username: Annotated[str, typer.Option(help="The account of drills.")] = "drill",
    password_file: Annotated[
        Path | None, typer.Option(help="Its password; with it the descriptors are written.")
    ] = None,
) -> None:
    """Print descriptors of brokers that something else deployed, or leave them on their hosts (--password-file)."""
    from brokerdrill.describe.found import DescribeOptions
    from brokerdrill.describe.look import describe as described
    from brokerdrill.describe.look import describer, leave
    from brokerdrill.hosts.connection import connected
    from brokerdrill.inventory.topology import find_topology
    from brokerdrill.runner.recording import run_async

    describer(product)
    found = find_topology(topology)
    hosts = [found.host(name) for name in host] if host else [*found.group(product)]
    if not hosts:
        raise UsageError(f"{found.name} has no host in the group {product}")
    if management_url and len(hosts) > 1:
        raise UsageError("--management-url is one broker's: name its --host")
    options = DescribeOptions(store, ca, management_url, tuple(drill_address or ()))
    password = _password(password_file)

    async def work() -> tuple[str, list[str]]:
        async with connected(hosts) as connections:
            descriptors = await described(connections, product, unit, options)
            if password is None:
                return json.dumps(descriptors, indent=4), []
            credentials = {"username": username, "password": password}
            return "", await leave(connections, descriptors, credentials)

    text, written = run_async(work(), console)
    if text:
        console.print(text, markup=False, soft_wrap=True)
    for path in written:
        console.print(f"written: {path}", markup=False)


def _password(path: Path | None) -> str | None:
    """The first line of the file, None without one. Raises UsageError where it cannot be read or is empty."""
    if path is None:
        return None
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    if not lines or not lines[0]:
        raise UsageError(f"{path} has no password in its first line")
    return lines[0]
