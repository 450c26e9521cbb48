"""What a drill, or a part of it, needs of a topology, as a field of a scenario."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from brokerdrill.scenario.expectations import usage
from brokerdrill.scenario.facts import check_need


def _known_need(value: str) -> str:
    usage(lambda: check_need(value))
    return value


Need = Annotated[str, AfterValidator(_known_need)]
Needs = Annotated[
    list[Need],
    Field([], description="what the topology must have, or `not` and what it must not have"),
]
