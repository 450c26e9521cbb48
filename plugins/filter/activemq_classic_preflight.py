"""What the role activemq_classic refuses: pure functions from plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.brokerdrill.ha.plugins.filter.activemq_classic_topology import ClassicMember
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.preflight import Archive, Number, differing

LEASE = "lease_database"
HANDLERS_BLIND_TO_LEASES = ("default", "jdbc")


class ClassicConfig(TypedDict):
    """What the role's vars/main/preflight.yml hands over: this broker, and all members of its pair by host.

    None where the inventory leaves a choice to the broker. `archive`: the distribution, or the jars that were given in
    its place; None where the version is not known. `jdbc_url` is "" where no database is used. `allow` names rules that
    a drill wants broken.
    """

    version: str
    archive: Archive | Mapping[str, Any] | None
    members: Mapping[str, ClassicMember]
    adapter: str
    locker: str
    locker_class: str
    use_lock: bool | None
    fail_if_locked: bool | None
    sleep_ms: Number | None
    keep_alive_ms: Number | None
    lease_ms: Number | None
    max_diff_ms: Number | None
    holder: str | None
    handler: str
    statements: Mapping[str, str]
    jdbc_url: str
    allow: Sequence[str]


def _holders(members: Mapping[str, ClassicMember]) -> list[list[str]]:
    """Return the hosts of each name that several members of one pair hold a lease under."""
    owners: dict[tuple[str, str], list[str]] = {}
    for host, member in sorted(members.items()):
        owners.setdefault((member["pair"], member["holder"]), []).append(host)
    return [hosts for hosts in owners.values() if len(hosts) > 1]


def _identity(config: ClassicConfig) -> list[tuple[str, str]]:
    if config["locker"] != LEASE:
        return []
    return [
        (
            "shared_holder",
            f"{' and '.join(hosts)} hold a lease under one name: each would renew the other's; give each its own "
            "activemq_classic_broker_name or activemq_classic_lease_holder_id",
        )
        for hosts in _holders(config["members"])
    ]


def _agreement(config: ClassicConfig) -> list[tuple[str, str]]:
    fields = {"locker": "activemq_classic_locker", "adapter": "activemq_classic_persistence_adapter"}
    if config["adapter"] == "kahadb" or config["locker"] == "shared_file":
        fields["store_dir"] = "activemq_classic_store_dir"
    return [
        ("different_store", f"{' and '.join(hosts)} have different {name}: the members of a pair need the same")
        for field, name in fields.items()
        for hosts in differing(config["members"], field)
    ]


def _periods(config: ClassicConfig) -> list[tuple[str, str]]:
    own = 30_000 if config["adapter"] == "jdbc" else 0
    sleep = 10_000 if config["sleep_ms"] is None else int(config["sleep_ms"])
    alive = own if config["keep_alive_ms"] is None else int(config["keep_alive_ms"])
    if config["locker"] == LEASE and config["lease_ms"]:
        return _duration(int(config["lease_ms"]), sleep, alive)
    if config["locker"] == LEASE and sleep <= alive:
        return [
            (
                "lease_shorter_than_keep_alive",
                f"a lease of {sleep} ms that is renewed every {alive} ms runs out in between: "
                "activemq_classic_lock_acquire_sleep_interval_ms must be above "
                "activemq_classic_lock_keep_alive_period_ms",
            )
        ]
    if alive > 0:
        return []
    if config["locker"] == LEASE:
        return [("no_keep_alive", "activemq_classic_lock_keep_alive_period_ms 0: the lease would never be renewed")]
    if config["locker"] == "shared_file":
        return [
            (
                "no_keep_alive",
                "activemq_classic_lock_keep_alive_period_ms 0: a lock file that somebody changes or deletes would give "
                "the store to two masters",
            )
        ]
    return []


def _duration(lease: int, sleep: int, alive: int) -> list[tuple[str, str]]:
    """Return what is wrong with a lease whose length is its own setting; all in ms."""
    if lease < sleep:
        return [
            (
                "lease_shorter_than_sleep",
                f"activemq_classic_lease_duration_ms {lease} is below activemq_classic_lock_acquire_sleep_interval_ms "
                f"{sleep}: a slave must ask at least once in each lease",
            )
        ]
    if alive <= 0:
        return [("no_keep_alive", "activemq_classic_lock_keep_alive_period_ms 0: the lease would never be renewed")]
    if lease < 2 * alive:
        return [
            (
                "lease_shorter_than_keep_alive",
                f"a lease of {lease} ms that is renewed every {alive} ms is lost by one late renewal: "
                "activemq_classic_lease_duration_ms must be at least twice activemq_classic_lock_keep_alive_period_ms",
            )
        ]
    return []


def _ignored(config: ClassicConfig) -> list[tuple[str, str]]:
    problems = []
    if config["fail_if_locked"] and config["locker"] in ("database", LEASE):
        problems.append(
            (
                "fail_if_locked_ignored",
                f"activemq_classic_fail_if_locked is set, but the locker {config['locker']} waits all the same: "
                "take it out",
            )
        )
    only_lease = {
        "activemq_classic_lease_holder_id": config["holder"],
        "activemq_classic_max_allowable_diff_from_db_time_ms": config["max_diff_ms"],
        "activemq_classic_lease_duration_ms": config["lease_ms"],
    }
    own = sorted({"leaseObtainStatement", "leaseUpdateStatement"} & set(config["statements"]))
    if config["lease_ms"] and config["locker"] == LEASE and own:
        problems.append(
            (
                "ignored",
                f"activemq_classic_lease_duration_ms is made of the statements that activemq_classic_statements gives "
                f"itself ({', '.join(own)}): take out one of the two",
            )
        )
    problems += [
        ("ignored", f"{name} is set, but the locker {config['locker']} ignores it: take it out")
        for name, value in only_lease.items()
        if value is not None and config["locker"] != LEASE
    ]
    return problems


def _handler(config: ClassicConfig) -> list[tuple[str, str]]:
    if config["adapter"] == "kahadb" and config["locker"] == LEASE and config["handler"] in HANDLERS_BLIND_TO_LEASES:
        return [
            (
                "kahadb_lease_handler",
                f"KahaDB with a lease and the IO exception handler {config['handler']}: it does not know the lease; "
                "set activemq_classic_io_exception_handler to lease_locker or to a class of your own",
            )
        ]
    return []


def _database(config: ClassicConfig) -> list[tuple[str, str]]:
    url = str(config["jdbc_url"])
    uses = config["adapter"] == "jdbc" or config["locker"] in ("database", LEASE)
    if uses and ("://," in url or ":///" in url or not url.startswith("jdbc:")):
        return [
            (
                "no_database",
                "no database: give hosts to the group lease_db, or a whole URL in activemq_classic_jdbc_url",
            )
        ]
    if config["locker"] == LEASE and url.startswith("jdbc:mysql:") and "useJDBCCompliantTimezoneShift=true" not in url:
        return [
            (
                "timezone_shift",
                "a lease in MySQL without useJDBCCompliantTimezoneShift=true in activemq_classic_jdbc_url_options: "
                "times read from the database would be off by the time zone",
            )
        ]
    return []


def _lock(config: ClassicConfig) -> list[tuple[str, str]]:
    if config["use_lock"] is False:
        return [
            ("no_lock", "activemq_classic_use_lock is false: every member of the pair would open the store at once")
        ]
    if config["locker"] == "custom" and not config["locker_class"]:
        return [("no_class", "activemq_classic_locker is custom: name its class in activemq_classic_locker_class")]
    return []


RULES = (_lock, _identity, _agreement, _periods, _ignored, _handler, _database)


def activemq_classic_problems(config: ClassicConfig) -> list[str]:
    """Return what forbids this pair of brokers, a sentence each, but for what its `allow` permits."""
    problems = []
    if not config["archive"]:
        problems.append(
            f"activemq_classic_version {config['version']} is not known: give activemq_classic_archive its coordinate "
            "and checksum, or the jars in activemq_classic_jars"
        )
    found = [problem for rule in RULES for problem in rule(config)]
    return problems + [sentence for name, sentence in found if name not in config["allow"]]


def clock_problems(clocks: Mapping[str, Mapping[str, float]], allowed_ms: float) -> list[str]:
    """Return which clocks are further apart than `allowed_ms`.

    `clocks`: host to {"offset_ms", "uncertainty_ms"}, against one and the same clock. What the measurement leaves open
    is no problem.
    """
    if len(clocks) < 2:
        return []
    low = min(clocks, key=lambda host: clocks[host]["offset_ms"])
    high = max(clocks, key=lambda host: clocks[host]["offset_ms"])
    apart = clocks[high]["offset_ms"] - clocks[low]["offset_ms"]
    certain = apart - clocks[high]["uncertainty_ms"] - clocks[low]["uncertainty_ms"]
    if certain <= allowed_ms:
        return []
    return [
        f"the clocks of {low} and {high} are {apart:.0f} ms apart, and a lease allows {allowed_ms:.0f}: set the "
        "clocks, or activemq_classic_max_allowable_diff_from_db_time_ms"
    ]


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {"activemq_classic_problems": activemq_classic_problems, "clock_problems": clock_problems}
