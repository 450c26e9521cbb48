"""The counts as JSON, as Prometheus text and as statsd packets. Pure: everything comes in as arguments."""

from __future__ import annotations

import dataclasses
import resource
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from amqp_session_router.limits import Limiter
from amqp_session_router.routing import Routes
from amqp_session_router.statistics import BUCKETS, Snapshot

PREFIX = "amqp_router"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_STARTED = time.time()
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


def process() -> dict[str, float]:
    """Return the process's own: CPU seconds, resident bytes, uptime in seconds."""
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
        "uptime_seconds": time.time() - _STARTED,
    }


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
                "local": backend.local,
                "healthy": mark.healthy,
                "reason": mark.reason,
                "active": mark.active,
                "attempts": mark.attempts,
                "failures": mark.failures,
            }
        )
    return rows


def as_data(routes: Routes, limits: Limiter, only: str = "all") -> dict[str, Any]:
    """Return the counts as plain data. `only`: `all`, `overall`, `process`, or `vhost=NAME`, `backend=NAME`,
    `source=ADDRESS`; a name without counts gives zeroes."""
    shown = routes.statistics.snapshot(routes.sessions.values())
    dimension, _, value = only.partition("=")
    if only == "process":
        return {"process": process()}
    if only == "overall":
        return {"overall": dataclasses.asdict(shown["overall"][""])}
    if dimension != "all":
        return {dimension: {value: dataclasses.asdict(shown[dimension].get(value, Snapshot()))}}
    return {
        "process": process(),
        "overall": dataclasses.asdict(shown["overall"][""]),
        **{
            name: {value: dataclasses.asdict(snapshot) for value, snapshot in values.items()}
            for name, values in shown.items()
            if name != "overall"
        },
        "backends": backends(routes),
        "paused_vhosts": routes.paused,
        "limits": {"refused": limits.refused, "alarms": limits.alarms},
    }


class _Once(Collector):
    """Gives the metrics that it was made with."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
        yield from self._metrics


def prometheus(routes: Routes, limits: Limiter) -> bytes:
    """Return the counts in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(_families(routes, limits)))
    return generate_latest(registry)


def _families(routes: Routes, limits: Limiter) -> Iterator[Metric]:
    shown = routes.statistics.snapshot(routes.sessions.values())
    overall = shown["overall"][""]
    yield from _sessions(PREFIX, {"": overall}, None)
    yield from _sessions(f"{PREFIX}_vhost", shown["vhost"], "vhost")
    yield from _sessions(f"{PREFIX}_backend", shown["backend"], "backend")
    handshake = HistogramMetricFamily(f"{PREFIX}_handshake_seconds", "From accept() to Open-Ok.")
    total, buckets = 0, []
    for bound, count in zip([*map(str, BUCKETS), "+Inf"], overall.handshakes, strict=True):
        total += count
        buckets.append((bound, float(total)))
    handshake.add_metric([], buckets, overall.handshake_seconds)
    yield handshake
    healthy = GaugeMetricFamily(f"{PREFIX}_backend_healthy", "1: its last check found it ready.", labels=["backend"])
    drains = GaugeMetricFamily(f"{PREFIX}_backend_drain", "1: it takes no new sessions.", labels=["backend"])
    for row in backends(routes):
        healthy.add_metric([row["name"]], float(row["healthy"]))
        drains.add_metric([row["name"]], float(row["drain"]))
    yield healthy
    yield drains
    active = GaugeMetricFamily(f"{PREFIX}_farm_active", "1: the farm has its quorum.", labels=["farm"])
    for farm in routes.settings.farms.values():
        active.add_metric([farm.name], float(routes.why_inactive(farm) is None))
    yield active
    yield GaugeMetricFamily(f"{PREFIX}_paused_vhosts", "Vhosts that are paused.", value=float(len(routes.paused)))
    for name, counts, told in (
        ("limited", limits.refused, "Connections that a limit refused, or reads that it delayed."),
        ("alarms", limits.alarms, "Times that a limit was passed with a warning only."),
    ):
        family = CounterMetricFamily(f"{PREFIX}_{name}", told, labels=["limit"])
        for limit, count in counts.items():
            family.add_metric([limit], float(count))
        yield family
    own = process()
    cpu = CounterMetricFamily("process_cpu_seconds", "CPU time of the process.")
    cpu.add_metric([], own["cpu_user_seconds"] + own["cpu_system_seconds"])
    yield cpu
    yield GaugeMetricFamily("process_resident_memory_bytes", "Resident memory.", value=own["resident_bytes"])
    yield GaugeMetricFamily("process_start_time_seconds", "Start, in seconds since the epoch.", value=_STARTED)


def _sessions(prefix: str, values: Mapping[str, Snapshot], label: str | None) -> Iterator[Metric]:
    labels = [] if label is None else [label]
    for name, told in _COUNTERS.items():
        counter = CounterMetricFamily(f"{prefix}_{name}", told, labels=labels)
        for value, snapshot in values.items():
            counter.add_metric([_label(value)] if labels else [], float(getattr(snapshot, name)))
        yield counter
    for name, told in _GAUGES.items():
        gauge = GaugeMetricFamily(f"{prefix}_{name}", told, labels=labels)
        for value, snapshot in values.items():
            gauge.add_metric([_label(value)] if labels else [], float(getattr(snapshot, name)))
        yield gauge
    ended = CounterMetricFamily(f"{prefix}_ended", "Sessions that are over, by how.", labels=[*labels, "how"])
    for value, snapshot in values.items():
        for how, count in snapshot.ended.items():
            ended.add_metric([_label(value), how] if labels else [how], float(count))
    yield ended


def _label(value: str) -> str:
    """Return `value` as UTF-8 can hold it: a client's vhost may be any bytes."""
    return value.encode(errors="backslashreplace").decode()


class Statsd:
    """Turns the totals into statsd lines; remembers the last ones, since a statsd counter takes differences."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._last: dict[str, float] = {}

    def packets(self, data: Mapping[str, Any], size: int = 1400) -> list[bytes]:
        """Return what `as_data` gave (`all`) as packets of at most `size` bytes: counters `|c`, gauges `|g`."""
        lines: list[str] = []
        seen: dict[str, float] = {}
        for name, snapshot in self._named(data):
            for counter in _COUNTERS:
                self._count(lines, seen, f"{name}.{counter}", snapshot[counter])
            for how, count in snapshot["ended"].items():
                self._count(lines, seen, f"{name}.ended.{how}", count)
            lines += [f"{self._prefix}.{name}.{gauge}:{snapshot[gauge]}|g" for gauge in _GAUGES]
        lines += [f"{self._prefix}.process.{name}:{value:g}|g" for name, value in data["process"].items()]
        lines += [
            f"{self._prefix}.backend.{_part(row['name'])}.healthy:{int(row['healthy'])}|g" for row in data["backends"]
        ]
        self._last = seen
        packets: list[bytes] = []
        for line in lines:
            raw = line.encode()
            if packets and len(packets[-1]) + 1 + len(raw) <= size:
                packets[-1] += b"\n" + raw
            else:
                packets.append(raw)
        return packets

    def _named(self, data: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        yield "overall", data["overall"]
        for dimension in ("vhost", "backend"):
            for value, snapshot in data[dimension].items():
                yield f"{dimension}.{_part(value)}", snapshot

    def _count(self, lines: list[str], seen: dict[str, float], name: str, value: float) -> None:
        seen[name] = value
        before = self._last.get(name, 0)
        change = value - before if value >= before else value  # the value was dropped and counts anew
        if change:
            lines.append(f"{self._prefix}.{name}:{change}|c")


def _part(name: str) -> str:
    """Return `name` as one part of a statsd name: what separates parts or fields becomes `_`."""
    return "".join(c if c.isalnum() or c in "_-" else "_" for c in name) or "_"
