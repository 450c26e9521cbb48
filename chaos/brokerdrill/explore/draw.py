"""Drawing schedules: by chance alone, or by changing one that has shown something new. Pure but for its `rng`."""

from __future__ import annotations

import random
from dataclasses import replace

from brokerdrill.explore.schedule import AT_ONCE, CLIENTS, PLAIN, Schedule, ScheduledFault, valid
from brokerdrill.explore.space import Space

MOST_HITS = 3
# How many hits a schedule has, and how often each load and number of clients is drawn.
_HITS = (1, 1, 2, 2, 2, 3)
_PAUSES_S = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0)
_TRIES = 200


def fresh(space: Space, rng: random.Random) -> Schedule:
    """Return a schedule that is drawn by chance alone. Raises ValueError where nothing can be drawn."""
    for _ in range(_TRIES):
        number = rng.choice(_HITS)
        hits = tuple(_hit(space, rng, place, number) for place in range(number))
        found = Schedule(hits, rng.choice((PLAIN, PLAIN, *space.loads)), CLIENTS, space.resyncs)
        if valid(found):
            return found
    raise ValueError(f"nothing can be drawn on {space.topology}")


def changed(parent: Schedule, space: Space, rng: random.Random) -> Schedule:
    """Return `parent` with one thing changed; where nothing valid comes of that, a fresh one."""
    for _ in range(_TRIES):
        found = rng.choice((_another_hit, _one_hit_more, _another_time, _another_load, _another_order))(
            parent, space, rng
        )
        if found != parent and valid(found):
            return found
    return fresh(space, rng)


def _hit(space: Space, rng: random.Random, place: int, number: int) -> ScheduledFault:
    # The kind first: one that has many targets is drawn no more often for that.
    fault = rng.choice(sorted({choice.fault for choice in space.choices}))
    choice = rng.choice([one for one in space.choices if one.fault == fault])
    return ScheduledFault(
        fault,
        choice.target,
        rng.randrange(choice.strengths),
        rng.choice(space.waits) if place else AT_ONCE,
        rng.choice(_PAUSES_S),
        rng.choice(space.spans),
        place + 1 < number and rng.random() < 0.5,
    )


def _another_hit(parent: Schedule, space: Space, rng: random.Random) -> Schedule:
    place = rng.randrange(len(parent.hits))
    new = _hit(space, rng, place, len(parent.hits))
    return replace(parent, hits=(*parent.hits[:place], new, *parent.hits[place + 1 :]))


def _one_hit_more(parent: Schedule, space: Space, rng: random.Random) -> Schedule:
    if len(parent.hits) == MOST_HITS:
        return parent
    number = len(parent.hits) + 1
    last = replace(parent.hits[-1], overlaps=rng.random() < 0.5)
    return replace(parent, hits=(*parent.hits[:-1], last, _hit(space, rng, number - 1, number)))


def _another_time(parent: Schedule, space: Space, rng: random.Random) -> Schedule:
    place = rng.randrange(len(parent.hits))
    hold_s, pause_s = rng.choice(space.spans), rng.choice(_PAUSES_S)
    wait = rng.choice(space.waits) if place else AT_ONCE
    new = replace(parent.hits[place], hold_s=hold_s, pause_s=pause_s, wait=wait)
    return replace(parent, hits=(*parent.hits[:place], new, *parent.hits[place + 1 :]))


def _another_load(parent: Schedule, space: Space, rng: random.Random) -> Schedule:
    return replace(parent, load=rng.choice(space.loads))


def _another_order(parent: Schedule, space: Space, rng: random.Random) -> Schedule:
    hits = list(parent.hits)
    rng.shuffle(hits)
    hits = [replace(hit, overlaps=hit.overlaps and place + 1 < len(hits)) for place, hit in enumerate(hits)]
    return replace(parent, hits=(replace(hits[0], wait=AT_ONCE), *hits[1:]))
