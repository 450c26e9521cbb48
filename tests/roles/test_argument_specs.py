"""What a role says of its variables is what it does."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.roles.conftest import ROLES, ROOT, SERVICES, load


@pytest.mark.parametrize("role", ROLES)
def test_specs_and_defaults_are_the_same(role: str) -> None:
    defaults = load(ROOT / "roles" / role / "defaults" / "main.yml")
    specs = load(ROOT / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"]
    for entry, spec in specs.items():
        said = {name: option["default"] for name, option in spec["options"].items() if "default" in option}
        assert said == defaults, f"{role}: entry point {entry}"


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_is_described_and_named_after_its_role(role: str) -> None:
    for spec in load(ROOT / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"].values():
        for name, option in spec["options"].items():
            assert name.startswith(f"{role}_")
            assert option["description"].strip()
            assert option["type"] != "list" or option.get("elements"), name


@pytest.mark.parametrize("role", SERVICES)
def test_task_files_have_the_names_of_every_role(role: str) -> None:
    there = {path.stem for path in (ROOT / "roles" / role / "tasks").glob("*.yml")}
    assert there >= {"main", "preflight", "install", "configure", "health", "remove"}


@pytest.mark.parametrize("role", ["activemq_classic", "artemis", "lease_db", "openmq", "rabbitmq"])
def test_passwords_are_never_shown(role: str) -> None:
    options = load(ROOT / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]
    secret = {name for name, option in options.items() if option.get("no_log")}
    assert secret
    ends = ("_password", "_passwords", "_cookie", "_secrets", "_more_definitions")
    assert {name for name in options if name.endswith(ends)} == secret


def test_common_is_never_a_role_of_its_own() -> None:
    assert not (ROOT / "roles" / "common" / "tasks" / "main.yml").exists()


def test_readmes_are_made_from_the_specs_as_they_are() -> None:
    check = [sys.executable, str(ROOT / "docs" / "role_readmes.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.parent.name for path in (ROOT / "roles").glob("*/README.md")) == ROLES
