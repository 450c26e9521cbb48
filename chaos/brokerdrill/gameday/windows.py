"""When drills may run, and when a game day is missed. Pure."""

from __future__ import annotations

import datetime

from brokerdrill.gameday.model import DAYS, GameDay


def closed(day: GameDay, now: datetime.datetime) -> str | None:
    """Return why no drill may begin at `now` (any time zone); None: one may."""
    local = now.astimezone(day.zone)
    for blackout in day.blackouts:
        if blackout.first <= local.date() <= blackout.last:
            return f"blackout from {blackout.first} to {blackout.last}: {blackout.why}"
    if DAYS[local.weekday()] not in day.window.days:
        return f"no drills on {local:%A}s (the window's days: {', '.join(day.window.days)})"
    if not day.window.start <= local.time() < day.window.end:
        return f"it is {local:%H:%M}, outside the window from {day.window.start:%H:%M} to {day.window.end:%H:%M}"
    return None


def window_end(day: GameDay, now: datetime.datetime) -> datetime.datetime:
    """Return when the window of `now`'s day closes."""
    local = now.astimezone(day.zone)
    return datetime.datetime.combine(local.date(), day.window.end, day.zone)


def ends_at(day: GameDay, begun: datetime.datetime) -> datetime.datetime:
    """Return when a game day that began at `begun` must be over: its window closes, or its time is up."""
    return min(window_end(day, begun), begun + datetime.timedelta(seconds=day.guard.time_limit_s))


def missed_since(day: GameDay, held: datetime.datetime | None, now: datetime.datetime) -> datetime.datetime | None:
    """Return since when one is overdue, the last one having begun at `held`; None: it is not, or none is due."""
    if day.due_every_h is None or held is None:
        return None
    due = held + datetime.timedelta(hours=day.due_every_h)
    return due if now > due else None
