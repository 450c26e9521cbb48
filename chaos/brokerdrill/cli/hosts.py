"""The commands that make hosts and deploy them: `bench`, `engine`, `deploy`."""

from __future__ import annotations

from typing import Annotated

import typer

from brokerdrill.base.errors import UsageError
from brokerdrill.base.progress import Progress
from brokerdrill.cli.console import console, print_json, print_table
from brokerdrill.cli.options import ListJsonOption, TopologyArgument, topology_names

app = typer.Typer()
bench_app = typer.Typer(no_args_is_help=True, help="The hosts of a topology as containers on this machine.")
engine_app = typer.Typer(no_args_is_help=True, help="The Docker engine that the bench runs on.")
app.add_typer(bench_app, name="bench")
app.add_typer(engine_app, name="engine")


@bench_app.command("up")
def bench_up(
    topology: Annotated[str, typer.Argument(autocompletion=topology_names)],
    fresh: Annotated[bool, typer.Option(help="Make all hosts anew.")] = False,
    image: Annotated[
        str | None,
        typer.Option(help="Of all hosts: debian12, debian13, or bare (no Java, no nft); default: each's bench_image."),
    ] = None,
) -> None:
    """Make the hosts of TOPOLOGY as containers, reached by SSH; starts a Docker engine where none answers."""
    from brokerdrill.bench import bench
    from brokerdrill.inventory.topology import find_topology

    found = find_topology(topology)
    with Progress(console) as progress:
        bench.up(found, fresh=fresh, progress=progress.step, all_of=image)


@bench_app.command("down")
def bench_down(
    topology: Annotated[str | None, typer.Argument(autocompletion=topology_names)] = None,
    everything: Annotated[bool, typer.Option("--all", help="The hosts of every topology of this checkout.")] = False,
) -> None:
    """Remove the hosts of TOPOLOGY, also where its inventory is gone."""
    from brokerdrill.bench import bench
    from brokerdrill.inventory.topology import find_topology

    if everything == (topology is not None):
        raise UsageError("name a topology, or say --all")
    with Progress(console) as progress:
        if topology is None:
            bench.down_all(progress.step)
        else:
            there = topology in bench.standing()
            bench.down(topology if there else find_topology(topology).name, progress.step)


@bench_app.command("status")
def bench_status(
    topology: Annotated[str, typer.Argument(autocompletion=topology_names)], as_json: ListJsonOption = False
) -> None:
    """Show the hosts of TOPOLOGY."""
    from brokerdrill.bench import bench
    from brokerdrill.inventory.topology import find_topology

    rows = bench.status(find_topology(topology))
    if as_json:
        print_json(hosts=rows)
        return
    print_table(tuple(rows[0]) if rows else ("host",), [tuple(str(value) for value in row.values()) for row in rows])


@engine_app.command("stop")
def engine_stop() -> None:
    """Stop the Docker engine that `bench up` started; one that was there before is left alone."""
    from brokerdrill.bench import engine

    with Progress(console) as progress:
        engine.stop(progress.step)


@app.command()
def deploy(
    topology: TopologyArgument,
    playbook: Annotated[str, typer.Option(help="A playbook of playbooks/, without its ending.")] = "site",
    extra: Annotated[
        list[str] | None,
        typer.Option("-e", "--extra-vars", help="A variable for the playbook: NAME=VALUE, JSON, or @FILE; repeatable."),
    ] = None,
) -> None:
    """Deploy a topology with ansible-playbook."""
    from brokerdrill.inventory.playbooks import extra_vars, run_playbook
    from brokerdrill.inventory.topology import find_topology

    found, variables = find_topology(topology), extra_vars(extra or ())
    with Progress(console) as progress:
        progress.step(f"{playbook}.yml on {found.name} ({len(found.hosts)} hosts)")
        run_playbook(found, playbook, progress, variables)
        progress.step(f"{playbook}.yml is done")
