"""A game day's YAML file: what is drilled, when it may be, how far it may go, and who hears of it."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import httpx
import yaml
from pydantic import BeforeValidator, Field, field_validator, model_validator

from brokerdrill.base.documents import Strict, as_model, parse_yaml
from brokerdrill.base.errors import UsageError
from brokerdrill.faults.lease import SILENT_S
from brokerdrill.scenario.radius import Radius

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
KINDS = ("webhook", "slack", "mail")
# The fields of a window that are times of day.
TIMES = ("start", "end")
# What a channel can be notified of; `expected` is a game day that went as it should.
Occasion = Literal["unexpected", "failed", "stopped", "over_window", "crashed", "missed", "refused", "expected"]
ALARMS: tuple[Occasion, ...] = ("unexpected", "failed", "stopped", "over_window", "crashed", "missed", "refused")


class Choice(Strict):
    """Which drills are held. Those that were not held for longest come first."""

    tags: list[str] = Field([], description="drills with one of these tags; without any, all")
    names: list[str] = Field([], description="these drills alone")
    without: list[str] = Field([], description="never these drills")
    most: int = Field(3, ge=1, description="how many drills are held, over all topologies")


_CLOCK_TIME = re.compile(r"([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?")


def _clock_time(value: Any) -> datetime.time:
    """Return the time of day that `value` says. Raises ValueError."""
    if isinstance(value, datetime.time):
        return value
    found = _CLOCK_TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is no time of day such as 09:30")
    hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
    if hour == 24 and (minute or second):
        raise ValueError(f"{value!r} is no time of day: a day ends at 24:00")
    return datetime.time(hour % 24, minute, second)


ClockTime = Annotated[datetime.time, BeforeValidator(_clock_time)]


class Window(Strict):
    """When drills may run: from `start` to `end`, in the game day's time zone, for windows that begin on one of `days`.

    Where `end` is not after `start`, it is the next day's; the same time for both is the whole day.
    """

    start: ClockTime = datetime.time(0)
    end: ClockTime = Field(datetime.time(0), description="what still runs then is ended, and reported")
    days: list[Day] = Field([*DAYS], min_length=1)


class Blackout(Strict):
    """Days without drills, the last one included."""

    first: datetime.date
    last: datetime.date
    why: str

    @model_validator(mode="after")
    def _in_order(self) -> Blackout:
        if self.first > self.last:
            raise ValueError("first is after last")
        return self


class Metric(Strict):
    """A value that a Prometheus knows of others than the drill, such as the errors of production's clients."""

    name: str = Field(description="what it is, for the sentence that says that it was too high")
    prometheus: str = Field(pattern="^https?://", description="the URL of the Prometheus, without /api")
    query: str = Field(
        description="PromQL; of several values the highest counts, and none is not too high: where there must be "
        "one, end the query with `or vector(N)`, N above the limit"
    )
    above: float = Field(description="a value above it ends the drill, or lets none begin")
    token_file: Path | None = Field(None, description="a file with the bearer token, where one is asked for")
    ca_file: Path | None = Field(None, description="a PEM file with the CA of the Prometheus' certificate")

    @field_validator("prometheus")
    @classmethod
    def _plain_url(cls, value: str) -> str:
        try:
            url = httpx.URL(value)
        except httpx.InvalidURL as error:
            raise ValueError(f"no URL: {error}") from None
        if url.userinfo:
            raise ValueError("a secret goes into token_file")
        return value


class Guard(Strict):
    """What must hold before, while and after a drill."""

    steady_s: float = Field(120, gt=0, description="seconds to wait for health, and for stores to be in sync")
    free_disk_mib: int = Field(512, ge=0, description="on each host's data and on the controller")
    time_limit_s: float = Field(4 * 3600, gt=0, description="seconds that the whole game day may take")
    reserve_s: float = Field(600, ge=0, description="no drill begins with fewer seconds left")
    queue_depth: int | None = Field(None, ge=1, description="a queue of the load that is deeper ends the drill")
    broken_promise: bool = Field(False, description="a promise that is seen to be broken already ends the drill")
    stray_s: float | None = Field(
        60, gt=0, description="seconds that what no fault has hit may be down before the drill ends"
    )
    controller_silent_s: float = Field(
        SILENT_S, ge=5, description="seconds without a word of the run after which a host heals itself"
    )
    metrics: list[Metric] = Field([], description="what else must not become too high")
    metrics_silent_s: float = Field(
        30, gt=0, description="seconds for which one of these metrics may not be read before the drill ends"
    )


class _Channel(Strict):
    when: list[Occasion] = Field([*ALARMS], description="what it is notified of")


class _Url(Strict):
    url: str | None = None
    url_file: Path | None = Field(None, description="a file with the URL, where that is a secret")

    @model_validator(mode="after")
    def _one_url(self) -> Self:
        if (self.url is None) == (self.url_file is None):
            raise ValueError("give one of url and url_file")
        return self


class Webhook(_Url, _Channel):
    """A URL that takes JSON: of our own shape, or the shape that Slack and those compatible with it take."""

    type: Literal["webhook", "slack"]


class Heartbeat(_Url):
    """A URL of a service that raises the alarm when it is not called: as healthchecks.io and those like it have it,
    URL/start when a game day begins, URL when it ended as expected, URL/fail when it did not, URL/log when none was
    begun."""


class Mail(_Channel):
    """A mail by SMTP."""

    type: Literal["mail"]
    host: str
    port: int = Field(25, ge=1, le=65535)
    starttls: bool = False
    user: str | None = None
    password_file: Path | None = None
    sender: str
    to: list[str] = Field(min_length=1)


class Publish(Strict):
    """Where reports go: a folder that a web server or an object store serves."""

    folder: Path
    url: str | None = Field(None, description="where that folder is served, for links in messages")


class GameDay(Strict):
    """A game day's file. Topologies are names or inventory directories; paths are as seen from the file's folder."""

    title: str
    topologies: list[str] = Field(min_length=1)
    drills: Choice = Choice()
    timezone: str = "UTC"
    window: Window = Window()
    blackouts: list[Blackout] = Field([])
    due_every_h: float | None = Field(None, gt=0, description="hours; one that is not held for longer is missed")
    radius: Radius = Radius()
    guard: Guard = Guard()
    publish: Publish | None = None
    notify: list[Annotated[Webhook | Mail, Field(discriminator="type")]] = Field([])
    heartbeat: Heartbeat | None = None
    metrics_file: Path | None = Field(
        None, description="a file NAME.prom that a node exporter reads: when a game day was last held, and as expected"
    )

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            zoneinfo.ZoneInfo(value)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"there is no time zone {value!r}") from None
        return value

    @property
    def zone(self) -> zoneinfo.ZoneInfo:
        return zoneinfo.ZoneInfo(self.timezone)


def load_gameday(path: Path) -> tuple[str, GameDay]:
    """Return (name, game day) of a file; its name is the file's stem. Raises UsageError: file, line, what is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"game day {path} cannot be read: {error}") from None
    data, tree = parse_yaml(text, path, "a game day")
    placed = _placed(_as_typed(data, tree), path.absolute().parent)
    return path.stem, as_model(GameDay, placed, path, tree, "the game day", KINDS)


def _as_typed(data: Mapping[str, Any], tree: yaml.Node | None) -> dict[str, Any]:
    """Return `data` with the window's times as the file has them: YAML reads 10:00 as sixty times ten."""
    window = data.get("window")
    node = next((value for key, value in _pairs(tree) if key == "window"), None)
    times = {key: value.value for key, value in _pairs(node) if key in TIMES and isinstance(value, yaml.ScalarNode)}
    return {**data, "window": {**window, **times}} if isinstance(window, dict) else {**data}


def _pairs(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        yield from ((str(key.value), value) for key, value in node.value)


def _placed(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return `data` with its paths seen from `folder`; what has the wrong shape is left to the model."""
    found = _with_paths(data, ("metrics_file",), folder)
    for part in ("publish", "heartbeat"):
        if isinstance(found.get(part), dict):
            found[part] = _with_paths(found[part], ("folder", "url_file"), folder)
    if isinstance(found.get("notify"), list):
        found["notify"] = [
            _with_paths(one, ("url_file", "password_file"), folder) if isinstance(one, dict) else one
            for one in found["notify"]
        ]
    guard = found.get("guard")
    if isinstance(guard, dict) and isinstance(guard.get("metrics"), list):
        files = ("token_file", "ca_file")
        placed = [_with_paths(one, files, folder) if isinstance(one, dict) else one for one in guard["metrics"]]
        found["guard"] = {**guard, "metrics": placed}
    if isinstance(found.get("topologies"), list):
        found["topologies"] = [
            str(folder / one) if isinstance(one, str) and ("/" in one or one in (".", "..")) else one
            for one in found["topologies"]
        ]
    return found


def _with_paths(data: Mapping[str, Any], names: tuple[str, ...], folder: Path) -> dict[str, Any]:
    return {
        name: str(folder / value) if name in names and isinstance(value, str) else value for name, value in data.items()
    }
