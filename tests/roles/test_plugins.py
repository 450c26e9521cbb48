"""The collection's own plugins, without Ansible where that is possible."""

from __future__ import annotations

import importlib.util
import json
import os
import ssl
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from brokerdrill.products.health.zookeeper import health_of as zookeeper_health
from tests.roles.conftest import ROOT, playbook


def plugin(kind: str, name: str) -> ModuleType:
    """Return the plugin's module, loaded from its file."""
    spec = importlib.util.spec_from_file_location(f"{kind}_{name}", ROOT / "plugins" / kind / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


artemis, cached, certificate, inventory_secrets = (
    plugin("filter", "artemis"),
    plugin("action", "cached"),
    plugin("action", "host_certificate"),
    plugin("action", "inventory_secrets"),
)


def test_password_hash_is_the_brokers_own_form() -> None:
    salt = "00" * 32
    made = artemis.artemis_password_hash("secret", salt)
    assert made == artemis.artemis_password_hash("secret", salt)
    prefix, kept, digest = made.removeprefix("ENC(").removesuffix(")").split(":")
    assert (prefix, kept, len(digest)) == ("1024", salt, 128)
    assert digest == digest.upper() != artemis.artemis_password_hash("Secret", salt).split(":")[2][:-1]


def test_older_names_are_understood_and_said() -> None:
    assert [artemis.artemis_modern(name) for name in ("master", "slave", "live-only", "peers")] == [
        "primary",
        "backup",
        "primary_only",
        "peers",
    ]
    used = {"artemis_ha_role": "slave", "artemis_ha_policy": "peers", "artemis_check_for_live_server": False}
    assert artemis.artemis_old_names(used) == [
        "artemis_ha_role: slave is an older name of backup",
        "artemis_check_for_live_server is an older name of artemis_check_for_active_server",
    ]
    assert artemis.artemis_old_names({"artemis_ha_role": "backup", "artemis_check_for_live_server": None}) == []


def test_roles_list_their_users() -> None:
    users = [{"name": "u1", "roles": ["b", "a"]}, {"name": "u2", "roles": ["b"]}]
    assert artemis.artemis_members_of(users) == {"a": ["u1"], "b": ["u1", "u2"]}


@pytest.mark.parametrize(
    ("coordinate", "name"),
    [
        ("g:a:1.0", "a-1.0.jar"),
        ("org.x:apache-artemis:2.56.0:tar.gz:bin", "apache-artemis-2.56.0-bin.tar.gz"),
        ("io.netty:n:4:jar:linux-x86_64", "n-4-linux-x86_64.jar"),
    ],
)
def test_maven_names(coordinate: str, name: str) -> None:
    assert cached.maven_file_name(coordinate) == name


def test_packing_is_the_same_twice(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "lib").mkdir(parents=True)
    for name in ("b", "a"):
        (source / "lib" / name).write_text(name)
    cached.pack(source, tmp_path / "1.tar")
    os.utime(source / "lib" / "a", (1, 1))
    cached.pack(source, tmp_path / "2.tar")
    assert (tmp_path / "1.tar").read_bytes() == (tmp_path / "2.tar").read_bytes()
    with tarfile.open(tmp_path / "1.tar") as archive:
        assert archive.getnames() == ["lib/a", "lib/b"]


def test_cache_keeps_what_its_pin_says_and_nothing_else(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    origin.write_bytes(b"content")
    source = {"url": origin.as_uri(), "sha256": cached.sha256_of(origin)}
    first = cached.keep(tmp_path / "cache", "a.tar", "url", source)
    origin.unlink()  # now only the cache has it
    again = cached.keep(tmp_path / "cache", "a.tar", "url", source)
    assert (first.get("fetched"), again.get("fetched")) == (True, None)
    assert again["sha256"] == source["sha256"]
    with pytest.raises(Exception, match="cannot be read"):
        cached.keep(tmp_path / "cache", "a.tar", "url", {**source, "sha256": "0" * 64})
    assert Path(again["path"]).read_bytes() == b"content"


def test_cache_refuses_another_content(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    origin.write_bytes(b"tampered")
    with pytest.raises(Exception, match="is pinned"):
        cached.keep(tmp_path / "cache", "a.tar", "url", {"url": origin.as_uri(), "sha256": "0" * 64})
    assert not (tmp_path / "cache" / "a.tar").exists()


def test_certificates_are_private_and_for_their_host(tmp_path: Path) -> None:
    wanted = {"names": ["artemis1"], "addresses": ["192.0.2.21"], "days": 90}
    assert certificate.make_ca(tmp_path, "test")
    assert not certificate.make_ca(tmp_path, "test")
    assert certificate.make_host(tmp_path, "test", "artemis1", wanted)
    assert not certificate.make_host(tmp_path, "test", "artemis1", wanted)
    bundle = tmp_path / "artemis1.bundle.pem"
    assert bundle.stat().st_mode & 0o777 == 0o600
    text = bundle.read_text()
    assert text.startswith("-----BEGIN PRIVATE KEY-----"), "PKCS#8: ZooKeeper refuses any other"
    assert "-----BEGIN CERTIFICATE-----" in text
    shown = subprocess.run(
        ["openssl", "x509", "-in", str(bundle), "-noout", "-text"], capture_output=True, text=True, check=True
    ).stdout
    for words in (
        "DNS:artemis1",
        "IP Address:192.0.2.21",
        "TLS Web Server Authentication, TLS Web Client",
        "prime256v1",
    ):
        assert words in shown
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    context.load_cert_chain(bundle)  # the key is the certificate's


def test_a_new_address_makes_a_new_certificate(tmp_path: Path) -> None:
    wanted = {"names": ["a"], "addresses": ["192.0.2.1"], "days": 90}
    certificate.make_ca(tmp_path, "test")
    certificate.make_host(tmp_path, "test", "a", wanted)
    assert certificate.make_host(tmp_path, "test", "a", {**wanted, "addresses": ["192.0.2.2"]})
    assert certificate.make_host(tmp_path, "test", "a", {**wanted, "days": 20})
    assert certificate.make_host(tmp_path, "test", "a", {**wanted, "days": 20}), "ends soon: made again"


def test_a_member_serves_when_the_ensemble_has_a_leader() -> None:
    assert zookeeper_health("Zookeeper version: 3.9.5\nMode: follower\nNode count: 5\n").state == "active"
    silent = zookeeper_health("This ZooKeeper instance is not currently serving requests\n")
    assert (silent.state, silent.in_sync) == ("starting", False)


HOST = ROOT / "plugins" / "modules" / "host.py"


def put(directories: list[dict[str, str]], files: list[dict[str, str]], check: bool = False) -> dict[str, object]:
    """Run the module `host` as a host would."""
    import base64

    payload = base64.b64encode(json.dumps({"directories": directories, "files": files}).encode()).decode()
    arguments = {"payload": payload, "_ansible_check_mode": check, "_ansible_diff": True}
    done = subprocess.run(
        [sys.executable, str(HOST)],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        env={**os.environ, "ANSIBLE_MODULE_ARGS_PROFILE": "legacy"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_files_are_written_once_whole_and_with_their_mode(tmp_path: Path) -> None:
    import getpass
    import grp

    me = {"owner": getpass.getuser(), "group": grp.getgrgid(os.getgid()).gr_name}
    directories = [{"path": str(tmp_path / "d"), **me, "mode": "0750"}]
    files = [
        {"dest": str(tmp_path / "d" / "plain"), "content": "one\n", **me},
        {"dest": str(tmp_path / "d" / "secret"), "content": "hush\n", "mode": "0600", "secret": True, **me},  # type: ignore[dict-item]
    ]
    would = put(directories, files, check=True)
    assert would["changed"]
    assert not (tmp_path / "d").exists()
    did = put(directories, files)
    assert did["changed"]
    assert "hush" not in json.dumps(did)
    assert (tmp_path / "d" / "secret").stat().st_mode & 0o777 == 0o600
    assert not put(directories, files)["changed"]
    (tmp_path / "d" / "plain").chmod(0o600)
    assert put(directories, files)["paths"] == [str(tmp_path / "d" / "plain")]
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["plain", "secret"]


def test_a_file_that_its_program_refuses_is_not_put_in_place(tmp_path: Path) -> None:
    import getpass
    import grp

    me = {"owner": getpass.getuser(), "group": grp.getgrgid(os.getgid()).gr_name}
    place = tmp_path / "file"
    entry = {"dest": str(place), **me, "validate": "grep -q good %s"}
    assert put([], [{**entry, "content": "good\n"}])["changed"]
    assert put([], [{**entry, "content": "bad\n"}])["failed"]
    assert place.read_text() == "good\n"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_secrets_are_one_inventorys_alone(tmp_path: Path) -> None:
    secrets, production = tmp_path / "secrets", tmp_path / "production"
    secrets.mkdir()
    production.mkdir()
    refusal = inventory_secrets.refusal
    assert refusal(secrets, str(production), None) == "", "a new inventory"
    assert refusal(secrets, str(production), str(production)) == ""
    assert refusal(secrets, str(tmp_path / "moved"), str(tmp_path / "gone")) == "", "the inventory has moved"
    assert "must not share" in refusal(secrets, str(tmp_path / "copy"), str(production))
    assert "must not share" in refusal(secrets, str(production), "bench-artemis_quorum")
    (secrets / "ca.pem").write_text("a CA\n")
    assert "no note whose it is" in refusal(secrets, str(production), None)


SAYS_HOW_SELDOM = """
import gc
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        return {"changed": False, "msg": f"frozen {gc.get_freeze_count() > 10_000}, threshold {gc.get_threshold()[0]}"}
"""


def test_a_tasks_process_looks_for_garbage_seldom(tmp_path: Path) -> None:
    for kind, text in (("action", SAYS_HOW_SELDOM), ("library", "#!/usr/bin/python\n")):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "how_seldom.py").write_text(text)
    book = tmp_path / "play.yml"
    book.write_text("- hosts: localhost\n  gather_facts: false\n  tasks: [{how_seldom: {}}]\n")
    done = playbook(
        ["-v", str(book)],
        tmp_path,
        ANSIBLE_ACTION_PLUGINS=str(tmp_path / "action"),
        ANSIBLE_LIBRARY=str(tmp_path / "library"),
    )
    assert "frozen True, threshold 50000" in done.stdout, done.stdout + done.stderr
