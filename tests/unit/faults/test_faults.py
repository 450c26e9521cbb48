"""Fault plans are data: what they would run is checked by a shell's parser; the effect is tested on real hosts."""

import contextlib
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, cast

import pytest
from pydantic import Field

from brokerdrill.base.errors import InfrastructureError, UsageError
from brokerdrill.cli import reference
from brokerdrill.faults.base import FaultType, HostChange, Parameters
from brokerdrill.faults.executor import met
from brokerdrill.faults.link import ARM
from brokerdrill.faults.nft import counted
from brokerdrill.faults.registry import FAULTS
from brokerdrill.hosts.safety_kernel import Refused, allowed
from brokerdrill.inventory.descriptors import ToxiproxyDescriptor
from brokerdrill.inventory.targets import Link, Scene, Target, resolve
from brokerdrill.scenario.model import Action, Scenario, parse
from tests.unit.faults.plans import PROXY, RABBITS, ROUTER, SCENE, TO_RABBIT, drained, planned, run, target_for
from tests.unit.inventory.test_targets import descriptor


@pytest.mark.parametrize("fault", [*FAULTS.values(), ARM], ids=lambda fault: fault.name)
def test_every_script_of_every_fault_is_a_shell_script(fault) -> None:  # type: ignore[no-untyped-def]
    changes = fault.plan(target_for(fault.acts_on), fault.complete({}), "t1-1")
    assert changes
    for change in changes:
        for script in (change.prepare, change.effect, change.verify, change.heal, change.verify_heal):
            done = subprocess.run(["/bin/sh", "-n"], input=script, text=True, capture_output=True)
            assert done.returncode == 0, (script, done.stderr)


def test_a_host_is_back_once_all_its_units_are_active() -> None:
    """systemctl is content where one of several is."""
    units = tuple(
        descriptor(f"b{n}", "rabbitmq", unit=f"b{n}.service").model_copy(update={"host": "h"}) for n in (1, 2)
    )
    fault = FAULTS["restart_host"]
    (change,) = fault.plan(Target("h", instances=units), fault.complete({}), "t1-1")
    systemctl = 'systemctl() { for one; do case " $active " in *" $one "*) return 0;; esac; done; return 3; }\n'
    back = {
        active: run(f"active='{active}'\n{systemctl}{change.verify_heal}")
        for active in ("", "b1.service", "b2.service", "b1.service b2.service")
    }
    assert [active for active, status in back.items() if status == 0] == ["b1.service b2.service"]


def test_counters_are_whole_numbers_however_much_has_passed() -> None:
    """An awk may print what has more than 31 bits as 3e+09."""
    nft = "nft() { echo 'tcp dport 1 counter packets 4 bytes 3000000000 drop'; }\n"
    told = subprocess.run(["sh", "-c", nft + counted("t")], capture_output=True, text=True, check=True).stdout
    assert met(["packets 1\nbytes 60\n", told]) == {"packets": "3", "bytes": "2999999940"}


def test_toxiproxy_is_asked_directly_whatever_proxy_its_host_has_for_the_world() -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"name": "it", "upstream": "somebody"}')

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        api = {"address": "127.0.0.1", "port": server.server_port}
        there = cast(ToxiproxyDescriptor, descriptor("toxi", "toxiproxy", user="t", unit="t.service", api=api))
        target = Target("l", links=(Link("l", "h", "127.0.0.1", 1, "i", toxiproxy=there),))
        (toxic,) = FAULTS["toxic"].plan(target, FAULTS["toxic"].complete({}), "it")
        (arm,) = ARM.plan(target, ARM.complete({}), "it")
        away = {**os.environ, "http_proxy": "http://127.0.0.1:9"}
        said = [
            subprocess.run(["sh", "-c", script], env=away, capture_output=True, text=True).stderr
            for script in (toxic.verify, arm.effect)
        ]
        server.shutdown()
    assert said == ["", "toxiproxy has a proxy bd-127-0-0-1-1 that leads elsewhere: to somebody\n"]


def ruleset(change: HostChange, bridges: str = "") -> str:
    """What nft is given to load on a host with these bridges."""
    known = 'getent() { case $2 in *.test) echo 10.9.9.9;; *) command getent "$@";; esac; }'
    host = f"nft() {{ cat; }}\nip() {{ printf '{bridges}'; }}\n{known}\n"
    return subprocess.run(["sh", "-c", host + change.effect], capture_output=True, text=True, check=True).stdout


def test_a_partition_is_one_table_a_host_with_every_link_in_it() -> None:
    (change,) = planned("partition", how="reject")
    assert change.host == "artemis1"
    assert ruleset(change).count("reject with tcp reset") == 6
    assert "forward iifname" not in ruleset(change)


def test_a_partition_is_of_the_family_that_each_address_is_of() -> None:
    links = tuple(Link("it", "h", address, 61616, "i") for address in ("10.0.0.1", "fd00::1", "localhost"))
    fault = FAULTS["partition"]
    (change,) = fault.plan(Target("it", links=links), fault.complete({}), "t1-1")
    rules = ruleset(change, "3: docker0: <UP>\\n4: br-1a@if9: <UP>\\n")
    assert "output ip daddr 10.0.0.1 tcp dport 61616 counter drop" in rules
    assert "output ip6 daddr fd00::1 tcp dport 61616 counter drop" in rules
    assert "output ip daddr 127.0.0.1 " in rules or "output ip6 daddr ::1 " in rules
    assert 'forward iifname { "docker0","br-1a" } ip daddr 10.0.0.1 tcp dport 61616 counter drop' in rules
    assert 'forward oifname { "docker0","br-1a" } ip6 saddr fd00::1 tcp sport 61616' in rules


def test_parameters_are_checked_against_the_fault() -> None:
    assert FAULTS["kill"].complete({"restart": True}).given() == {"restart": True, "all": False, "children": False}
    with pytest.raises(UsageError, match="did you mean 'restart'"):
        FAULTS["kill"].complete({"restarts": True})
    with pytest.raises(UsageError, match="drop or reject"):
        FAULTS["partition"].complete({"how": "lose"})


def test_a_kill_of_all_reaches_what_else_the_unit_runs() -> None:
    (change,) = planned("kill", restart=False, all=True)
    assert "--kill-who=all --signal=KILL" in change.effect
    (change,) = planned("kill", restart=False, all=False)
    assert "MainPID" in change.effect


def test_a_kill_of_children_leaves_who_starts_them_again() -> None:
    (change,) = planned("kill", children=True)
    assert change.effect.startswith("kill -KILL $(cat /run/brokerdrill/")
    assert "Restart=no" not in change.prepare


@pytest.mark.parametrize("levels", [1, 2])
def test_those_that_serve_are_killed_and_no_supervisor_between(levels: int) -> None:
    """A tree of shells, as deep as a router's of one worker or of several."""
    tree = "sleep 60 & sleep 60 & echo $!; wait"
    if levels == 2:
        tree = f"sh -c '{tree}' & sh -c '{tree}' & wait"
    with subprocess.Popen(["sh", "-c", tree], stdout=subprocess.PIPE, text=True, start_new_session=True) as top:
        try:
            assert top.stdout is not None
            last = [top.stdout.readline() for _ in range(levels)]
            (change,) = planned("kill", children=True)
            # The note that the effect reads.
            note = change.effect.removeprefix("kill -KILL $(cat ").removesuffix(")")
            script = f"systemctl() {{ echo {top.pid}; }}\n{change.prepare.replace(note, '/dev/stdout')}"
            found = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.split()
            assert len(found) == 2 * levels
            assert {int(line) for line in last} <= {*map(int, found)}
            below = Path(f"/proc/{top.pid}/task/{top.pid}/children").read_text().split()
            assert (found == below) == (levels == 1)
            assert levels == 1 or not {*found} & {*below}
        finally:
            os.killpg(top.pid, signal.SIGKILL)


def test_a_broker_is_drained_at_every_router_that_dials_it() -> None:
    first, second = drained(rate=5)
    assert (first.host, second.host) == ("router1", "router2")
    assert first.effect == (
        "/opt/router ctl --socket /run/router/control.sock BACKEND DRAIN rabbit1 && "
        "/opt/router ctl --socket /run/router/control.sock BACKEND DISCONNECT_GRACEFUL rabbit1 5"
    )
    assert first.heal.endswith("BACKEND UNDRAIN rabbit1")
    assert "DISCONNECT" not in drained(rate=0)[0].effect


@pytest.mark.parametrize(
    ("rate", "drain", "active", "verified", "healed"),
    [(5, True, 0, True, False), (5, True, 2, False, False), (0, True, 2, True, False), (5, False, 0, False, True)],
)
def test_a_broker_is_drained_once_the_router_says_so(
    rate: float, drain: bool, active: int, verified: bool, healed: bool, tmp_path: Path
) -> None:
    rows = [{"name": "rabbit1", "drain": drain, "active": active}, {"name": "rabbit2", "drain": not drain, "active": 9}]
    (tmp_path / "says").write_text(json.dumps(rows))
    change = drained(rate=rate)[0]
    router = "/opt/router ctl --socket /run/router/control.sock --json BACKEND PRINT"
    asked = {name: getattr(change, name).replace(router, f"cat {tmp_path}/says") for name in ("verify", "verify_heal")}
    assert (run(asked["verify"]) == 0, run(asked["verify_heal"]) == 0) == (verified, healed)
    # A router that does not know the broker, or does not answer, has neither drained it nor taken it back.
    for says in ("[]", ""):
        (tmp_path / "says").write_text(says)
        assert run(asked["verify"]) and run(asked["verify_heal"])


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        *((fault, "kill router1", False) for fault in (f"drain {TO_RABBIT}", "hold router1", "drift router1")),
        *(("hold router1", f"{fault} router1", False) for fault in ("stop", "pause", "clock")),
        *((f"{fault} {TO_RABBIT}", "kill toxi", False) for fault in ("arm", "toxic", "cut")),
        ("kill router1", "kill toxi", True),
        ("hold router1", "kill toxi", True),
        ("hold router1", f"drain {TO_RABBIT}", True),
        ("hold router1", "drift router1", True),
        (f"drain {TO_RABBIT}", "drain link router1→rabbit2", True),
        (f"drain {TO_RABBIT}", "stop rabbit1", True),
        (f"toxic {TO_RABBIT}", "kill router1", True),
        (f"toxic {TO_RABBIT}", f"cut {TO_RABBIT}", True),
        ("pause router1", "kill router1", True),
        ("clock router1", "stop router1", True),
    ],
)
def test_what_is_undone_by_somebodys_answers_does_not_go_with_what_takes_these_away(
    first: str, second: str, together: bool
) -> None:
    """Else the heal could not be made, or not be verified, while the other fault lasts."""
    scene = Scene([ROUTER, PROXY, *RABBITS], {}, random.Random(1))

    def records(text: str) -> list[dict[str, Any]]:
        name, _, spec = text.partition(" ")
        kind = FAULTS.get(name, ARM)
        changes = kind.plan(resolve(scene, spec), kind.complete({}), name)
        return [{"fault": name, "targets": change.targets, "claims": dict(change.claims)} for change in changes]

    for one, other in ((first, second), (second, first)):
        (there,), (new,) = records(one), records(other)
        with contextlib.nullcontext() if together else pytest.raises(Refused, match="both claim answers of"):
            allowed({"targets": None}, [there], new)


@pytest.mark.parametrize(
    ("says", "verified", "healed"),
    [
        ([{"vhost": "/", "paused": True}, {"vhost": "other", "paused": False}], True, False),
        ([{"vhost": "/", "paused": False}, {"vhost": "other", "paused": True}], False, True),
        # One without sessions is not in the list any more.
        ([], False, True),
        # A router that does not answer has neither had them wait nor let them go on.
        (None, False, False),
    ],
)
def test_sessions_wait_once_each_router_says_so(says: object, verified: bool, healed: bool, tmp_path: Path) -> None:
    control = "/opt/router ctl"
    routers = [descriptor(f"router{n}", "amqp_router", control=control) for n in (1, 2)]
    target = resolve(Scene(routers, {}, random.Random(1)), "all of amqp_router")
    changes = FAULTS["hold"].plan(target, FAULTS["hold"].complete({}), "t1-1")
    assert [(change.host, change.effect) for change in changes] == [
        (f"router{n}", "/opt/router ctl VHOST PAUSE /") for n in (1, 2)
    ]
    (tmp_path / "says").write_text("" if says is None else json.dumps(says))
    router = f"{control} --json VHOST PRINT"
    scripts = (changes[0].verify, changes[0].verify_heal, changes[0].heal)
    asked = [text.replace(router, f"cat {tmp_path}/says").replace(control, "echo") for text in scripts]
    assert [run(one) == 0 for one in asked[:2]] == [verified, healed]
    # A pause that is over is not ended again: the router would call that an error.
    done = subprocess.run(["sh", "-c", asked[2]], capture_output=True, text=True)
    assert done.stdout == ("VHOST UNPAUSE /\n" if verified else "")
    # Where the router does not answer nothing was done: the host tries again soon, and does not wait for what comes.
    assert (done.returncode == 0) == (says is not None)


@pytest.mark.parametrize(
    ("differs", "verified", "healed"),
    [
        (["", "file", ""], True, False),
        (["file, 10.0.0.12", ""], True, False),
        # Another router is other, this one runs by its file.
        (["10.0.0.12", ""], False, True),
        # A router that does not answer neither drifts nor has given its changes up.
        (None, False, False),
    ],
)
def test_a_router_drifts_until_it_runs_by_its_file(
    differs: list[str] | None, verified: bool, healed: bool, tmp_path: Path
) -> None:
    control = "/opt/router ctl"
    target = resolve(Scene([descriptor("router1", "amqp_router", control=control)], {}, random.Random(1)), "router1")
    (change,) = FAULTS["drift"].plan(target, FAULTS["drift"].complete({"change": "MAP REJECT / a;b"}), "t1-1")
    assert change.effect == "/opt/router ctl MAP REJECT / 'a;b'"
    assert change.heal == "/opt/router ctl CONFIG RELOAD"
    rows = None if differs is None else [{"section": f"s{n}", "differs": word} for n, word in enumerate(differs)]
    (tmp_path / "says").write_text("" if rows is None else json.dumps(rows))
    answer = f"cat {tmp_path}/says" if rows is not None else "false"
    asked = [text.replace(f"{control} --json DRIFT", answer) for text in (change.verify, change.verify_heal)]
    assert [run(one) == 0 for one in asked] == [verified, healed]


@pytest.mark.parametrize(("name", "params"), [("hold", {}), ("drift", {"change": "LISTEN STOP"})])
def test_who_is_told_nothing_cannot_be_told_to_wait_or_to_change(name: str, params: dict[str, Any]) -> None:
    target = resolve(Scene([descriptor("b1", "artemis")], {}, random.Random(1)), "b1")
    with pytest.raises(InfrastructureError, match="b1: its descriptor says no `control` command"):
        FAULTS[name].plan(target, FAULTS[name].complete(params), "t1-1")


def test_a_router_is_replaced_once_another_process_serves_and_the_old_one_is_gone(tmp_path: Path) -> None:
    # Starts a process whenever the one before it has ended.
    with subprocess.Popen(["bash", "-c", "trap 'kill $!; exit' TERM; while :; do sleep 600 & wait; done"]) as main:
        systemctl = tmp_path / "systemctl"
        systemctl.write_text(
            f'#!/bin/sh\ncase "$1" in show) echo {main.pid};; kill) kill -9 $(pgrep -P {main.pid});; esac\n'
        )
        systemctl.chmod(0o755)
        (change,) = planned("replace")
        here = {
            name: f"PATH={tmp_path}:$PATH; {getattr(change, name).replace('/run/brokerdrill', str(tmp_path))}"
            for name in ("prepare", "effect", "verify", "heal", "verify_heal")
        }
        try:
            wait_until(lambda: run(here["prepare"]) == 0)
            assert run(here["verify"]) != 0
            assert run(here["effect"]) == 0
            wait_until(lambda: run(here["verify"]) == 0)
            assert run(here["verify_heal"]) != 0
            assert (run(here["heal"]), run(here["verify_heal"])) == (0, 0)
        finally:
            main.terminate()


def wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_pause_may_end_with_a_start() -> None:
    (change,) = planned("pause", end="kill")
    assert "--signal=KILL" in change.heal and "systemctl start" in change.heal
    (change,) = planned("pause")
    assert "-CONT" in change.heal


@pytest.mark.parametrize(
    ("fault", "given", "problem"),
    [
        ("kill", {"restart": "yes"}, "fault kill: restart is true or false, not 'yes'"),
        ("toxic", {"toxicity": 2}, "fault toxic: toxicity is a number, at least 0, at most 1, not 2"),
        ("toxic", {"stream": "both"}, "fault toxic: stream is upstream or downstream, not 'both'"),
        ("toxic", {"type": "bandwidth"}, "fault toxic: attribute rate of a toxic of type bandwidth: Field required"),
        (
            "toxic",
            {"attributes": {"latnecy": 5}},
            r"fault toxic: a toxic of type latency has no attribute latnecy \(it has latency, jitter\)",
        ),
        # libfaketime would take it for minutes.
        ("clock", {"offset": "-500ms"}, "fault clock: offset is text, of the form .*, not '-500ms'"),
        ("cut", {"how": "drop"}, "no parameter of fault 'cut' is called 'how'; there are: none"),
    ],
)
def test_a_wrong_parameter_gets_one_sentence(fault: str, given: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=f"^{problem}$"):
        FAULTS[fault].complete(given)


def test_an_armed_link_passes_the_toxiproxy_that_the_host_says_it_has() -> None:
    (arm,) = ARM.plan(resolve(SCENE, "link load→active"), ARM.complete({}), "t1-1")
    words = "127.0.0.1:8475 bd-artemis1-test-61616 artemis1.test 61616 links brokerdrill_bd_artemis1_test_61616"
    assert arm.effect.startswith(f"python3 - {words} <<")
    assert "python3 - 127.0.0.1:8475 DELETE /proxies/bd-artemis1-test-61616" in arm.heal
    with pytest.raises(InfrastructureError, match="host artemis2 has no descriptor of a toxiproxy"):
        ARM.plan(resolve(SCENE, "link passive→zookeeper"), ARM.complete({}), "t1-1")


@pytest.mark.parametrize(("fault", "field"), [("switchover", "control"), ("lock_file", "data_dir")])
def test_an_instance_whose_descriptor_lacks_what_the_fault_needs_is_named(fault: str, field: str) -> None:
    (item,) = target_for("instance").instances
    target = Target("artemis1", instances=(item.model_copy(update={field: None}),))
    with pytest.raises(InfrastructureError, match=f"instance artemis1: its descriptor says no `{field}`"):
        FAULTS[fault].plan(target, FAULTS[fault].complete({}), "t1-1")


@pytest.mark.parametrize(
    ("leader", "rc", "said"),
    [
        ("artemis1", 1, "Switchover failed, details: 412"),
        ("artemis2", 0, ""),
        ("", 1, "Switchover failed, details: 412"),
    ],
)
def test_a_switchover_that_the_service_refuses_fails_with_its_reason(
    leader: str, rc: int, said: str, tmp_path: Path
) -> None:
    """A patronictl that exits 0 whatever it did, as the real one does."""
    members = json.dumps([{"Member": leader, "Role": "Leader"}]) if leader else "no answer"
    control = tmp_path / "patronictl"
    control.write_text(f"#!/bin/sh\n[ $1 = list ] && echo '{members}' || echo 'Switchover failed, details: 412'\n")
    control.chmod(0o755)
    (item,) = target_for("instance").instances
    target = Target("artemis1", instances=(item.model_copy(update={"control": str(control)}),))
    (change,) = FAULTS["switchover"].plan(target, FAULTS["switchover"].complete({}), "t1-1")
    done = subprocess.run(["/bin/sh", "-c", change.effect], capture_output=True, text=True)
    assert (done.returncode, (done.stderr.splitlines() or [""])[-1]) == (rc, said)
    assert (subprocess.run(["/bin/sh", "-c", change.verify], capture_output=True).returncode == 0) == (rc == 0)


def test_who_dials_and_takes_no_commands_is_named() -> None:
    link = Link("load1→rabbit1", "load1", "10.0.0.1", 5672, "rabbit1")
    with pytest.raises(InfrastructureError, match=r"load1→rabbit1: .* says no `control`"):
        FAULTS["drain"].plan(Target("link load→rabbit1", links=(link,)), FAULTS["drain"].complete({}), "t1-1")


class OddParameters(Parameters):
    """Names that are words of Python, of pydantic, and of whatever a parameter passes on its way."""

    from_: Literal["left", "right"] = Field("left", alias="from", description="whence")
    how: int = Field(3, ge=1, description="times")
    copy_: str = Field("a", alias="copy", description="which copy")
    fault_id: str = Field("b", description="not the fault's own")
    model_config_: bool = Field(False, alias="model_config", description="of no use")
    name: str = Field(alias="name", description="must be given")


def test_a_parameter_may_be_called_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[OddParameters] = []

    def plan(target: Target, params: OddParameters, fault_id: str) -> list[HostChange]:
        seen.append(params)
        return []

    odd = FaultType("odd", "instance", "does nothing", OddParameters, plan)
    monkeypatch.setitem(FAULTS, "odd", odd)
    given = {"from": "right", "how": 1, "copy": "c", "fault_id": "d", "model_config": True, "name": "e"}
    odd.plan(target_for("instance"), odd.complete(given), "t1-1")
    assert seen[0].from_ == "right" and seen[0].given() == given
    assert odd.complete({"name": "e"}).given() == {
        "from": "left", "how": 3, "copy": "a", "fault_id": "b", "model_config": False, "name": "e"
    }  # fmt: skip
    for wrong, problem in (
        ({"name": "e", "from_": "left"}, "no parameter of fault 'odd' is called 'from_'; did you mean 'from'"),
        ({"name": "e", "how": 0}, "fault odd: how is a whole number, at least 1, not 0"),
        ({"name": "e", "from": "up"}, "fault odd: from is left or right, not 'up'"),
        ({}, "fault odd: name is missing; must be given"),
    ):
        with pytest.raises(UsageError, match=problem):
            odd.complete(wrong)

    text = f"""\
title: t
description: d
topology: artemis_quorum
load: {{addresses: [drill.q0]}}
method: [{{type: action, name: a, fault: odd, target: active, params: {json.dumps(given)}}}]
promises: [no_loss]
"""
    (action,) = parse(text, Path("s.yml")).method
    assert isinstance(action, Action) and action.params == given
    (own,) = (
        one["then"]["properties"]["params"]
        for one in Scenario.model_json_schema()["$defs"]["Action"]["allOf"]
        if one["if"]["properties"]["fault"]["const"] == "odd"
    )
    assert own["properties"]["from"]["enum"] == ["left", "right"] and own["required"] == ["name"]
    assert "`model_config` (true or false; by default `false`): of no use" in reference.faults()
