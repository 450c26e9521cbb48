"""What was found, as files: a minimal drill beside what is known of it, by which it is not found again."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from brokerdrill.base.atomic import write, write_json
from brokerdrill.base.errors import InfrastructureError, UsageError
from brokerdrill.base.statistics import to_json
from brokerdrill.explore import document
from brokerdrill.explore.defects import Signature, signature
from brokerdrill.explore.explorer import Explorer, Find
from brokerdrill.scenario.drill import drills
from brokerdrill.scenario.model import Action


def named(find: Find, explorer: Explorer) -> str:
    """Return the name of a find's files; one of another exploration of the same seed has another one."""
    when = (find.run_dir or "").partition("-")[0]
    return "_".join(filter(None, (find.topology, find.broke.promise, f"seed{explorer.seed}", str(find.number), when)))


def keep(find: Find, explorer: Explorer, folder: Path) -> Path | None:
    """Write a find's drill and what is known of it into `folder`; return the drill's path, None where it is there."""
    path = folder / f"{named(find, explorer)}.yml"
    # Written last.
    if path.with_suffix(".json").exists():
        return None
    folder.mkdir(parents=True, exist_ok=True)
    rate = find.tally.rate
    drill = document.document(find.minimal, explorer.space, title(find), description(find, explorer))
    write(path, document.text(drill).encode())
    write_json(path.with_suffix(".json"), {**to_object(find), "rate": to_json(rate), "seed": explorer.seed})
    return path


def title(find: Find) -> str:
    """Return what a find's drill is called."""
    what = ", ".join([find.broke.promise, *(one.promise for one in find.also)])
    return f"Found: {what} by {', then '.join(hit.what for hit in find.minimal.hits)}"


def description(find: Find, explorer: Explorer) -> str:
    """Return what a find's drill says of itself: what it does, where it is from, and how often it breaks."""
    words = f"{document.in_words(find.minimal)}. Found by `brokerdrill explore {find.topology} --seed {explorer.seed}` "
    words += f"in trial {find.trial}, after {find.seconds / 60:.0f} minutes; "
    rate = find.tally.rate
    if rate is None:
        return f"{words}it was not run again."
    low, high = rate.low or 0, 1 if rate.high is None else rate.high
    words += f"of {find.tally.runs} further runs of this drill {find.tally.broken} broke it again "
    words += f"({rate.estimate:.0%}, 95 % interval {low:.0%} to {high:.0%})"
    counts: Mapping[str, int] = find.broken.get(find.minimal, {})
    return words + "".join(f"; {name} in {count}" for name, count in sorted(counts.items())) + "."


def to_object(find: Find) -> dict[str, Any]:
    """Return the JSON object of a find; `signature` reads a part of it."""
    return {
        **find.signature.to_json(),
        "schedule": find.minimal.to_json(),
        "found": find.found.to_json(),
        "trial": find.trial,
        "seconds": round(find.seconds, 1),
        "run_dir": find.run_dir,
        "broken": find.tally.broken,
        "broke": dict(sorted(find.broken.get(find.minimal, {}).items())),
        "runs": find.tally.runs,
        "spent": find.shrinker.spent,
        "confirmed": find.shrinker.confirmed,
    }


def read(folder: Path) -> Iterator[Signature]:
    """Yield the signatures of all finds in `folder`. Raises UsageError for a file that is none."""
    for path in sorted(folder.glob("*.json")):
        try:
            yield signature(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} is no find of an exploration: {error}") from None


def known_at_first(path: Path, now: Iterable[Signature]) -> tuple[Signature, ...]:
    """Return what was known when an exploration began, which `path` keeps: what it has found since is its own."""
    if path.exists():
        try:
            return tuple(signature(one) for one in json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InfrastructureError(f"{path} does not say what was known at first: {error}") from None
    known = tuple(now)
    write_json(path, [one.to_json() for one in known])
    return known


@functools.cache
def known_to(found: Signature) -> list[str]:
    """Return which shipped drills know of a promise that breaks under one of these faults: drill and finding."""
    lines = []
    for drill in drills():
        scenario = drill.scenario
        faults = {f"{step.fault} {step.target}" for step in scenario.method if isinstance(step, Action)}
        if not faults & found.faults:
            continue
        known = [one.finding for one in scenario.known if one.promise == found.broke.promise]
        if found.broke.promise in scenario.expect_violation:
            known.append("expected to break")
        lines += [f"{drill.name}: {words}" for words in known]
    return lines
