"""A rotation of secrets on the controller: its steps, what each refuses, and that one which was cut off goes on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from tests.roles.conftest import ROOT
from tests.roles.test_plugins import plugin

rotation, action, certificate = (
    plugin("plugin_utils", "rotation"),
    plugin("action", "rotation"),
    plugin("action", "host_certificate"),
)


def take(directory: Path, **words: Any) -> tuple[dict[str, Any], str]:
    """Take a step; return the task's result, and what it refused."""
    given = {"organisation": "test", "passwords": ["a-admin", "a-none"], "cluster": ["a-c"], "step": "overlap"}
    try:
        return action.take(directory, {**given, "anew": False, "complete": False, **words}, look=False), ""
    except AnsibleActionFail as error:
        return {}, str(error)


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """Secrets as a deployment made them."""
    directory = tmp_path / "secrets"
    directory.mkdir()
    certificate.make_ca(directory, "test")
    for name in ("a-admin", "a-c"):
        (directory / f"{name}.password").write_text(f"old-{name}\n")
    return directory


def said(path: Path) -> str:
    return path.read_text().strip()


def test_passwords_overlap_and_end(secrets: Path) -> None:
    what = ["passwords", "cluster"]
    first, _ = take(secrets, name="one", what=what)
    assert (first["begun"], first["step"], first["complete"]) == (False, "overlap", False)
    new = said(secrets / "a-admin.password")
    assert new != "old-a-admin" and len(new) == 40
    assert rotation.previous(secrets / "a-admin.password") == "old-a-admin"
    assert rotation.previous(secrets / "a-c.password") == "", "of a cluster's password no old one is accepted"
    assert said(secrets / "a-c.password") != "old-a-c"
    assert not (secrets / "a-none.password").exists()
    assert (secrets / "a-admin.password").stat().st_mode & 0o077 == 0

    again, _ = take(secrets, name="one", what=what)
    assert again["begun"] and said(secrets / "a-admin.password") == new
    assert "not all hosts have its step overlap yet" in take(secrets, name="one", what=what, step="end")[1]
    assert "end it first" in take(secrets, name="two", what=what)[1]
    assert take(secrets, name="one", what=what, complete=True)[0]["complete"]
    done = {path: path.read_bytes() for path in secrets.iterdir()}
    assert not take(secrets, name="one", what=what)[0]["changed"]
    assert {path: path.read_bytes() for path in secrets.iterdir()} == done, "nothing to do changes nothing"

    take(secrets, name="one", what=what, step="end")
    assert rotation.previous(secrets / "a-admin.password") == "" and said(secrets / "a-admin.password") == new
    take(secrets, name="one", what=what, step="end", complete=True)
    assert not take(secrets, name="one", what=what)[0]["changed"], "it has ended, and does not begin again"
    assert said(secrets / "a-admin.password") == new
    assert take(secrets, name="two", what=what)[0]["changed"]
    assert rotation.previous(secrets / "a-admin.password") == new


@pytest.mark.parametrize(
    ("name", "what", "step", "why"),
    [
        ("two", ["passwords"], "overlap", "end it first"),
        ("one", ["passwords", "ca"], "overlap", "began with passwords"),
        ("one", ["passwords"], "switch", "has no new CA"),
        ("a/b", ["passwords"], "overlap", "a name is"),
    ],
)
def test_what_is_refused(secrets: Path, name: str, what: list[str], step: str, why: str) -> None:
    take(secrets, name="one", what=["passwords"])
    assert why in take(secrets, name=name, what=what, step=step)[1]
    assert rotation.read(secrets).name == "one"


@pytest.mark.parametrize("name", ["one", "two"])
def test_one_that_begins_anew_ends_it(secrets: Path, name: str) -> None:
    take(secrets, name="one", what=["passwords"])
    between = said(secrets / "a-admin.password")
    words: dict[str, Any] = {"name": name, "what": ["passwords"], "anew": True}
    refused = {"one": "", "two": "end it first"}[name]
    assert refused in take(secrets, **words)[1] and said(secrets / "a-admin.password") == between, (
        "not before all have it"
    )
    take(secrets, name="one", what=["passwords"], complete=True)
    assert take(secrets, **words)[0]["changed"]
    assert rotation.previous(secrets / "a-admin.password") == between


def test_the_first_step_comes_first(secrets: Path) -> None:
    assert "its first step is overlap" in take(secrets, name="one", what=["ca"], step="switch")[1]


def trusts(ca: Path, bundle: Path) -> bool:
    return not subprocess.run(["openssl", "verify", "-CAfile", str(ca), str(bundle)], capture_output=True).returncode


def test_a_new_ca_is_trusted_before_it_signs(secrets: Path, tmp_path: Path) -> None:
    wanted = {"names": ["h"], "addresses": [], "days": 90}
    ca, bundle, trusted = (secrets / name for name in ("ca.pem", "h.bundle.pem", "trusted.pem"))
    certificate.make_host(secrets, "test", "h", wanted)
    old = tmp_path / "old.pem"
    old.write_text(ca.read_text())

    take(secrets, name="one", what=["ca"])
    assert not certificate.make_host(secrets, "test", "h", wanted), "the old CA signs yet"
    assert trusts(trusted, bundle)
    take(secrets, name="one", what=["ca"], complete=True)
    before = trusted.read_text()

    take(secrets, name="one", what=["ca"], step="switch")
    assert certificate.make_host(secrets, "test", "h", wanted)
    (tmp_path / "before.pem").write_text(before)
    assert trusts(trusted, bundle) and trusts(tmp_path / "before.pem", bundle) and not trusts(old, bundle)
    assert trusted.read_text() == before, "what hosts trust stays the same"
    take(secrets, name="one", what=["ca"], step="switch", complete=True)

    take(secrets, name="one", what=["ca"], step="end")
    assert not trusted.exists() and trusts(ca, bundle)
    left = {path.name for path in secrets.iterdir()}
    assert not {name for name in left if "next" in name or "previous" in name}


def cut_off(number: int) -> Callable[..., None]:
    """What replaces a file, and ends the process before its `number`th one."""
    count, replace = iter(range(100)), rotation.replace

    def once(path: Path, text: str) -> None:
        if next(count) == number:
            raise KeyboardInterrupt
        replace(path, text)

    return once


@pytest.mark.parametrize("number", range(4))
def test_a_password_that_was_cut_off_is_made_once(secrets: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path, state = secrets / "a-admin.password", rotation.Rotation("one", ["passwords"])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(rotation, "replace", cut_off(number))
        rotation.new_password(path, state, keep=True)
    for _ in range(2):
        state = rotation.read(secrets) or rotation.Rotation("one", ["passwords"])
        rotation.new_password(path, state, keep=True)
        assert rotation.previous(path) == "old-a-admin" and said(path) != "old-a-admin"
    assert not path.with_name("a-admin.password.next").exists()


@pytest.mark.parametrize("number", range(4))
def test_a_switch_that_was_cut_off_goes_on(secrets: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    old = (secrets / "ca.pem").read_text()
    certificate.make_ca(secrets, "test", "ca.next", "new")
    new, key = (secrets / "ca.next.pem").read_text(), (secrets / "ca.next.key").read_text()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(rotation, "replace", cut_off(number))
        rotation.switch_ca(secrets)
    for _ in range(2):
        rotation.switch_ca(secrets)
    assert ((secrets / "ca.pem").read_text(), (secrets / "ca.key").read_text()) == (new, key)
    assert (secrets / "trusted.pem").read_text() == new + old


def test_products_that_have_passwords_are_refused_or_rotated() -> None:
    """A role with generated passwords says what it makes anew, or the playbook refuses it."""
    roles = {path.parents[1].name for path in (ROOT / "roles").glob("*/tasks/rotation.yml")}
    assert {"artemis", "zookeeper", "load"} <= roles
    for role in roles - {"artemis"}:
        assert "brokerdrill.ha.secret" not in (ROOT / "roles" / role / "defaults" / "main.yml").read_text()
