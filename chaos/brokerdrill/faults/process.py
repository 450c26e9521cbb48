"""Faults of a process: kill -9, an orderly stop, a pause (SIGSTOP)."""

from __future__ import annotations

from shlex import quote
from typing import Literal

from pydantic import Field

from brokerdrill.faults.base import MOMENTARY, TAKEN, UNDER_WAY, FaultType, HostChange, Parameters, answers
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.targets import Target

_DOWN = "! systemctl is-active --quiet {unit}"
_UP = "systemctl is-active --quiet {unit}"
# The unit restarts by itself (Restart=always); a fault that shall last until its heal holds it down with a drop-in of
# its own under /run, which a reboot forgets. The last name wins over the unit's other drop-ins, wherever these are.
_HOLD = "/run/systemd/system/{unit}.d/zzz-brokerdrill-{fault}.conf"
_HELD = f"ls {_HOLD.replace('{fault}', '*')} >/dev/null 2>&1"
_KEEP_DOWN = f"""
mkdir -p /run/systemd/system/{{unit}}.d
printf '[Service]\\nRestart=no\\n' > {_HOLD}
systemctl daemon-reload
[ "$(systemctl show -p Restart --value {{unit}})" = no ]
"""
# It starts again once no fault holds it any more, whichever was healed last.
_START = f"{_HELD} || systemctl start --no-block {{unit}}"
_LET_START = f"""
rm -f {_HOLD}
systemctl daemon-reload
{_HELD} || systemctl reset-failed {{unit}} 2>/dev/null || :
{_START}
"""
_LET_UP = f"[ ! -e {_HOLD} ] && {{ {_HELD} || {_UP}; }}"
# Main process only: it is the broker; the exit of the others follows.
_SIGNAL = (
    "pid=$(systemctl show -p MainPID --value {unit}); "
    """[ "$pid" -gt 0 ] || { echo {unit}' does not run' >&2; exit 1; }; kill -{signal} "$pid\""""
)
_STATE = 'pid=$(systemctl show -p MainPID --value {unit}); [ "$pid" -gt 0 ] && state=$(cut -d" " -f3 "/proc/$pid/stat")'


def _change(
    item: Descriptor,
    fault_id: str,
    prepare: str,
    effect: str,
    verify: str,
    heal: str,
    verify_heal: str,
    lasting: str = "",
) -> HostChange:
    unit = quote(item.unit or "")

    def fill(script: str) -> str:
        return script.replace("{unit}", unit).replace("{fault}", fault_id)

    return HostChange(
        host=item.host,
        prepare=fill(prepare),
        effect=fill(effect),
        verify=fill(verify),
        heal=fill(heal),
        verify_heal=fill(verify_heal),
        lasting=fill(lasting),
        target=item.host,
        instance=item.instance,
        store=item.store,
        claims={answers(item.instance): TAKEN},
    )


# What else the unit runs, too: a Patroni's PostgreSQL, which outlives it else.
_SIGNAL_ALL = "systemctl kill --kill-who=all --signal={signal} {unit}"


def _signal(signal: str, everything: bool) -> str:
    return (_SIGNAL_ALL if everything else _SIGNAL).replace("{signal}", signal)


_ALL = Field(False, description="whether the unit's other processes get the signal too")


class KillParameters(Parameters):
    """What is killed, and whether it stays down."""

    restart: bool = Field(
        False, description="whether the unit may restart it by itself, as after a real crash; else it is held down"
    )
    all: bool = _ALL
    children: bool = Field(
        False,
        description="whether the main process's children get the signal in its place, or where these have children, "
        "those: who started them starts them again",
    )


class PauseParameters(Parameters):
    """What is paused, and how that ends."""

    all: bool = _ALL
    end: Literal["go_on", "kill"] = Field(
        "go_on", description="go_on: SIGCONT; kill: SIGKILL to all of the unit, which starts again"
    )


# A supervisor may be above each of those that serve.
_CHILDREN = (
    "pid=$(systemctl show -p MainPID --value {unit}) && below=$(cat /proc/$pid/task/$pid/children) && "
    "children=$(for one in $below; do inner=$(cat /proc/$one/task/$one/children); echo ${inner:-$one}; done | xargs)"
)


def _kill_children(target: Target, fault_id: str) -> list[HostChange]:
    note = f"/run/brokerdrill/{fault_id}.pid"
    seen = f'for one in $(cat {note}); do case " $children " in *" $one "*) exit 1;; esac; done'
    others = f'{_CHILDREN} && [ -n "$children" ] && ({seen})'
    return [
        _change(
            item,
            fault_id,
            f'{_CHILDREN} && [ -n "$children" ] && echo $children > {note}',
            f"kill -KILL $(cat {note})",
            others,
            # Nothing is to be undone: who started them starts others.
            f"rm -f {note}",
            f'{_CHILDREN} && [ -n "$children" ]',
            MOMENTARY,
        )
        for item in target.instances
    ]


def _kill(target: Target, params: KillParameters, fault_id: str) -> list[HostChange]:
    if params.children:
        return _kill_children(target, fault_id)
    effect = _signal("KILL", params.all)
    if params.restart:
        gone = f"[ -e /run/brokerdrill/{fault_id}.pid ] && ! kill -0 $(cat /run/brokerdrill/{fault_id}.pid) 2>/dev/null"
        note = f"systemctl show -p MainPID --value {{unit}} > /run/brokerdrill/{fault_id}.pid"
        up = f"{_HELD} || {_UP}"
        return [_change(item, fault_id, note, effect, gone, _START, up, MOMENTARY) for item in target.instances]
    return [_change(item, fault_id, _KEEP_DOWN, effect, _DOWN, _LET_START, _LET_UP) for item in target.instances]


# How long a unit takes to stop is its own affair (TimeoutStopSec). The effect waits for what most need, and so is as
# long as the stop; what takes longer is waited for afterwards, and a heal need not wait for it.
_STOPPED = 'case "$(systemctl show -p ActiveState --value {unit})" in inactive|failed)'
_STOP = f"""systemctl stop --no-block {{unit}} && for _ in $(seq 125); do
  {_STOPPED} break;; esac
  sleep 0.2
done"""
_IS_STOPPED = f"{_STOPPED} ;; deactivating) exit {UNDER_WAY};; *) exit 1;; esac"


def _stop(target: Target, params: Parameters, fault_id: str) -> list[HostChange]:
    return [_change(item, fault_id, _KEEP_DOWN, _STOP, _IS_STOPPED, _LET_START, _LET_UP) for item in target.instances]


def _pause(target: Target, params: PauseParameters, fault_id: str) -> list[HostChange]:
    heal = f"({_signal('CONT', params.all)}) || :"
    # What was paused and then killed is paused no more.
    over = f'{_STATE}; [ "$pid" -eq 0 ] || [ "$state" != T ]'
    if params.end == "kill":
        # Done when it is gone: what ends later is none of the fault's doing.
        end = f'{_signal("KILL", True)} && timeout 15 tail --pid="$pid" -f /dev/null'
        heal = f'{_STATE}; [ "$state" != T ] || {{ {end}; }}; {_START}'
        over = f'{_STATE}; if [ "$pid" -eq 0 ]; then {_HELD}; else [ "$state" != T ]; fi'
    return [
        _change(item, fault_id, ":", _signal("STOP", params.all), _STATE + ' && [ "$state" = T ]', heal, over)
        for item in target.instances
    ]


FAULTS = (
    FaultType(
        "kill",
        "instance",
        "SIGKILL to the main process, held down until the heal",
        KillParameters,
        _kill,
        passes=lambda params: params.restart or params.children,
        drawn=({"restart": True}, {}),
    ),
    FaultType("stop", "instance", "an orderly stop of the unit", Parameters, _stop),
    FaultType("pause", "instance", "SIGSTOP, until the heal", PauseParameters, _pause, drawn=({}, {"end": "kill"})),
)
