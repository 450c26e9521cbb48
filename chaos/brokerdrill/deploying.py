"""`brokerdrill deploy`: ansible-playbook with its progress shown and its first failure told in one sentence."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from brokerdrill import paths
from brokerdrill.errors import BrokerdrillError, InfrastructureError, UsageError
from brokerdrill.progress import Progress
from brokerdrill.topology import Topology

_TASK = re.compile(r"^(?:TASK|RUNNING HANDLER) \[(.+?)\]")
_FATAL = re.compile(r"^(?:fatal|failed): \[([^\]]+?)(?: -> [^\]]+)?\].*?(?:FAILED!|UNREACHABLE!)? => (\{.*)$")


def playbook_log(topology: Topology, playbook: str) -> Path:
    """Where the output of the newest run of `playbook` on `topology` is kept."""
    folder = paths.cache() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{topology.name}-{playbook}.log"


def failure(task: str, line: str) -> BrokerdrillError | None:
    """Return the error that an output line of ansible-playbook amounts to; a refusal of preflight is the user's."""
    match = _FATAL.match(line)
    if not match:
        return None
    try:
        message = json.loads(match[2]).get("msg", match[2])
    except ValueError:
        message = match[2]
    sentence = " ".join(str(message).split())[:400]
    if "preflight" in task.lower():
        return UsageError(f"preflight refuses {match[1]}: {sentence}")
    return InfrastructureError(f"{match[1]}: task {task!r} failed: {sentence}")


def run_playbook(topology: Topology, playbook: str, progress: Progress, extra: Sequence[str] = ()) -> None:
    """Run playbooks/`playbook`.yml on the topology.

    Raises UsageError where preflight refuses it, InfrastructureError where anything else fails; the whole output is in
    `playbook_log`.
    """
    program = shutil.which("ansible-playbook", path=str(Path(sys.executable).parent)) or "ansible-playbook"
    command = [program, "-i", str(topology.directory), str(paths.ROOT / "playbooks" / f"{playbook}.yml"), *extra]
    environment = paths.child_environment() | {
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_CONFIG": str(paths.ROOT / "ansible.cfg"),
    }
    environment.pop("ANSIBLE_STDOUT_CALLBACK", None)
    task, first_error = "", None
    log = playbook_log(topology, playbook)
    with log.open("w") as file:
        process = subprocess.Popen(
            command, cwd=paths.ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                file.write(line)
                if match := _TASK.match(line):
                    task = match[1]
                    progress.tick(task)
                elif first_error is None:
                    first_error = failure(task, line)
                if line.startswith("[ERROR]") and first_error is None and "preflight" not in task.lower():
                    first_error = InfrastructureError(" ".join(line.removeprefix("[ERROR]:").split())[:400])
            status = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if status != 0:
        if first_error is None:
            raise InfrastructureError(f"ansible-playbook ended with status {status}; see {log}")
        raise type(first_error)(f"{first_error} (all of it: {log})")
