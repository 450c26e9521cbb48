"""A host of a safety kernel's own below a folder: the real file with its state there, and what stands for systemd."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from brokerdrill.hosts import safety_kernel

# A started guard is a process; a second one waits for the first one's end, where systemd would not start it.
SYSTEMCTL = """#!/bin/sh
case " $* " in
*" start "*)
  setsid {python} -I {state}/safety_kernel.py guard >>{root}/guard.log 2>&1 </dev/null &
  echo $! >>{root}/guards;;
esac
"""
# Many processes that ask at once: each waits until all are there.
HERD = """import json, os, runpy, sys
module = runpy.run_path(sys.argv[1])
ready, go = os.pipe(), os.pipe()
asked = json.loads(sys.argv[3])
for values in asked:
    if os.fork() == 0:
        os.write(ready[1], b".")
        os.close(go[1])
        os.read(go[0], 1)
        try:
            getattr(module["Kernel"](), sys.argv[2])(**values)
            said = None
        except module["Refused"] as refusal:
            said = str(refusal)
        os.write(1, (json.dumps([values, said]) + "\\n").encode())
        os._exit(0)
seen = 0
while seen < len(asked):
    seen += len(os.read(ready[0], 1000))
os.close(go[1])
for _ in asked:
    assert os.wait()[1] == 0
"""
CALL = """import json, runpy, sys
module = runpy.run_path(sys.argv[1])
try:
    print(json.dumps(getattr(module["Kernel"](), sys.argv[2])(**json.loads(sys.argv[3]))))
except module["Refused"] as refusal:
    sys.exit(str(refusal))
"""


class SafetyHost:
    """Call `kernel` in this process, or `call` for a process of its own; `close` ends the guards. `constants` are
    others than the file's, for the guards, too."""

    def __init__(self, root: Path, starts_guards: bool = True, **constants: Any) -> None:
        self.root, self.state = root, root / "safety"
        tools, units = root / "bin", root / "units"
        for folder in (tools, units):
            folder.mkdir(parents=True)
        text = SYSTEMCTL.format(python=sys.executable, state=self.state, root=root) if starts_guards else "#!/bin/sh\n"
        (tools / "systemctl").write_text(text)
        (tools / "systemctl").chmod(0o755)
        self.path = f"{tools}:{os.environ['PATH']}"
        source = Path(safety_kernel.__file__).read_text()
        assert source.count('"/var/lib/brokerdrill/safety"') == source.count('"/etc/systemd/system"') == 1
        self.source = source.replace('"/var/lib/brokerdrill/safety"', repr(str(self.state))).replace(
            '"/etc/systemd/system"', repr(str(units))
        )
        for name, value in constants.items():
            self.source, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", self.source, flags=re.MULTILINE)
            assert count == 1, name
        self.source = self.source.replace('"/run/brokerdrill"', repr(str(root / "notes")))

    def kernel(self, **changes: Any) -> Any:
        """A Kernel of the file's text, with `changes` of its constants."""
        module = types.ModuleType("safety_kernel_of_a_test")
        exec(compile(self.source, "safety_kernel.py", "exec"), module.__dict__)
        module.__dict__.update(changes)
        os.environ["PATH"] = self.path
        return module.Kernel()  # type: ignore[attr-defined]

    def install(self) -> None:
        self.kernel().install(self.source)

    def call(self, verb: str, **values: Any) -> subprocess.Popen[str]:
        words = [sys.executable, "-SIc", CALL, str(self.state / "safety_kernel.py"), verb, json.dumps(values)]
        environment = {**os.environ, "PATH": self.path}
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    def herd(self, verb: str, asked: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str | None]]:
        """Have so many processes ask at once; return what each asked and how it was refused, None: it was not."""
        words = [sys.executable, "-SIc", HERD, str(self.state / "safety_kernel.py"), verb, json.dumps(asked)]
        environment = {**os.environ, "PATH": self.path}
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, env=environment, check=True, timeout=120)
        return [tuple(json.loads(line)) for line in done.stdout.splitlines()]

    def close(self) -> None:
        guards = self.root / "guards"
        for pid in guards.read_text().split() if guards.exists() else ():
            words = Path(f"/proc/{pid}/cmdline")
            if words.exists() and str(self.state) in words.read_text():
                os.kill(int(pid), 9)


def lease(token: str, **values: Any) -> dict[str, Any]:
    """What a run asks for."""
    given = {"owner": f"{token}@ctl", "run": f"run-{token}", "inventory": "/inv", "silent_s": 30}
    return {"token": token, **given, "targets": None, **values}


def fault(name: str, world: Path, **values: Any) -> dict[str, Any]:
    """A fault that is in effect as long as there is the file `world`."""
    scripts = {
        "prepare": ":",
        "effect": f"touch {world}",
        "heal": f"rm -f {world}",
        "verify_heal": f"[ ! -e {world} ]",
        **values.pop("scripts", {}),
    }
    limits = {"prepare": 5, "effect": 5, "heal": 5, "verify_heal": 5, **values.pop("limits_s", {})}
    given = {"fault": name, "ttl_s": 60, "targets": ["a"], "claims": {}, **values}
    return {**given, "scripts": scripts, "limits_s": limits}


def until(done: Callable[[], Any], limit_s: float = 30) -> Any:
    """Return what `done` returns as soon as that is true."""
    end = time.monotonic() + limit_s
    while not (found := done()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
    return found
