"""What a deployment left of the toy broker, seen from inside after a drill."""

from __future__ import annotations

from typing import Any

from conftest import Instance, listening


def test_it_listens_where_it_says(instance: Instance, host: Any) -> None:
    (listener,) = instance["listeners"]
    assert f"{listener['address']}:{listener['port']}" in listening(host)
