"""Certificates by the host name that a client asks for, and revoked certificates of clients."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from router_support import config_of, local_router_of, wait_for
from test_clients import certificate
from test_sessions import FakeBroker, Peer

from amqp_session_router.amqp import codec
from amqp_session_router.base.errors import UsageError
from amqp_session_router.config import loader

Pair = tuple[Path, Path]
VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])


def revoked(by: Pair, *certificates: Path, days: int = 1) -> bytes:
    """Return the revocation list of an authority; `days`: until it is too old."""
    authority = x509.load_pem_x509_certificate(by[0].read_bytes())
    key = serialization.load_pem_private_key(by[1].read_bytes(), None)
    now = datetime.now(UTC)
    made = x509.CertificateRevocationListBuilder().issuer_name(authority.subject)
    made = made.last_update(now - timedelta(days=9)).next_update(now + timedelta(days=days))
    for file in certificates:
        serial = x509.load_pem_x509_certificate(file.read_bytes()).serial_number
        one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - timedelta(days=1)).build()
        made = made.add_revoked_certificate(one)
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)  # type: ignore[arg-type]


def tls_of(directory: Path) -> tuple[dict[str, Any], Pair]:
    """Return a listener's TLS, which asks for certificates, and the authority."""
    ca = certificate(directory, "the authority", name="ca")
    cert, key = certificate(directory, "default", by=ca, name="default")
    return {"cert_file": str(cert), "key_file": str(key), "ca_file": str(ca[0])}, ca


def connect(
    port: int,
    ca: Pair,
    asked: str | None = None,
    own: Pair | None = None,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> ssl.SSLSocket:
    """Connect by TLS; raises OSError."""
    context = ssl.create_default_context(cafile=str(ca[0]))
    context.check_hostname = False
    context.minimum_version = context.maximum_version = version
    if own is not None:
        context.load_cert_chain(*own)
    sock = socket.create_connection(("127.0.0.1", port), timeout=20)
    try:
        return context.wrap_socket(sock, server_hostname=asked)
    except BaseException:
        sock.close()
        raise


def shown(port: int, ca: Pair, asked: str | None, own: Pair | None = None) -> str:
    """Return the common name of the certificate that a client is shown."""
    with connect(port, ca, asked, own) as sock:
        found: Any = sock.getpeercert()
        return str(dict(one[0] for one in found["subject"])["commonName"])


def test_each_name_has_its_certificate(tmp_path: Path) -> None:
    tls, ca = tls_of(tmp_path)
    tls["certificates"] = []
    for called, names in (("one", ["one.example.org", "1.example.org"]), ("any", ["*.example.org"])):
        cert, key = certificate(tmp_path, called, by=ca, name=called)
        tls["certificates"].append({"names": names, "cert_file": str(cert), "key_file": str(key)})
    broker = FakeBroker()
    config = config_of(broker.port)
    config["listeners"]["plain"]["tls"] = tls
    with local_router_of(config) as router:
        expected = {
            "one.example.org": "one",
            "ONE.example.org": "one",
            "1.example.org": "one",
            "two.example.org": "any",
            "a.two.example.org": "default",
            "example.org": "default",
            "other.test": "default",
            None: "default",
        }
        assert {name: shown(router.port, ca, name) for name in expected} == expected
        # A file that was replaced is shown after a reload.
        cert, key = certificate(tmp_path, "renewed", by=ca, name="one")
        assert shown(router.port, ca, "one.example.org") == "one"
        router.reload(config)
        assert shown(router.port, ca, "one.example.org") == "renewed"
        with connect(router.port, ca, "One.example.org") as sock:
            sock.sendall(codec.PROTOCOL_HEADER)
            assert Peer(sock).expect(codec.START)


def serves(port: int, ca: Pair, own: Pair | None, version: ssl.TLSVersion, asked: str | None = None) -> bool:
    """Return whether the router speaks AMQP with a client that has this certificate."""
    try:
        with connect(port, ca, asked, own, version) as sock:
            sock.sendall(codec.PROTOCOL_HEADER)
            return bool(Peer(sock).expect(codec.START))
    except (OSError, EOFError):
        return False


@VERSIONS
@pytest.mark.parametrize("asked", [None, "one.example.org"])
def test_a_revoked_certificate_is_refused(tmp_path: Path, version: ssl.TLSVersion, asked: str | None) -> None:
    tls, ca = tls_of(tmp_path)
    good, bad = (certificate(tmp_path, name, by=ca, name=name) for name in ("good", "bad"))
    one = certificate(tmp_path, "one", by=ca, name="one")
    tls["certificates"] = [{"names": ["one.example.org"], "cert_file": str(one[0]), "key_file": str(one[1])}]
    crl = tmp_path / "crl.pem"
    crl.write_bytes(revoked(ca))
    tls |= {"client_cert": "optional", "crl_file": str(crl)}
    broker = FakeBroker()
    config = config_of(broker.port)
    config["listeners"]["plain"]["tls"] = tls
    with local_router_of(config) as router:
        assert serves(router.port, ca, good, version, asked) and serves(router.port, ca, bad, version, asked)
        crl.write_bytes(revoked(ca, bad[0]))
        router.reload(config)
        assert serves(router.port, ca, good, version, asked) and serves(router.port, ca, None, version, asked)
        assert not serves(router.port, ca, bad, version, asked)
        ends = lambda: [one for one in router.entries("closed") if one["how"] == "protocol_error"]  # noqa: E731
        (told,) = wait_for("the line", ends)
        assert told["text"] == "TLS failed: certificate revoked"
        # A list that is too old says nothing about anybody: nobody comes in by a certificate.
        crl.write_bytes(revoked(ca, days=-1))
        router.reload(config)
        assert not serves(router.port, ca, good, version, asked)
        wait_for("the line", lambda: ends()[-1]["text"] == "TLS failed: CRL has expired")


def test_what_does_not_hold_together_is_said(tmp_path: Path) -> None:
    tls, ca = tls_of(tmp_path)
    crl = tmp_path / "crl.pem"
    crl.write_bytes(revoked(ca))
    pair = {"cert_file": tls["cert_file"], "key_file": tls["key_file"]}

    def problem(**more: Any) -> str:
        with pytest.raises(UsageError) as caught:
            loader.from_data({"listeners": {"p": {"tls": tls | more}}})
        return str(caught.value).replace(str(tmp_path), "DIR")

    assert problem(crl_file=str(crl)) == (
        "listeners.p.tls: crl_file revokes certificates of clients, and client_cert asks for none"
    )
    asks = {"client_cert": "required"}
    assert problem(crl_file=str(ca[1]), **asks) == "listeners.p.tls: DIR/ca.key holds no revocation list"
    assert problem(crl_file=str(ca[0]), **asks) == "listeners.p.tls: DIR/ca.pem holds no revocation list"
    both = tmp_path / "both.pem"
    both.write_bytes(crl.read_bytes() + certificate(tmp_path, "stranger", name="stranger")[0].read_bytes())
    assert problem(crl_file=str(both), **asks) == (
        "listeners.p.tls: DIR/both.pem holds a certificate, which would be trusted"
    )
    assert problem(crl_file=f"{tmp_path}/none", **asks) == (
        "listeners.p.tls: cannot read DIR/none: No such file or directory"
    )
    twice = [{"names": ["a.test", "b.test"], **pair}, {"names": ["B.test"], **pair}]
    assert problem(certificates=twice) == ("listeners.p.tls.certificates[1].names: 'b.test' has a certificate already")
    assert "is empty" in problem(certificates=[{"names": [], **pair}])
    assert "listeners.p.tls.certificates[0].names[0]" in problem(certificates=[{"names": ["a.*.test"], **pair}])
    other = {"names": ["a.test"], **pair, "key_file": str(ca[1])}
    assert "do not load" in problem(certificates=[other])
