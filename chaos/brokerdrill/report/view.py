"""What the page of one run says, as plain data for its template: pure functions of the run's files and verdict."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from brokerdrill import ledger
from brokerdrill.report import format as fmt
from brokerdrill.report import words
from brokerdrill.report.details import story_rows
from brokerdrill.report.series import Band, Series

WITNESS_ROWS = 50
SIDES = {"send": "of sends", "receive": "of deliveries"}
# The columns of a witness that say most come first; others follow by name.
WITNESS_ORDER = ("class", "message_id", "address", "subscription", "client", "key", "store", "instance", "fault")


def scenario_words(text: str) -> dict[str, str]:
    """Return title, description and topology of a scenario's YAML; what cannot be read is left out."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    if not isinstance(data, dict):
        return {}
    return {key: str(data[key]).strip() for key in ("title", "description", "topology") if data.get(key)}


def witness_table(witnesses: Sequence[Any], bands: Sequence[Band] = ()) -> dict[str, Any]:
    """Return columns and rows (cells of text, and the story's steps) for a promise's witnesses, `more` for how many are
    not shown."""
    shown = [item if isinstance(item, Mapping) else {"witness": item} for item in witnesses[:WITNESS_ROWS]]
    names = {str(key) for item in shown for key, value in item.items() if value is not None and key != "story"}
    order = [name for name in WITNESS_ORDER if name in names] + sorted(names - set(WITNESS_ORDER))
    return {
        "columns": [fmt.label(name) for name in order],
        "rows": [
            {
                "cells": [fmt.value(name, item.get(name)) for name in order],
                "story": story_rows(item.get("story") or (), bands),
            }
            for item in shown
        ],
        "more": max(0, len(witnesses) - WITNESS_ROWS),
    }


def promise_rows(
    result: Mapping[str, Any], run: ledger.RunInfo | None, bands: Sequence[Band] = ()
) -> list[dict[str, Any]]:
    """Return the rows of the table of promises, in the verdict's order."""
    expect = run.expect if run else {}
    rows = []
    for promise in result.get("promises") or ():
        name = str(promise.get("name", ""))
        verdict = promise.get("verdict")
        verdict = verdict if verdict in words.VERDICT_WORDS else "unknown"
        expectation = promise.get("expected") or expect.get(name)
        known = words.PROMISE_WORDS.get(name)
        scope, side = promise.get("scope"), promise.get("side")
        details = [f"per {scope}"] * bool(scope) + [SIDES.get(str(side), str(side))] * bool(side)
        rows.append(
            {
                "name": name,
                "details": ", ".join(details),
                "promise": known.promise if known else "",
                "verdict": verdict,
                "word": words.VERDICT_WORDS[verdict][0],
                "sign": words.VERDICT_WORDS[verdict][1],
                "expectation": expectation,
                "met": words.expectation_met(verdict, expectation),
                "bound": fmt.milliseconds(promise.get("bound")),
                "measured": fmt.milliseconds(promise.get("measured")),
                "count": fmt.number(promise.get("count") or 0),
                "excused": fmt.number(promise.get("excused") or 0),
                "excused_for": known.excused if known else "",
                "meaning": words.meaning(promise),
                "witnesses": witness_table(promise.get("witnesses") or (), bands),
                "witness_count": len(promise.get("witnesses") or ()),
            }
        )
    return rows


def _split(redelivered: Any) -> str:
    """How the analysis splits the redelivered messages, as the end of their meaning."""
    if not isinstance(redelivered, Mapping) or not any(redelivered.values()):
        return ""
    flagged, in_doubt = redelivered.get("flagged", 0), redelivered.get("in_doubt", 0)
    return f"; {fmt.number(flagged)} flagged so by the broker, {fmt.number(in_doubt)} after an acknowledgement in doubt"


def class_rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every class of messages with its count and meaning; those without a message last."""
    messages = result.get("messages") or {}
    total = sum(int(messages.get(name) or 0) for name in ledger.CLASSES) or 1
    rows = [
        {
            "name": name,
            "count": int(messages.get(name) or 0),
            "text": fmt.number(messages.get(name) or 0),
            "share": fmt.percent(int(messages.get(name) or 0) / total),
            "meaning": known.meaning + (_split(result.get("redelivered")) if name == "redelivered" else ""),
            "breaks": known.breaks,
            "tone": known.tone,
        }
        for name, known in words.CLASS_WORDS.items()
    ]
    return sorted(rows, key=lambda row: row["count"] == 0)


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


def fault_rows(journal: Sequence[Mapping[str, Any]], bands: Sequence[Band]) -> list[dict[str, Any]]:
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
            {
                "mark": _mark(bands, name, target, injected.get("at_ns") if injected else None),
                "id": fault_id,
                "step": str(intent.get("name") or ""),
                "fault": name,
                "params": ", ".join(f"{key} = {fmt.value(key, item)}" for key, item in parameters.items()),
                "asked": str(intent.get("asked") or fmt.NOTHING),
                "resolved": target or fmt.NOTHING,
                "host": str(intent.get("host") or ""),
                "instance": str(intent.get("instance") or ""),
                "injected": _time(injected),
                "verified": _time(phases.get("verified")),
                "healed": _time(healed),
                "by": str(healed.get("by") or "") if healed else "",
                "unhealed": healed is None,
                "ttl": "" if intent.get("ttl_s") is None else f"{float(intent['ttl_s']):g} s",
                "error": "; ".join(fmt.clean(entry.get("error") or entry["phase"]) for entry in failed),
            }
        )
    if rows:
        return rows
    return [
        {
            "mark": band.mark, "id": "", "step": "", "fault": band.name, "params": "", "asked": fmt.NOTHING,
            "resolved": band.target, "host": "", "instance": band.instance, "injected": fmt.seconds(band.start_ns),
            "verified": fmt.NOTHING, "healed": fmt.seconds(band.end_ns) if band.healed else fmt.NOTHING, "by": "",
            "unhealed": not band.healed, "ttl": "", "error": "",
        }
        for band in bands
    ]  # fmt: skip


def run_again(run: ledger.RunInfo | None, run_dir: Path, scenario: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the commands that repeat the run and judge its ledger again."""
    commands = []
    if run is not None and run.scenario.name:
        parts = ["brokerdrill", "run", run.scenario.name]
        if run.topology and run.topology != scenario.get("topology"):
            parts += ["-i", run.topology]
        if run.seed is not None:
            parts += ["--seed", str(run.seed)]
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


def environment(run: ledger.RunInfo | None) -> list[tuple[str, str]]:
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


def clock_rows(run: ledger.RunInfo | None) -> list[tuple[str, str, str, str]]:
    """Return the clocks: name, host, offset and uncertainty."""
    if run is None:
        return []
    return [
        (name, clock.host, f"{clock.offset_ns / 1e6:+,.3f} ms", f"± {clock.uncertainty_ns / 1e6:,.3f} ms")
        for name, clock in sorted(run.clocks.items())
    ]


def count_rows(result: Mapping[str, Any], series: Series, run: ledger.RunInfo | None) -> list[tuple[str, str]]:
    """Return the counts at the end of the page, and every count of the verdict that has no place of its own."""
    messages = result.get("messages") or {}
    outages = [(item.get("end_ns") or series.end_ns) - (item.get("start_ns") or 0) for item in series.outages]
    backs = [
        item["end_ns"] - item["start_ns"]
        for item in series.failbacks
        if item.get("end_ns") is not None and item.get("start_ns") is not None
    ]
    rows = [
        ("messages judged", fmt.number(sum(int(messages.get(name) or 0) for name in ledger.CLASSES))),
        ("acknowledged sends", fmt.number(sum(bucket.sends for bucket in series.buckets))),
        ("deliveries", fmt.number(sum(bucket.deliveries for bucket in series.buckets))),
        ("faults", fmt.number(len({band.mark for band in series.bands}))),
        ("failovers", fmt.number(len(failovers(result)))),
        ("failbacks", fmt.number(len(backs))),
        ("slowest failback", fmt.span(max(backs)) if backs else fmt.NOTHING),
        ("outages", fmt.number(len(outages))),
        ("longest outage", fmt.span(max(outages)) if outages else fmt.NOTHING),
        ("length of the run", fmt.span(series.end_ns)),
    ]
    if run is not None and run.drained:
        drained = sum(run.drained.values())
        rows.append(("addresses drained", f"{fmt.number(drained)} of {fmt.number(len(run.drained))}"))
    known = {
        "run_id",
        "run_dir",
        "redelivered",
        "verdict",
        "as_expected",
        "messages",
        "promises",
        "failover",
        "outages",
        "error",
        "runs",
    }
    for key, item in result.items():
        if key in known:
            continue
        pairs = item.items() if isinstance(item, Mapping) else [("", item)]
        for name, count in pairs:
            if isinstance(count, (int, float)) and not isinstance(count, bool):
                rows.append((f"{key} {name}".strip().replace("_", " "), fmt.number(count)))
    return rows


def failovers(result: Mapping[str, Any]) -> dict[tuple[str, int], float | None]:
    """Return each failover (fault, t_ns) with its worst client's first acknowledged send in ms; None: some client had
    none."""
    found: dict[tuple[str, int], float | None] = {}
    for item in result.get("failover") or ():
        key = (f"{item.get('fault')} {item.get('instance')}", int(item.get("t_ns") or 0))
        value = item.get("first_send_ms")
        if key not in found:
            found[key] = value
        elif value is None or found[key] is None:
            found[key] = None
        else:
            found[key] = max(float(value), float(found[key] or 0))
    return found


def notes(result: Mapping[str, Any], run: ledger.RunInfo | None) -> list[str]:
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
    for key in ("notes", "warnings"):
        value = result.get(key) or ()
        texts += [fmt.clean(item) for item in ([value] if isinstance(value, str) else value)]
    return texts
