"""What the page of one run says, as plain data for its template: pure functions of the run's files and verdict."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from brokerdrill.base.documents import plain_yaml
from brokerdrill.ledger import contract
from brokerdrill.ledger.verdict import RunVerdict
from brokerdrill.ledger.witness import Witness
from brokerdrill.promises.catalogue import PROMISES
from brokerdrill.report import details, words
from brokerdrill.report import format as fmt
from brokerdrill.report.shown import Band, Shown

WITNESS_ROWS = 50
# The columns of a witness that say most come first; others follow by name.
WITNESS_ORDER = ("class", "message_id", "address", "subscription", "client", "key", "store", "instance", "fault")


def scenario_words(text: str) -> dict[str, str]:
    """Return title, description and topology of a scenario's YAML; what cannot be read is left out."""
    try:
        data = plain_yaml(text)
    except yaml.YAMLError:
        return {}
    if not isinstance(data, dict):
        return {}
    return {key: str(data[key]).strip() for key in ("title", "description", "topology") if data.get(key)}


def repeated(text: str) -> list[str]:
    """Return the options of the command that repeat the method as often as a scenario's YAML says; none: once."""
    try:
        data = plain_yaml(text)
    except yaml.YAMLError:
        return []
    if not isinstance(data, dict):
        return []
    return [word for name in ("rounds", "for") if data.get(name) for word in (f"--{name}", str(data[name]))]


@dataclass(frozen=True)
class WitnessRow:
    """One witness: its cells, and its story's steps."""

    cells: list[str]
    story: list[details.StoryRow]


@dataclass(frozen=True)
class WitnessTable:
    """A promise's witnesses; `more` are not shown."""

    columns: list[str]
    rows: list[WitnessRow]
    more: int


def witness_table(witnesses: Sequence[Witness], bands: Sequence[Band] = ()) -> WitnessTable:
    """Return the table of a promise's witnesses."""
    top = witnesses[:WITNESS_ROWS]
    names = {str(key) for item in top for key, value in item.fields.items() if value is not None}
    order = [name for name in WITNESS_ORDER if name in names] + sorted(names - set(WITNESS_ORDER))
    return WitnessTable(
        columns=[fmt.label(name) for name in order],
        rows=[
            WitnessRow(
                [fmt.value(name, item.fields.get(name)) for name in order], details.story_rows(item.story or (), bands)
            )
            for item in top
        ],
        more=max(0, len(witnesses) - WITNESS_ROWS),
    )


@dataclass(frozen=True)
class PromiseRow:
    """A row of the table of promises, in the words and numbers that a reader sees."""

    name: str
    details: str
    promise: str
    verdict: str
    word: str
    sign: str
    expectation: str | None
    met: bool
    bound: str
    measured: str
    count: str
    excused: str
    excused_for: str
    meaning: str
    witnesses: WitnessTable
    witness_count: int


def promise_rows(result: RunVerdict, run: contract.RunInfo | None, bands: Sequence[Band] = ()) -> list[PromiseRow]:
    """Return the rows of the table of promises, in the verdict's order."""
    expect = run.expect if run else {}
    rows = []
    for promise in result.promises:
        expectation = promise.expected or expect.get(promise.name)
        known = PROMISES.get(promise.name)
        chosen = [
            (field.choices, promise.values.get(field.name)) for field in (known.fields if known else ()) if field.shown
        ]
        word, sign = words.VERDICT_WORDS[promise.verdict]
        rows.append(
            PromiseRow(
                name=promise.name,
                details=", ".join(choices.get(str(value), str(value)) for choices, value in chosen if value),
                promise=known.words.promise if known else "",
                verdict=promise.verdict,
                word=word,
                sign=sign,
                expectation=expectation,
                met=words.expectation_met(promise, expectation),
                bound=fmt.milliseconds(promise.bound),
                measured=fmt.milliseconds(promise.measured),
                count=fmt.number(promise.count),
                excused=fmt.number(promise.excused),
                excused_for=known.words.excused if known else "",
                meaning=words.meaning(promise),
                witnesses=witness_table(promise.witnesses, bands),
                witness_count=len(promise.witnesses),
            )
        )
    return rows


def _split(redelivered: Mapping[str, int]) -> str:
    """How the analysis splits the redelivered messages, as the end of their meaning."""
    if not any(redelivered.values()):
        return ""
    flagged, in_doubt = redelivered.get("flagged", 0), redelivered.get("in_doubt", 0)
    return f"; {fmt.number(flagged)} flagged so by the broker, {fmt.number(in_doubt)} after an acknowledgement in doubt"


@dataclass(frozen=True)
class ClassRow:
    """A class of messages: how many, as text, their share of all, what it means, the promise it breaks, its tone."""

    name: str
    count: int
    text: str
    share: str
    meaning: str
    breaks: str
    tone: str


def class_rows(result: RunVerdict) -> list[ClassRow]:
    """Return every class of messages with its count and meaning; those without a message last."""
    total = result.count(*contract.CLASSES) or 1
    rows = [
        ClassRow(
            name=name,
            count=result.count(name),
            text=fmt.number(result.count(name)),
            share=fmt.percent(result.count(name) / total),
            meaning=known.meaning + (_split(result.redelivered) if name == "redelivered" else ""),
            breaks=words.breaks(name),
            tone=known.tone,
        )
        for name, known in words.CLASS_WORDS.items()
    ]
    return sorted(rows, key=lambda row: row.count == 0)


def _time(entry: Mapping[str, Any] | None) -> str:
    if entry is None or entry.get("at_ns") is None:
        return fmt.NOTHING
    text = fmt.seconds(entry["at_ns"])
    if entry.get("uncertainty_ns"):
        text += f" ± {fmt.milliseconds(entry['uncertainty_ns'] / 1e6)}"
    return text


def _mark(bands: Sequence[Band], name: str, target: str, at_ns: int | None) -> str:
    """The number of the band that is the journal's fault: the nearest in time, on that target where there is one."""
    if at_ns is None:
        return ""
    near = [band for band in bands if abs(band.start_ns - at_ns) < 1_000_000_000 and band.name == name]
    near.sort(key=lambda band: (band.target != target, abs(band.start_ns - at_ns)))
    return near[0].mark if near else ""


@dataclass(frozen=True)
class FaultRow:
    """A fault as a reader sees it: its mark in the pictures, the step, what was asked for and what it hit, its times,
    who healed it, and what went wrong."""

    mark: str
    fault: str
    resolved: str
    instance: str
    injected: str
    healed: str
    unhealed: bool
    id: str = ""
    step: str = ""
    params: str = ""
    asked: str = fmt.NOTHING
    host: str = ""
    verified: str = fmt.NOTHING
    by: str = ""
    ttl: str = ""
    error: str = ""


def fault_rows(journal: Sequence[Mapping[str, Any]], bands: Sequence[Band]) -> list[FaultRow]:
    """Return the faults table: from the journal, else (a run that another tool recorded) from the bands."""
    faults: dict[str, dict[str, Mapping[str, Any]]] = {}
    for entry in journal:
        fault_id, phase = entry.get("fault_id"), entry.get("phase")
        if fault_id is not None and phase is not None:
            faults.setdefault(str(fault_id), {}).setdefault(str(phase), entry)
    rows = []
    for fault_id, phases in faults.items():
        intent = phases.get("intent")
        if intent is None:
            continue
        name = str(intent.get("fault") or intent.get("name") or "fault")
        target = str(intent.get("resolved") or "")
        injected = phases.get("injected")
        healed = phases.get("healed")
        failed = [phases[phase] for phase in ("failed", "heal_failed") if phase in phases]
        parameters = intent.get("params") or {}
        rows.append(
            FaultRow(
                mark=_mark(bands, name, target, injected.get("at_ns") if injected else None),
                id=fault_id,
                step=str(intent.get("name") or ""),
                fault=name,
                params=", ".join(f"{key} = {fmt.value(key, item)}" for key, item in parameters.items()),
                asked=str(intent.get("asked") or fmt.NOTHING),
                resolved=target or fmt.NOTHING,
                host=str(intent.get("host") or ""),
                instance=str(intent.get("instance") or ""),
                injected=_time(injected),
                verified=_time(phases.get("verified")),
                healed=_time(healed),
                by=str(healed.get("by") or "") if healed else "",
                unhealed=healed is None,
                ttl="" if intent.get("ttl_s") is None else f"{float(intent['ttl_s']):g} s",
                error="; ".join(fmt.clean(entry.get("error") or entry["phase"]) for entry in failed),
            )
        )
    return rows or [
        FaultRow(
            mark=band.mark,
            fault=band.name,
            resolved=band.target,
            instance=band.instance,
            injected=fmt.seconds(band.start_ns),
            healed=fmt.seconds(band.end_ns) if band.healed else fmt.NOTHING,
            unhealed=not band.healed,
        )
        for band in bands
    ]


def run_again(run: contract.RunInfo | None, run_dir: Path) -> list[dict[str, str]]:
    """Return the commands that repeat the run and judge its ledger again."""
    commands = []
    if run is not None and run.scenario.name:
        parts = ["brokerdrill", "run", run.scenario.name, *([run.topology] if run.topology else [])]
        if run.seed is not None:
            parts += ["--seed", str(run.seed)]
        parts += repeated(run.scenario.text)
        commands.append({"what": "Run the same scenario with the same random choices", "command": shlex.join(parts)})
    folder = run_dir.name or str(run_dir)
    commands.append(
        {
            "what": "Judge this run's ledger again",
            "command": shlex.join(["brokerdrill", "analyze", folder, "--json", "verdict.json"]),
        }
    )
    commands.append(
        {"what": "Heal whatever a run left behind", "command": shlex.join(["brokerdrill", "heal"])},
    )
    return commands


def _approved(run: contract.RunInfo) -> str:
    """Return who allowed the run, in words."""
    given = run.approval
    return f"by {given.get('by', '')}, until {given.get('until', '')}" if given else "not asked for"


def environment(run: contract.RunInfo | None) -> list[tuple[str, str]]:
    """Return what the run ran on and with: labels and values."""
    if run is None:
        return []
    rows = [
        ("run", run.run_id),
        ("outcome", run.outcome),
        ("started", run.started_at or fmt.NOTHING),
        ("scenario", run.scenario.name or fmt.NOTHING),
        ("scenario's SHA-256", run.scenario.sha256 or fmt.NOTHING),
        ("topology", run.topology or fmt.NOTHING),
        (
            "approved",
            f"by {run.approval.get('by', '?')}, until {run.approval.get('until', '?')}"
            if run.approval
            else "not asked for",
        ),
        ("inventory's SHA-256", run.inventory_sha256 or fmt.NOTHING),
        ("seed", fmt.NOTHING if run.seed is None else str(run.seed)),
        ("ledger schema", str(run.schema_version)),
        ("recording hosts", ", ".join(sorted({clock.host for clock in run.clocks.values()} - {""})) or fmt.NOTHING),
        (
            "brokers of each store",
            "; ".join(f"{store}: {', '.join(names)}" for store, names in sorted(run.stores.items())) or fmt.NOTHING,
        ),
    ]
    return rows + [(name, version) for name, version in sorted(run.versions.items())]


def clock_rows(run: contract.RunInfo | None) -> list[tuple[str, str, str, str]]:
    """Return the clocks: name, host, offset and uncertainty."""
    if run is None:
        return []
    return [
        (name, clock.host, f"{clock.offset_ns / 1e6:+,.3f} ms", f"± {clock.uncertainty_ns / 1e6:,.3f} ms")
        for name, clock in sorted(run.clocks.items())
    ]


def count_rows(result: RunVerdict, shown: Shown, run: contract.RunInfo | None) -> list[tuple[str, str]]:
    """Return the counts at the end of the page, and every count of the verdict that has no place of its own."""
    series = shown.series
    outages = [(series.end_ns if item.end_ns is None else item.end_ns) - item.start_ns for item in series.outages]
    backs = [item.end_ns - item.start_ns for item in series.failbacks if item.end_ns is not None]
    rows = [
        ("messages judged", fmt.number(result.count(*contract.CLASSES))),
        ("acknowledged sends", fmt.number(sum(bucket.sends for bucket in series.buckets))),
        ("deliveries", fmt.number(sum(bucket.deliveries for bucket in series.buckets))),
        ("faults", fmt.number(len({band.mark for band in shown.bands}))),
        ("failovers", fmt.number(len(result.failovers()))),
        ("failbacks", fmt.number(len(backs))),
        ("slowest failback", fmt.span(max(backs)) if backs else fmt.NOTHING),
        ("outages", fmt.number(len(outages))),
        ("longest outage", fmt.span(max(outages)) if outages else fmt.NOTHING),
        ("length of the run", fmt.span(series.end_ns)),
    ]
    if run is not None and run.drained:
        drained = sum(run.drained.values())
        rows.append(("addresses drained", f"{fmt.number(drained)} of {fmt.number(len(run.drained))}"))
    for key, item in result.more.items():
        pairs = item.items() if isinstance(item, Mapping) else [("", item)]
        for name, count in pairs:
            if isinstance(count, (int, float)) and not isinstance(count, bool):
                rows.append((f"{key} {name}".strip().replace("_", " "), fmt.number(count)))
    return rows


def notes(result: RunVerdict, run: contract.RunInfo | None) -> list[str]:
    """Return what a reader must know before trusting the verdict: an early end, no drain, the analysis' own notes."""
    texts = []
    if run is not None and run.outcome != "completed":
        state = "is still marked as running: its runner was killed, or runs yet" if run.outcome == "running" else None
        texts.append(
            f"This run {state or f'did not complete: it {run.outcome}'}.".replace("it aborted", "it was aborted")
        )
    undrained = sorted(name for name, done in (run.drained if run else {}).items() if not done)
    if undrained:
        texts.append(f"Not drained at the end: {', '.join(map(fmt.clean, undrained))}.")
    return [*texts, *map(fmt.clean, result.notes)]
