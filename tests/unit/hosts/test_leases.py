"""Leases of the safety kernel as a file that runs here: who has one, how it ends, what is refused outside of it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from brokerdrill.hosts.safety_kernel import Refused, allowed
from tests.unit.hosts.kernels import applied, kernel_of, kernel_refused, subsets
from tests.unit.safety_host import SafetyHost, fault, lease, until

# -- lease


def test_of_a_hundred_at_once_one_has_the_lease(host: SafetyHost) -> None:
    said = host.herd("take", [{"lease": lease(f"t{number}", silent_s=3600)} for number in range(100)])
    (won,) = [asked["lease"]["token"] for asked, refused in said if refused is None]
    assert host.kernel().status()["lease"]["run"] == f"run-{won}"
    told = [refused for _, refused in said if refused is not None]
    assert len(told) == 99
    assert all(one.startswith(f"{won}@ctl holds it for run run-{won} (/inv) since 20") for one in told)


@pytest.mark.parametrize("state", ["stopping", "unknown", "", "running", "offline"])
def test_on_a_host_that_ends_a_lease_goes_on_without_a_guard(tmp_path: Path, state: str) -> None:
    made = SafetyHost(tmp_path / "host", starts_guards=False)
    made.install()
    kernel = made.kernel()
    kernel.take(lease("a"))
    starts = f"case $1 in is-system-running) echo {state}; exit 1;; *) echo it is destructive >&2; exit 1;; esac"
    (tmp_path / "host" / "bin" / "systemctl").write_text(f"#!/bin/sh\n{starts}\n")
    if state in ("stopping", "unknown", ""):
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
