"""The promises of a scenario, with their bounds: a number, or how it follows from what is deployed."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema

from brokerdrill.base.documents import Strict
from brokerdrill.ledger import contract
from brokerdrill.promises.catalogue import PROMISES, promise
from brokerdrill.promises.definition import BOUND
from brokerdrill.scenario.expectations import usage
from brokerdrill.scenario.needs import Needs


class Term(Strict):
    """`times` a setting that the deployed instances export; `times` is a number or a setting, too."""

    of: str = Field(description="a setting in ms, or a promise of this scenario: its bound")
    times: float | str = 1


class Bound(Term):
    """A bound in ms that follows from what is deployed: the sum of its own term and those of `plus`."""

    plus: list[float | Term] = Field([], description="further terms; a number is ms")


# A span without a success is told from one that is as long as allowed only when it is longer by so much.
UNSERVED_MARGIN_S = 1.0


class ExpectedPromise(Strict):
    """A promise and the values of its fields, as `promises.catalogue` defines them."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    bound: Bound | None = Field(None, description="instead of bound_ms: how it follows from the settings deployed")
    needs: Needs

    @field_validator("name")
    @classmethod
    def _known_name(cls, value: str) -> str:
        return usage(lambda: promise(value).name)

    @model_validator(mode="after")
    def _has_its_fields(self) -> ExpectedPromise:
        values = dict(self.spec().values)
        if self.bound is not None:
            if BOUND in values:
                raise ValueError("bound and bound_ms say the same: give one of them")
            values[BOUND] = 0
        if problem := promise(self.name).problem(values):
            raise ValueError(problem)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The schema of whichever promise it is."""
        own = handler.resolve_ref_schema(handler(core))["properties"]
        alone = [name for name, one in PROMISES.items() if not any(field.required for field in one.fields)]
        found = [one.schema() for one in PROMISES.values()]
        for schema in found:
            schema["properties"]["needs"] = own["needs"]
            if BOUND in schema["required"]:
                schema["properties"]["bound"] = own["bound"]
                schema["required"].remove(BOUND)
                schema["oneOf"] = [{"required": [BOUND]}, {"required": ["bound"]}]
        return {"description": cls.__doc__, "oneOf": [{"enum": alone}, *found]}

    def spec(self) -> contract.PromiseSpec:
        """The promise as run.json holds it."""
        return contract.PromiseSpec(self.name, **(self.model_extra or {}))
