"""What explains a verdict, as text: stories of witnesses, quantiles by phase, whom breaks hit, redeliveries.

Pure functions of the verdict's JSON; every part may be missing, as in a verdict that an older version wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from brokerdrill.report import format as fmt
from brokerdrill.report import words
from brokerdrill.report.series import Band

# A page shows so many ways in which something broke; the verdict's JSON has more.
MOST_ROWS = 24
# A fault of the verdict and a band of the pictures are the same if they are this near.
SAME_NS = 1_000_000_000

Row = dict[str, Any]


def mark(bands: Sequence[Band], fault: Any, at_ns: Any, healed: bool = False) -> str:
    """Return the mark (F1, F2, …) of the fault of that type that was injected (or `healed`) at that time; empty where
    the pictures have none."""
    if fault is None or at_ns is None:
        return ""
    away = {band: abs((band.end_ns if healed else band.start_ns) - int(at_ns)) for band in bands if band.name == fault}
    near = min(away, key=lambda band: away[band], default=None)
    return near.mark if near is not None and away[near] < SAME_NS else ""


def fault_words(item: Mapping[str, Any], bands: Sequence[Band]) -> str:
    """Return the fault that a row of the verdict names, with its mark: `F1 kill artemis1`; none: `no fault`."""
    if item.get("fault") is None:
        return "no fault"
    parts = (mark(bands, item.get("fault"), item.get("fault_ns")), item.get("fault"), item.get("target"))
    return " ".join(fmt.clean(part) for part in parts if part)


# --- stories --------------------------------------------------------------------------------------------------------

_OUTCOME_TONES = {"ok": "good", "fail": "bad", "unknown": "doubt"}


def _what(step: Mapping[str, Any], bands: Sequence[Band]) -> str:
    kind = step.get("kind")
    if kind == "role":
        return f"is {step.get('value')}"
    if kind in ("fault", "heal"):
        healed = kind == "heal"
        which = mark(bands, step.get("name"), step.get("t_ns"), healed)
        return " ".join(filter(None, (which, str(step.get("name") or ""), "healed" if healed else "injected")))
    attempt = step.get("attempt")
    tried = f", attempt {int(attempt) + 1}" if step.get("op") == "send" and attempt is not None else ""
    flagged = ", flagged as redelivered" if step.get("redelivered") else ""
    return f"{step.get('op')}{tried}{flagged}"


def story_rows(story: Sequence[Mapping[str, Any]], bands: Sequence[Band] = ()) -> list[Row]:
    """Return a story's steps as rows: kind, time, took, who, what, outcome, tone, where, about (ids and the error)."""
    rows = []
    for step in story:
        kind = str(step.get("kind"))
        start, end = step.get("t_ns"), step.get("end_ns")
        outcome = str(step.get("outcome") or "")
        took = ""
        if kind == "op":
            took = "no answer" if end is None or start is None else fmt.milliseconds((end - start) / 1e6)
        about = [f"{name} {fmt.value(name, step[name])}" for name in ("txn", "delivery", "session") if name in step]
        if kind == "op" and step.get("message_id") is not None:
            about.insert(0, fmt.clean(step["message_id"]))
        rows.append(
            {
                "kind": kind,
                "time": fmt.seconds(start),
                "took": took,
                "who": fmt.clean(step.get("client") or step.get("instance") or step.get("target") or ""),
                "what": fmt.clean(_what(step, bands)),
                "outcome": outcome,
                "tone": _OUTCOME_TONES.get(outcome, ""),
                "where": fmt.clean(step.get("instance") or "") if kind == "op" else fmt.clean(step.get("store") or ""),
                "about": ", ".join(about),
                "error": fmt.clean(step.get("error") or ""),
            }
        )
    return rows


# --- quantiles by phase ---------------------------------------------------------------------------------------------

_KINDS = (("send", "send"), ("commit", "commit"), ("receive", "end-to-end"))


def phase_rows(result: Mapping[str, Any]) -> list[Row]:
    """Return the table of phases: one row a phase and kind of operation, the phase's own words on its first."""
    rows = []
    for phase in result.get("phases") or ():
        name = str(phase.get("phase"))
        kinds = [(label, phase[kind]) for kind, label in _KINDS if phase.get(kind)]
        for place, (label, numbers) in enumerate(kinds or [("", {})]):
            rows.append(
                {
                    "phase": words.PHASE_WORDS[name][0] if name in words.PHASE_WORDS else fmt.clean(name),
                    "meaning": words.PHASE_WORDS[name][1] if name in words.PHASE_WORDS else "",
                    "first": place == 0,
                    "span": len(kinds) or 1,
                    "seconds": fmt.span(float(phase.get("seconds") or 0) * 1e9),
                    "kind": label,
                    "count": fmt.number(numbers.get("count")),
                    "per_s": fmt.rate(numbers.get("per_s")),
                    **{key: fmt.milliseconds(numbers.get(f"{key}_ms")) for key in ("p50", "p95", "p99", "max")},
                }
            )
    return rows


# --- whom it hit ----------------------------------------------------------------------------------------------------


def attribution_rows(result: Mapping[str, Any], bands: Sequence[Band]) -> list[Row]:
    """Return the ways in which messages broke: class, promise, fault, broker, client, count."""
    return [
        {
            "class": fmt.clean(row.get("class")),
            "breaks": words.CLASS_WORDS[row["class"]].breaks if row.get("class") in words.CLASS_WORDS else "",
            "fault": fault_words(row, bands),
            "broker": fmt.clean(row.get("instance") or fmt.NOTHING),
            "client": fmt.clean(row.get("client") or fmt.NOTHING),
            "count": fmt.number(row.get("count")),
        }
        for row in (result.get("attribution") or ())[:MOST_ROWS]
    ]


def _last_over(outage: Mapping[str, Any], bands: Sequence[Band]) -> int | None:
    """When the outage's fault was injected: the last of its type that was in effect in it."""
    start, end = int(outage.get("start_ns") or 0), outage.get("end_ns")
    over = [
        band.start_ns
        for band in bands
        if band.name == outage.get("fault") and band.end_ns >= start and (end is None or band.start_ns <= int(end))
    ]
    return max(over, default=None)


def outage_rows(result: Mapping[str, Any], bands: Sequence[Band]) -> list[Row]:
    """Return the outages: address, side, begin, length, fault, and who was served before and after."""
    rows = []
    for row in (result.get("outages") or ())[:MOST_ROWS]:
        start, end = row.get("start_ns"), row.get("end_ns")
        before = " at ".join(fmt.clean(row[name]) for name in ("client", "instance") if row.get(name))
        after = " at ".join(fmt.clean(row[name]) for name in ("next_client", "next_instance") if row.get(name))
        rows.append(
            {
                "address": fmt.clean(row.get("address") or fmt.NOTHING),
                "side": "deliveries" if row.get("side") == "receive" else "acknowledged sends",
                "start": fmt.seconds(start),
                "length": fmt.span(end - start) if start is not None and end is not None else fmt.NOTHING,
                "fault": fault_words(dict(row) | {"fault_ns": _last_over(row, bands)}, bands),
                "before": before or fmt.NOTHING,
                "after": after or fmt.NOTHING,
            }
        )
    return rows


def redelivery_rows(result: Mapping[str, Any], bands: Sequence[Band]) -> list[Row]:
    """Return the ways in which messages were delivered again: flag, doubt, consumer, broker, fault, count."""
    return [
        {
            "flagged": "flagged" if row.get("flagged") else "not flagged",
            "in_doubt": "in doubt" if row.get("in_doubt") else "not in doubt",
            "client": fmt.clean(row.get("client") or fmt.NOTHING),
            "broker": fmt.clean(row.get("instance") or fmt.NOTHING),
            "fault": fault_words(row, bands),
            "count": fmt.number(row.get("count")),
        }
        for row in (result.get("redeliveries") or ())[:MOST_ROWS]
    ]
