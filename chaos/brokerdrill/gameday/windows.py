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
    around = [one for one in _windows(day, local.date()) if one[0] <= now < one[1]]
    if any(_allowed(day, start) for start, _ in around):
        return None
    if around or not any(_allowed(day, start) for start, _ in _windows(day, local.date())[1:]):
        return (
            f"no drills on {(around[0][0] if around else local):%A}s (the window's days: {', '.join(day.window.days)})"
        )
    return f"it is {local:%H:%M}, outside the window from {day.window.start:%H:%M} to {day.window.end:%H:%M}"


def _windows(day: GameDay, date: datetime.date) -> list[tuple[datetime.datetime, datetime.datetime]]:
    """Return (start, end) of the windows that begin on the day before `date`, which may reach into it, and on it."""
    window, found = day.window, []
    for back in (1, 0):
        first = date - datetime.timedelta(days=back)
        last = first + datetime.timedelta(days=window.end <= window.start)
        found.append(
            (
                datetime.datetime.combine(first, window.start, day.zone),
                datetime.datetime.combine(last, window.end, day.zone),
            )
        )
    return found


def _allowed(day: GameDay, start: datetime.datetime) -> bool:
    return DAYS[start.weekday()] in day.window.days


def window_end(day: GameDay, now: datetime.datetime) -> datetime.datetime:
    """Return when the window that is open at `now` closes; where none is, that of `now`'s day."""
    windows = _windows(day, now.astimezone(day.zone).date())
    return next((end for start, end in windows if start <= now < end and _allowed(day, start)), windows[1][1])


def ends_at(day: GameDay, begun: datetime.datetime) -> datetime.datetime:
    """Return when a game day that began at `begun` must be over: its window closes, or its time is up."""
    return min(window_end(day, begun), begun + datetime.timedelta(seconds=day.guard.time_limit_s))


def missed_since(day: GameDay, held: datetime.datetime | None, now: datetime.datetime) -> datetime.datetime | None:
    """Return since when one is overdue, the last one having begun at `held`; None: it is not, or none is due."""
    if day.due_every_h is None or held is None:
        return None
    due = held + datetime.timedelta(hours=day.due_every_h)
    return due if now > due else None
