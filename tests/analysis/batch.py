"""Many generated ledgers through the Spark analysis in one job, to be compared with the oracle field by field."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from brokerdrill.analysis.judge import judge
from brokerdrill.analysis.load import spark_schema
from brokerdrill.analysis.verdict import checked
from brokerdrill.ledger import EVENT_COLUMNS, OP_COLUMNS, Column, PromiseSpec, RunInfo
from tests.analysis import oracle

Row = dict[str, Any]
Ledger = tuple[RunInfo, list[Row], list[Row]]

LEDGERS = int(os.environ.get("BROKERDRILL_ORACLE_LEDGERS", "300"))
PROMISE_FIELDS = ("name", "verdict", "count", "excused", "bound", "measured")


def rows_frame(spark: SparkSession, rows: Iterable[Row], columns: Sequence[Column]) -> DataFrame:
    """Return ledger rows (dicts, absent keys null) as a DataFrame of the contract's schema."""
    names = [column.name for column in columns]
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], spark_schema(columns))


def analyse(spark: SparkSession, ledgers: Mapping[str, Ledger], *, large: bool = False) -> dict[str, dict[str, Any]]:
    """Return the verdict's JSON of each ledger, by its key, from one Spark job; `large`: by the way of a large
    ledger."""
    ops = [{**row, "run_id": key} for key, (_, rows, _) in ledgers.items() for row in rows]
    events = [{**row, "run_id": key} for key, (_, _, rows) in ledgers.items() for row in rows]
    runs = {key: run for key, (run, _, _) in ledgers.items()}
    promises = {key: checked(run, run.promises, key) for key, run in runs.items()}
    return judge(
        spark, rows_frame(spark, ops, OP_COLUMNS), rows_frame(spark, events, EVENT_COLUMNS), runs, promises, large=large
    )


def expected(ledger: Ledger) -> dict[str, Any]:
    """Return the oracle's verdict of a ledger; with its failovers, whether or not the promise is checked."""
    run, ops, events = ledger
    result = oracle.judge(run, ops, events, run.promises)
    if all(spec.name != "failover_within" for spec in run.promises):
        facts = oracle.gather(run, ops, events)
        result["failover"] = oracle.failover_within(facts, PromiseSpec("failover_within"))[1]
    return result


def comparable(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that the analysis and the oracle must agree on, in one order."""
    promises = [{name: promise[name] for name in PROMISE_FIELDS} for promise in result["promises"]]
    failover = [{name: row[name] for name in row if name not in ("instance", "store")} for row in result["failover"]]
    outages = [
        {name: row[name] for name in ("start_ns", "end_ns", "fault", "address", "side")} for row in result["outages"]
    ]
    return {
        "verdict": result["verdict"],
        "as_expected": result["as_expected"],
        "messages": dict(result["messages"]),
        "promises": sorted(promises, key=lambda p: (p["name"], p["bound"] or 0, str(p["measured"]))),
        "failover": sorted(failover, key=lambda row: (row["t_ns"], row["client"])),
        "outages": sorted(outages, key=lambda row: (row["start_ns"], row["address"], row["side"])),
    }


def differences(seed: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Return one line for each field in which two verdicts differ."""
    found = []
    a, b = comparable(mine), comparable(theirs)
    for name in a:
        if a[name] == b[name]:
            continue
        if name == "messages":
            changed = {c: (a[name][c], b[name][c]) for c in a[name] if a[name][c] != b[name][c]}
            found.append(f"{seed}: messages (analysis, oracle): {changed}")
        elif name == "promises":
            found += [
                f"{seed}: analysis {one}, oracle {other}"
                for one, other in zip(a[name], b[name], strict=True)
                if one != other
            ]
        else:
            found.append(f"{seed}: {name}: analysis {a[name]}, oracle {b[name]}")
    return found
