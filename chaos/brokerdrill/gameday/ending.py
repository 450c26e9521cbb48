"""How long a game day may take to end once it is asked to: what a service manager has to wait before it kills. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from brokerdrill.faults.executor import HEAL_LONGEST_S
from brokerdrill.runner.drain import WAITS
from brokerdrill.scenario.model import Action, Scenario

# Logs and spools come to the controller, and what was recorded is judged, published and announced.
COLLECT_S = 180


def stop_s(scenarios: Iterable[Scenario]) -> int:
    """Return the seconds that the slowest of `scenarios` may take from the request to end: its faults are healed one
    after the other, its load drains, and what there is is collected and judged."""
    return max((_of(one) for one in scenarios), default=COLLECT_S)


def _of(scenario: Scenario) -> int:
    faults = sum(isinstance(step, Action) for step in scenario.method)
    return math.ceil(faults * HEAL_LONGEST_S + WAITS * scenario.abort.drain) + COLLECT_S
