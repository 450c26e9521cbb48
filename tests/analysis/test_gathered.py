"""What comes from Spark to the driver, and an answer on the way that cannot be read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.serializers import ArrowStreamSerializer

from brokerdrill.analysis import spark as spark_module
from brokerdrill.analysis.kernel import PARCEL_SCHEMA, TO_DRIVER, Parcel, batch, pack
from brokerdrill.analysis.stages import _gathered, _unreadable


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What a test says of each answer to come: whether it can be read."""
    left: list[bool] = []
    read = ArrowStreamSerializer.load_stream

    def load(self: ArrowStreamSerializer, stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
        if not left.pop(0):
            stream.read(8)
        return read(self, stream)

    monkeypatch.setattr(ArrowStreamSerializer, "load_stream", load)
    return left


def parcels(spark: SparkSession, size: int) -> DataFrame:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            if not size:
                raise FileNotFoundError("gone")
            yield batch(Parcel(TO_DRIVER, "kind", pack(pa.table({"data": [os.urandom(size)]}))))

    return spark.range(0, 1, 1, 1).mapInArrow(work, PARCEL_SCHEMA)


# The JVM is through with the small one, and at work on the large one, when nobody reads on.
SIZES = pytest.mark.parametrize("size", [10, 10_000_000])


@SIZES
def test_it_is_asked_for_once_more(spark: SparkSession, answers: list[bool], size: int) -> None:
    answers += [False, True]
    with pytest.warns(RuntimeWarning, match="could not be read"):
        (found,) = _gathered(parcels(spark, size))["kind"]
    assert len(found.column("data")[0].as_py()) == size and not answers


@SIZES
def test_it_is_not_asked_for_without_end(spark: SparkSession, answers: list[bool], size: int) -> None:
    answers += [False, False, True]
    # Which of them depends on how far the JVM was.
    with pytest.warns(RuntimeWarning, match="could not be read"), pytest.raises((OSError, Py4JJavaError)):
        _gathered(parcels(spark, size))
    assert answers == [True]


@SIZES
def test_it_is_not_asked_for_at_the_end(
    spark: SparkSession, answers: list[bool], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is refused ends the session that still warms up for it: its answer breaks off."""
    wanted = parcels(spark, size)
    monkeypatch.setattr(spark_module, "_running", [])
    answers += [False, True]
    with pytest.raises((OSError, Py4JJavaError)):
        _gathered(wanted)
    assert answers == [True]


def test_a_task_that_failed_is_not_done_again(spark: SparkSession, answers: list[bool]) -> None:
    answers += [True, True]
    with pytest.raises(PySparkException, match="gone"):
        _gathered(parcels(spark, 0))
    assert answers == [True]


def test_a_jvm_that_is_gone_is_not_asked_again() -> None:
    error = RuntimeError("no answer")
    error.__context__ = ConnectionRefusedError()
    assert _unreadable(error) is None
