"""Which of the package's extras brings a module that is not installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from types import MappingProxyType

from brokerdrill.base.errors import InfrastructureError

# By the modules that ours import. A test holds them against pyproject.toml.
EXTRAS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "analyze": ("bokeh", "duckdb", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "scipy"),
        "bench": ("docker",),
        "clients": ("jpype", "paho", "pika"),
        "drill": ("ansible", "asyncssh", "lxml"),
        "serve": ("starlette", "uvicorn"),
    }
)


def extra_of(module: str) -> str | None:
    """Return the extra that brings the top-level `module`, None where it is of none."""
    return next((extra for extra, modules in EXTRAS.items() if module in modules), None)


def missing(error: ModuleNotFoundError) -> str | None:
    """Return in one sentence what to install for the module that `error` misses; None where it is of no extra."""
    module = (error.name or "").partition(".")[0]
    return _sentence(module) if extra_of(module) else None


def need(module: str) -> None:
    """Raise InfrastructureError where `module`, which another process will import, is not installed."""
    if importlib.util.find_spec(module) is None:
        raise InfrastructureError(_sentence(module))


def _sentence(module: str) -> str:
    return f"this needs {module}, which is not installed: pip install 'brokerdrill[{extra_of(module)}]'"
