"""Any text that a vault gives comes out of rabbitmq.conf and of the definitions as it went in, read by RabbitMQ's own
code, or is refused."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
from ansible_collections.brokerdrill.ha.plugins.filter import rabbitmq
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.roles.conftest import ROOT, load
from tests.roles.test_texts import ODD, SAID, any_text, clean

sys.path.append(str(ROOT / "router" / "tests"))
from router_support import Broker

LIBRARY = next(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
PLAIN = {
    "rabbitmq_address": "192.0.2.1",
    "rabbitmq_tls": True,
    "common_metrics": False,
    # The broker refuses files that are not there.
    **dict.fromkeys(("common_tls_ca", "common_tls_bundle", "__rabbitmq_definitions"), "/etc/hostname"),
    "__rabbitmq_members": {"a": {"node": "rabbit@192.0.2.1"}},
}
Read = Callable[[str], dict[str, str] | None]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Read]:
    """Return what the broker reads in a rabbitmq.conf, None where it does not start with it."""
    path = tmp_path_factory.mktemp("conf") / "rabbitmq.conf"
    command = ["escript", str(ROOT / "tests" / "roles" / "rabbitmq_conf.escript"), str(LIBRARY)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None

        def asked(text: str) -> dict[str, str] | None:
            path.write_text(text)
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
            told = process.stdout.readline().split()
            if "refused" in told:
                return None
            return {_plain(name): _plain(value) for name, value in (one.split(":") for one in told)}

        yield asked
        process.stdin.close()


def _plain(told: str) -> str:
    return base64.b64decode(told).decode()


def conf(**variables: Any) -> str:
    """What the role renders, with its defaults."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROOT / "roles" / "rabbitmq" / "templates"), trim_blocks=True
    )
    environment.filters["bool"] = bool
    environment.tests["match"] = lambda text, pattern: re.match(pattern, text) is not None
    defaults = load(ROOT / "roles" / "rabbitmq" / "defaults" / "main.yml")
    return environment.get_template("rabbitmq.conf.j2").render({**defaults, **PLAIN, **variables})


def test_the_roles_own_file_is_read_whole(read: Read) -> None:
    found = read(conf(rabbitmq_port=5671))
    assert found is not None
    assert (found["cluster_name"], found["listeners.ssl.1"]) == ("rabbit", "192.0.2.1:5671")


@any_text()
def test_names_and_settings_in_rabbitmq_conf(read: Read, text: str) -> None:
    name, setting = clean(text, "rabbitmq_name"), clean(text, "rabbitmq_setting")
    assert name == setting
    found = read(conf(rabbitmq_port=5671, rabbitmq_cluster=text, rabbitmq_settings={"default_pass": text}))
    if name:
        assert found is not None
        assert (found["cluster_name"], found["default_pass"]) == (text, text)


@pytest.mark.parametrize("text", ["a#b", "a世b", " a", "a\nb"])
def test_what_is_refused_would_be_something_else(read: Read, text: str) -> None:
    assert not clean(text, "rabbitmq_name")
    found = read(conf(rabbitmq_port=5671, rabbitmq_cluster=text))
    assert found is None or found["cluster_name"] != text


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    one = Broker(tmp_path_factory.mktemp("rabbitmq"), vhosts=("/",))
    one.start()
    yield one
    one.stop()


def definitions(texts: list[str]) -> dict[str, Any]:
    """What the role writes for vhosts, users, policies and queues of these names."""
    rights = {"configure": "^$", "write": ".*", "read": ".*"}
    users = [
        {"name": text, "password": text[::-1], "tags": ["monitoring"], "permissions": {text: rights}} for text in texts
    ]
    policies = [
        {"name": text, "vhost": text, "pattern": f"^{re.escape(text)}$", "definition": {"max-length": 7}}
        for text in texts
    ]
    queues = [
        {"name": text, "vhost": text, "durable": True, "auto_delete": False, "arguments": {"x-queue-mode": "lazy"}}
        for text in texts
    ]
    return rabbitmq.rabbitmq_definitions(users, texts, policies, {"queues": queues})


def lets_in(broker: Broker, accounts: list[tuple[str, str]]) -> list[bool]:
    """Whether the broker knows each user by the password."""

    def quoted(text: str) -> str:
        return f'base64:decode("{base64.b64encode(text.encode()).decode()}")'

    asked = ", ".join(f"{{{quoted(name)}, {quoted(password)}}}" for name, password in accounts)
    call = "element(1, rabbit_access_control:check_user_pass_login(Name, Password)) == ok"
    said = broker.ctl("eval", f"[{call} || {{Name, Password}} <- [{asked}]].")
    return [one == "true" for one in re.findall("true|false", said)]


# Each example is many texts at once, and takes seconds: none is made smaller.
@settings(max_examples=3, deadline=None, phases=(Phase.generate,))
@given(drawn=st.lists(ODD, min_size=20, max_size=40))
def test_definitions_hold_any_text(broker: Broker, drawn: list[str]) -> None:
    texts = sorted({*SAID, *drawn})
    said = definitions(texts)
    path = broker.directory / "said.json"
    path.write_text(json.dumps(said, indent=4, ensure_ascii=False))
    broker.ctl("import_definitions", str(path))
    broker.ctl("export_definitions", str(broker.directory / "read.json"))
    read = json.loads((broker.directory / "read.json").read_text())
    keys = {
        "vhosts": ("name",), "users": ("name",), "policies": ("vhost", "name"), "queues": ("vhost", "name"),
        "permissions": ("vhost", "user"),
    }  # fmt: skip
    for kind, key in keys.items():
        found = {tuple(one[part] for part in key): one for one in read[kind]}
        for one in said[kind]:
            there = found[tuple(one[part] for part in key)]
            assert {name: there.get(name) for name in one} == one, kind
    assert all(lets_in(broker, [(text, text[::-1]) for text in texts]))
    assert not any(lets_in(broker, [(text, f"{text}x") for text in texts]))
