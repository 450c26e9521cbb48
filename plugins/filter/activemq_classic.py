"""Filters of the role activemq_classic: the values that its templates write. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote


def with_query(url: str, options: Mapping[str, Any]) -> str:
    """Return `url` with `options` as its query: behind `?`, or behind what the query has already."""
    if not options:
        return url
    pairs = "&".join(f"{name}={quote(text(value), safe='/:,.')}" for name, value in options.items())
    return f"{url}{'&' if '?' in url else '?'}{pairs}"


def postgresql_options(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `options`, which are of PostgreSQL's driver, for a `url` of that; none for any other.

    Others have other names, and other units for the same ones: socketTimeout is in milliseconds to MySQL's.
    """
    return dict(options) if url.startswith("jdbc:postgresql:") else {}


def text(value: Any) -> str:
    """Return a value as the broker's XML and URLs write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def xml_attributes(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the attributes that are set, as text; null means the broker's own default."""
    return {name: text(value) for name, value in values.items() if value is not None}


def lease_statements(names: Mapping[str, Any], longer_ms: int) -> dict[str, str]:
    """Return the two statements that write a lease which ends `longer_ms` later than the broker asks for.

    The broker asks for one lockAcquireSleepInterval from now. `names`: lockTableName and tablePrefix, where they are
    not the product's own. The order of the parameters is that of the product's statements.
    """
    table = f"{names.get('tablePrefix', '')}{names.get('lockTableName', 'ACTIVEMQ_LOCK')}"
    lease = f"UPDATE {table} SET BROKER_NAME=?, TIME=? + {longer_ms}"
    return {
        "leaseObtainStatement": f"{lease} WHERE (TIME IS NULL OR TIME < ?) AND ID = 1",
        "leaseUpdateStatement": f"{lease} WHERE BROKER_NAME=? AND ID = 1",
    }


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "lease_statements": lease_statements,
            "postgresql_options": postgresql_options,
            "with_query": with_query,
            "xml_attributes": xml_attributes,
        }
