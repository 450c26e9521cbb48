"""The command line. Each command is a few lines: words in, one function called, exit status out."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import traceback
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from brokerdrill.base import extras, java, paths
from brokerdrill.base.atomic import write_json
from brokerdrill.base.errors import (
    EXIT_INFRASTRUCTURE,
    EXIT_KEPT,
    EXIT_USAGE,
    BrokerdrillError,
    InfrastructureError,
    UsageError,
)
from brokerdrill.base.progress import Progress
from brokerdrill.cli import across, check, describe, explore, gameday, init, interop, validate
from brokerdrill.cli.tables import print_table

EPILOG = (
    "Exit status: 0 every promise kept (or every expected violation caught), 1 a promise broken, 2 unknown, "
    "3 the drill itself could not work, 64 usage."
)
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Deploy message brokers, break them under load, prove what they keep.",
    epilog=EPILOG,
)
bench_app = typer.Typer(no_args_is_help=True, help="The hosts of a topology as containers on this machine.")
app.add_typer(bench_app, name="bench")
engine_app = typer.Typer(no_args_is_help=True, help="The Docker engine that the bench runs on.")
app.add_typer(engine_app, name="engine")
console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def _version(wanted: bool) -> None:
    if wanted:
        print(f"brokerdrill {metadata.version('brokerdrill')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What all commands share."""


RUNS = Path("runs")
RunsOption = Annotated[Path, typer.Option("--runs", help="Directory that holds the run directories.")]
PromiseOption = Annotated[
    list[str] | None,
    typer.Option("--promise", help="NAME or NAME=BOUND_MS; repeatable; replaces the promises of the run."),
]
MasterOption = Annotated[str | None, typer.Option(help="Spark master; local without it.")]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Write the verdict as JSON.")]
LedgerDirs = Annotated[
    list[str], typer.Argument(help="Run directories, or folders of many runs: paths, or URIs that Hadoop knows.")
]
RunDirs = Annotated[list[Path], typer.Argument(help="Run directories.")]


@app.command("topologies")
def list_topologies() -> None:
    """List the topologies: inventories that can be brought up, deployed and drilled."""
    from brokerdrill.inventory.topology import topologies

    print_table(console, ("topology", "what it is"), topologies())


@app.command("scenarios")
def list_scenarios(
    topology: Annotated[
        str | None,
        typer.Argument(help="Say what applies to this topology or inventory directory, and why others do not."),
    ] = None,
    page: Annotated[
        bool, typer.Option("--markdown", help="Print the page docs/drills.md: all of them on all topologies.")
    ] = False,
) -> None:
    """List the drills: what each breaks, and where it applies."""
    from brokerdrill.inventory.planned import planned
    from brokerdrill.inventory.topology import find_topology, topologies
    from brokerdrill.scenario.drill import drills
    from brokerdrill.scenario.table import applied, markdown, not_applicable

    if page:
        from brokerdrill.results.proof import PROVEN, current, read, seen

        with Progress(Console(stderr=True)) as progress:
            every = {name: planned(find_topology(name), progress) for name, _ in topologies()}
        print(markdown(drills(), every, seen(current(read(PROVEN)))), end="")
    elif topology is None:
        rows = [(one.name, one.breaks, one.scenario.title, ", ".join(one.scenario.needs)) for one in drills()]
        print_table(console, ("drill", "breaks", "what it does", "needs"), rows)
    else:
        found = find_topology(topology)
        with Progress(console) as progress:
            instances = planned(found, progress)
        places = [applied(one, instances, found.name) for one in drills()]
        print_table(
            console,
            ("drill", "breaks", "what it does", "expected"),
            [(one.drill.name, one.drill.breaks, one.scenario.title, one.expected) for one in places if one.scenario],
        )
        print()
        print_table(
            console,
            ("these do not apply", "for they need"),
            [(", ".join(names), why) for why, names in not_applicable(places)],
        )


@app.command("faults")
def list_faults() -> None:
    """List the faults that a scenario can inject, with their parameters."""
    from brokerdrill.faults.registry import FAULTS

    rows = [
        (
            item.name,
            item.acts_on,
            item.description,
            "\n".join(f"{info.name}={info.default}: {info.meaning}" for info in item.parameter_infos()),
        )
        for item in FAULTS.values()
    ]
    print_table(console, ("fault", "acts on", "what it does", "parameters with defaults"), rows)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a drill's file."""
    from brokerdrill.scenario.drill import schema as drill_schema

    print(json.dumps(drill_schema(), indent=2))


@app.command()
def reference() -> None:
    """Write docs/reference anew: the pages that the code itself says."""
    if paths.CHECKOUT is None:
        raise UsageError("the reference is written into a checkout's docs/reference, and this is an installed package")
    from brokerdrill.cli.reference import write_pages

    for path in write_pages():
        console.print(str(path))


@bench_app.command("up")
def bench_up(
    topology: str,
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
    topology: Annotated[str | None, typer.Argument()] = None,
    everything: Annotated[bool, typer.Option("--all", help="The hosts of every topology of this checkout.")] = False,
) -> None:
    """Remove the hosts of TOPOLOGY."""
    from brokerdrill.bench import bench
    from brokerdrill.inventory.topology import find_topology

    if everything == (topology is not None):
        raise UsageError("name a topology, or say --all")
    with Progress(console) as progress:
        if topology is None:
            bench.down_all(progress.step)
        else:
            bench.down(find_topology(topology), progress.step)


@bench_app.command("status")
def bench_status(topology: str) -> None:
    """Show the hosts of TOPOLOGY."""
    from brokerdrill.bench import bench
    from brokerdrill.inventory.topology import find_topology

    rows = bench.status(find_topology(topology))
    heads = tuple(rows[0]) if rows else ("host",)
    print_table(console, heads, [tuple(str(value) for value in row.values()) for row in rows])


@engine_app.command("stop")
def engine_stop() -> None:
    """Stop the Docker engine that `bench up` started; one that was there before is left alone."""
    from brokerdrill.bench import engine

    with Progress(console) as progress:
        engine.stop(progress.step)


@app.command()
def deploy(
    topology: Annotated[str, typer.Argument(help="A topology's name, or an inventory directory.")],
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


@app.command()
def run(
    drill: Annotated[str | None, typer.Argument(help="A drill's name, or the path of its YAML file.")] = None,
    topology: Annotated[str | None, typer.Argument(help="A topology's name, or an inventory directory.")] = None,
    inventory: Annotated[str | None, typer.Option("-i", "--inventory", help="The same as TOPOLOGY.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every drill that applies to TOPOLOGY; name no drill.")
    ] = False,
    repeat: Annotated[int | None, typer.Option(min=1, help="How many runs; without it the drill's own.")] = None,
    rounds: Annotated[
        int | None, typer.Option(help="How often a run takes the method's steps; without it the drill's own.")
    ] = None,
    lasting: Annotated[
        str | None, typer.Option("--for", help="Repeat the method's steps for so long: 90s, 60m, 2h.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run's random choices; without it a new one.")] = None,
    runs: RunsOption = RUNS,
    run_dir: Annotated[Path | None, typer.Option(help="The run's directory, which must not exist yet.")] = None,
    purge: Annotated[
        bool,
        typer.Option(
            "--purge", help="Remove all messages in the drill's addresses first, also those that no drill sent."
        ),
    ] = False,
    json_file: JsonOption = None,
    at_once: across.AtOnceOption = None,
    within: across.WithinOption = None,
    master: MasterOption = None,
    judge: Annotated[
        bool, typer.Option(help="Judge the runs; without it they are recorded for `brokerdrill report` to judge.")
    ] = True,
) -> None:
    """Run DRILL on the deployed TOPOLOGY, analyse what was recorded, and write the report."""
    from brokerdrill.cli.judged import judged
    from brokerdrill.inventory.topology import find_topology
    from brokerdrill.results.warm import warm_up
    from brokerdrill.runner.recording import record
    from brokerdrill.scenario.drill import load_drill
    from brokerdrill.scenario.rounds import changes_of, settings_of

    if judge:  # said before anything is broken
        extras.need("pyspark")
    changes = changes_of(rounds, lasting)
    radius = across.radius(at_once, within)
    first = seed if seed is not None else random.SystemRandom().randrange(1_000_000)
    if everything:
        if run_dir or json_file:
            raise UsageError("--all makes a run directory and a verdict for each drill: --run-dir and --json name one")
        named = [word for word in (drill, topology, inventory) if word]
        if len(named) != 1:
            raise UsageError("--all runs every drill that applies: name the topology and nothing else")
        if changes or purge or not judge:
            raise UsageError("--rounds, --for, --purge and --no-judge are of one drill: name it")
        raise typer.Exit(across.run_everything(named[0], repeat, first, runs, master, console, radius))
    if drill is None:
        raise UsageError("name a drill and a topology: brokerdrill run DRILL TOPOLOGY")
    loaded = load_drill(drill)
    if topology and inventory:
        raise UsageError(f"{topology} and -i {inventory} both say where to run: give one of them")
    where = topology or inventory or loaded.scenario.topology
    if where is None:
        raise UsageError(f"say where to run it: brokerdrill run {drill} TOPOLOGY (brokerdrill topologies lists them)")
    found = find_topology(where)
    count = repeat or loaded.scenario.repeat
    if run_dir and count > 1:
        raise UsageError("--run-dir names one run; it does not go with --repeat")
    seeds = [first + number for number in range(count)]

    def recorded() -> list[Path]:
        return record(
            loaded, found, runs, seeds, console, run_dir, settings_of(changes), changes, radius=radius, purge=purge
        )

    if not judge:
        for one in recorded():
            console.print(f"recorded, not judged: {one}", markup=False)
        return
    warm_up(master)
    status, reports = judged(recorded, console, json_file=json_file, master=master)
    console.print(f"report: {reports[-1]}")
    raise typer.Exit(status)


@app.command()
def analyze(
    run_dirs: LedgerDirs, json_file: JsonOption = None, promise: PromiseOption = None, master: MasterOption = None
) -> None:
    """Judge finished runs from their ledgers alone."""
    from brokerdrill.analysis.analyze import analyze as judge_only
    from brokerdrill.analysis.files import runs_of
    from brokerdrill.analysis.verdict import exit_status
    from brokerdrill.ledger.verdict import verdict
    from brokerdrill.report import print_verdict
    from brokerdrill.results.judging import add_to_table

    found = runs_of(run_dirs)
    result = judge_only(found, parse_promises(promise or []) or None, master)
    told = verdict(result)
    for one in told.runs:
        print_verdict(one, console)
    if not promise and not any("://" in str(run_dir) for run_dir in found):  # the table is of this machine's runs
        for run_dir, one in zip(found, told.runs, strict=True):
            if not one.error:
                add_to_table(Path(run_dir), one, console)
    if json_file:
        write_json(json_file, result)
    raise typer.Exit(exit_status(result))


def parse_promises(words: list[str]) -> list[Any]:
    """Return the PromiseSpecs of `NAME` or `NAME=BOUND_MS` words. Raises UsageError for others."""
    from brokerdrill.ledger.contract import PromiseSpec, check_promise
    from brokerdrill.promises import catalogue

    specs = []
    for word in words:
        name, _, bound = word.partition("=")
        catalogue.promise(name)
        try:
            specs.append(check_promise(PromiseSpec(name, float(bound) if bound else None), "--promise"))
        except ValueError:
            raise UsageError(f"--promise {word}: {bound!r} is no number of milliseconds") from None
    return specs


@app.command()
def report(
    run_dirs: RunDirs,
    out: Annotated[Path | None, typer.Option(help="Directory for the reports; without it beside each run.")] = None,
    master: MasterOption = None,
) -> None:
    """Analyse finished runs and write their HTML, JUnit, Markdown and JSON reports."""
    from brokerdrill.analysis.files import runs_of
    from brokerdrill.analysis.verdict import exit_status
    from brokerdrill.results.judging import judge

    found = [Path(run_dir) for run_dir in runs_of(run_dirs)]
    result, reports = judge(found, console, report_dir=out, master=master)
    for path in reports:
        console.print(f"report: {path}")
    raise typer.Exit(exit_status(result))


@app.command()
def compact(
    run_dirs: RunDirs,
    out: Annotated[Path | None, typer.Option(help="Ledger folder for many runs; without it each run in place.")] = None,
) -> None:
    """Turn the spools of finished runs into Parquet, one row an operation."""
    from brokerdrill.analysis.compact import compact as make

    with Progress(console) as progress:
        make(run_dirs, out, told=progress.step)


@app.command()
def synthesize(
    ops: Annotated[int, typer.Option(min=1, help="How many operations, about.")],
    out: Annotated[Path, typer.Option(help="The run directory to make.")],
    anomalies: Annotated[str, typer.Option(help="KIND=N,...; KIND alone is one; all is one of every kind.")] = "",
    seed: Annotated[int, typer.Option(help="Decides where the anomalies are.")] = 0,
    clients: Annotated[int | None, typer.Option(min=4, help="Producers and consumers in all.")] = None,
    master: MasterOption = None,
) -> None:
    """Make a ledger with known anomalies in known places (its synthesized.json tells), to see that checks find them."""
    from brokerdrill.synthesize.plan import parse_anomalies
    from brokerdrill.synthesize.write import synthesize as make

    known = make(out, ops, parse_anomalies(anomalies), seed=seed, clients=clients, master=master)
    planted = sum(len(places) for places in known["placed"].values())
    console.print(f"{out}: {known['messages']} messages, {planted} of them with an anomaly")


@app.command()
def heal(runs: Annotated[Path, typer.Argument(help="Directory that holds the run directories.")] = RUNS) -> None:
    """Heal every fault that an ended runner left behind, from the journals, and bring its ledgers home."""
    from brokerdrill.runner.healing import INTERRUPTED, heal_run, unfinished
    from brokerdrill.runner.recording import Interrupted, run_async

    left = unfinished(runs)
    problems = []
    with Progress(console) as progress:
        for item in left:
            try:
                run_async(heal_run(item, progress), console, INTERRUPTED)
            except Interrupted:
                raise
            except BrokerdrillError as error:
                problems.append(str(error))
    if problems:
        raise InfrastructureError("; ".join(problems))
    console.print("nothing is left to heal" if not left else f"{len(left)} runs are healed")


@app.command()
def demo(runs: RunsOption = RUNS) -> None:
    """Bring up a bench, deploy it, kill its active broker under load, and show that the checks can fail."""
    from brokerdrill.cli.demo import run_demo

    raise typer.Exit(run_demo(runs, console))


across.add_to(app, console)
explore.add_to(app, console)
check.add_to(app, console)
describe.add_to(app, console)
gameday.add_to(app, console)
init.add_to(app, console)
interop.add_to(app, console)
validate.add_to(app, console)


def main() -> None:
    """Entry point: runs the app and turns every failure into one sentence and its exit status."""
    with contextlib.suppress(InfrastructureError):  # only the analysis and the clients need one, and say so
        java.use()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    error_console = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        status = app(standalone_mode=False)
        sys.exit(status if isinstance(status, int) else EXIT_KEPT)
    except BrokerdrillError as error:
        error_console.print(f"brokerdrill: {error}", markup=False)
        sys.exit(error.exit_status)
    except typer.TyperException as error:
        # No command at all prints the help as its message; anything else is one sentence.
        words = error.format_message() if hasattr(error, "format_message") else str(error)
        error_console.print(words if "\n" in words else f"brokerdrill: {words}", markup=False)
        sys.exit(EXIT_USAGE)
    except (KeyboardInterrupt, typer.Abort):
        _interrupted(error_console)
    except ModuleNotFoundError as error:
        if (sentence := extras.missing(error)) is None:
            _defect(error_console)
        error_console.print(f"brokerdrill: {sentence}", markup=False)
        sys.exit(EXIT_INFRASTRUCTURE)
    except BrokenPipeError:
        with contextlib.suppress(OSError):
            sys.stdout.close()
        sys.exit(EXIT_INFRASTRUCTURE)
    except Exception as error:
        if began_with_interrupt(error):
            _interrupted(error_console)
        _defect(error_console)


def began_with_interrupt(error: BaseException | None) -> bool:
    """Whether a KeyboardInterrupt led to `error`: what waits for a Java virtual machine then fails in its own way."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _interrupted(error_console: Console) -> NoReturn:
    error_console.print("brokerdrill: interrupted")
    sys.exit(EXIT_INFRASTRUCTURE)


def _defect(error_console: Console) -> NoReturn:
    """A mistake of our own: never the status of a broken promise."""
    traceback.print_exc()
    error_console.print("brokerdrill: this is a defect of brokerdrill; please report it with the lines above")
    sys.exit(EXIT_INFRASTRUCTURE)
