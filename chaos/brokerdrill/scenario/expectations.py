"""What a drill expects of its promises besides that they are kept: defects of the product that are known, with their
ceilings; and whether anything in a drill can fail at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field, model_validator

from brokerdrill.base.documents import Strict
from brokerdrill.base.errors import UsageError
from brokerdrill.ledger.coverage import Minimum
from brokerdrill.ledger.known import Known


class Ceilings(Strict):
    """How far a known defect goes: how many breaks, breaks for each that was judged, the worst measure."""

    count: int | None = Field(None, ge=1)
    rate: float | None = Field(None, gt=0, lt=1)
    ms: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _some(self) -> Ceilings:
        if not self.given():
            raise ValueError("at_most: give count, rate or ms")
        return self

    def given(self) -> dict[str, float]:
        """The ceilings that there are."""
        return self.model_dump(exclude_none=True)


class Sighting(Strict):
    """What a defect was seen in: of so many `runs`, of its drill or of several that name it, it broke the promise in
    `broken`, on a topology and a version."""

    runs: int = Field(ge=1)
    broken: int = Field(ge=0)
    topology: str
    version: str
    on: str = Field("", description="the day of the last of them")


class Defect(Strict):
    """A defect of the product that may break a promise, and how far: worse, or another kind of witness, is not as
    expected. Ceilings come from ten runs or more; from fewer they say how many there were."""

    promise: str
    at_most: Ceilings
    finding: str = Field(min_length=1, description="what begins its row in FINDINGS.md")
    seen: Sighting
    only: dict[str, Any] = Field({}, description="fields that each of its witnesses has, with their values")

    def known(self) -> Known:
        """As run.json holds it."""
        seen = self.seen.model_dump()
        return Known(self.promise, self.at_most.given(), self.finding, seen, self.only)


class Meets(Strict):
    """What the load has to meet of a fault: less, and the run says nothing about its drill."""

    clients: int | None = Field(None, ge=0, description="clients connected to what it hits")
    in_flight: int | None = Field(None, ge=0, description="their operations in flight when it hits")
    operations: int | None = Field(None, ge=0, description="their operations from then until its heal")
    messages: int | None = Field(None, ge=0, description="messages stored there, where the hosts count them")
    packets: int | None = Field(
        None, ge=0, description="packets or connections that meet it, where the hosts count them"
    )

    def over(self, least: Minimum) -> Minimum:
        """Return `least` with what is given here."""
        return Minimum(**{**least.to_json(), **self.model_dump(exclude_none=True)})


# Of a fault's kinds those that the promise is about: without such a fault it has nothing to judge.
OF_FAULTS = frozenset({"failover_within", "delivered_within", "failback_within", "alerted_within"})


def unable_to_fail(bounds: Mapping[str, float | None], longest_s: float, faults: Iterable[str]) -> dict[str, str]:
    """Return which promises (with their bounds in ms) cannot be broken in a run that takes `longest_s` at most and
    injects `faults`, and why."""
    found = {}
    injects = bool([*faults])
    for name, bound in bounds.items():
        if bound is not None and bound >= longest_s * 1000:
            found[name] = f"its bound of {bound / 1000:g} s is as long as the run may take"
        elif name in OF_FAULTS and not injects:
            found[name] = "no step injects a fault"
    return found


def usage(check: Any) -> Any:
    """Run `check`; turn a UsageError into the ValueError that pydantic reports with the field."""
    try:
        return check()
    except UsageError as error:
        raise ValueError(str(error)) from None
