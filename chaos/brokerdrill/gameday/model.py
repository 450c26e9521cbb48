"""A game day's YAML file: what is drilled, when it may be, how far it may go, and who hears of it."""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx
from pydantic import Field, field_validator, model_validator

from brokerdrill.base.documents import Strict, as_model, parse_yaml
from brokerdrill.base.errors import UsageError

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
KINDS = ("webhook", "slack", "mail")
# What a channel can be told of; `expected` is a game day that went as it should.
Occasion = Literal["unexpected", "failed", "stopped", "over_window", "crashed", "missed", "refused", "expected"]
ALARMS: tuple[Occasion, ...] = ("unexpected", "failed", "stopped", "over_window", "crashed", "missed", "refused")


class Choice(Strict):
    """Which drills are held. Those that were not held for longest come first."""

    tags: list[str] = Field([], description="drills with one of these tags; without any, all")
    names: list[str] = Field([], description="these drills alone")
    without: list[str] = Field([], description="never these drills")
    most: int = Field(3, ge=1, description="how many drills are held, over all topologies")


class Window(Strict):
    """When drills may run: from `start` to `end` of each of `days`, in the game day's time zone."""

    start: datetime.time = datetime.time(0)
    end: datetime.time = Field(datetime.time(23, 59, 59), description="what still runs then is ended, and reported")
    days: list[Day] = Field([*DAYS], min_length=1)

    @model_validator(mode="after")
    def _in_order(self) -> Window:
        if self.start >= self.end:
            raise ValueError("start is not before end")
        return self


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


class Radius(Strict):
    """How far drills may reach; a drill that could reach further is not held."""

    groups: list[str] = Field([], description="the inventory's groups that may be hit; without any, all")
    at_once: int = Field(1, ge=1, description="brokers, servers or databases that may be hit at the same time")


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
    metrics: list[Metric] = Field([], description="what else must not become too high")
    metrics_silent_s: float = Field(
        30, gt=0, description="seconds for which one of these metrics may not be read before the drill ends"
    )


class _Channel(Strict):
    when: list[Occasion] = Field([*ALARMS], description="what it is told of")


class Webhook(_Channel):
    """A URL that takes JSON: of our own shape, or the shape that Slack and those compatible with it take."""

    type: Literal["webhook", "slack"]
    url: str | None = None
    url_file: Path | None = Field(None, description="a file with the URL, where that is a secret")

    @model_validator(mode="after")
    def _one_url(self) -> Webhook:
        if (self.url is None) == (self.url_file is None):
            raise ValueError("give one of url and url_file")
        return self


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
    return path.stem, as_model(GameDay, _placed(data, path.absolute().parent), path, tree, "the game day", KINDS)


def _placed(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return `data` with its paths seen from `folder`; what has the wrong shape is left to the model."""
    found = dict(data)
    if isinstance(found.get("publish"), dict):
        found["publish"] = _with_paths(found["publish"], ("folder",), folder)
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
