"""`brokerdrill deploy`: ansible-playbook with its progress shown and its first failure in one sentence."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from brokerdrill.base import paths
from brokerdrill.base.errors import BrokerdrillError, InfrastructureError, UsageError, unknown_name
from brokerdrill.base.progress import Progress
from brokerdrill.inventory.topology import Topology

PLAYBOOKS = paths.COLLECTION / "playbooks"
# A module's result is one line, files and all.
MAX_LINE = 1 << 22
# So much of what a task says is shown.
MAX_SENTENCE = 400
# The task of verify.yml that says what waits for a restart, and a line of what it says.
PENDING = "Pending restarts"
_SENTENCE = re.compile(r'^ {8}(".*"),?$')
_TASK = re.compile(r"^(?:TASK|RUNNING HANDLER) \[(.+?)\]")
_RESULT = re.compile(r"^(?:ok|changed|skipping|fatal|failed): \[([^\]]+?)(?: -> [^\]]+)?\]")
_FATAL = re.compile(r"^(?:fatal|failed): \[([^\]]+?)(?: -> [^\]]+)?\].*?(?:FAILED!|UNREACHABLE!)? => (\{.*)$")


def playbook_log(topology: Topology, playbook: str) -> Path:
    """Where the output of the newest run of `playbook` on `topology` is kept."""
    folder = paths.state() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{topology.name}-{playbook}.log"


class Failed(NamedTuple):
    """A task that failed on a host, and why."""

    host: str
    task: str
    sentence: str

    @property
    def refused(self) -> bool:
        """Whether it is a refusal of preflight, which is the user's to mend."""
        return "preflight" in self.task.lower()


def failed(task: str, line: str, said: str = "") -> Failed | None:
    """Return the failure that an output line of ansible-playbook reports.

    `said`: what Ansible printed before of a result that it hides.
    """
    match = _FATAL.match(line)
    if not match:
        return None
    try:
        message = json.loads(match[2]).get("msg") or said or match[2]
    except ValueError:
        message = match[2]
    return Failed(match[1], task, " ".join(str(message).split())[:MAX_SENTENCE])


def refusals(found: Iterable[Failed]) -> list[str]:
    """Return what preflight refuses, a sentence each, with all hosts that it is said of."""
    hosts: dict[str, list[str]] = {}
    for one in found:
        if one.refused and one.host not in (named := hosts.setdefault(one.sentence, [])):
            named.append(one.host)
    return [f"preflight refuses {', '.join(named)}: {sentence}" for sentence, named in hosts.items()]


class _Reader:
    """Follows the output of ansible-playbook: the task it is at, and the errors that were the end of their hosts.

    A host that has a result of a later task went on: its error was rescued, or ignored.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = ""
        self._number = 0
        # By host, with the number of the task.
        self._ended: dict[str, tuple[int, Failed]] = {}
        # Every failure, whatever became of its host.
        self.failed: list[Failed] = []
        # What is said of no host: the first, of a playbook that cannot be read; the newest, of the result that follows.
        self._said: BrokerdrillError | None = None
        self._newest = ""

    @property
    def error(self) -> BrokerdrillError | None:
        ended = [error for _, error in self._ended.values()]
        if not ended:
            return self._said
        if ended[0].refused:
            return UsageError("; ".join(refusals(ended)))
        return InfrastructureError(f"{ended[0].host}: task {ended[0].task!r} failed: {ended[0].sentence}")

    def line(self, line: str) -> None:
        """Take one line of the output."""
        if match := _TASK.match(line):
            self._task = match[1]
            self._number += 1
            self._newest = ""
            self._progress.tick(self._task)
        elif match := _RESULT.match(line):
            host = match[1]
            if host in self._ended and self._ended[host][0] < self._number:
                del self._ended[host]
            if error := failed(self._task, line, self._newest):
                self.failed.append(error)
                self._ended.setdefault(host, (self._number, error))
        elif self._task == PENDING and (match := _SENTENCE.match(line)):
            self._progress.step(json.loads(match[1]))
        elif line.startswith("[ERROR]"):
            self._newest = " ".join(line.removeprefix("[ERROR]:").split())[:MAX_SENTENCE]
            if self._said is None and "preflight" not in self._task.lower():
                self._said = InfrastructureError(self._newest)

    def end(self, status: int, log: Path) -> None:
        """Raise what the exit status and the output amount to; nothing where the playbook succeeded."""
        if status == 0:
            return
        if (error := self.error) is None:
            raise InfrastructureError(f"ansible-playbook ended with status {status}; see {log}")
        raise type(error)(f"{error} (all of it: {log})")


def extra_vars(given: Sequence[str]) -> list[str]:
    """Return the words by which ansible-playbook gets variables: NAME=VALUE, JSON or @FILE each. Raises UsageError for
    what is none of these."""
    for one in given:
        if not re.match(r"\w+=|\s*\{|@.", one):
            raise UsageError(f"-e {one}: write NAME=VALUE, a mapping as JSON, or @FILE")
    # Ansible works in another directory than the user.
    absolute = [f"@{Path(one[1:]).expanduser().absolute()}" if one.startswith("@") else one for one in given]
    return [word for one in absolute for word in ("--extra-vars", one)]


@contextlib.contextmanager
def variables_file(variables: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the words by which ansible-playbook gets `variables`, from a file that goes with the block; none where
    there are none. One may be a secret, and every user sees the commands that run."""
    if not variables:
        yield ()
        return
    with tempfile.NamedTemporaryFile("w", suffix=".json", prefix="brokerdrill-") as file:
        json.dump(dict(variables), file)
        file.flush()
        yield "--extra-vars", f"@{file.name}"


def _command(topology: Topology, playbook: str, extra: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the command line and environment that run playbooks/`playbook`.yml on the topology."""
    program = shutil.which("ansible-playbook", path=str(Path(sys.executable).parent)) or "ansible-playbook"
    environment = paths.child_environment() | {
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_CONFIG": str(paths.ROOT / "ansible.cfg"),
    }
    # The user's own configuration is not read by that; what it says of logins holds all the same.
    environment |= topology.login
    environment.pop("ANSIBLE_STDOUT_CALLBACK", None)
    # The kernel ends the playbook if this process is killed: it must not go on changing hosts beside the next one.
    setpriv = shutil.which("setpriv")
    bound = [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []
    inventories = [word for source in topology.sources for word in ("-i", str(source))]
    return [*bound, program, *inventories, str(playbook_path(playbook)), *extra], environment


def playbook_path(playbook: str) -> Path:
    """Return the path of playbooks/`playbook`.yml. Raises UsageError, with the nearest name, where there is none."""
    path = PLAYBOOKS / f"{playbook}.yml"
    if not path.is_file():
        raise unknown_name("playbook", playbook, (item.stem for item in PLAYBOOKS.glob("*.yml")))
    return path


def run_playbook(topology: Topology, playbook: str, progress: Progress, extra: Sequence[str] = ()) -> list[Failed]:
    """Run playbooks/`playbook`.yml on the topology; return what failed in it without ending it.

    Raises UsageError where preflight refuses it, InfrastructureError where anything else fails; the whole output is in
    `playbook_log`.
    """
    command, environment = _command(topology, playbook, extra)
    reader = _Reader(progress)
    log = playbook_log(topology, playbook)
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            cwd=paths.working_directory(),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                file.write(line)
                reader.line(line)
            status = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    reader.end(status, log)
    return reader.failed


async def operate(topology: Topology, playbook: str, progress: Progress, extra: Sequence[str] = ()) -> None:
    """As `run_playbook`, beside other work; a cancelled call ends the playbook."""
    command, environment = _command(topology, playbook, extra)
    reader = _Reader(progress)
    log = playbook_log(topology, playbook)
    with log.open("w") as file:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=paths.working_directory(),
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=MAX_LINE,
        )
        try:
            assert process.stdout is not None
            async for raw in process.stdout:
                line = raw.decode(errors="replace")
                file.write(line)
                reader.line(line)
            status = await process.wait()
        except BaseException:
            if process.returncode is None:
                process.terminate()
                await process.wait()
            raise
    reader.end(status, log)
