"""The command line `amqp-session-router`."""

from __future__ import annotations


def main() -> int:
    """Run the command line; returns the exit status."""
    raise SystemExit("not yet")
