#!/usr/bin/env python3
"""Brokerdrill's safety kernel: the one file that decides on this host what a drill may break, and undoes it.

A run installs it here, with `brokerdrill-guard.service` and its timer. It holds, in /var/lib/brokerdrill/safety:

  lease.json        who drills here, from where, which run, what it may hit, until when: one at a time
  faults/ID.json    a fault that may be in effect: registered -> applied -> healed; the file goes when that is verified
  done/ID.json      a fault that is verified to be healed, when and by whom (kept for DONE_DAYS)

What it refuses: a second run, a target outside of the lease, an effect after its heal, an effect without a guard. The
guard runs while a lease or a fault is here, and at each boot. It heals a fault when its time-to-live is over, when its
run was not heard of for the lease's `silent_s`, or when the host was started anew meanwhile; each heal has a limit, is
verified by a check of its own, and is tried again until that passes. No heal waits for another fault's.

    python3 safety_kernel.py status      what is held and what is not healed, as JSON
    python3 safety_kernel.py heal [ID]   heal now; ends with 1 where something is left

Only the standard library, Python 3.9 or later; one file, so that a host replaces it whole, and an operator finds all of
it. `brokerdrill` calls the methods of `Kernel` through its agent.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

STATE, UNIT_DIR = Path("/var/lib/brokerdrill/safety"), Path("/etc/systemd/system")
NOTES = Path("/run/brokerdrill")  # of a fault's scripts: what they need until its heal; a start of the host forgets it
FILE, GUARD = "safety_kernel.py", "brokerdrill-guard"
TICK_S, POLL_S, GUARD_STARTS_S = 0.2, 0.1, 10
CHECKED_S = 10  # how long a heal's check is asked after it, then BACK_OFF_S until the next try
DONE_DAYS, LEFT_BEHIND_S, BACK_OFF_S = 30, 2, (1, 2, 4)
COUNTED_S = 1  # how long a fault's counters may take before its effect and before its heal, which wait for them

# The states of a fault, and which may follow. A heal may be needed again; what is verified is over.
NEXT = {"": ("registered",), "registered": ("applied", "healed"), "applied": ("healed",),
        "healed": ("healed", "verified"), "verified": ()}  # fmt: skip

# A host that is started and holds neither begins with neither unit.
HELD = "ConditionPathExistsGlob=|{state}/lease.json\nConditionPathExistsGlob=|{state}/faults/*.json"
UNITS = {
    f"{GUARD}.service": """[Unit]
Description=Brokerdrill: heals what a drill left on this host
{held}
Wants={guard}.timer
StartLimitIntervalSec=0
[Service]
ExecStart={python} -I {state}/{file} guard
Restart=on-failure
RestartSec=1
OOMScoreAdjust=-900
[Install]
WantedBy=multi-user.target
""",
    f"{GUARD}.timer": """[Unit]
Description=Brokerdrill: sees to it that the guard runs while a drill does
{held}
[Timer]
OnActiveSec=10
OnUnitInactiveSec=10
AccuracySec=1
""",
}


class Refused(Exception):
    """What this host does not do, in one sentence."""


def boot() -> str:
    """Which start of this host it is; a container has its machine's boot id, but a first process of its own."""
    start = Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19]
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{start}"


def utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def systemctl(*words: str, must: bool = True) -> str:
    """Return what systemctl prints. Raises Refused where it `must` work and does not."""
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if must and done.returncode != 0:
        raise Refused(f"systemctl {' '.join(words)} fails here: {done.stderr.strip() or done.returncode}")
    return done.stdout.strip()


def allowed(lease: dict[str, Any], others: list[dict[str, Any]], new: dict[str, Any]) -> None:
    """Raise Refused where the fault `new` may not be registered beside `others`, which are not healed: a target outside
    of the lease, or a claim that does not go with one of theirs. Claims on one thing go together where both say the
    same of it, and that is not "alone"."""
    fault = new["fault"]
    outside = [] if lease["targets"] is None else sorted(set(new["targets"]) - set(lease["targets"]))
    if outside:
        raise Refused(f"fault {fault} would hit {', '.join(outside)}, which run {lease['run']} may not")
    for other in others:
        for thing, mode in new["claims"].items():
            if thing in other["claims"] and (mode == "alone" or other["claims"][thing] != mode):
                raise Refused(f"fault {fault} does not go with {other['fault']}, not healed yet: both claim {thing}")


def last_line(result: dict[str, Any]) -> str:
    """The last line of what failed; "" where nothing did."""
    lines = (result["err"] or result["out"]).strip().splitlines() or [f"exit status {result['rc']}"]
    return lines[-1][:300] if result["rc"] else ""


def due(record: dict[str, Any], lease: dict[str, Any] | None, now_ns: int, this_boot: str) -> str:
    """Return why the host heals a fault by itself now; "": it does not. `lease`: the one that is live."""
    if now_ns < record["next_try_ns"] and record["boot"] == this_boot:
        return ""
    if record["by"]:
        return str(record["by"])
    if record["boot"] != this_boot:
        return "restart"
    if now_ns >= record["due_ns"]:
        return "time-to-live"
    return "" if lease and lease["token"] == record["token"] else "controller silent"


class Kernel:
    """The state below `state`. Each public method is a request; all raise Refused."""

    def __init__(self, state: Path = STATE) -> None:
        self.state, self.boot = state, boot()

    def _path(self, fault: str, folder: str = "faults") -> Path:
        if not fault or not all(letter.isalnum() or letter in "-_" for letter in fault):
            raise Refused(f"{fault!r} is no name of a fault")
        return self.state / folder / f"{fault}.json"

    def _read(self, path: Path) -> Any:
        with contextlib.suppress(FileNotFoundError):
            return json.loads(path.read_text())

    def _write(self, path: Path, content: str | dict[str, Any]) -> None:
        """Replace the file: all of it or nothing, on the disk when this returns."""
        with (made := path.with_name(f".{path.name}.new")).open("w") as file:
            file.write(content if isinstance(content, str) else json.dumps(content, indent=1))
            file.flush()
            os.fsync(file.fileno())
        made.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    @contextlib.contextmanager
    def _locked(self, name: str = "state", how: int = fcntl.LOCK_EX) -> Iterator[TextIO | None]:
        """Hold the lock of the lease and of what is registered, or the one that a guard holds for as long as it lives;
        yields None where it was not to be had."""
        with (self.state / f"{name}.lock").open("a") as file:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, how)
                yield file
                return
            yield None

    @contextlib.contextmanager
    def _held(self, fault: str) -> Iterator[TextIO]:
        """Hold the lock of one fault. What runs for a fault inherits its lock, and is written into it: whoever waits
        ends what has passed its time, also where the process that began it is gone."""
        path = self._path(fault).with_suffix(".lock")
        while True:
            with path.open("a+") as file:
                if self._took(file, path):
                    file.truncate(0)
                    yield file
                    return

    def _took(self, file: TextIO, path: Path) -> bool:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino
        file.seek(0)
        group, _, until_ns = file.read().partition(" ")
        over_s = (time.monotonic_ns() - int(until_ns)) / 1e9 if until_ns else 0
        if over_s > 0:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(group), signal.SIGKILL)
        if over_s > LEFT_BEHIND_S:  # something left its group and keeps the lock: from here on there is another one
            path.unlink(missing_ok=True)
        time.sleep(0.02)
        return False

    def _run(self, record: dict[str, Any], name: str, lock: TextIO, within_s: float = float("inf")) -> dict[str, Any]:
        """Run a script of a fault in a process group of its own, and end the group after its limit. It does not begin
        before `lock` says which group that is: who finds the lock held by what was left can end it."""
        limit_s = min(record["limits_s"].get(name, COUNTED_S), within_s)
        words = ["/bin/sh", "-c", 'read -r go && exec /bin/sh -c "$0" </dev/null', record["scripts"][name]]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        pipes.update(text=True, errors="replace", start_new_session=True, pass_fds=[lock.fileno()])
        with subprocess.Popen(words, **pipes) as child:
            os.ftruncate(lock.fileno(), 0)
            os.write(lock.fileno(), f"{child.pid} {time.monotonic_ns() + int(limit_s * 1e9)}".encode())
            t0 = time.monotonic_ns()
            try:
                out, err = child.communicate("go\n", timeout=limit_s)
                rc = child.returncode
            except subprocess.TimeoutExpired:
                rc, out, err = 124, "", f"no end within {limit_s:.0f} s"
            t1 = time.monotonic_ns()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        return {"rc": rc, "out": out, "err": err, "t0": t0, "t1": t1}

    def install(self, source: str) -> dict[str, Any]:
        """Put this file and its units here; a live lease keeps it from being replaced by another version. Returns who
        this host is, whatever an inventory calls it: runs take their leases in this order."""
        for folder in (self.state, self.state / "faults", self.state / "done"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.state.chmod(0o700)
        here, names = self.state / FILE, {"state": self.state, "guard": GUARD, "python": sys.executable, "file": FILE}
        names["held"] = HELD.format(state=self.state)
        files = {**{UNIT_DIR / name: text.format(**names) for name, text in UNITS.items()}, here: source}
        with self._locked():
            other = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
            if here in other and here.exists() and (lease := self._lease()):
                raise Refused(self._says(lease))
            if other:
                for path in (UNIT_DIR / name for name in UNITS):
                    self._write(path, files[path])
                systemctl("daemon-reload")
                systemctl("enable", "--quiet", f"{GUARD}.service")
                self._write(here, source)  # last: what was broken off before is done again
        machine = Path("/etc/machine-id")
        return {"order": f"{machine.read_text().strip() if machine.exists() else ''} {socket.gethostname()}"}

    def _lease(self) -> dict[str, Any] | None:
        """The lease that is live. One from before this host's start has one more time of silence from now on, in which
        its run may find the host again. Call it with the lock."""
        lease = self._read(self.state / "lease.json")
        if lease and lease["boot"] != self.boot:
            lease.update(boot=self.boot, renewed_ns=time.monotonic_ns())
            self._write(self.state / "lease.json", lease)
        return self._live()

    def _live(self) -> dict[str, Any] | None:
        lease = self._read(self.state / "lease.json")
        here = lease and lease["boot"] == self.boot
        return lease if here and time.monotonic_ns() < lease["renewed_ns"] + int(lease["silent_s"] * 1e9) else None

    def _says(self, lease: dict[str, Any]) -> str:
        ago_s = (time.monotonic_ns() - lease["renewed_ns"]) / 1e9
        who = f"{lease['owner']} holds it for run {lease['run']} ({lease['inventory']}) since {lease['since']}"
        return f"{who}, heard of {ago_s:.0f} s ago; it ends {lease['silent_s']:g} s after the last word"

    def take(self, lease: dict[str, Any]) -> dict[str, Any]:
        """Take the lease of this host, or keep it where it is this token's. Refused while another one is live, and
        while a fault of another run is not healed.

        `lease`: token, owner, run, inventory, silent_s, and targets (null: any).
        """
        with self._locked():
            held = self._lease()
            said = [self._says(held)] if held and held["token"] != lease["token"] else []
            for fault in (fault for fault in self._open() if fault["token"] != lease["token"]):
                of = f"{fault['fault']} of run {fault['run']}" + (fault["error"] and f"; last try: {fault['error']}")
                said.append(f"a fault of an earlier run is not healed ({of}): brokerdrill heal")
            if said:
                raise Refused("; ".join(said))
            if held and None not in (held["targets"], lease["targets"]):  # one machine under two names
                lease["targets"] = sorted({*held["targets"], *lease["targets"]})
            lease.update(boot=self.boot, renewed_ns=time.monotonic_ns(), since=held["since"] if held else utc())
            self._write(self.state / "lease.json", lease)
            (self.state / "ended.json").unlink(missing_ok=True)  # whose it was has lost it
            old = time.time() - DONE_DAYS * 86400
            done = [path for path in (self.state / "done").glob("*.json") if path.stat().st_mtime < old]
            locks = (self.state / "faults").glob("*.lock")  # of writes that were broken off
            for path in [*done, *(lock for lock in locks if not lock.with_suffix(".json").exists())]:
                path.unlink(missing_ok=True)
        return {}

    def renew(self, token: str, faults: list[str]) -> dict[str, Any]:
        """Keep the lease; return what became of `faults`. A run that was not heard of for too long has its lease
        again, unless another one took it: what was healed meanwhile stays healed."""
        with self._locked():
            lease = self._lease() or self._read(self.state / "lease.json") or self._read(self.state / "ended.json")
            if not lease or lease["token"] != token:
                raise Refused(f"the lease is lost: {self._says(lease)}" if lease else "the lease is lost")
            lease.update(boot=self.boot, renewed_ns=time.monotonic_ns())
            self._write(self.state / "lease.json", lease)
            self._start_guard()
        return {"faults": [self._record(fault) for fault in faults]}

    def give_back(self, token: str) -> dict[str, Any]:
        """End the lease, if it is this one; a renewal that comes after that does not bring it back."""
        with self._locked():
            for path in (self.state / "lease.json", self.state / "ended.json"):
                if (lease := self._read(path)) and lease["token"] == token:
                    path.unlink()
        return {}

    def _mine(self, token: str) -> dict[str, Any]:
        if not (lease := self._live()):
            raise Refused("this run's lease is over, or was never taken here")
        if lease["token"] != token:
            raise Refused(self._says(lease))
        return lease

    def _open(self) -> list[dict[str, Any]]:
        """The faults that are not verified to be healed, oldest first."""
        found = [self._read(path) for path in (self.state / "faults").glob("[!.]*.json")]
        return sorted(filter(None, found), key=lambda record: (record["since"], record["fault"]))

    def _record(self, fault: str) -> dict[str, Any]:
        if record := self._read(self._path(fault)) or self._read(self._path(fault, "done")):
            return dict(record)
        raise Refused(f"no fault {fault} was registered here")

    def _becomes(self, record: dict[str, Any], state: str, **fields: Any) -> None:
        if state not in NEXT[record["state"]]:
            raise Refused(f"a fault that is {record['state'] or 'unknown'} cannot become {state}")
        record.update(fields, state=state)
        self._write(self._path(record["fault"], "done" if state == "verified" else "faults"), record)

    def register(self, token: str, new: dict[str, Any]) -> dict[str, Any]:
        """Have the host know how to heal a fault, then run its `prepare`.

        `new`: fault (its name), ttl_s, targets, claims, scripts (prepare, effect, heal, verify_heal, perhaps `count`,
        which prints what met the fault so far), and limits_s, how long each of them may take.
        """
        fault = new["fault"]
        with self._locked():
            lease, others = self._mine(token), self._open()
            if not self._path(fault).exists():  # else it is asked again
                if self._path(fault, "done").exists():
                    raise Refused(f"fault {fault} was healed before")
                allowed(lease, others, new)
                self._await_guard()
                due_ns = time.monotonic_ns() + int(new["ttl_s"] * 1e9)
                record = {**new, "token": token, "run": lease["run"], "owner": lease["owner"], "since": utc()}
                record.update(state="", boot=self.boot, due_ns=due_ns, counted=[])
                self._becomes(record, "registered", by="", tries=0, next_try_ns=0, error="", healed=None)
        return self._begun(token, fault, "prepare", "registered")

    def apply(self, token: str, fault: str) -> dict[str, Any]:
        """Have `fault` take effect. Refused once a heal of it has begun, and outside of the lease."""
        return self._begun(token, fault, "effect", "applied")

    def _begun(self, token: str, fault: str, script: str, state: str) -> dict[str, Any]:
        with self._held(fault) as lock:
            self._mine(token)
            record = self._record(fault)
            if record["by"] or record["state"] != "registered":
                heal = f"healed by {record['by']}" if record["by"] else record["state"]
                raise Refused(f"the {script} of fault {fault} comes too late: it is {heal}")
            left_s = (record["due_ns"] - time.monotonic_ns()) / 1e9
            if left_s <= 0 or not self._guarded():
                why = "its time-to-live is over" if left_s <= 0 else "no guard runs here"
                raise Refused(f"the {script} of fault {fault} does not begin: {why}")
            if state != record["state"]:
                self._becomes(record, state, counted=[self._count(record, lock)])
            NOTES.mkdir(exist_ok=True)
            return self._run(record, script, lock, left_s)

    def _count(self, record: dict[str, Any], lock: TextIO) -> str:
        """What the counters of a fault say; "" where they cannot be read in COUNTED_S."""
        result = self._run(record, "count", lock) if record["scripts"].get("count") else None
        return result["out"] if result and result["rc"] == 0 else ""

    def heal(self, fault: str, by: str, wait_s: float) -> dict[str, Any]:
        """Heal `fault`, again and again until that is verified, for `wait_s` seconds. Returns its record; what is not
        verified by then is left to the guard. One that was not registered cannot be from now on."""
        with self._locked():
            if not self._path(fault).exists() and not self._path(fault, "done").exists():
                now = {**dict.fromkeys(("t0", "t1"), time.monotonic_ns()), "boot": self.boot, "at": utc()}
                never = {"fault": fault, "state": "verified", "by": by, "healed": now, "error": "", "tries": 0}
                self._write(self._path(fault, "done"), never)
        end = time.monotonic_ns() + int(wait_s * 1e9)
        while (record := self._attempt(fault, by))["state"] != "verified" and time.monotonic_ns() < end:
            time.sleep(max(0.0, (min(end, record["next_try_ns"]) - time.monotonic_ns()) / 1e9))
        return record

    def _attempt(self, fault: str, by: str = "") -> dict[str, Any]:
        """Heal once; where nobody is said to have asked for it, if it is due. Before anything else the record says so:
        no effect begins from then on."""
        path = self._path(fault)
        with self._held(fault) as lock:
            record = self._record(fault)
            by = by or self._is_due(record)
            if record["state"] == "verified" or not by:
                return record
            if not record["tries"] and record["state"] == "applied":
                record["counted"].append(self._count(record, lock))
            record.update(by=by, tries=record["tries"] + 1, boot=self.boot)
            self._write(path, record)
            done = self._run(record, "heal", lock)
            self._becomes(record, "healed", healed={"t0": done["t0"], "t1": done["t1"], "boot": self.boot, "at": utc()})
            # What failed is tried again soon; what did not may take effect a moment later.
            if (seen := self._checked(record, lock, 0 if done["rc"] else CHECKED_S))["rc"] == 0:
                self._becomes(record, "verified", error="")
                path.unlink()  # were it here again after a crash, it would be healed once more
                path.with_suffix(".lock").unlink(missing_ok=True)
            else:
                said = "; ".join(filter(None, map(last_line, (done, seen))))
                next_ns = time.monotonic_ns() + BACK_OFF_S[min(record["tries"], len(BACK_OFF_S)) - 1] * 1_000_000_000
                self._becomes(record, "healed", error=said, next_try_ns=next_ns)
            return record

    def _checked(self, record: dict[str, Any], lock: TextIO, within_s: float) -> dict[str, Any]:
        end = time.monotonic() + within_s
        while (result := self._run(record, "verify_heal", lock))["rc"] != 0 and time.monotonic() < end:
            time.sleep(POLL_S)
        return result

    def status(self) -> dict[str, Any]:
        """What is held here and what is not healed."""
        with self._locked():
            lease = self._lease()
            held = lease and {"says": self._says(lease), **{key: lease[key] for key in lease if key != "token"}}
            return {"lease": held, "guard": self._guarded(), "faults": self._open()}

    def _guarded(self) -> bool:
        with self._locked("guard", fcntl.LOCK_SH | fcntl.LOCK_NB) as free:
            return free is None

    def _start_guard(self) -> None:
        if not self._guarded():
            try:
                systemctl("start", "--no-block", f"{GUARD}.service", f"{GUARD}.timer")
            except Refused:
                # A host that shuts down starts nothing any more, and in the end its first process answers nobody
                # ("unknown", or no word); it begins with the guard when it is there again. Who waits for it asks again.
                if systemctl("is-system-running", must=False) not in ("stopping", "unknown", ""):
                    raise

    def _await_guard(self) -> None:
        end = time.monotonic() + GUARD_STARTS_S
        while not self._guarded():
            if time.monotonic() > end:
                raise Refused(f"{GUARD}.service does not start here, and without it nothing is broken")
            self._start_guard()
            time.sleep(POLL_S)

    def guard(self) -> None:
        """Heal what is due, each in a thread of its own, until neither a lease nor a fault is left."""
        healing: dict[str, threading.Thread] = {}
        with self._locked("guard") as lock:
            while lock and not self._is_over(lock):
                for fault in [record["fault"] for record in self._open() if self._is_due(record)]:
                    if fault not in healing or not healing[fault].is_alive():
                        healing[fault] = threading.Thread(target=self._heal_by_itself, args=(fault,), daemon=True)
                        healing[fault].start()
                time.sleep(TICK_S)

    def _is_over(self, lock: TextIO) -> bool:
        """Whether nothing is left to guard. Then `lock` is given back before a new lease can be taken."""
        with self._locked(how=fcntl.LOCK_EX | fcntl.LOCK_NB) as ours:
            if not ours or self._lease() or self._open():
                return False
            with contextlib.suppress(FileNotFoundError):
                (self.state / "lease.json").replace(self.state / "ended.json")
            systemctl("stop", "--no-block", f"{GUARD}.timer")
            fcntl.flock(lock, fcntl.LOCK_UN)
            return True

    def _is_due(self, record: dict[str, Any]) -> str:
        return due(record, self._live(), time.monotonic_ns(), self.boot)

    def _heal_by_itself(self, fault: str) -> None:
        with contextlib.suppress(Refused):
            record = self._attempt(fault)
            print(f"{fault} of run {record['run']}: {record['error'] or record['state']} ({record['by']})", flush=True)


def main(words: list[str]) -> int:
    kernel = Kernel(Path(__file__).parent)
    if words == ["guard"]:
        kernel.guard()
    elif words == ["status"]:
        print(json.dumps(kernel.status(), indent=1))
    elif words[:1] == ["heal"]:
        there = [record["fault"] for record in kernel.status()["faults"]]
        if unknown := sorted({*words[1:]}.difference(there)):
            raise Refused(f"no fault {unknown[0]} is in effect here; there is {', '.join(there) or 'none'}")
        for fault in words[1:] or there:
            print(f"{fault}: {kernel.heal(fault, 'an operator on the host', 0)['error'] or 'healed'}")
        return int(bool(kernel.status()["faults"]))
    else:
        print(f"usage: {FILE} status | heal [ID] | guard", file=sys.stderr)
        return 64
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Refused as refusal:
        sys.exit(str(refusal))
