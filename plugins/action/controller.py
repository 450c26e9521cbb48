"""Say before anything is touched what the controller lacks to make archives and to check files."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible_collections.brokerdrill.ha.plugins.action.cached import is_kept
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.action import ControllerAction

# How an archive is made → (programs, modules) that make it.
MAKERS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "maven": (("mvn",), ()),
    "go": (("go",), ()),
    "pip": ((), ("pip",)),
    "url": ((), ()),
}


def wanted(directory: Path, archives: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Yield (program or module, its name, the archive that is made with it) for what is not in `directory` yet."""
    for archive in archives:
        name, source = str(archive["name"]), archive["source"]
        ((kind, recipe),) = source.items()
        if not recipe or ("*" in name and any(directory.glob(name))) or is_kept(directory, name, kind, recipe):
            continue
        programs, modules = MAKERS[kind]
        yield from (("program", program, name) for program in programs)
        yield from (("module", module, name) for module in modules)


def missing(needs: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return in words which of the needs, each with what it is for, the controller has not."""
    lacks: dict[str, list[str]] = {}
    for kind, name, purpose in needs:
        there = shutil.which(name) if kind == "program" else importlib.util.find_spec(name)
        if not there:
            what = (
                f"no program {name!r}" if kind == "program" else f"no Python module {name!r} (in the Python of Ansible)"
            )
            lacks.setdefault(what, []).append(purpose)
    return [f"{what} (for {', '.join(dict.fromkeys(purposes))})" for what, purposes in lacks.items()]


class ActionModule(ControllerAction):
    """See plugins/modules/controller.py for the documentation of the arguments."""

    ARGUMENTS: ClassVar[dict[str, Any]] = {
        "directory": {"type": "path", "required": True},
        "archives": {"type": "list", "elements": "dict", "default": []},
        "programs": {"type": "dict", "default": {}},
        "modules": {"type": "dict", "default": {}},
    }

    def act(self, args: dict[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        needs = list(wanted(Path(args["directory"]).resolve(), args["archives"]))
        needs += [("program", name, str(purpose)) for name, purpose in args["programs"].items()]
        needs += [("module", name, str(purpose)) for name, purpose in args["modules"].items()]
        if lacks := missing(needs):
            raise AnsibleActionFail(f"the controller has {'; '.join(lacks)}: see bindep.txt and requirements.txt")
        return {"changed": False}
