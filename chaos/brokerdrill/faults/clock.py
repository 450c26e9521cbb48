"""Faults of a clock: one service alone is made to see another time, by libfaketime, which needs a restart of it."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

from brokerdrill.faults.base import FaultType, HostChange
from brokerdrill.targets import Target

# Wall-clock time alone: monotonic times, which time-outs are made of, go on as they are.
_WEAR = """
ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null || { echo 'libfaketime is not installed' >&2; exit 1; }
mkdir -p /run/systemd/system/{unit}.d
cat > /run/systemd/system/{unit}.d/brokerdrill-clock.conf <<'UNIT'
[Service]
Environment="LD_PRELOAD=/usr/$LIB/faketime/libfaketimeMT.so.1" "FAKETIME={offset}" "DONT_FAKE_MONOTONIC=1"
UNIT
systemctl daemon-reload
"""
_WEARS = """pid=$(systemctl show -p MainPID --value {unit}) && [ "$pid" -gt 0 ] \\
  && tr '\\0' '\\n' < /proc/$pid/environ | grep -q '^FAKETIME='"""
_TAKE_OFF = """
if [ -e /run/systemd/system/{unit}.d/brokerdrill-clock.conf ]; then
  rm -f /run/systemd/system/{unit}.d/brokerdrill-clock.conf
  systemctl daemon-reload
  systemctl restart --no-block {unit}
fi
"""


def _clock(target: Target, params: Mapping[str, Any], fault_id: str) -> list[HostChange]:
    changes = []
    for item in target.instances:

        def fill(script: str, unit: str = quote(item.unit or "")) -> str:
            return script.replace("{unit}", unit).replace("{offset}", str(params["offset"]))

        changes.append(
            HostChange(
                host=item.host,
                prepare=fill(_WEAR),
                effect=fill("systemctl restart {unit}"),
                verify=fill(_WEARS),
                heal=fill(_TAKE_OFF),
                verify_heal=fill("! { " + _WEARS + "; }"),
                target=item.host,
                instance=item.instance,
                store=item.store,
            )
        )
    return changes


FAULTS = (
    FaultType(
        "clock",
        "instance",
        "restarts the service with a clock that is off by `offset`, as libfaketime writes it (+3s, -500ms)",
        _clock,
        {"offset": "+3s"},
    ),
)
