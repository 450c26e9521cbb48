"""Replies as JSON, and back, in steps: one of `CONN` has a row for each session, of which there may be ten thousands.

With lines between the rows of each step the text is one JSON value as before, and can be read in steps as well.
"""

from __future__ import annotations

import json
from typing import Any

from amqp_session_router.base.paced import Steps, strides
from amqp_session_router.control.merging import Reply

_NONE = "[]}"


def encoded(reply: Reply, lines: bool = False) -> Steps[list[bytes]]:
    """Return the JSON of `reply`, in parts; with `lines` for `decoded`, else without a line's end."""
    if "rows" not in reply:
        return [_json(reply).encode()]
    some = []
    for stride in strides(reply["rows"]):
        some.append(_json(stride)[1:-1].encode())
        yield
    others = {name: value for name, value in reply.items() if name != "rows"}
    end = b"\n" if lines and some else b""
    parts = [_json(others | {"rows": []}).removesuffix(_NONE).encode() + b"[" + end]
    parts += [one + b"," + end for one in some[:-1]]
    return [*parts, *(one + end for one in some[-1:]), b"]}"]


def decoded(text: bytes) -> Steps[Reply]:
    """Return the reply whose JSON `text` is, best with lines; raises ValueError."""
    first, *rows = text.split(b"\n")
    if not rows:
        whole: Reply = json.loads(first)
        return whole
    reply: Reply = json.loads(first + rows.pop())
    for line in rows:
        reply["rows"] += json.loads(b"[" + line.removesuffix(b",") + b"]")
        yield
    return reply


def _json(value: Any) -> str:
    return json.dumps(value, default=str)
