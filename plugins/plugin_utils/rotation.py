"""A rotation of an inventory's secrets on the controller: new passwords, and a new CA, beside the old ones.

`rotation.json` beside the secrets says how far it is. Each step may be cut off anywhere and done again.
"""

from __future__ import annotations

import json
import os
import secrets
import string
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

STATE = "rotation.json"
TRUSTED = "trusted.pem"
STEPS = ("overlap", "switch", "end")
"""Old and new are accepted; certificates are the new CA's; the old is refused."""
KINDS = ("passwords", "cluster", "certificates", "ca")
LENGTH = 40
ALPHABET = string.ascii_letters + string.digits


@dataclass
class Rotation:
    """How far a rotation is. `complete`: all hosts have `step`. `done`: what it has made, files of passwords by name.
    `certificates`: how often rotations, this one and those before, had the hosts' certificates made anew."""

    name: str
    what: list[str]
    step: str = "overlap"
    complete: bool = False
    done: list[str] = field(default_factory=list)
    certificates: int = 0

    @property
    def steps(self) -> tuple[str, ...]:
        """Its steps: without a new CA there is nothing to switch to."""
        return STEPS if "ca" in self.what else ("overlap", "end")

    @property
    def ended(self) -> bool:
        return self.step == "end" and self.complete


def read(directory: Path) -> Rotation | None:
    """Return the newest rotation of the secrets in `directory`, None where there was none."""
    try:
        return Rotation(**json.loads((directory / STATE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def write(directory: Path, state: Rotation) -> None:
    replace(directory / STATE, json.dumps(asdict(state)) + "\n")


def replace(path: Path, text: str) -> None:
    """Write a file of mode 0600, whole or not at all."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(path)


def previous(path: Path) -> str:
    """Return the password that was in `path` before the rotation that goes on, "" where there is none."""
    try:
        return _beside(path, "previous").read_text(encoding="utf-8").rstrip("\n")
    except FileNotFoundError:
        return ""


def _beside(path: Path, word: str) -> Path:
    return path.with_name(f"{path.name}.{word}")


def problem(state: Rotation | None, name: str, what: Iterable[str], step: str) -> str:
    """Return why the rotation `name` of `what` may not go to `step` after `state`, in a sentence; "" where it may."""
    asked = sorted(what)
    if state is None or (state.ended and state.name != name):
        return "" if step == "overlap" else f"rotation {name} has not begun; its first step is overlap"
    if state.name != name:
        return f"rotation {state.name} is at its step {state.step}: end it first (rotation={state.name})"
    if sorted(state.what) != asked:
        return f"rotation {name} began with {', '.join(state.what)}, which does not change until it has ended"
    if step not in state.steps:
        return f"rotation {name} has no new CA, and so no step {step}: after overlap comes end"
    now, then = state.steps.index(state.step), state.steps.index(step)
    if then > now and not state.complete:
        return f"rotation {name}: not all hosts have its step {state.step} yet; run that again first"
    if then > now + 1:
        return f"rotation {name}: its next step is {state.steps[now + 1]}"
    return ""


def new_password(path: Path, state: Rotation, keep: bool) -> None:
    """Put a new password into `path`; where `keep`, the old one stays beside it until the end.

    The new one is on disk first, under a name of its own: whatever is cut off, the same one is taken again.
    """
    following = _beside(path, "next")
    if path.name not in state.done:
        if not following.exists():
            replace(following, "".join(secrets.choice(ALPHABET) for _place in range(LENGTH)) + "\n")
        new, old = following.read_text(encoding="utf-8"), path.read_text(encoding="utf-8")
        if old != new:
            if keep:
                replace(_beside(path, "previous"), old)
            replace(path, new)
        state.done.append(path.name)
        write(path.parent, state)
    following.unlink(missing_ok=True)


def trust_both(directory: Path, ca: Path, other: Path) -> None:
    """Let hosts trust the certificates of two CAs."""
    replace(directory / TRUSTED, ca.read_text(encoding="utf-8") + other.read_text(encoding="utf-8"))


def switch_ca(directory: Path) -> None:
    """Let the CA that waits sign from here on; hosts go on trusting the old one."""
    ca, key, before = directory / "ca.pem", directory / "ca.key", directory / "ca.previous.pem"
    next_ca, next_key = directory / "ca.next.pem", directory / "ca.next.key"
    if next_ca.exists():
        new = next_ca.read_text(encoding="utf-8")
        if ca.read_text(encoding="utf-8") != new:
            replace(before, ca.read_text(encoding="utf-8"))
            replace(key, next_key.read_text(encoding="utf-8"))
            replace(ca, new)
        trust_both(directory, ca, before)
        next_ca.unlink()
    next_key.unlink(missing_ok=True)


def forget(directory: Path, files: Iterable[str]) -> None:
    """Remove the old passwords of `files`, and the old CA."""
    for name in files:
        _beside(directory / name, "previous").unlink(missing_ok=True)
    for name in (TRUSTED, "ca.previous.pem"):
        (directory / name).unlink(missing_ok=True)
