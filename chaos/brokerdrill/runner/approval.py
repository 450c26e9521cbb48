"""Approval: where an inventory says `drill_approval: true`, somebody else allows each run as it is before it is made.

A run that nobody has allowed leaves a request, which says all that it would do. Another account of the machine, or of
the file system, answers it with a file of its own: who owns that file is who approves. It holds for one run of that
text, on those targets, by that code, until it ends.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import hashlib
import json
import os
import pwd
import stat
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from brokerdrill.base import paths
from brokerdrill.base.atomic import write_json
from brokerdrill.base.errors import InfrastructureError, UsageError, unknown_name
from brokerdrill.inventory.topology import Topology
from brokerdrill.scenario.model import LoadedScenario
from brokerdrill.scenario.radius import Reached

VARIABLE = "drill_approval"
FOLDER = "approvals"
_REQUEST, _APPROVAL = ".request.json", ".approval.json"
# All that decides what a run does.
_CODE = {
    paths.PACKAGE: (".py",),
    paths.COLLECTION / "playbooks": (".yml",),
    paths.COLLECTION / "roles": (".yml", ".j2"),
    paths.COLLECTION / "plugins": (".py",),
}


@dataclass(frozen=True)
class ApprovalRequest:
    """What is asked for: one run of a drill with nothing left open (`text`), what its steps could hit, and by which
    code."""

    drill: str
    topology: str
    inventory_sha256: str
    text: str
    targets: tuple[str, ...]
    code: str

    @property
    def sha256(self) -> str:
        """The SHA-256 (hex) of all of it."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @property
    def id(self) -> str:
        """A short name for it."""
        return self.sha256[:16]


@dataclass(frozen=True)
class Approval:
    """That `by` (an account) has allowed what has this SHA-256, once, until then (RFC 3339)."""

    id: str
    sha256: str
    by: str
    until: str


def asks(topology: Topology) -> bool:
    """Whether some host of the inventory asks for approval."""
    return any(host.vars.get(VARIABLE) is True for host in topology.hosts)


@functools.cache
def code_version() -> str:
    """Return the SHA-256 (hex) of this program, its playbooks and its roles."""
    digest = hashlib.sha256()
    for folder, endings in _CODE.items():
        for path in sorted(folder.rglob("*")):
            if path.suffix in endings and path.is_file():
                content = path.read_bytes()
                digest.update(f"{path.relative_to(folder.parent).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def asked(loaded: LoadedScenario, topology: Topology, reach: Reached, purge: bool = False) -> ApprovalRequest:
    """Return what a run of `loaded`, which could do `reach`, asks for; `purge`: it empties the drill's addresses."""
    targets = tuple(
        f"{step.step}: {step.what} on {', '.join(sorted(step.hosts))}: {' or '.join(sorted(step.targets))}"
        for step in reach.steps
    )
    more = ("--purge removes all that waits in the drill's addresses, whosever it is",) if purge else ()
    return ApprovalRequest(loaded.name, topology.name, topology.sha256, loaded.text, targets + more, code_version())


def account(uid: int) -> str:
    """Return the name of an account, its number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _folder(runs: Path) -> Path:
    """Return the folder of requests and approvals, made so that whoever gets there may add files and take none away."""
    path = runs / FOLDER
    try:
        if not path.is_dir():
            path.mkdir(parents=True)
            path.chmod(0o1777)
    except OSError as error:
        raise InfrastructureError(f"{path} cannot be written: {error.strerror}") from None
    return path


def request(runs: Path, what: ApprovalRequest) -> Path:
    """Write down what is asked for, for somebody else to read. Raises InfrastructureError."""
    return write_json(_folder(runs) / f"{what.id}{_REQUEST}", asdict(what))


def _requested(path: Path) -> ApprovalRequest | None:
    """Return what the file of a request asks for; None: it is none, or has another one's name."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        values = json.loads(path.read_text(encoding="utf-8"))
        one = ApprovalRequest(**{**values, "targets": tuple(values["targets"])})
        return one if path.name == f"{one.id}{_REQUEST}" else None
    return None


def requests(runs: Path) -> dict[Path, ApprovalRequest | None]:
    """Return what is asked for in `runs`, by its file; None for a file that is no request: anybody may put one there,
    and it keeps nobody from the others."""
    return {path: _requested(path) for path in sorted((runs / FOLDER).glob(f"*{_REQUEST}"))}


def chosen(runs: Path, id_: str) -> ApprovalRequest:
    """Return what is asked for under an id. Raises UsageError where there is none, or the one who asks is asking."""
    found = {one.id: one for one in requests(runs).values() if one}
    if id_ not in found:
        raise unknown_name("request", id_, found)
    if (runs / FOLDER / f"{id_}{_REQUEST}").stat().st_uid == os.geteuid():
        raise UsageError(f"{account(os.geteuid())} asks for it: another account has to approve it")
    return found[id_]


def approve(runs: Path, what: ApprovalRequest, until: datetime.datetime) -> Path:
    """Allow one run of `what` until then, by this process' account. Raises InfrastructureError."""
    values = {"id": uuid.uuid4().hex, "sha256": what.sha256, "until": until.isoformat(timespec="seconds")}
    path = write_json(_folder(runs) / f"{what.id}-{values['id'][:8]}{_APPROVAL}", values)
    path.chmod(0o644)
    return path


def _read(path: Path) -> tuple[os.stat_result, dict[str, Any]] | None:
    """Return (whose it is, what it says) of a plain file that none but its owner could have written; None: it is none.
    Owner and content are of one open file."""
    with contextlib.suppress(OSError, ValueError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, encoding="utf-8") as file:
            about = os.fstat(handle)
            if stat.S_ISREG(about.st_mode) and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                values = json.load(file)
                return (about, values) if isinstance(values, dict) else None
    return None


def _found(runs: Path, sha256: str) -> Iterator[tuple[int, Approval]]:
    """Yield (the owner's number, the approval) of each approval of `sha256`."""
    for path in sorted((runs / FOLDER).glob(f"*{_APPROVAL}")):
        if (read := _read(path)) is None:
            continue
        about, values = read
        with contextlib.suppress(KeyError, ValueError, TypeError):
            uuid.UUID(values["id"])
            datetime.datetime.fromisoformat(values["until"]).astimezone()
            one = Approval(values["id"], values["sha256"], account(about.st_uid), values["until"])
            if one.sha256 == sha256:
                yield about.st_uid, one


def _spent(runs: Path, one: Approval) -> Path:
    return runs / FOLDER / f"{one.id}.spent"


def find(runs: Path, what: ApprovalRequest, now: datetime.datetime) -> Approval | str:
    """Return an approval of `what` that holds at `now`, or why there is none."""
    why = "nobody has approved it"
    for uid, one in _found(runs, what.sha256):
        if uid == os.geteuid():
            why = f"{one.by}, who runs it, has approved it: another account has to"
        elif _spent(runs, one).exists():
            why = f"the approval by {one.by} was for one run, which was made"
        elif datetime.datetime.fromisoformat(one.until).astimezone() < now:
            why = f"the approval by {one.by} ended at {one.until}"
        else:
            return one
    return why


def refusal(runs: Path, wanted: Iterable[ApprovalRequest], now: datetime.datetime) -> str | None:
    """Return why not all that is `wanted` is approved, having asked for what is not; None: all is."""
    said = []
    for what in wanted:
        if isinstance(why := find(runs, what, now), str):
            request(runs, what)
            said.append(f"{what.drill} on {what.topology} asks for approval ({what.id}), and {why}")
    return "; ".join(said) or None


def take(runs: Path, what: ApprovalRequest, run_id: str, now: datetime.datetime) -> Approval:
    """Return an approval of `what`, spent for the run `run_id`. Raises UsageError where there is none, having asked for
    it; InfrastructureError where that cannot be written down."""
    while True:
        one = find(runs, what, now)
        if isinstance(one, str):
            request(runs, what)
            raise UsageError(
                f"{what.drill} on {what.topology} asks for approval, and {one}; another account says "
                f"`brokerdrill approve {what.id} --runs {runs.resolve()}`"
            )
        try:
            handle = os.open(_spent(runs, one), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            continue
        except OSError as error:
            raise InfrastructureError(f"{_spent(runs, one)} cannot be written: {error.strerror}") from None
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{run_id}\n")
        return one
