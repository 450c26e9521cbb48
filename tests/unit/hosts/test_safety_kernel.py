"""Faults under the safety kernel as a file that runs here: real locks, processes and files, killed at every step."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerdrill.hosts.safety_kernel import NEXT, due
from tests.unit.hosts.kernels import applied, changed, faults, kernel_refused, overdue
from tests.unit.safety_host import SafetyHost, fault, lease, until

# -- states


def test_every_state_is_followed_by_what_may_follow(host: SafetyHost) -> None:
    kernel = host.kernel()
    for before, following in itertools.product(NEXT, NEXT):
        record = {"fault": "f", "state": before}
        if following in NEXT[before]:
            kernel._becomes(record, following)
        else:
            with pytest.raises(kernel_refused(kernel), match=f"cannot become {following}"):
                kernel._becomes(record, following)
        assert record["state"] == (following if following in NEXT[before] else before)
    assert "applied" not in NEXT["healed"] and NEXT["verified"] == ()


def test_whatever_comes_no_effect_follows_a_heal_and_no_record_goes_before_it_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"])
    host = SafetyHost(tmp_path / "host", starts_guards=False)
    host.install()
    kernel = host.kernel(CHECKED_S=0, POLL_S=0, BACK_OFF_S=(0,))
    kernel._guarded = lambda: True
    kernel.take(lease("t"))
    names = (f"f{number}" for number in itertools.count())

    @given(st.lists(st.sampled_from(["apply", "heal", "stuck heal", "hidden heal", "restart"]), max_size=7))
    @settings(max_examples=60, deadline=None)
    def hold(steps: list[str]) -> None:
        name = next(names)
        world, obstacle, blind = (tmp_path / f"{name}-{word}" for word in ("broken", "obstacle", "blind"))
        heal, check = f"[ ! -e {obstacle} ] && rm -f {world}", f"[ ! -e {blind} ] && [ ! -e {world} ]"
        kernel.register("t", fault(name, world, scripts={"heal": heal, "verify_heal": check}))
        heals = 0
        for step in steps:
            if step == "restart":
                kernel.boot += "'"
                kernel.renew("t", [])
            elif step == "apply":
                first = kernel._record(name)["state"] == "registered" and not heals
                with contextlib.nullcontext() if first else pytest.raises(kernel_refused(kernel)):
                    kernel.apply("t", name)
            else:
                heals += 1
                for path, there in ((obstacle, step == "stuck heal"), (blind, step == "hidden heal")):
                    path.touch() if there else path.unlink(missing_ok=True)
                kernel.heal(name, "runner", 0)
            record = kernel._record(name)
            assert (record["state"] == "verified") == (name not in faults(kernel))
            assert record["state"] != "verified" or not world.exists()
            assert not world.exists() or heals == 0 or record["state"] == "healed"
        for path in (obstacle, blind):
            path.unlink(missing_ok=True)
        assert kernel.heal(name, "runner", 0)["state"] == "verified" and not world.exists()

    hold()


@pytest.mark.parametrize(
    ("changes", "live", "why"),
    [
        ({}, "t", ""),
        ({}, None, "controller silent"),
        ({}, "another", "controller silent"),
        ({"due_ns": 50}, "t", "time-to-live"),
        ({"boot": "before"}, "t", "restart"),
        ({"by": "runner"}, "t", "runner"),
        ({"by": "runner", "next_try_ns": 150}, "t", ""),
        ({"by": "runner", "next_try_ns": 150, "boot": "before"}, "t", "runner"),
    ],
)
def test_why_a_host_heals_by_itself(changes: dict[str, Any], live: str | None, why: str) -> None:
    record = {"token": "t", "due_ns": 200, "boot": "now", "by": "", "next_try_ns": 0, **changes}
    assert due(record, None if live is None else {"token": live}, 100, "now") == why


# -- effects and heals


def test_an_effect_after_its_heal_is_refused(host: SafetyHost, world: Path) -> None:
    kernel = host.kernel()
    kernel.take(lease("t"))
    kernel.register("t", fault("f", world))
    kernel.heal("f", "runner", 5)
    with pytest.raises(kernel_refused(kernel), match="the effect of fault f comes too late: it is healed by runner"):
        kernel.apply("t", "f")
    # Nor can what was never registered be registered once somebody has healed it.
    kernel.heal("late", "runner", 5)
    with pytest.raises(kernel_refused(kernel), match="late was healed before"):
        kernel.register("t", fault("late", world))
    assert not world.exists()


def test_a_heal_waits_for_the_effect_that_is_under_way(host: SafetyHost, world: Path) -> None:
    host.kernel().take(lease("t"))
    host.kernel().register("t", fault("f", world, scripts={"effect": f"touch {world}.begun; sleep 1; touch {world}"}))
    applying = host.call("apply", token="t", fault="f")
    until(lambda: Path(f"{world}.begun").exists())
    healed = host.kernel().heal("f", "runner", 5)
    assert applying.wait(30) == 0 and healed["state"] == "verified" and not world.exists()


def test_an_effect_whose_agent_was_killed_ends_before_the_heal_begins(host: SafetyHost, world: Path) -> None:
    host.kernel().take(lease("t"))
    effect = f"touch {world}.begun; sleep 600; touch {world}"
    host.kernel().register("t", fault("f", world, scripts={"effect": effect}, limits_s={"effect": 1}))
    applying = host.call("apply", token="t", fault="f")
    until(lambda: Path(f"{world}.begun").exists())
    applying.kill()
    applying.communicate()
    assert host.kernel().heal("f", "runner", 5)["state"] == "verified"
    assert f"touch {world}" not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout


def test_a_heal_that_fails_keeps_its_record_and_the_next_run_is_told_why(host: SafetyHost, world: Path) -> None:
    kernel = host.kernel(CHECKED_S=0)
    kernel.take(lease("t"))
    away = world.with_name("away")
    away.touch()
    scripts = {"heal": f"[ ! -e {away} ] || {{ echo no answer >&2; exit 7; }}; rm -f {world}"}
    applied(kernel, "f", world, scripts=scripts)
    record = kernel.heal("f", "runner", 0)
    assert (record["state"], record["error"]) == ("healed", "no answer; exit status 1")
    kernel.give_back("t")
    told = "a fault of an earlier run is not healed.*f of run run-t.*no answer"
    with pytest.raises(kernel_refused(kernel), match=told):
        kernel.take(lease("next"))
    # The guard goes on trying, whoever is still there.
    away.unlink()
    until(lambda: not faults(kernel))
    assert not world.exists() and kernel._record("f")["by"] == "runner"
    kernel.take(lease("next"))


def test_a_heal_that_failed_is_tried_again_and_not_waited_for(host: SafetyHost, world: Path) -> None:
    kernel = host.kernel(CHECKED_S=60)
    kernel.take(lease("t"))
    once = f"[ -e {world}.tried ] || {{ touch {world}.tried; exit 1; }}; rm -f {world}"
    applied(kernel, "f", world, scripts={"heal": once})
    record = kernel.heal("f", "runner", 30)
    assert (record["state"], record["tries"]) == ("verified", 2)


def test_a_heal_whose_check_cannot_tell_is_none(host: SafetyHost, world: Path) -> None:
    kernel = host.kernel(CHECKED_S=0)
    kernel.take(lease("t"))
    applied(kernel, "f", world, scripts={"verify_heal": f"[ -e {world}.known ]"})
    assert kernel.heal("f", "runner", 0)["state"] == "healed"
    assert faults(kernel) == ["f"]
    Path(f"{world}.known").touch()
    until(lambda: not faults(kernel))


def test_a_heal_that_hangs_holds_up_no_other(host: SafetyHost, world: Path) -> None:
    kernel = host.kernel()
    kernel.take(lease("t"))
    stuck, quick = world.with_name("stuck"), world.with_name("quick")
    applied(kernel, "stuck", stuck, scripts={"heal": "sleep 600"}, limits_s={"heal": 600})
    applied(kernel, "quick", quick)
    overdue(kernel, "stuck")
    until(lambda: kernel._record("stuck")["by"])
    overdue(kernel, "quick")
    until(lambda: faults(kernel) == ["stuck"])
    assert kernel._record("quick")["by"] == "time-to-live" and not quick.exists() and stuck.exists()


def test_a_heal_that_hangs_is_ended_and_tried_again(
    tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"])
    host = SafetyHost(tmp_path / "impatient", CHECKED_S=0)
    host.install()
    kernel = host.kernel()
    kernel.take(lease("t"))
    again = f"[ -e {world}.tried ] || {{ touch {world}.tried; sleep 600; }}; rm -f {world}"
    applied(kernel, "f", world, scripts={"heal": again}, limits_s={"heal": 0.5})
    overdue(kernel, "f")
    until(lambda: not faults(kernel))
    record = kernel._record("f")
    assert record["tries"] >= 2 and not world.exists()
    host.close()


def test_the_host_says_when_it_healed(host: SafetyHost, world: Path) -> None:
    kernel = host.kernel()
    kernel.take(lease("t"))
    applied(kernel, "f", world)
    before = time.monotonic_ns()
    overdue(kernel, "f")
    until(lambda: not faults(kernel))
    (told,) = kernel.renew("t", ["f"])["faults"]
    assert told["by"] == "time-to-live" and before < told["healed"]["t0"] <= told["healed"]["t1"] < time.monotonic_ns()


def test_a_host_whose_run_is_silent_heals_itself(host: SafetyHost, world: Path) -> None:
    kernel = host.kernel()
    kernel.take(lease("t"))
    applied(kernel, "f", world)
    kernel.take(lease("t", silent_s=0.5))
    until(lambda: not faults(kernel))
    assert kernel.renew("t", ["f"])["faults"][0]["by"] == "controller silent" and not world.exists()


def test_a_fault_that_outlived_a_start_of_the_host_is_healed_at_boot(host: SafetyHost, world: Path) -> None:
    kernel = host.kernel()
    kernel.take(lease("t"))
    applied(kernel, "f", world, ttl_s=600)
    changed(kernel, "f", boot="before")
    until(lambda: not faults(kernel))
    assert kernel._record("f")["by"] == "restart" and not world.exists()


def test_a_guard_that_was_killed_is_started_again_before_anything_else_is_broken(host: SafetyHost, world: Path) -> None:
    kernel = host.kernel()
    kernel.take(lease("t"))
    applied(kernel, "f", world)
    host.close()
    until(lambda: not kernel._guarded())
    other = world.with_name("other")
    applied(kernel, "g", other)
    assert kernel._guarded()
    kernel.give_back("t")
    until(lambda: not faults(kernel))
    assert not world.exists() and not other.exists()
    until(lambda: not kernel._guarded())


def test_without_a_guard_nothing_is_broken(tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"])
    host = SafetyHost(tmp_path / "unguarded", starts_guards=False)
    host.install()
    kernel = host.kernel(GUARD_STARTS_S=0.3)
    kernel.take(lease("t"))
    with pytest.raises(kernel_refused(kernel), match="does not start here, and without it nothing is broken"):
        kernel.register("t", fault("f", world))
    assert faults(kernel) == []


# -- killed at every step

MORE_STEPS = 40
KILLED = """import json, os, runpy, signal, subprocess, sys
from pathlib import Path
module = runpy.run_path(sys.argv[1])
left = [int(sys.argv[2])]
def mortal(owner, name):
    real = getattr(owner, name)
    def step(*words, **values):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*words, **values)
    setattr(owner, name, step)
for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink"), (os, "killpg"), (os, "ftruncate"),
                    (subprocess.Popen, "communicate")):
    mortal(owner, name)
kernel = module["Kernel"]()
new = json.loads(sys.argv[3])
kernel.register("t", new)
kernel.apply("t", new["fault"])
kernel.heal(new["fault"], "runner", 5)
"""


def killed_at(root: Path, step: int) -> bool:
    """Whether who registers, applies and heals a fault has so many steps: they are killed at that one, and nothing may
    be left."""
    host, world = SafetyHost(root / "host"), root / "broken"
    kernel = host.kernel()
    try:
        kernel.install(host.source)
        kernel.take(lease("t"))
        words = [sys.executable, "-SIc", KILLED, str(host.state / "safety_kernel.py"), str(step)]
        done = subprocess.run([*words, json.dumps(fault("f", world))], env={**os.environ, "PATH": host.path})
        kernel.give_back("t")
        until(lambda: not faults(kernel))
        assert not world.exists(), f"killed at step {step}"
        kernel.take(lease("t"))
        with pytest.raises(kernel_refused(kernel)):
            kernel.apply("t", "f")
    finally:
        host.close()
    return done.returncode == -signal.SIGKILL


def test_whoever_is_killed_at_any_step_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"])
    # Each on a host of its own, as many at once as wait for their guards.
    with ThreadPoolExecutor(8) as pool:
        died = [*pool.map(lambda step: killed_at(tmp_path / str(step), step), range(1, MORE_STEPS))]
    assert sum(died) > 12 and died == sorted(died, reverse=True) and not died[-1]
