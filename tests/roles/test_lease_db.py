"""The lease database as Patroni and the brokers are told of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roles.conftest import ROOT, render_all

INVENTORY = ROOT / "inventories" / "classic_lease"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    work = tmp_path_factory.mktemp("lease_db")
    files = {"bootstrap.sql": "bootstrap.sql.j2", "post_bootstrap": "post_bootstrap.j2"}
    values = ["__lease_db_configuration", "__lease_db_descriptor", "__lease_db_unit"]
    return render_all(work, "lease_db", "lease_db", files, values, inventory=INVENTORY)


@pytest.mark.parametrize(("host", "address"), [("db1", "172.30.42.15"), ("db2", "172.30.42.16")])
def test_a_member_knows_itself_and_the_ensemble(told: dict[str, Any], host: str, address: str) -> None:
    found = told[host]["variables"]["__lease_db_configuration"]
    assert (found["scope"], found["name"]) == ("leasedb", host)
    assert found["postgresql"]["connect_address"] == f"{address}:5432"
    assert found["zookeeper"]["hosts"] == [f"172.30.42.{n}:2281" for n in (11, 12, 13)]
    assert found["zookeeper"]["use_ssl"] is True
    assert found["zookeeper"]["verify"] is True
    assert found["bootstrap"]["dcs"]["synchronous_mode"] is True


def test_nobody_comes_in_without_tls_and_scram(told: dict[str, Any]) -> None:
    configuration = told["db1"]["variables"]["__lease_db_configuration"]
    rules = configuration["postgresql"]["pg_hba"]
    remote = [rule for rule in rules if not rule.startswith("local ")]
    assert all(rule.startswith("hostssl ") and rule.endswith(" scram-sha-256") for rule in remote)
    assert 'hostssl "broker" "broker" 172.30.42.21/32 scram-sha-256' in remote
    assert not any("0.0.0.0" in rule for rule in rules)
    for part in ("superuser", "replication", "rewind"):
        assert configuration["postgresql"]["authentication"][part]["sslmode"] == "verify-full"


def test_secrets_are_in_files_of_their_own(told: dict[str, Any]) -> None:
    variables = told["db1"]["variables"]
    password = variables["__lease_db_configuration"]["postgresql"]["authentication"]["superuser"]["password"]
    assert len(password) >= 32
    assert password not in str(variables["__lease_db_descriptor"]) + str(variables["__lease_db_unit"])
    assert "PASSWORD" not in told["db1"]["files"]["post_bootstrap"]
    assert "CREATE ROLE" in told["db1"]["files"]["bootstrap.sql"]
