"""A schedule as an ordinary drill's file: `brokerdrill run FILE TOPOLOGY` repeats it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from brokerdrill.explore.schedule import (
    AT_ONCE,
    BACKLOG,
    CLIENTS,
    DRAINING,
    FAILED_OVER,
    IN_SYNC,
    LARGE,
    PLAIN,
    SERVED,
    SINGLE,
    Schedule,
    ScheduledFault,
)
from brokerdrill.explore.space import ENDS_ITSELF, Space
from brokerdrill.faults.registry import fault_type
from brokerdrill.promises.catalogue import AVAILABLE

# What a load changes of that of all drills.
LOADS: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {},
    SINGLE: {"transaction": 0, "rate": 100},
    LARGE: {"payload_bytes": [50_000], "rate": 40},
    BACKLOG: {"backlog": True},
    DRAINING: {"backlog": True},
}
# How long a hit waits for its moment, s: then it comes all the same.
MOMENT_S = 45
# How long the system may take until it serves everybody again, s.
SERVES_AGAIN_S = 75
# What a fault outlives its last planned moment by, s, before its host undoes it.
MARGIN_S = 60
# Without an acknowledged send for so long, ms, the system does not serve: no fault here lasts nearly as long.
AVAILABLE_MS = 60_000
_UNTIL = {SERVED: "acknowledged", FAILED_OVER: "failed_over", IN_SYNC: "in_sync", "syncing": "syncing"}


def document(schedule: Schedule, space: Space, title: str, description: str) -> dict[str, Any]:
    """Return the drill that `schedule` is on the topology of `space`, as its YAML says it."""
    links = sorted({choice.arms for hit in schedule.hits if (choice := space.choice(hit.fault, hit.target))} - {""})
    found: dict[str, Any] = {"title": title, "description": description, "tags": ["generated"]}
    found["topology"] = space.topology
    if load := _load(schedule):
        found["load"] = load
    if links:
        found["links"] = links
    found["method"] = [*_method(schedule, space)]
    found["promises"] = [*_promises(schedule, space)]
    if without := _without(schedule, space):
        found["without"] = without
    return found


def text(document: Mapping[str, Any]) -> str:
    """Return the file's text."""
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def in_words(schedule: Schedule) -> str:
    """Return in one line what a schedule does."""
    words = []
    for place, hit in enumerate(schedule.hits):
        params = fault_type(hit.fault).drawn[hit.strength]
        given = "".join(f" {name}={value}" for name, value in params.items())
        when = "" if hit.wait == AT_ONCE else f"once {hit.wait.replace('_', ' ')}, "
        after = "while that lasts, " if place and schedule.hits[place - 1].overlaps else ""
        words.append(f"{after}{when}{hit.fault} {hit.target}{given} for {hit.hold_s:g} s")
    clients = "" if schedule.clients == CLIENTS else f", {schedule.clients} producers"
    return f"{'; then '.join(words)} (load {schedule.load}{clients})"


def _load(schedule: Schedule) -> dict[str, Any]:
    found = dict(LOADS[schedule.load])
    if schedule.clients != CLIENTS:
        found |= {"producers": schedule.clients, "consumers": schedule.clients}
        found |= {"workers": min(2, schedule.clients)}
        found |= {"addresses": [f"drill.q{number}" for number in range(schedule.clients)]}
    return found


def names(schedule: Schedule) -> list[str]:
    """Return the name of each hit's step."""
    plain = [re.sub(r"[^a-z0-9]+", "-", f"{hit.fault} {hit.target}".lower()).strip("-") for hit in schedule.hits]
    return [f"{name}-{place}" if len(plain) > 1 else name for place, name in enumerate(plain, start=1)]


def _method(schedule: Schedule, space: Space) -> Iterator[dict[str, Any]]:
    named = names(schedule)
    open_: str | None = None
    for place, (hit, name) in enumerate(zip(schedule.hits, named, strict=True)):
        last = place + 1 == len(schedule.hits)
        if schedule.load == DRAINING and last:
            yield {"type": "consume", "name": "drain"}
        if hit.wait != AT_ONCE:
            yield _moment(hit, place, named)
        # What began before ends in the middle of this one.
        hold_s = hit.hold_s / 2 if open_ else hit.hold_s
        yield _action(hit, name, round(hold_s, 2))
        if open_:
            after = {"pauses": {"after": round(hold_s, 2)}} if hold_s else {}
            yield {"type": "heal", "name": f"end-{open_}", "of": open_, **after}
            open_ = None
        if hit.overlaps and not last:
            open_ = name
        else:
            yield {"type": "heal", "name": f"end-{name}", "of": name}
    yield {
        "type": "probe",
        "name": "serves-again",
        "until": "acknowledged",
        "count": 100,
        "timeout": SERVES_AGAIN_S,
        "required": False,
    }
    if schedule.resyncs:
        yield {
            "type": "probe",
            "name": "in-sync-again",
            "until": "in_sync",
            "timeout": MOMENT_S,
            "required": False,
            # Who takes its role back does so as soon as it is in sync.
            "pauses": {"after": 3},
        }


def _moment(hit: ScheduledFault, place: int, named: list[str]) -> dict[str, Any]:
    found = {"type": "probe", "name": f"moment-{place + 1}", "until": _UNTIL[hit.wait], "timeout": MOMENT_S}
    found["required"] = False
    if hit.wait == SERVED:
        found["count"] = 20
    if hit.wait == FAILED_OVER:
        found["of"] = named[place - 1]
    return found


def _action(hit: ScheduledFault, name: str, hold_s: float) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "action", "name": name, "fault": hit.fault, "target": hit.target}
    if params := dict(fault_type(hit.fault).drawn[hit.strength]):
        found["params"] = params
    # One hit that the load does not meet must not keep the others from being judged.
    found["meets"] = {"operations": 0, "packets": 0}
    # The next hit may wait for its moment, and its hold comes on top.
    found["ttl"] = round(hit.hold_s + (2 * MOMENT_S if hit.overlaps else 0) + MARGIN_S)
    if pauses := {name: value for name, value in (("before", hit.pause_s), ("after", hold_s)) if value}:
        found["pauses"] = pauses
    return found


def _promises(schedule: Schedule, space: Space) -> Iterator[Any]:
    if "artemis" in space.facts and schedule.load != SINGLE:
        yield "atomic"
    yield {"name": AVAILABLE, "bound_ms": AVAILABLE_MS, "side": "send"}


def _without(schedule: Schedule, space: Space) -> list[str]:
    return ["stays_up"] if space.facts & ENDS_ITSELF else []
