"""What the role lease_db refuses: pure functions from plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SESSION_TICKS = (2, 20)
"""ZooKeeper Administrator's Guide, minSessionTimeout and maxSessionTimeout: a session lasts 2 to 20 ticks."""


def lease_db_problems(config: Mapping[str, Any]) -> list[str]:
    """Return what forbids this database, a sentence each.

    `config`: members, host to {"instance"}; zookeeper_servers; allow_small, for a drill that wants a small ensemble;
    ttl_s, loop_wait_s, retry_timeout_s, tick_ms.
    """
    problems = []
    if len(config["members"]) < 2:
        problems.append("a lease database of one host has no standby: give the group lease_db a second one")
    if len(config["zookeeper_servers"]) < 3 and not config["allow_small"]:
        problems.append(f"a lease database needs 3 or more ZooKeeper servers, not {len(config['zookeeper_servers'])}")
    ttl, loop, retry = (int(config[name]) for name in ("ttl_s", "loop_wait_s", "retry_timeout_s"))
    if loop + 2 * retry > ttl:
        problems.append(
            f"lease_db_ttl_s {ttl} is below lease_db_loop_wait_s {loop} and twice lease_db_retry_timeout_s {retry}: a "
            "primary would lose its place while it still tries to keep it"
        )
    low, high = (ticks * int(config["tick_ms"]) for ticks in SESSION_TICKS)
    if not low <= ttl * 1000 <= high:
        problems.append(
            f"lease_db_ttl_s {ttl} is outside {low / 1000:g} to {high / 1000:g}, 2 to 20 ticks of "
            f"{config['tick_ms']} ms: ZooKeeper changes it"
        )
    owners: dict[str, list[str]] = {}
    for host, member in sorted(config["members"].items()):
        owners.setdefault(str(member["instance"]), []).append(host)
    problems += [
        f"{' and '.join(hosts)} have one lease_db_instance {name}" for name, hosts in owners.items() if len(hosts) > 1
    ]
    return problems


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {"lease_db_problems": lease_db_problems}
