"""Which RabbitMQ a host has or would get, and what that forbids."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.brokerdrill.ha.plugins.filter.rabbitmq_version import (
    rabbitmq_version,
    rabbitmq_version_problems,
)

# As Debian's hosts say it.
NOT_YET = """rabbitmq-server:
  Installed: (none)
  Candidate: 4.0.5-6+deb13u2
  Version table:
     4.0.5-6+deb13u2 500
        500 http://deb.debian.org/debian trixie/main amd64 Packages
VERSION_CODENAME=trixie
"""
OLD = NOT_YET.replace("(none)", "3.10.8-1.1+deb12u1")
MIRRORED = {"name": "copies", "pattern": "^q", "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}}
NEW = {"rabbit1": "4.0.5", "rabbit2": "4.0.5", "rabbit3": ""}


def problems(versions: dict[str, str], host: str = "rabbit1", **config: Any) -> list[str]:
    return rabbitmq_version_problems({"policies": [], "more": {}} | config, host, versions)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("told", "packages", "version"),
    [
        (NOT_YET, ["rabbitmq-server"], "4.0.5"),
        (NOT_YET, ["rabbitmq-server=1:4.1.1-1"], "4.1.1"),
        # What is there stays, whatever the inventory would install.
        (OLD, ["rabbitmq-server=1:4.1.1-1"], "3.10.8"),
        # No lists yet, or a cut-down image without them.
        ("VERSION_CODENAME=trixie\n", ["rabbitmq-server"], "4.0.5"),
        ('rabbitmq-server:\n  Installed: (none)\n  Candidate: (none)\nVERSION_CODENAME="bookworm"\n', [], "3.10.8"),
        ("VERSION_CODENAME=buster\n", ["rabbitmq-server"], ""),
        ("", ["rabbitmq-server"], ""),
    ],
)
def test_the_host_says_which_one_it_has_or_would_get(told: str, packages: list[str], version: str) -> None:
    assert rabbitmq_version(told, packages) == version


def test_mirrors_are_refused_where_there_are_none_any_more() -> None:
    (said,) = problems(NEW, policies=[MIRRORED])
    assert "policy copies of vhost / has classic queues mirrored (ha-mode), and RabbitMQ 4.0.5 has no mirrors" in said
    assert problems({"rabbit1": "3.10.8"}, policies=[MIRRORED]) == []
    # Nobody knows yet, and the package has the word.
    assert problems(NEW, "rabbit3", policies=[MIRRORED]) == []
    assert problems(NEW, policies=[MIRRORED | {"definition": {"max-length": 10}}]) == []


@pytest.mark.parametrize(
    "more",
    [
        {"policies": [MIRRORED | {"vhost": "orders"}]},
        {
            "parameters": [
                {"component": "shovel", "name": "ha", "vhost": "orders", "value": {"ha-mode": 1}},
                {"component": "operator_policy", "name": "copies", "vhost": "orders", "value": MIRRORED},
            ]
        },
    ],
    ids=["policies", "operators' policies"],
)
def test_an_exported_file_s_mirrors_are_refused_too(more: dict[str, Any]) -> None:
    (said,) = problems(NEW, more=more)
    assert said.startswith("policy copies of vhost orders ")


def test_one_cluster_is_of_one_major_version() -> None:
    (said,) = problems({"rabbit1": "4.0.5", "rabbit2": "3.10.8"}, "rabbit2")
    assert said.startswith(
        "rabbit1 has RabbitMQ 4.0.5 and rabbit2 3.10.8: RabbitMQ 4 is of one cluster with none older"
    )
    assert problems({"rabbit1": "4.0.5", "rabbit2": "3.13.7"}) == []
    assert problems({"rabbit1": "3.10.8", "rabbit2": "3.9.13"}) == []
    assert problems(NEW) == []
