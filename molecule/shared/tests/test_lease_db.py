"""What a deployment left of the lease database, seen from inside after a drill."""

from __future__ import annotations

import json
from typing import Any

from conftest import Instance, connect, descriptors, topology


def query(instance: Instance, host: Any, sql: str, options: str) -> Any:
    """Ask the primary as the brokers do, by TLS and with their password, which only the environment carries."""
    secret = json.loads(host.file(instance["credentials"]["file"]).content_string)
    hosts = ",".join(f"{item['address']}" for item in servers())
    where = f"host={hosts} user={secret['username']} dbname=broker target_session_attrs=read-write {options}"
    return host.run(f"PGPASSWORD={secret['password']} psql -At -c %s %s", sql, where)


def servers() -> list[dict[str, Any]]:
    found = [item for host in topology().group("lease_db") for item in descriptors(host.name)]
    return [one for item in found for one in item["listeners"] if one["name"] == "postgresql"]


def test_clients_reach_the_primary_by_tls_and_scram(instance: Instance, host: Any) -> None:
    ca = f"sslmode=verify-full sslrootcert={instance['tls']['ca']}"
    answer = query(instance, host, "select ssl from pg_stat_ssl where pid = pg_backend_pid()", ca)
    assert answer.stdout.strip() == "t", answer.stderr
    assert query(instance, host, "show password_encryption", ca).stdout.strip() == "scram-sha-256"


def test_without_tls_nobody_comes_in(instance: Instance, host: Any) -> None:
    answer = query(instance, host, "select 1", "sslmode=disable")
    assert answer.rc != 0
    assert "no pg_hba.conf entry" in answer.stderr


def test_one_member_is_the_primary_and_its_copy_is_synchronous() -> None:
    (first, *_) = topology().group("lease_db")
    control = next(item["control"] for item in descriptors(first.name) if item["product"] == "lease_db")
    members = json.loads(connect(first.name).check_output(f"{control} list --format json"))
    assert sorted(member["Role"] for member in members) == ["Leader", "Sync Standby"]
