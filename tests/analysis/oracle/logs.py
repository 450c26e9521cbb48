"""Logs: which were read, and of what time they tell all."""

from __future__ import annotations

from tests.analysis.oracle.facts import Facts
from tests.analysis.oracle.faults import healed_at
from tests.analysis.oracle.rows import NEVER, Row, detail


def logs_read(facts: Facts) -> list[Row]:
    return [
        note
        for note in facts.events
        if note["kind"] == "note" and note.get("name") == "log read" and note.get("instance") is not None
    ]


def log_tells_all(facts: Facts, instance: str, begin: int | None, over: int | None) -> bool:
    """ "A log was read whole where nothing of it was lost, from the load's begin to the drain's end" """
    own = [note for note in logs_read(facts) if instance in read_with(note)]
    if not own or any(int(detail(note, "lost") or 0) for note in own):
        return False
    known: list[tuple[float, float]] = []
    for note in own:
        begins, ends_at = detail(note, "from_ns"), detail(note, "until_ns")
        known.append((-NEVER if begins is None else int(begins), NEVER if ends_at is None else int(ends_at)))
    # "between a `restart_host` of that instance and ... its heal at the latest, nothing can be read, and nothing ran"
    for fault in facts.events:
        if (fault["kind"], fault.get("name"), fault.get("instance")) == ("fault", "restart_host", instance):
            heal = healed_at(facts, fault)
            if heal is not None:
                known.append((fault["t_ns"] - fault["uncertainty_ns"], heal))
    # A moment that is in none of them is in the gap behind the end of one.
    wanted = min(begins for begins, _ in known) if begin is None else begin
    last = wanted if over is None else over
    moments = [wanted, *(end for _, end in known if wanted <= end < last)]
    return all(any(begins <= at and (at < end or end >= last) for begins, end in known) for at in moments)


def read_with(note: Row) -> set[str]:
    """The instances whose log a note says was read."""
    return {note["instance"], *str(detail(note, "instances") or "").split("\n")} - {""}
