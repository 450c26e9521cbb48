"""Take a step of a rotation of an inventory's secrets, on the controller."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible_collections.brokerdrill.ha.plugins.action.host_certificate import make_ca
from ansible_collections.brokerdrill.ha.plugins.plugin_utils import rotation
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.action import ControllerAction

NAME = re.compile(r"[\w.:+ -]{1,48}")


class ActionModule(ControllerAction):
    """See plugins/modules/rotation.py for the documentation of the arguments."""

    ARGUMENTS: ClassVar[dict[str, Any]] = {
        "directory": {"type": "path", "required": True},
        "organisation": {"type": "str", "required": True},
        "name": {"type": "str", "required": True},
        "what": {"type": "list", "elements": "str", "required": True, "choices": list(rotation.KINDS)},
        "step": {"type": "str", "default": "overlap", "choices": list(rotation.STEPS)},
        "passwords": {"type": "list", "elements": "str", "default": []},
        "cluster": {"type": "list", "elements": "str", "default": []},
        "anew": {"type": "bool", "default": False},
        "complete": {"type": "bool", "default": False},
        "look": {"type": "bool", "default": False},
    }

    def act(self, args: dict[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        directory = Path(args["directory"])
        if not (directory / "ca.pem").exists():
            raise AnsibleActionFail(f"{directory} has no secrets yet: site.yml makes them")
        previous = os.umask(0o077)
        try:
            with (directory / "ca.lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                return take(directory, args, look=args["look"] or self._task.check_mode)
        finally:
            os.umask(previous)


def take(directory: Path, args: Mapping[str, Any], *, look: bool) -> dict[str, Any]:
    """Take the step that the arguments say, or only look; return the task's result. Raises AnsibleActionFail."""
    name, step = args["name"], args["step"]
    if not NAME.fullmatch(name):
        raise AnsibleActionFail(f"rotation {name!r}: a name is up to 48 letters, digits, spaces, and . : + - _")
    before = state = rotation.read(directory)
    may_end = before is not None and before.complete and (before.ended or "ca" not in before.what)
    anew = args["anew"] and may_end and step == "overlap" and not args["complete"]
    if problem := rotation.problem(None if anew else before, name, args["what"], step):
        raise AnsibleActionFail(problem)
    begun = before is not None and before.name == name and not anew
    if state is None or not begun:
        kept = state.certificates if state else 0
        state = rotation.Rotation(name, sorted(args["what"]), certificates=kept)
    changed = False
    if not look:
        if args["complete"]:
            changed = step == state.step and not state.complete
            state.complete = state.complete or changed
        elif changed := not begun or state.steps.index(step) > state.steps.index(state.step):
            state.step, state.complete = step, False
        if changed and anew and before is not None:
            rotation.forget(directory, before.done)
        if changed:
            rotation.write(directory, state)
        if not state.complete:
            _make(directory, state, args)
    said = {key: getattr(state, key) for key in ("step", "steps", "complete")}
    return {"begun": begun, "changed": changed, **said}


def _make(directory: Path, state: rotation.Rotation, args: Mapping[str, Any]) -> None:
    """Do what the step at which `state` is has to do on the controller; what is done already stays as it is."""
    if state.step == "switch":
        rotation.switch_ca(directory)
    elif state.step == "end":
        rotation.forget(directory, state.done)
    else:
        for kind in ("passwords", "cluster"):
            # What the inventory gives has no file.
            paths = [directory / f"{file}.password" for file in args[kind] if kind in state.what]
            for path in filter(Path.exists, paths):
                rotation.new_password(path, state, keep=kind == "passwords")
        if "ca" in state.what:
            make_ca(directory, args["organisation"], "ca.next", f"{args['organisation']} CA {state.name}")
            rotation.trust_both(directory, directory / "ca.next.pem", directory / "ca.pem")
        elif "certificates" in state.what and "certificates" not in state.done:
            state.certificates += 1
            state.done.append("certificates")
            rotation.write(directory, state)
