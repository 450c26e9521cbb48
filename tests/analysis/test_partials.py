"""Partial results are what their declarations say: every query makes those columns, and who is named reads them."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import duckdb
import pyarrow as pa
import pytest

from brokerdrill.analysis import clients, groups, judge, look_up, messages, partials
from brokerdrill.analysis.columns import ARROW, UNITS, TableColumn, table
from brokerdrill.analysis.kernel import TO_DRIVER, Parcel, batch, engine, to_driver, unpack
from brokerdrill.analysis.look_up import ROW
from brokerdrill.analysis.partials import Partial, declared, queries
from brokerdrill.analysis.stories import WANTED
from brokerdrill.promises.catalogue import PROMISES
from tests.analysis.generate import generate
from tests.analysis.in_process import judging, rows_of

# Made in Python: `stages._problems`.
NO_QUERY = {"problem"}


def arrow(columns: tuple[TableColumn, ...]) -> dict[str, pa.DataType]:
    return {column.name: ARROW[column.type] for column in columns}


@pytest.fixture(scope="module")
def made() -> dict[str, tuple[str, dict[str, pa.DataType]]]:
    """What every query makes of the tables of a partition, by its SQL: the kind and the columns, also of no rows."""
    found: dict[str, tuple[str, dict[str, pa.DataType]]] = {}

    def watched(base: duckdb.DuckDBPyConnection, kind: str, sql: str) -> Iterator[Parcel]:
        schema = base.sql(sql).to_arrow_table().schema
        found[sql] = kind, dict(zip(schema.names, schema.types, strict=True))
        return to_driver(base, kind, sql)

    ledgers = {f"seed {seed}": generate(seed) for seed in range(3)}
    with patch.object(partials, "to_driver", watched), patch.object(judge, "Plan", everything):
        with judging(ledgers, rows_of(ledgers), parts=1, series=True) as found_of:
            found_of.finish()
        with engine() as base:
            wanted = {name: table((), columns) for name, columns in WANTED.items()}
            list(look_up.of_blocks(base, iter(()), wanted))
            base.register("block", look_up._SCHEMA.empty_table())
            list(ROW.of(base))
    return found


def everything(parts: int, _: frozenset[str], series: bool) -> clients.Plan:
    """A plan by which nothing is left out."""
    return clients.Plan(parts, frozenset(PROMISES), series)


@pytest.mark.parametrize("query", queries(), ids=lambda query: f"{query.partial.kind}-{queries().index(query)}")
def test_a_query_makes_the_columns_of_its_declaration(
    query: partials.Query, made: dict[str, tuple[str, dict[str, pa.DataType]]]
) -> None:
    assert query.sql in made, f"no task runs it: {query.sql}"
    assert made[query.sql] == (query.partial.kind, arrow(query.columns))


def test_every_partial_has_its_queries() -> None:
    assert {query.partial.kind for query in queries()} == {*declared()} - NO_QUERY


@pytest.mark.parametrize("partial", declared().values(), ids=declared())
def test_who_is_named_reads_it(partial: Partial) -> None:
    assert partial.needed_by
    for name in partial.needed_by:
        module, _, rest = name.partition(".")
        found: Any = importlib.import_module(f"brokerdrill.analysis.{module}")
        for part in rest.split("."):
            found = getattr(found, part)
        text = str(found) if isinstance(found, str | dict) else inspect.getsource(found)
        read = re.search(rf'\b(FROM|JOIN) "?{partial.kind}\b|["\']{partial.kind}["\']|\b{partial.kind.upper()}\.', text)
        assert read, f"{name} does not read {partial.kind}"


@pytest.mark.parametrize("partial", declared().values(), ids=declared())
def test_a_declaration_is_of_known_types_and_units(partial: Partial) -> None:
    for column in partial.columns:
        assert column.type in ARROW and column.unit in ("", *UNITS)
        # A time has its unit, and nothing else has one.
        assert not column.name.endswith(("_ns", "_at")) or column.unit == "ns"
        assert not column.unit or column.type in ("long", "double")
    assert partial.columns[0].name == "run", "the driver tells runs apart"


def test_a_kind_is_declared_once() -> None:
    with pytest.raises(ValueError, match="the partial end is declared twice"):
        partials.declare("end", "run int", "judge.Judging.finish")


@pytest.mark.parametrize("stage", [messages, groups])
def test_what_a_stage_hands_on_is_what_the_next_one_expects(stage: Any) -> None:
    """The table of a kind of which a stage got no row has the columns of the rows that the stage before makes."""
    ledgers = {f"seed {seed}": generate(seed) for seed in range(40)}
    found: dict[str, dict[str, pa.DataType]] = {}

    def keep(parcel: Parcel) -> Any:
        if parcel.part != TO_DRIVER:
            schema = unpack(parcel.data).schema
            types = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in schema.types]
            found[parcel.kind] = dict(zip(schema.names, types, strict=True))
        return batch(parcel)

    with (
        patch("brokerdrill.analysis.stages.batch", keep),
        patch.object(judge, "Plan", everything),
        judging(ledgers, rows_of(ledgers), parts=1) as judged,
    ):
        judged.finish()
    base = duckdb.connect()
    for kind, columns in stage.EMPTY.items():
        base.execute(f'CREATE TABLE "{kind}" ({columns})')
        schema = base.sql(f'FROM "{kind}"').to_arrow_table().schema
        assert found[kind] == dict(zip(schema.names, schema.types, strict=True)), kind
