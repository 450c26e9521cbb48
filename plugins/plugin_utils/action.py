"""What the collection's action plugins begin with: their arguments checked, and plain."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from ansible.plugins.action import ActionBase


class Action(ActionBase):
    """An action that says its ARGUMENTS and does its work in `act`. plugins/modules has the documentation of each."""

    TRANSFERS_FILES = False
    ARGUMENTS: ClassVar[dict[str, Any] | None] = None
    """As a module's `argument_spec`; None: `act` gets the task's own, unchecked."""
    TOGETHER: ClassVar[dict[str, Any]] = {}
    """Which arguments need or exclude each other, by the names that AnsibleModule has for that."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        if self.ARGUMENTS is None:
            args = dict(self._task.args)
        else:
            _result, checked = self.validate_argument_spec(argument_spec=self.ARGUMENTS, **self.TOGETHER)
            # Plain values: what templating tagged must not end up in JSON or in argv.
            args = json.loads(json.dumps(checked))
        return self.act(args, task_vars or {})

    @abstractmethod
    def act(self, args: dict[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        """Do it and return the task's result; `variables` are the host's. Raises AnsibleActionFail."""


class ControllerAction(Action):
    """An action that does not reach the host."""

    _requires_connection = False
