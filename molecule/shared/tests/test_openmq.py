"""What a deployment left of Open MQ, seen from inside after a drill."""

from __future__ import annotations

from typing import Any

from conftest import Instance, listening, owner


def test_management_needs_a_password(instance: Instance, host: Any) -> None:
    url = instance["management"]["url"]
    script = (
        "import ssl,urllib.request as u;"
        f"c=ssl.create_default_context(cafile='{instance['tls']['ca']}');"
        f"u.build_opener(u.ProxyHandler({{}}),u.HTTPSHandler(context=c)).open('{url}',timeout=10)"
    )
    answer = host.run("python3 -c %s", script)
    assert answer.rc != 0
    assert "401" in answer.stderr, answer.stderr


def test_every_broker_serves_clients_and_its_cluster(instance: Instance, host: Any) -> None:
    local = listening(host)
    for name in ("ssljms", "cluster"):
        (listener,) = [item for item in instance["listeners"] if item["name"] == name]
        assert f"{listener['address']}:{listener['port']}" in local, name


def test_passwords_are_encoded_and_the_brokers_alone(instance: Instance, host: Any) -> None:
    user = owner(host, instance["unit"])
    for name in ("passfile", "passwd", "keystore.p12", "jolokia.properties"):
        file = host.file(f"{instance['config_dir']}/{name}")
        assert (file.user, file.group, file.mode) == ("root", user, 0o640), name
    lines = host.file(f"{instance['config_dir']}/passfile").content_string.splitlines()
    passwords = [line for line in lines if line.startswith("imq.")]
    assert passwords
    assert all("{" in line.split("=", 1)[0] for line in passwords), "a plain password"


def test_its_store_is_where_the_descriptor_says(instance: Instance, host: Any) -> None:
    files = f"{instance['data_dir']}/instances/{instance['instance']}/fs370"
    assert host.file(files).is_directory == ("file_store" in instance["features"])


def test_the_log_has_the_line_that_the_role_is_read_from(instance: Instance, host: Any) -> None:
    assert "[B1039]" in host.check_output("journalctl --no-pager -o cat -u %s", instance["unit"])
