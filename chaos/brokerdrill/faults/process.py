"""Faults of a process: kill -9, an orderly stop, a pause (SIGSTOP)."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

from brokerdrill.descriptors import Descriptor
from brokerdrill.faults.base import FaultType, HostChange
from brokerdrill.targets import Target

_DOWN = "! systemctl is-active --quiet {unit}"
_UP = "systemctl is-active --quiet {unit}"
# The unit restarts by itself (Restart=always); a fault that shall last until its heal holds it down with a drop-in
# under /run, which a reboot forgets.
_HOLD = """
mkdir -p /run/systemd/system/{unit}.d
printf '[Service]\\nRestart=no\\n' > /run/systemd/system/{unit}.d/brokerdrill.conf
systemctl daemon-reload
"""
_RELEASE = """
rm -f /run/systemd/system/{unit}.d/brokerdrill.conf
systemctl daemon-reload
systemctl reset-failed {unit} 2>/dev/null || :
systemctl start --no-block {unit}
"""
# Main process only: it is the broker; the exit of the others follows.
_SIGNAL = 'pid=$(systemctl show -p MainPID --value {unit}) && [ "$pid" -gt 0 ] && kill -{signal} "$pid"'
_STATE = 'pid=$(systemctl show -p MainPID --value {unit}); [ "$pid" -gt 0 ] && state=$(cut -d" " -f3 "/proc/$pid/stat")'


def _change(item: Descriptor, prepare: str, effect: str, verify: str, heal: str, verify_heal: str) -> HostChange:
    unit = quote(item.unit or "")

    def fill(script: str) -> str:
        return script.replace("{unit}", unit)

    return HostChange(
        host=item.host,
        prepare=fill(prepare),
        effect=fill(effect),
        verify=fill(verify),
        heal=fill(heal),
        verify_heal=fill(verify_heal),
        target=item.host,
        instance=item.instance,
        store=item.store,
    )


# What else the unit runs, too: a Patroni's PostgreSQL, which outlives it else.
_SIGNAL_ALL = "systemctl kill --kill-who=all --signal={signal} {unit}"


def _signal(signal: str, everything: bool) -> str:
    return (_SIGNAL_ALL if everything else _SIGNAL).replace("{signal}", signal)


def _kill(target: Target, params: Mapping[str, Any], fault_id: str) -> list[HostChange]:
    # restart: true leaves the unit's own Restart= to bring the process back, as after a real crash.
    effect = _signal("KILL", params["all"])
    if params["restart"]:
        gone = f"[ -e /run/brokerdrill/{fault_id}.pid ] && ! kill -0 $(cat /run/brokerdrill/{fault_id}.pid) 2>/dev/null"
        note = f"systemctl show -p MainPID --value {{unit}} > /run/brokerdrill/{fault_id}.pid"
        return [
            _change(item, note, effect, gone, "systemctl start --no-block {unit}", _UP) for item in target.instances
        ]
    return [_change(item, _HOLD, effect, _DOWN, _RELEASE, _UP) for item in target.instances]


def _stop(target: Target, params: Mapping[str, Any], fault_id: str) -> list[HostChange]:
    return [
        _change(item, ":", "systemctl stop {unit}", _DOWN, "systemctl start --no-block {unit}", _UP)
        for item in target.instances
    ]


def _pause(target: Target, params: Mapping[str, Any], fault_id: str) -> list[HostChange]:
    return [
        _change(
            item,
            ":",
            _signal("STOP", params["all"]),
            _STATE + ' && [ "$state" = T ]',
            _signal("CONT", params["all"]) + " || :",
            _STATE + ' && [ "$state" != T ]',
        )
        for item in target.instances
    ]


FAULTS = (
    FaultType(
        "kill",
        "instance",
        "SIGKILL to the main process (all: and the unit's others), held down until the heal",
        _kill,
        {"restart": False, "all": False},
    ),
    FaultType("stop", "instance", "an orderly stop of the unit", _stop, {}),
    FaultType("pause", "instance", "SIGSTOP, and SIGCONT as the heal", _pause, {"all": False}),
)
