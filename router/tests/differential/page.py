"""The page of what differs for a client, made from the allowances: `python -m differential.page` in `router/tests`."""

from __future__ import annotations

from pathlib import Path

from differential.allowances import ALLOWANCES
from differential.cases import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "what-differs.md"


def page() -> str:
    """Return the page."""
    kinds = "\n".join(f"- {(kind.__doc__ or '').strip()}" for kind in KINDS)
    named = sorted(ALLOWANCES, key=lambda one: one.name)
    rows = "\n".join(f"| {one.name} | {one.directly} | {one.routed} | {one.reason} |" for one in named)
    return f"""# What differs for a client, through the router or without it

<!-- made by `python -m differential.page` in router/tests -->

The same client is played at a RabbitMQ and at the router before it, and what it sees is compared byte by byte
(`tests/test_differential.py`: a few hundred clients in `make test`, ten thousand in `make test-all`). What is not
in this table is the same, or a fault.

| what | at the broker | through the router | why |
| --- | --- | --- | --- |
{rows}

Played are, from a seed:

{kinds}

Not compared, since they are what a router is for: which broker of a farm it is, what an operator does to a session,
the router's own limits, and the client properties `proxy_client`, `proxy_host` and `proxy_session`, which the broker
shows. Start is the broker's own where all that a client may come to say the same, else what they say alike, with
the least version.
"""


if __name__ == "__main__":
    PAGE.write_text(page())
