"""`brokerdrill audit`: what a host shows, by its own program on real sockets and files, and what that comes to."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from prometheus_client.parser import text_string_to_metric_families

from brokerdrill.base.exposition import write
from brokerdrill.hosts import exposed
from brokerdrill.products.health import restarts
from brokerdrill.runner.audit import Audited, judged
from brokerdrill.runner.audit_metrics import exposition

NOW = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def made(folder: Path, name: str, ends: datetime.datetime) -> Path:
    """A certificate that is its own authority, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    called = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(called)
        .issuer_name(called)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(ends - 1000 * DAY)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(pem))
    (folder / f"{name}.bundle.pem").write_bytes(secret + certificate.public_bytes(pem))
    (folder / f"{name}.bundle.pem").chmod(0o600)
    return folder / f"{name}.pem"


@contextlib.contextmanager
def served(bundle: Path) -> Iterator[int]:
    """A TLS server on a port of loopback, which is yielded."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(bundle)

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = listener.accept()
                with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as one:
                    one.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def said_by_the_host(folder: Path, of: ModuleType = exposed) -> dict[str, Any]:
    """What its program prints there, which is Python's standard library alone."""
    program = Path(str(of.__file__)).read_text()
    command = [sys.executable, "-I", "-", str(folder)]
    done = subprocess.run(command, input=program, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def descriptor(folder: Path, port: int, authority: Path, **more: Any) -> None:
    listener = {"name": "core", "address": "127.0.0.1", "port": port, "protocol": "core", "tls": True}
    told = {"product": "artemis", "instance": "a", "unit": "artemis.service", "listeners": [listener]}
    told |= {"tls": {"ca": str(authority), "bundle": str(authority.with_suffix(".bundle.pem"))}}
    (folder / "descriptors").mkdir()
    (folder / "descriptors" / "a.json").write_text(json.dumps(told | more))
    (folder / "descriptors" / "a.credentials.json").write_text('{"username": "drill", "password": "of drills"}')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that every user may enter."""
    for one in (tmp_path, *tmp_path.parents[:3]):
        with contextlib.suppress(PermissionError):
            one.chmod(one.stat().st_mode | 0o011)
    return tmp_path


def test_a_certificate_that_is_served_says_when_it_ends(folder: Path) -> None:
    ends = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + 20 * DAY
    authority = made(folder, "a", ends)
    with served(folder / "a.bundle.pem") as port:
        descriptor(folder, port, authority)
        said = said_by_the_host(folder / "descriptors")
    (instance,) = said["instances"]
    seen = instance["listeners"][0]["certificate"]
    assert ssl.cert_time_to_seconds(seen["ends"]) == ends.timestamp()
    assert {"address": "127.0.0.1", "port": port} in [
        {name: one[name] for name in ("address", "port")} for one in said["listening"]
    ]
    found = judged("h", said, {}, 30, datetime.datetime.now().timestamp(), False)
    assert [line.split(" (")[0] for line in found.findings] == ["artemis a: listener core"] * 2
    assert all("ends in 19 days" in line for line in found.findings)
    assert judged("h", said, {}, 10, datetime.datetime.now().timestamp(), False).findings == []


def test_a_certificate_of_another_authority_and_one_that_ended_are_not_trusted(folder: Path) -> None:
    later = datetime.datetime.now(datetime.UTC) + 300 * DAY
    other = made(folder, "other", later)
    made(folder, "a", later)
    with served(folder / "a.bundle.pem") as port:
        assert "self-signed" in exposed.certificate("127.0.0.1", port, str(other))["distrusted"]
    old = made(folder, "old", datetime.datetime.now(datetime.UTC) - DAY)
    with served(folder / "old.bundle.pem") as port:
        assert "expired" in exposed.certificate("127.0.0.1", port, str(old))["distrusted"]


def test_who_does_not_answer_is_not_seen(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert "refused" in exposed.certificate("127.0.0.1", port, str(made(folder, "a", NOW)))["unseen"]


def test_where_nobody_listens_its_file_is_looked_at_as_a_peer_would(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    later = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + 20 * DAY
    authority, other = made(folder, "a", later), made(folder, "other", later)
    bundle = str(folder / "a.bundle.pem")
    seen = exposed.certificate("127.0.0.1", port, str(authority), bundle)
    assert ssl.cert_time_to_seconds(seen["ends"]) == later.timestamp()
    assert "refused" in seen["unserved"]
    strange = exposed.certificate("127.0.0.1", port, str(other), bundle)
    assert "self-signed" in strange["distrusted"] and "refused" in strange["unserved"]
    (folder / "a.bundle.pem").write_text("no certificate")
    assert "refused" in exposed.certificate("127.0.0.1", port, str(authority), bundle)["unseen"]
    descriptor(folder, port, other)
    made(folder, "other", later)
    (instance,) = (said := said_by_the_host(folder / "descriptors"))["instances"]
    assert "unserved" in instance["listeners"][0]["certificate"]
    looked = judged("h", said, {}, 30, datetime.datetime.now().timestamp(), False)
    assert any("ends in 19 days" in line for line in looked.findings)
    assert any("nobody listens, its certificate was read from its file" in line for line in looked.notes)


def test_secrets_that_every_user_may_read_are_named(folder: Path) -> None:
    authority = made(folder, "a", NOW)
    config = folder / "config"
    (config / "closed").mkdir(parents=True)
    (config / "closed").chmod(0o750)
    for name in ("secrets.env", "broker.xml", "artemis-users.properties", "closed/secrets.env"):
        (config / name).write_text("x")
        (config / name).chmod(0o644)
    (config / "artemis-users.properties").chmod(0o640)
    credentials = folder / "credentials.json"
    credentials.write_text("{}")
    credentials.chmod(0o644)
    descriptor(folder, 1, authority, config_dir=str(config), credentials={"file": str(credentials)}, listeners=[])
    (instance,) = said_by_the_host(folder / "descriptors")["instances"]
    assert instance["readable"] == sorted([str(config / "secrets.env"), str(credentials)])
    assert "of drills" not in json.dumps(instance)


def instance(**listener: Any) -> dict[str, Any]:
    told = {"name": "core", "address": "192.0.2.1", "port": 61616, "protocol": "core", "tls": True, **listener}
    return {
        "product": "artemis",
        "instance": "a",
        "unit": "artemis.service",
        "listeners": [told],
        "readable": [],
    }


def found(
    said: dict[str, Any],
    listening: Sequence[tuple[str, int, str]] = (),
    newer: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Audited:
    sockets = [{"address": address, "port": port, "unit": unit} for address, port, unit in listening]
    return judged("h", {"instances": [said], "listening": sockets}, newer, 30, NOW.timestamp(), True)


def test_plain_text_beyond_the_host_is_found() -> None:
    assert found(instance(tls=False)).findings == [
        "artemis a: listener core (192.0.2.1:61616) speaks core in plain text"
    ]
    assert found(instance(tls=False, address="127.0.0.1")).findings == []
    assert found(instance(tls=False, address="::1")).findings == []


def test_a_port_that_no_descriptor_names_is_found() -> None:
    open_ones = [
        ("192.0.2.1", 61616, "artemis.service"),
        ("0.0.0.0", 1099, "artemis.service"),
        ("127.0.0.1", 8474, "artemis.service"),
        ("0.0.0.0", 22, "ssh.service"),
    ]
    assert found(instance(), open_ones).findings == [
        "artemis.service listens on 0.0.0.0:1099, which none of its descriptors names"
    ]


def test_what_ends_or_cannot_be_seen() -> None:
    soon, late = "Dec 10 12:00:00 2026 GMT", "Dec 10 12:00:00 2036 GMT"
    one = found(instance(certificate={"ends": soon, "authority_ends": late}))
    assert [line.split(": ", 2)[-1] for line in one.findings] == [f"its certificate ends in 11 days ({soon})"]
    one = found(instance(certificate={"unseen": "Connection refused"}))
    assert one.findings == [] and "its certificate was not seen: Connection refused" in one.notes[0]
    assert one.lines[0] == "h: nothing found" and one.lines[-1] == "h: (drills may break it: drill_allowed is true)"
    assert Audited("h", away="no way").lines == ["h: no way"]


def test_what_was_changed_after_a_start_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, age_s in (("broker.xml", -60), ("secrets.env", 60)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (NOW.timestamp() + age_s,) * 2)
    told = {"unit": "artemis.service", "config_dir": str(tmp_path)}
    assert restarts.newer({**told, "unit": "nothing-of-that-name.service"}) == []
    monkeypatch.setattr(restarts, "started_s", lambda _: NOW.timestamp())
    states = restarts.newer(told)
    # Only what root wrote: what a product writes itself waits for nothing.
    assert states == ([str(tmp_path / "secrets.env")] if os.getuid() == 0 else [])
    # Whose role has it read its files anew waits for nothing.
    assert restarts.newer({**told, "reads_anew": True}) == []
    assert restarts.newer({**told, "reads_anew": ["secrets.env"]}) == []
    # An authority that was replaced does.
    authority = tmp_path / "ca.pem"
    authority.touch()
    os.utime(authority, (NOW.timestamp() + 60,) * 2)
    told = {"unit": "artemis.service", "tls": {"ca": str(authority)}}
    assert restarts.newer(told) == ([str(authority)] if os.getuid() == 0 else [])
    one = found(instance(), newer={"a": ["/etc/artemis/a/secrets.env"]})
    assert one.findings == [] and "waits for a restart: /etc/artemis/a/secrets.env" in one.notes[0]


def test_a_host_says_it_of_each_descriptor(folder: Path) -> None:
    authority = made(folder, "authority", NOW + DAY)
    descriptor(folder, 1, authority, unit="nothing-of-that-name.service", listeners=[])
    assert said_by_the_host(folder / "descriptors", restarts) == {"a": []}


def test_the_start_of_a_process_is_known_to_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(["sleep", "60"])
    began = datetime.datetime.now().timestamp()
    try:
        answer = subprocess.CompletedProcess([], 0, stdout=f"{process.pid}\n")
        monkeypatch.setattr(restarts.subprocess, "run", lambda *_, **__: answer)
        assert abs(restarts.started_s("a.service") - began) < restarts.SURE_S
    finally:
        process.kill()
        process.wait()


def test_metrics_say_when_certificates_end_and_whom_nobody_trusts(tmp_path: Path) -> None:
    ends = NOW + 20 * DAY
    said = {"ends": f"{ends:%b %d %H:%M:%S %Y} GMT", "authority_ends": f"{NOW + 900 * DAY:%b %d %H:%M:%S %Y} GMT"}
    listeners = [
        {"name": name, "address": "10.0.0.1", "port": port, "protocol": "core", "tls": True, "certificate": seen}
        for port, (name, seen) in enumerate(
            (("core", said), ("old", {"distrusted": "it has ended"}), ("silent", {"unseen": "refused"}))
        )
    ]
    instance = {"product": "artemis", "instance": 'a"1', "unit": "a.service", "listeners": listeners, "readable": []}
    looked = judged("one", {"instances": [instance], "listening": []}, {}, 30, NOW.timestamp(), False)
    assert looked.findings == [
        f'artemis a"1: listener core (10.0.0.1:0): its certificate ends in 20 days ({said["ends"]})',
        'artemis a"1: listener old (10.0.0.1:1): its certificate is not one that its peers trust: it has ended',
    ]
    assert looked.notes == ['artemis a"1: listener silent (10.0.0.1:2): its certificate was not seen: refused']
    write(tmp_path / "audit.prom", exposition("orders", [looked, Audited("two", away="no SSH")], NOW.timestamp()))
    samples = {
        (sample.name.removeprefix("brokerdrill_audit_"), *list(sample.labels.values())[1:]): sample.value
        for family in text_string_to_metric_families((tmp_path / "audit.prom").read_text())
        for sample in family.samples
    }
    assert samples == {
        ("last_timestamp_seconds",): NOW.timestamp(),
        ("host_asked", "one"): 1,
        ("host_asked", "two"): 0,
        ("findings", "one"): 2,
        ("certificate_trusted", "one", 'a"1', "core"): 1,
        ("certificate_trusted", "one", 'a"1', "old"): 0,
        ("certificate_end_timestamp_seconds", "one", 'a"1', "core", "certificate"): ends.timestamp(),
        ("certificate_end_timestamp_seconds", "one", 'a"1', "core", "authority"): (NOW + 900 * DAY).timestamp(),
    }
