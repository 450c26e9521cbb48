"""The counts as JSON, as Prometheus text and as statsd packets. Pure: everything comes in as arguments.

With thousands of vhosts and sessions that takes long: all of it is work in steps (`base.paced`). What is asked for all
the time keeps nothing but text until it is done, so that the garbage collector finds nothing new to look for.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from amqp_session_router.admission.limits import Limiter
from amqp_session_router.admission.violations import ALARMS, LIMITS
from amqp_session_router.base.paced import Steps, strides
from amqp_session_router.config.digests import OWN
from amqp_session_router.routing.routes import Routes
from amqp_session_router.routing.statistics import BUCKETS, DIMENSIONS, Look, Snapshot
from amqp_session_router.telemetry.loop_lag import LAGS, LoopLag

PREFIX = "amqp_router"
PAGE = "metrics"
"""What another worker's page is asked for by."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_STARTED = time.time()
_DESCRIPTORS = Path("/proc/self/fd")
_ENTRIES = 256
_APART = tuple(dimension for dimension in DIMENSIONS if dimension != "overall")
_FIELDS = tuple(field.name for field in dataclasses.fields(Snapshot))
_COUNTERS = {
    "accepted": "Connections accepted.",
    "opened": "Sessions whose Open-Ok reached the client.",
    "attempts": "Attempts to reach a backend.",
    "failed_attempts": "Attempts that failed; the session went on to the next backend.",
    "bytes_from_client": "Bytes read from clients.",
    "bytes_from_broker": "Bytes read from brokers.",
    "failures": "Sessions that ended by a failure; a clean close is none.",
}
_GAUGES = {
    "active": "Open sessions, the paused ones too.",
    "paused": "Paused sessions.",
    "handshaking": "Connections that are not open yet.",
}


def uptime() -> float:
    """Return the seconds that this process runs."""
    return time.time() - _STARTED


def process(lag: LoopLag) -> Steps[dict[str, float]]:
    """Return the process's own: CPU seconds, resident bytes, uptime in seconds, open descriptors and how many there may
    be, and the event loop's greatest lag of late in seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - a pseudo file, read each time
            resident = int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:
        resident = usage.ru_maxrss * 1024
    return {
        "cpu_user_seconds": usage.ru_utime,
        "cpu_system_seconds": usage.ru_stime,
        "resident_bytes": float(resident),
        "uptime_seconds": uptime(),
        "open_descriptors": (yield from _open_descriptors()),
        "descriptors_limit": float(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        "loop_lag_seconds": lag.greatest,
    }


def _open_descriptors() -> Steps[float]:
    """Return how many descriptors are open; -1 where /proc does not show them."""
    try:
        # From Linux 6.2 on the size is this number; before, it is 0.
        return _DESCRIPTORS.stat().st_size or (yield from _walked())
    except OSError:
        return -1


def _walked() -> Steps[int]:
    """Return how many descriptors are open by their entries, without the one that reads them; raises OSError."""
    count = -1
    with os.scandir(_DESCRIPTORS) as entries:
        for _ in entries:
            count += 1
            if count % _ENTRIES == 0:
                yield
    return count


def backends(routes: Routes) -> list[dict[str, Any]]:
    """Return one row a backend: where it is, what its check and its sessions say."""
    rows = []
    for backend in routes.settings.backends.values():
        mark = routes.markers.of(backend.name)
        rows.append(
            {
                "name": backend.name,
                "datacenter": backend.datacenter,
                "host": backend.host,
                "address": backend.address,
                "port": backend.port,
                "tls": backend.tls is not None,
                "proxy_protocol": backend.proxy_protocol,
                "weight": backend.weight,
                "drain": backend.drain,
                "connections": backend.connections,
                "share": round(routes.markers.share(backend), 2) if backend.slow_start else None,
                "local": backend.local,
                "healthy": mark.healthy,
                "reason": mark.reason,
                "active": mark.active,
                "attempts": mark.attempts,
                "failures": mark.failures,
            }
        )
    return rows


def as_data(routes: Routes, limits: Limiter, lag: LoopLag, only: str = "all") -> Steps[dict[str, Any]]:
    """Return the counts as plain data. `only`: `all`, `overall`, `process`, or `vhost=NAME`, `backend=NAME`,
    `source=ADDRESS`; a name without counts gives zeroes."""
    look = yield from routes.statistics.look(routes.sessions.live)
    dimension, _, value = only.partition("=")
    if only == "process":
        return {"process": (yield from process(lag))}
    if only == "overall":
        return {"overall": _fields(look.of("overall"))}
    if dimension != "all":
        return {dimension: {value: _fields(look.of(dimension, value))}}
    data: dict[str, Any] = {"process": (yield from process(lag)), "overall": _fields(look.of("overall"))}
    for name in _APART:
        data[name] = {}
        for values in strides(look.values(name)):
            data[name] |= {value: _fields(look.of(name, value)) for value in values}
            yield
    return data | _rest(routes, limits)


def _rest(routes: Routes, limits: Limiter) -> dict[str, Any]:
    return {
        "backends": backends(routes),
        "paused_vhosts": routes.paused.names,
        "denied": limits.denials.counts,
        "limits": {"refused": limits.violations.refused, "alarms": limits.violations.alarms},
    }


def _fields(snapshot: Snapshot) -> dict[str, Any]:
    return {name: getattr(snapshot, name) for name in _FIELDS}


def as_json(routes: Routes, limits: Limiter, lag: LoopLag) -> Steps[bytes]:
    """Return what `as_data` gives (`all`) as JSON."""
    look = yield from routes.statistics.look(routes.sessions.live)
    first = {"process": (yield from process(lag)), "overall": _fields(look.of("overall"))}
    pieces = [f"{json.dumps(key)}: {json.dumps(part)}" for key, part in first.items()]
    for name in _APART:
        inner: list[str] = []
        for values in strides(look.values(name)):
            inner += [f"{json.dumps(value)}: {json.dumps(_fields(look.of(name, value)))}" for value in values]
            yield
        pieces.append(f"{json.dumps(name)}: {{{', '.join(inner)}}}")
    pieces += [f"{json.dumps(key)}: {json.dumps(part)}" for key, part in _rest(routes, limits).items()]
    return f"{{{', '.join(pieces)}}}\n".encode()


def prometheus(routes: Routes, limits: Limiter, lag: LoopLag, unsaved: bool, worker: int | None = None) -> Steps[bytes]:
    """Return the counts in Prometheus's text format; `unsaved`: the configuration is not the file's. Of several workers
    each counts by itself, since each may begin anew: every value has its `worker`."""
    look = yield from routes.statistics.look(routes.sessions.live)
    page = _Page({} if worker is None else {"worker": str(worker)})
    yield from _sessions(page, look, "overall")
    for dimension in ("vhost", "backend"):
        yield from _sessions(page, look, dimension)
    overall = look.of("overall")
    page.histogram(
        "handshake_seconds", "From accept() to Open-Ok.", BUCKETS, overall.handshakes, overall.handshake_seconds
    )
    _backends(page, backends(routes))
    page.family("farm_active", "gauge", "1: the farm has its quorum.")
    for farm in routes.settings.farms.values():
        page.sample("farm_active", {"farm": farm.name}, routes.planner.why_inactive(farm) is None)
    _farms(page, routes)
    page.family("paused_vhosts", "gauge", "Vhosts that are paused.")
    page.sample("paused_vhosts", {}, len(routes.paused.names))
    passed = limits.violations
    for name, known, counts, meaning in (
        ("limited_total", LIMITS, passed.refused, "Connections that a limit refused, or reads that it delayed."),
        ("alarms_total", ALARMS, passed.alarms, "Times that a limit was passed with a warning only."),
    ):
        page.family(name, "counter", meaning)
        # A counter that comes into being with its first event shows no rate of it.
        for limit, count in (dict.fromkeys(known, 0) | counts).items():
            page.sample(name, {"limit": limit}, count)
    page.family("denied_total", "counter", "Connections that a listener's networks kept out.")
    for name in routes.settings.listeners:
        page.sample("denied_total", {"listener": name}, limits.denials.counts.get(name, 0))
    page.family("config_unsaved", "gauge", "1: control changed what the configuration's file does not say.")
    page.sample("config_unsaved", {}, unsaved)
    page.family("config_info", "gauge", "The digest of each section that all instances are to have alike.")
    for section, digest in routes.settings.digests.items():
        if section not in OWN:
            page.sample("config_info", {"section": section, "digest": digest}, 1)
    page.histogram(
        "loop_lag_seconds", "How late the event loop was, ten times a second.", LAGS, lag.counts, lag.seconds
    )
    own = yield from process(lag)
    page.prefix = "process"
    page.family("open_fds", "gauge", "Open file descriptors.")
    page.sample("open_fds", {}, own["open_descriptors"])
    page.family("max_fds", "gauge", "Most file descriptors.")
    page.sample("max_fds", {}, own["descriptors_limit"])
    page.family("cpu_seconds_total", "counter", "CPU time of the process.")
    page.sample("cpu_seconds_total", {}, own["cpu_user_seconds"] + own["cpu_system_seconds"])
    page.family("resident_memory_bytes", "gauge", "Resident memory.")
    page.sample("resident_memory_bytes", {}, own["resident_bytes"])
    page.family("start_time_seconds", "gauge", "Start, in seconds since the epoch.")
    page.sample("start_time_seconds", {}, _STARTED)
    return page.text()


def _backends(page: _Page, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add what is known of each backend."""
    gauges = (
        ("backend_healthy", "healthy", "1: its last check found it ready."),
        ("backend_drain", "drain", "1: it takes no new sessions."),
        ("backend_connections_limit", "connections", "The most sessions that it may have; absent: any number."),
        ("backend_share", "share", "The part of its weight by which it counts, of those with a slow start."),
    )
    for name, field, meaning in gauges:
        page.family(name, "gauge", meaning)
        for row in rows:
            if row[field] is not None:
                page.sample(name, {"backend": row["name"]}, row[field])


def _farms(page: _Page, routes: Routes) -> None:
    """Add whom the farms have ejected, and what became of their retry budgets."""
    detecting = [(farm, routes.outliers.ejected(farm)) for farm in routes.settings.farms.values() if farm.outliers]
    labels = [({"farm": f.name, "backend": b.name}, b.name in out) for f, out in detecting for b in f.members]
    page.family("member_ejected", "gauge", "1: it is tried last for a while, since its sessions failed.")
    for label, ejected in labels:
        page.sample("member_ejected", label, ejected)
    page.family("ejections_total", "counter", "Times that a member was ejected.")
    for label, _ in labels:
        page.sample("ejections_total", label, routes.outliers.ejections(label["farm"], label["backend"]))
    page.family("retry_budget_exhausted_total", "counter", "Sessions that were refused for want of a retry budget.")
    for name, budget in routes.budgets.by_farm.items():
        page.sample("retry_budget_exhausted_total", {"farm": name}, budget.exhausted)


def joined(pages: Sequence[bytes]) -> Steps[bytes]:
    """Return the pages of all workers as one; an empty one is of a worker that did not answer."""
    families: dict[str, list[str]] = {}
    for page in pages:
        family = families.setdefault("", [])
        # Not splitlines(): a virtual host's name may have what ends a line elsewhere.
        for lines in strides(page.decode().removesuffix("\n").split("\n")):
            for line in lines:
                if line.startswith("# HELP "):
                    found = families.get(line)
                    family = families.setdefault(line, [line])
                    again = found is not None
                elif not (again and line.startswith("#")):
                    family.append(line)
            yield
    up = _Page()
    up.family("worker_up", "gauge", "1: the worker answered in time.")
    for index, page in enumerate(pages):
        up.sample("worker_up", {"worker": str(index)}, bool(page))
    whole: list[str] = []
    for lines in families.values():
        whole += lines
        yield
    return ("\n".join(whole) + "\n").encode() + up.text()


class _Page:
    """Lines of Prometheus's text format, 0.0.4; names begin with `prefix`, and every value has `labels` too."""

    def __init__(self, labels: Mapping[str, str] = MappingProxyType({})) -> None:
        self._labels = labels
        self.prefix = PREFIX
        self._lines: list[str] = []

    def family(self, name: str, kind: str, meaning: str) -> None:
        """Begin the metric `name`, a `counter`, `gauge` or `histogram`."""
        self._lines += [f"# HELP {self.prefix}_{name} {meaning}", f"# TYPE {self.prefix}_{name} {kind}"]

    def sample(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """Add a value of the metric that was begun last."""
        self._lines.append(self.line(name, labels, value))

    def line(self, name: str, labels: Mapping[str, str], value: float) -> str:
        """Return a value's line, for `lines`."""
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in (*labels.items(), *self._labels.items()))
        return f"{self.prefix}_{name}{'{' + shown + '}' if shown else ''} {float(value)}"

    def lines(self, lines: list[str]) -> None:
        """Add values of the metric that was begun last."""
        self._lines += lines

    def histogram(
        self, name: str, meaning: str, bounds: Sequence[float], counts: Sequence[int], seconds: float
    ) -> None:
        """Add a whole histogram: `counts` by the upper `bounds`, and one more for what is beyond."""
        self.family(name, "histogram", meaning)
        total = 0
        for bound, count in zip([*map(str, bounds), "+Inf"], counts, strict=True):
            total += count
            self.sample(f"{name}_bucket", {"le": bound}, total)
        self.sample(f"{name}_count", {}, total)
        self.sample(f"{name}_sum", {}, seconds)

    def text(self) -> bytes:
        """Return the page."""
        return ("\n".join(self._lines) + "\n").encode()


def _escaped(value: str) -> str:
    return _label(value).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _sessions(page: _Page, look: Look, dimension: str) -> Steps[None]:
    """Add what is counted of sessions, over all or for each value of a dimension: all metrics in one walk."""
    apart = dimension != "overall"
    page.prefix = f"{PREFIX}_{dimension}" if apart else PREFIX
    metrics = [(name, f"{name}_total", "counter", meaning) for name, meaning in _COUNTERS.items()]
    metrics += [(name, name, "gauge", meaning) for name, meaning in _GAUGES.items()]
    found: dict[str, list[str]] = {name: [] for _, name, _, _ in metrics}
    ended: list[str] = []
    for values in strides(look.values(dimension)):
        for value in values:
            snapshot = look.of(dimension, value)
            labels = {dimension: value} if apart else {}
            for field, name, _, _ in metrics:
                found[name].append(page.line(name, labels, getattr(snapshot, field)))
            ended += [page.line("ended_total", labels | {"how": how}, count) for how, count in snapshot.ended.items()]
        yield
    for _, name, kind, meaning in metrics:
        page.family(name, kind, meaning)
        page.lines(found[name])
    page.family("ended_total", "counter", "Sessions that are over, by how.")
    page.lines(ended)
    page.prefix = PREFIX


def _label(value: str) -> str:
    """Return `value` as UTF-8 can hold it: a client's vhost may be any bytes."""
    return value.encode(errors="backslashreplace").decode()


class Statsd:
    """Turns the totals into statsd lines; remembers the last ones, since a statsd counter takes differences."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._last: dict[str, float] = {}

    def packets(self, routes: Routes, lag: LoopLag, size: int = 1400) -> Steps[list[bytes]]:
        """Return the counts as packets of at most `size` bytes: counters `|c`, gauges `|g`."""
        look = yield from routes.statistics.look(routes.sessions.live)
        lines: list[str] = []
        seen: dict[str, float] = {}
        for dimension in ("overall", "vhost", "backend"):
            for values in strides(look.values(dimension)):
                for value in values:
                    self._counts(lines, seen, dimension, value, _fields(look.of(dimension, value)))
                yield
        return (yield from self._packed(lines, seen, (yield from process(lag)), backends(routes), size))

    def packets_of(self, data: Mapping[str, Any], size: int = 1400) -> Steps[list[bytes]]:
        """Return what `as_data` gave (`all`) as packets."""
        lines: list[str] = []
        seen: dict[str, float] = {}
        self._counts(lines, seen, "overall", "", data["overall"])
        for dimension in ("vhost", "backend"):
            for values in strides(data[dimension].items()):
                for value, counts in values:
                    self._counts(lines, seen, dimension, value, counts)
                yield
        return (yield from self._packed(lines, seen, data["process"], data["backends"], size))

    def _packed(
        self,
        lines: list[str],
        seen: dict[str, float],
        own: Mapping[str, float],
        rows: Sequence[Mapping[str, Any]],
        size: int,
    ) -> Steps[list[bytes]]:
        lines += [f"{self._prefix}.process.{name}:{value:g}|g" for name, value in own.items()]
        lines += [f"{self._prefix}.backend.{_part(row['name'])}.healthy:{int(row['healthy'])}|g" for row in rows]
        self._last = seen
        packets: list[bytes] = []
        for some in strides(lines):
            for line in some:
                raw = line.encode()
                if packets and len(packets[-1]) + 1 + len(raw) <= size:
                    packets[-1] += b"\n" + raw
                else:
                    packets.append(raw)
            yield
        return packets

    def _counts(
        self, lines: list[str], seen: dict[str, float], dimension: str, value: str, counts: Mapping[str, Any]
    ) -> None:
        name = dimension if dimension == "overall" else f"{dimension}.{_part(value)}"
        for counter in _COUNTERS:
            self._count(lines, seen, f"{name}.{counter}", counts[counter])
        for how, count in counts["ended"].items():
            self._count(lines, seen, f"{name}.ended.{how}", count)
        lines += [f"{self._prefix}.{name}.{gauge}:{counts[gauge]}|g" for gauge in _GAUGES]

    def _count(self, lines: list[str], seen: dict[str, float], name: str, value: float) -> None:
        seen[name] = value
        before = self._last.get(name, 0)
        change = value - before if value >= before else value  # the value was dropped and counts anew
        if change:
            lines.append(f"{self._prefix}.{name}:{change}|c")


def _part(name: str) -> str:
    """Return `name` as one part of a statsd name: what separates parts or fields becomes `_`."""
    return "".join(c if c.isalnum() or c in "_-" else "_" for c in name) or "_"
