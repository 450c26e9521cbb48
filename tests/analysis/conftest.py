"""One Spark session for all tests of the analysis: its start takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from brokerdrill.analysis.spark import ended, session, stop


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    yield session()
    how = ended()
    stop()
    assert how is None, f"the JVM ended under the tests: {how}"
