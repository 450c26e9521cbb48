"""The safety kernel as a file that runs here: real locks, real processes, real files, killed at every step."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerdrill.hosts.safety_kernel import NEXT, Refused, allowed, due
from tests.unit.safety_host import SafetyHost, fault, lease, until


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SafetyHost]:
    monkeypatch.setenv("PATH", os.environ["PATH"])
    made = SafetyHost(tmp_path / "host")
    made.install()
    yield made
    made.close()


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return tmp_path / "broken"


def faults(kernel: Any) -> list[str]:
    return [record["fault"] for record in kernel.status()["faults"]]


def applied(kernel: Any, name: str, world: Path, token: str = "t", **values: Any) -> None:
    assert kernel.register(token, fault(name, world, **values))["rc"] == 0
    assert kernel.apply(token, name)["rc"] == 0


def changed(kernel: Any, name: str, **values: Any) -> None:
    """Have the record of a fault say something else."""
    kernel._write(kernel._path(name), {**kernel._record(name), **values})


def overdue(kernel: Any, name: str) -> None:
    """Have the time-to-live of a fault be over."""
    changed(kernel, name, due_ns=0)


# -- lease


def test_of_a_hundred_at_once_one_has_the_lease(host: SafetyHost) -> None:
    said = host.herd("take", [{"lease": lease(f"t{number}", silent_s=3600)} for number in range(100)])
    (won,) = [asked["lease"]["token"] for asked, refused in said if refused is None]
    assert host.kernel().status()["lease"]["run"] == f"run-{won}"
    told = [refused for _, refused in said if refused is not None]
    assert len(told) == 99
    assert all(one.startswith(f"{won}@ctl holds it for run run-{won} (/inv) since 20") for one in told)


@pytest.mark.parametrize("state", ["stopping", "running"])
def test_on_a_host_that_ends_a_lease_goes_on_without_a_guard(tmp_path: Path, state: str) -> None:
    made = SafetyHost(tmp_path / "host", starts_guards=False)
    made.install()
    kernel = made.kernel()
    kernel.take(lease("a"))
    starts = f"case $1 in is-system-running) echo {state};; *) echo it is destructive >&2; exit 1;; esac"
    (tmp_path / "host" / "bin" / "systemctl").write_text(f"#!/bin/sh\n{starts}\n")
    if state == "stopping":
        kernel.renew("a", [])
    else:
        with pytest.raises(kernel_refused(kernel), match="it is destructive"):
            kernel.renew("a", [])


def test_a_lease_that_nobody_renews_ends_by_itself(host: SafetyHost) -> None:
    kernel = host.kernel()
    kernel.take(lease("a", silent_s=0.5))
    with pytest.raises(kernel_refused(kernel), match="a@ctl holds it"):
        kernel.take(lease("b"))
    until(lambda: kernel.status()["lease"] is None)
    kernel.take(lease("b"))
    with pytest.raises(kernel_refused(kernel), match="the lease is lost: b@ctl holds it"):
        kernel.renew("a", [])


def test_a_run_that_was_cut_off_has_its_lease_again_where_nobody_took_it(host: SafetyHost) -> None:
    kernel = host.kernel()
    kernel.take(lease("a", silent_s=0.3))
    until(lambda: kernel.status()["lease"] is None)
    kernel.renew("a", [])
    assert kernel.status()["lease"]["run"] == "run-a"
    kernel.give_back("a")
    assert kernel.status()["lease"] is None
    with pytest.raises(kernel_refused(kernel), match="the lease is lost"):
        kernel.renew("a", [])
    kernel.take(lease("b"))


def test_a_lease_that_another_run_had_in_between_does_not_come_back(host: SafetyHost) -> None:
    kernel = host.kernel()
    kernel.take(lease("a", silent_s=0.3))
    kernel.renew("a", [])
    # The guard has put it aside: until somebody else takes the host, it may be renewed.
    until(lambda: (host.state / "ended.json").exists())
    kernel.take(lease("b"))
    kernel.give_back("b")
    with pytest.raises(kernel_refused(kernel), match="the lease is lost"):
        kernel.renew("a", [])


def test_a_second_version_does_not_replace_the_file_under_a_live_lease(host: SafetyHost) -> None:
    kernel = host.kernel()
    kernel.take(lease("a"))
    host.kernel().install(host.source)
    with pytest.raises(kernel_refused(kernel), match="a@ctl holds it"):
        kernel.install(host.source + "\n")
    kernel.give_back("a")
    kernel.install(host.source + "\n")


def test_what_an_install_that_was_broken_off_has_not_done_the_next_one_does(host: SafetyHost) -> None:
    kernel, asked = host.kernel(), []
    source = host.source + "\n"

    def systemctl(*words: str) -> None:
        asked.append(words[0])
        if asked == ["daemon-reload"]:
            raise kernel_refused(kernel)("systemctl daemon-reload fails here")

    kernel_of(kernel)["systemctl"] = systemctl
    with pytest.raises(kernel_refused(kernel), match="fails here"):
        kernel.install(source)
    kernel.install(source)
    assert asked == ["daemon-reload", "daemon-reload", "enable"]
    kernel.install(source)
    assert len(asked) == 3, "all of it is there"


def test_an_operator_on_the_host_heals_what_is_there_and_is_told_of_what_is_not(host: SafetyHost, world: Path) -> None:
    kernel = host.kernel()
    kernel.take(lease("t"))
    applied(kernel, "f", world)

    def operator(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-I", str(host.state / "safety_kernel.py"), *words]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": host.path})
        return done.returncode, (done.stdout + done.stderr).strip()

    assert operator("heal", "g") == (1, "no fault g is in effect here; there is f")
    assert json.loads(operator("status")[1])["faults"][0]["fault"] == "f" and world.exists()
    assert operator("heal") == (0, "f: healed") and not world.exists()
    assert kernel._record("f")["by"] == "an operator on the host"
    assert operator("heal", "f") == (1, "no fault f is in effect here; there is none")
    assert operator("mend") == (64, "usage: safety_kernel.py status | heal [ID] | guard")


def test_a_host_that_was_started_anew_keeps_its_lease_for_one_more_silence(host: SafetyHost) -> None:
    kernel = host.kernel()
    kernel.take(lease("a", silent_s=1.0))
    again = host.kernel(boot=lambda: "another start")
    with pytest.raises(kernel_refused(again), match="a@ctl holds it"):
        again.take(lease("b"))
    until(lambda: again.status()["lease"] is None)
    again.take(lease("b"))


def kernel_of(kernel: Any) -> dict[str, Any]:
    """The names in the file that `kernel` is of."""
    names: dict[str, Any] = type(kernel).take.__globals__
    return names


def kernel_refused(kernel: Any) -> type[Exception]:
    found: type[Exception] = kernel_of(kernel)["Refused"]
    return found


# -- what may be registered


def test_what_is_outside_of_the_lease_is_refused_there(host: SafetyHost, world: Path) -> None:
    kernel = host.kernel()
    kernel.take(lease("t", targets=["a", "b"]))
    refused = kernel_refused(kernel)
    with pytest.raises(refused, match="f1 would hit c, which run run-t may not"):
        kernel.register("t", fault("f1", world, targets=["a", "c"]))
    applied(kernel, "f2", world, targets=["a", "b"])
    assert kernel.heal("f2", "runner", 5)["state"] == "verified"
    kernel.take(lease("t", targets=[]))
    assert kernel.status()["lease"]["targets"] == ["a", "b"], "one machine under two names"


def subsets(letters: str) -> list[tuple[str, ...]]:
    return [one for size in range(len(letters) + 1) for one in itertools.combinations(letters, size)]


def test_nothing_is_registered_outside_of_a_lease() -> None:
    for radius, targets in itertools.product([None, *subsets("abcd")], subsets("abcdef")[1:]):
        fits = radius is None or set(targets) <= set(radius)
        with contextlib.nullcontext() if fits else pytest.raises(Refused):
            allowed(lease("t", targets=radius), [], {"fault": "f", "targets": targets, "claims": {}})


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ({"x": "alone"}, {"x": "alone"}, False),
        ({"x": "alone"}, {"y": "alone"}, True),
        ({"x": "takes"}, {"x": "takes"}, True),
        ({"x": "takes"}, {"x": "needs"}, False),
        ({"x": "needs"}, {"x": "takes", "y": "alone"}, False),
        ({}, {"x": "alone"}, True),
    ],
)
def test_claims(first: dict[str, str], second: dict[str, str], together: bool) -> None:
    there, new = ({"fault": name, "targets": ["a"], "claims": claims} for name, claims in (("f", first), ("g", second)))
    if together:
        allowed(lease("t"), [there], new)
    else:
        with pytest.raises(Refused, match="g does not go with f, not healed yet: both claim x"):
            allowed(lease("t"), [there], new)


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
