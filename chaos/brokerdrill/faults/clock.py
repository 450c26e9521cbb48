"""Faults of a clock: one service alone is made to see another time, by libfaketime, which needs a restart of it."""

from __future__ import annotations

from shlex import quote

from pydantic import Field

from brokerdrill.faults.base import ALONE, TAKEN, UNDER_WAY, FaultType, HostChange, Parameters, answers
from brokerdrill.inventory.targets import Target

# Wall-clock time alone: monotonic times, which time-outs are made of, go on as they are.
_SET = """
ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null || { echo 'libfaketime is not installed' >&2; exit 1; }
mkdir -p /run/systemd/system/{unit}.d
cat > /run/systemd/system/{unit}.d/brokerdrill-clock.conf <<'UNIT'
[Service]
Environment="LD_PRELOAD=/usr/$LIB/faketime/libfaketimeMT.so.1" "FAKETIME={offset}" "DONT_FAKE_MONOTONIC=1"
UNIT
systemctl daemon-reload
"""
# A unit takes as long to stop and to start as its own limits say.
_RESTART = """systemctl restart --no-block {unit} && for _ in $(seq 125); do
  {set} && break
  sleep 0.2
done"""
_WAITED = """case "$(systemctl show -p ActiveState --value {unit})" in deactivating|activating) exit {under_way};; esac
{set}"""
_IS_SET = """pid=$(systemctl show -p MainPID --value {unit}) && [ "$pid" -gt 0 ] \\
  && tr '\\0' '\\n' < /proc/$pid/environ | grep -q '^FAKETIME='"""
# Whether it runs is not this fault's affair.
_LASTING = """pid=$(systemctl show -p MainPID --value {unit}); [ "$pid" -gt 0 ] || exit 0
{set}"""
_UNSET = """
if [ -e /run/systemd/system/{unit}.d/brokerdrill-clock.conf ]; then
  rm -f /run/systemd/system/{unit}.d/brokerdrill-clock.conf
  systemctl daemon-reload
  # A unit that another fault holds down stays so.
  if ls /run/systemd/system/{unit}.d/zzz-brokerdrill-*.conf >/dev/null 2>&1; then how=try-restart; else how=restart; fi
  systemctl $how --no-block {unit}
fi
"""


class ClockParameters(Parameters):
    """How far off the clock is."""

    # libfaketime takes every `m` for minutes, so that milliseconds would be that many minutes and more.
    offset: str = Field(
        "+3s",
        pattern=r"^[+-]\d+(\.\d+)?[smhd]?$",
        description="how far the clock is ahead (+) or behind (-): a number of s, m (minutes), h or d",
    )


def _clock(target: Target, params: ClockParameters, fault_id: str) -> list[HostChange]:
    changes = []
    for item in target.instances:

        def fill(script: str, unit: str = quote(item.unit or "")) -> str:
            script = script.replace("{set}", _IS_SET).replace("{under_way}", str(UNDER_WAY))
            return script.replace("{unit}", unit).replace("{offset}", params.offset)

        changes.append(
            HostChange(
                host=item.host,
                prepare=fill(_SET),
                effect=fill(_RESTART),
                verify=fill(_WAITED),
                lasting=fill(_LASTING),
                heal=fill(_UNSET),
                verify_heal=fill("! { " + _IS_SET + "; }"),
                target=item.host,
                instance=item.instance,
                store=item.store,
                claims={f"clock of {item.unit}": ALONE, answers(item.instance): TAKEN},
            )
        )
    return changes


FAULTS = (
    FaultType(
        "clock",
        "instance",
        "restarts the service with a clock that is off by `offset`",
        ClockParameters,
        _clock,
        drawn=({}, {"offset": "-30s"}, {"offset": "+1h"}),
        # The roles that put libfaketime on their hosts.
        only_on=frozenset({"activemq_classic"}),
    ),
)
