"""Rounds: a method that is repeated, each time under names of its own, so that its steps can be distinguished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from brokerdrill.base.errors import UsageError
from brokerdrill.scenario.model import MOST_ROUNDS, Action, Heal, Probe, Step, parse_lasting


def in_round(steps: Sequence[Step], number: int) -> list[Step]:
    """Return `steps` as round `number` (from 1) takes them: their names, and those that they refer to, say which."""

    def named(step: Step) -> Step:
        changes = {"name": _name(step.name, number)}
        if isinstance(step, (Action, Heal, Probe)) and step.of is not None:
            changes["of"] = _name(step.of, number)
        return step.model_copy(update=changes)

    return [named(step) for step in steps]


def _name(step: str, number: int) -> str:
    return f"{step} (round {number})"


def another(done: int, passed_s: float, rounds: int | None, lasting_s: float | None) -> bool:
    """Whether after `done` rounds and `passed_s` seconds another one is to begin: so many `rounds` in all, or as long
    as `lasting_s` is not over; the first always, and where neither says more only that."""
    if done == 0:
        return True
    return done < (rounds or 1) if lasting_s is None else passed_s < lasting_s


def changes_of(rounds: int | None, lasting: str | None) -> dict[str, Any]:
    """Return the places of a scenario that a command sets with `--rounds` or `--for`: one takes the other's place.

    Raises UsageError where both are given, or one is none.
    """
    if rounds is not None and lasting is not None:
        raise UsageError("--rounds and --for both say how often the method is repeated: give one of them")
    if rounds is not None:
        if not 1 <= rounds <= MOST_ROUNDS:
            raise UsageError(f"--rounds {rounds}: a number from 1 to {MOST_ROUNDS}")
        return {"rounds": rounds, "for": None}
    if lasting is None:
        return {}
    lasting_s(lasting)
    return {"for": lasting, "rounds": None}


def lasting_s(lasting: str) -> float:
    """Return what a command's `--for` says in s. Raises UsageError where it is no span of time."""
    try:
        return parse_lasting(lasting) or 0.0
    except ValueError as error:
        raise UsageError(f"--for: {error}") from None


def settings_of(changes: Mapping[str, Any]) -> dict[str, str]:
    """Return what `changes_of` has set as run.json keeps settings, by which trends distinguish series."""
    return {place: str(value) for place, value in changes.items() if value is not None}
