"""What run.json and the timelines say, as small DataFrames keyed by run, to be joined with operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from brokerdrill.analysis.timeline import NEVER, Epoch, Timeline
from brokerdrill.ledger import PromiseSpec, RunInfo

NS_PER_MS = 1_000_000
# Rows that become literals of the plan, which costs no job; more go the usual way.
_LITERAL_ROWS = 1000


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    quoted = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{quoted}'"


def table(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: str) -> DataFrame:
    """Return `rows` as a DataFrame; `schema` is `name type, ...` with types string, long, int and boolean."""
    values = [tuple(row) for row in rows]
    columns = [column.split() for column in schema.split(", ")]
    casts = ", ".join(f"CAST(c{index} AS {kind}) AS `{name}`" for index, (name, kind) in enumerate(columns))
    names = ", ".join(f"c{index}" for index in range(len(columns)))
    if not values:
        nulls = ", ".join("NULL" for _ in columns)
        return spark.sql(f"SELECT {casts} FROM VALUES ({nulls}) AS t({names}) WHERE false")
    if len(values) > _LITERAL_ROWS:
        return spark.createDataFrame(values, schema)
    body = ", ".join("(" + ", ".join(_literal(value) for value in row) + ")" for row in values)
    return spark.sql(f"SELECT {casts} FROM VALUES {body} AS t({names})")


def clocks(spark: SparkSession, runs: Mapping[str, RunInfo]) -> DataFrame:
    """Return run_id, clock, offset, clock_u (ns) of every clock that run.json places."""
    return table(
        spark,
        ((key, name, c.offset_ns, c.uncertainty_ns) for key, run in runs.items() for name, c in run.clocks.items()),
        "run_id string, clock string, offset long, clock_u long",
    )


@dataclass(frozen=True)
class Tables:
    """Small tables keyed by run_id; times are run time in ns.

    dead_letters: address, dead_letter. drained: address, drained. specs: spec (the promise's place in the run's
    list), name, bound, scope, side, check_period, cache_timeout. phase: drain_begin, drain_end (null: not recorded),
    run_end. load: load_begin, load_end. served: server (an instance), home (its only store, or null), and all time in
    spans of its epochs: e_store, epoch (its start; null: before the first), e_end, span_from and span_next (where it
    and the next may have begun), span_to (where it may have ended). overlaps: store, instance, other_instance,
    start_ns, end_ns. fault: fault (its number), f_name, f_instance, f_target, f_at, healed_at. hit: fault, f_name,
    f_instance, hit_store, f_at, f_u, hit (start of the epoch hit), hit_open, again, next_at, detected_at. failback:
    fault, f_name, f_instance, store, healed_at, back_at, until. unready: store, n_from, n_to.
    """

    dead_letters: DataFrame
    drained: DataFrame
    specs: DataFrame
    phase: DataFrame
    load: DataFrame
    served: DataFrame
    overlaps: DataFrame
    fault: DataFrame
    hit: DataFrame
    failback: DataFrame
    unready: DataFrame


def _ns(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else round(milliseconds * NS_PER_MS)


def tables(
    spark: SparkSession,
    runs: Mapping[str, RunInfo],
    promises: Mapping[str, Sequence[PromiseSpec]],
    times: Mapping[str, Timeline],
) -> Tables:
    """Return the `Tables` of `runs`, whose keys are the `run_id` values of the operations' DataFrame, from their
    run.json, the promises to check and their timelines."""
    return Tables(
        dead_letters=table(
            spark,
            ((key, address, dead) for key, run in runs.items() for address, dead in run.dead_letters.items()),
            "run_id string, address string, dead_letter string",
        ),
        drained=table(
            spark,
            ((key, address, drained) for key, run in runs.items() for address, drained in run.drained.items()),
            "run_id string, address string, drained boolean",
        ),
        specs=table(
            spark,
            (
                (
                    key,
                    index,
                    spec.name,
                    _ns(spec.bound_ms),
                    spec.scope or "session",
                    spec.side or "send",
                    _ns(spec.check_period_ms or 0),
                    _ns(spec.cache_timeout_ms or 0),
                )
                for key, specs in promises.items()
                for index, spec in enumerate(specs)
            ),
            "run_id string, spec int, name string, bound long, scope string, side string, "
            "check_period long, cache_timeout long",
        ),
        phase=table(
            spark,
            ((key, t.drain_begin, t.drain_end, t.run_end) for key, t in times.items()),
            "run_id string, drain_begin long, drain_end long, run_end long",
        ),
        load=table(
            spark,
            ((key, *window) for key, t in times.items() for window in t.loads),
            "run_id string, load_begin long, load_end long",
        ),
        served=table(
            spark,
            ((key, *row) for key, t in times.items() for row in served_spans(t)),
            "run_id string, server string, home string, e_store string, epoch long, e_end long, "
            "span_from long, span_next long, span_to long",
        ),
        overlaps=table(
            spark,
            (
                (key, a.store, a.instance, b.instance, start, end)
                for key, t in times.items()
                for a, b, start, end in t.overlaps
            ),
            "run_id string, store string, instance string, other_instance string, start_ns long, end_ns long",
        ),
        fault=table(
            spark,
            (
                (key, f.number, f.name, f.instance, f.target, f.at, f.healed_at)
                for key, t in times.items()
                for f in t.faults
            ),
            "run_id string, fault int, f_name string, f_instance string, f_target string, f_at long, healed_at long",
        ),
        hit=table(
            spark,
            (
                (
                    key,
                    h.fault.number,
                    h.fault.name,
                    h.fault.instance,
                    h.epoch.store,
                    h.fault.at,
                    h.fault.u,
                    h.epoch.start,
                    h.epoch.open,
                    h.again,
                    h.next.start if h.next else None,
                    h.detected_at,
                )
                for key, t in times.items()
                for h in t.hits
            ),
            "run_id string, fault int, f_name string, f_instance string, hit_store string, f_at long, f_u long, "
            "hit long, hit_open boolean, again boolean, next_at long, detected_at long",
        ),
        failback=table(
            spark,
            (
                (key, number, *back, t.run_end if back.back_at is None else back.back_at)
                for key, t in times.items()
                for number, back in enumerate(t.failbacks)
            ),
            "run_id string, failback int, f_name string, f_instance string, store string, "
            "healed_at long, back_at long, until long",
        ),
        unready=table(
            spark,
            ((key, *span) for key, t in times.items() for span in t.unready),
            "run_id string, store string, n_from long, n_to long",
        ),
    )


def served_spans(times: Timeline) -> list[tuple[str, str | None, str | None, int | None, int | None, int, int, int]]:
    """All time of each instance, in spans that each begin where one of its epochs may have begun; the first knows
    none."""
    rows: list[tuple[str, str | None, str | None, int | None, int | None, int, int, int]] = []
    of: dict[str, list[Epoch]] = {instance: [] for instance in times.homes}
    for epoch in times.epochs:
        of.setdefault(epoch.instance, []).append(epoch)
    for instance, own in of.items():
        home = times.homes.get(instance)
        begins = [epoch.start - epoch.start_u for epoch in own]
        rows.append((instance, home, None, None, None, -NEVER, begins[0] if begins else NEVER, NEVER))
        for epoch, begin, following in zip(own, begins, [*begins, NEVER][1:], strict=True):
            until = epoch.end + epoch.end_u
            rows.append((instance, home, epoch.store, epoch.start, epoch.end, begin, following, until))
    return rows
