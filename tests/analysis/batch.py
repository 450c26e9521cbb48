"""Many generated ledgers through the Spark analysis in one job, to be compared with the oracle field by field."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from brokerdrill.analysis import judge
from brokerdrill.analysis.load import place_event, read_clocks, told_once
from brokerdrill.analysis.reading.rows import OP_SCHEMA
from brokerdrill.analysis.stages import Source
from brokerdrill.analysis.verdict import checked
from brokerdrill.ledger.contract import OP_COLUMNS, PromiseSpec, RunInfo
from tests.analysis import oracle

Row = dict[str, Any]
Ledger = tuple[RunInfo, list[Row], list[Row]]

LEDGERS = int(os.environ.get("BROKERDRILL_ORACLE_LEDGERS", "300"))
PROMISE_FIELDS = ("name", "verdict", "count", "excused", "bound", "measured")


def source_of(spark: SparkSession, rows: Mapping[str, Sequence[Row]]) -> Source:
    """Return operations (dicts, absent keys null) by ledger as a source that Spark reads."""
    names = [column.name for column in OP_COLUMNS]
    told = [{"path": key, **row} for key, of in rows.items() for row in of]
    schema = pa.schema([("path", pa.string()), *OP_SCHEMA])
    table = pa.table({name: [row.get(name) for row in told] for name in ("path", *names)}, schema=schema)
    owners = {
        key: (number, str(of[0]["run_id"]) if of else "", key, None) for number, (key, of) in enumerate(rows.items())
    }
    # Over two tasks in any order; a batch has the rows of few ledgers, as one of a file has.
    frame = spark.createDataFrame(table).repartition(2).sortWithinPartitions("path")
    return Source(frames=((frame, "rows", owners),))


def ledger_of(ledgers: Mapping[str, Ledger], *, parts: int = 1, series: bool = False) -> judge.Ledger:
    """Return what is to be judged of the ledgers; their numbers are their places."""
    clocks = {number: read_clocks(events, run) for number, (run, _, events) in enumerate(ledgers.values())}
    placed = {
        number: [place_event(row, clocks[number]) for row in events]
        for number, (_, _, events) in enumerate(ledgers.values())
    }
    runs = {number: run for number, (run, _, _) in enumerate(ledgers.values())}
    return judge.Ledger(
        runs=runs,
        promises={number: checked(run, run.promises, str(number)) for number, run in runs.items()},
        events={number: told_once(events) for number, events in placed.items()},
        clocks=clocks,
        parts=parts,
        series=series,
    )


def analyse(spark: SparkSession, ledgers: Mapping[str, Ledger], *, parts: int = 1) -> dict[str, dict[str, Any]]:
    """Return the verdict's JSON of each ledger, by its key, from one analysis in `parts` partitions."""
    source = source_of(spark, {key: rows for key, (_, rows, _) in ledgers.items()})
    with judge.Judging(spark, source, ledger_of(ledgers, parts=parts)) as judging:
        first = judging.check()
        assert not first.get("problem") and not first.get("conflict"), first
        results = judging.finish().results
    return {key: results[number].to_json() for number, key in enumerate(ledgers)}


def expected(ledger: Ledger) -> dict[str, Any]:
    """Return the oracle's verdict of a ledger; with its failovers, whether or not the promise is checked."""
    run, ops, events = ledger
    result = oracle.judge(run, ops, events, run.promises)
    if all(spec.name != "failover_within" for spec in run.promises):
        facts = oracle.gather(run, ops, events)
        result["failover"] = oracle.failover_within(facts, PromiseSpec("failover_within"))[1]
        result["rounds"] = oracle.rounds(facts, result["promises"], result["failover"], result["outages"])
    return result


def comparable(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that the analysis and the oracle must agree on, in one order."""
    promises = [{name: promise[name] for name in PROMISE_FIELDS} for promise in result["promises"]]
    # Two brokers may have been hit at one time: what would tell their failovers apart, the store, is not compared.
    of_all = [{name: row[name] for name in row if name not in ("instance", "store")} for row in result["failover"]]
    failover = sorted(of_all, key=lambda row: (row["t_ns"], row["client"], str(sorted(row.items()))))
    outages = [
        {name: row[name] for name in ("start_ns", "end_ns", "fault", "address", "side")} for row in result["outages"]
    ]
    return {
        "verdict": result["verdict"],
        "as_expected": result["as_expected"],
        "messages": dict(result["messages"]),
        "promises": sorted(promises, key=lambda p: (p["name"], p["bound"] or 0, str(p["measured"]))),
        "failover": failover,
        "rounds": [dict(row) for row in result["rounds"]],
        "outages": sorted(outages, key=lambda row: (row["start_ns"], row["address"], row["side"])),
        "coverage": [
            {name: row[name] for name in ("fault", "instance", "target", "t_ns", "clients", "in_flight", "operations")}
            for row in result["coverage"]
        ],
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
