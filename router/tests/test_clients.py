"""Real clients, unchanged, through the router to a real RabbitMQ."""

from __future__ import annotations

import base64
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pika
import pika.exceptions
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pika.adapters.blocking_connection import BlockingChannel
from router_support import PASSWORD, USER, Broker, Hook, Router, config_of, local_router_of, wait_for
from tests.free_ports import free_port

CREDENTIALS = pika.PlainCredentials(USER, PASSWORD)


def connect(port: int, vhost: str = "/", password: str = PASSWORD, **more: object) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1",
            port,
            vhost,
            pika.PlainCredentials(USER, password),
            blocked_connection_timeout=30,
            socket_timeout=20,
            stack_timeout=30,
            **more,
        )
    )


@pytest.fixture
def channel(router: Router) -> Iterator[BlockingChannel]:
    connection = connect(router.port)
    yield connection.channel()
    if connection.is_open:
        connection.close()


def test_publish_with_confirms_and_consume(channel: BlockingChannel) -> None:
    channel.queue_declare("work", exclusive=True)
    channel.confirm_delivery()
    for number in range(200):
        channel.basic_publish("", "work", str(number).encode(), mandatory=True)
    got = []
    for method, _, body in channel.consume("work", inactivity_timeout=10):
        assert method is not None
        got.append(int(body))
        channel.basic_ack(method.delivery_tag)
        if len(got) == 200:
            break
    channel.cancel()
    assert got == list(range(200))
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", "nobody", b"x", mandatory=True)


def test_large_messages(channel: BlockingChannel) -> None:
    channel.queue_declare("large", exclusive=True)
    channel.confirm_delivery()
    for size in (0, 1, 131063, 131064, 131065, 10_000_000):
        body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        channel.basic_publish("", "large", body)
        assert channel.basic_get("large", auto_ack=True)[2] == body


def test_transactions(channel: BlockingChannel) -> None:
    channel.queue_declare("transacted", exclusive=True)
    channel.tx_select()
    channel.basic_publish("", "transacted", b"1")
    channel.tx_rollback()
    assert channel.basic_get("transacted")[0] is None
    channel.basic_publish("", "transacted", b"2")
    channel.tx_commit()
    assert channel.basic_get("transacted", auto_ack=True)[2] == b"2"
    channel.tx_commit()


CHANNEL_ERRORS = {
    404: lambda channel: channel.queue_declare("missing", passive=True),
    405: lambda channel: channel.queue_declare("taken"),
    406: lambda channel: channel.queue_declare("there", durable=True, exclusive=False, auto_delete=True),
    403: lambda channel: channel.exchange_declare("amq.mine"),
}


@pytest.mark.parametrize("code", sorted(CHANNEL_ERRORS))
def test_channel_errors(router: Router, channel: BlockingChannel, code: int) -> None:
    channel.queue_declare("there")
    other = connect(router.port)
    other.channel().queue_declare("taken", exclusive=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        CHANNEL_ERRORS[code](channel)
    assert caught.value.reply_code == code
    # The connection lives on.
    again = channel.connection.channel()
    again.queue_delete("there")
    other.close()


@pytest.mark.parametrize("known", [False, True])
def test_bad_password_is_a_close_and_not_an_end(router: Router, known: bool) -> None:
    if known:
        # A broker that took a session is told everything at once.
        connect(router.port).close()
    with pytest.raises(pika.exceptions.AMQPConnectionError, match=r"ConnectionClosedByBroker: \(403\)"):
        connect(router.port, password="wrong")


@pytest.mark.parametrize("vhost", ["missing", "closed"])
def test_a_vhost_that_is_not_for_us_is_530(router: Router, vhost: str) -> None:
    with pytest.raises(pika.exceptions.AMQPConnectionError, match=r"ConnectionClosedByBroker: \(530\)"):
        connect(router.port, vhost)


def test_broker_connection_error_is_relayed(router: Router) -> None:
    connection = connect(router.port)
    channel = connection.channel()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        channel.exchange_declare("odd", exchange_type="no-such-type")
    assert caught.value.reply_code == 503


def test_blocked_connections(broker: Broker, router: Router) -> None:
    connection = connect(router.port)
    told: list[str] = []
    connection.add_on_connection_blocked_callback(lambda *_: told.append("blocked"))
    connection.add_on_connection_unblocked_callback(lambda *_: told.append("unblocked"))
    channel = connection.channel()
    channel.queue_declare("alarm", exclusive=True)
    broker.ctl("set_vm_memory_high_watermark", "0.00001")
    try:
        # The blocked publisher must not wait for what cannot come: plain publishes, then the broker tells.
        channel.basic_publish("", "alarm", b"x")
        wait_for("Blocked", lambda: connection.process_data_events(0.1) or told, 30)
    finally:
        broker.ctl("set_vm_memory_high_watermark", "0.4")
    wait_for("Unblocked", lambda: connection.process_data_events(0.1) or len(told) == 2, 30)
    assert told == ["blocked", "unblocked"]
    wait_for("the message", lambda: channel.basic_get("alarm", auto_ack=True)[2] == b"x")
    connection.close()


def certificate(
    directory: Path, called: str = "localhost", by: tuple[Path, Path] | None = None, name: str = "cert"
) -> tuple[Path, Path]:
    """Make a certificate with the common name `called`, for localhost, and its key; without `by` it signs itself."""
    key = signer = ec.generate_private_key(ec.SECP256R1())
    subject = issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called)])
    if by is not None:
        issuer = x509.load_pem_x509_certificate(by[0].read_bytes()).subject
        loaded = serialization.load_pem_private_key(by[1].read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer = loaded
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .add_extension(x509.BasicConstraints(by is None, None), True)
        .sign(signer, hashes.SHA256())
    )
    cert, private = directory / f"{name}.pem", directory / f"{name}.key"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert, private


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_tls_on_both_sides(broker: Broker, tmp_path: Path, version: str) -> None:
    """client ─TLS→ router ─TLS→ router ─→ RabbitMQ."""
    cert, key = certificate(tmp_path)
    tls = {"cert_file": str(cert), "key_file": str(key), "minimum": version}
    inner = config_of(broker.port)
    inner["listeners"]["plain"]["tls"] = tls
    port = inner["listeners"]["plain"]["port"]
    outer = config_of(broker.port)
    outer["listeners"]["secure"] = {"host": "127.0.0.1", "port": free_port(), "tls": tls}
    outer["backends"]["inner"] = {
        "host": "localhost",
        "address": "127.0.0.1",
        "port": port,
        "tls": {"ca_file": str(cert), "minimum": version},
    }
    outer["rules"] = [{"listener": "secure", "backend": "inner"}]
    context = ssl.create_default_context(cafile=str(cert))
    with local_router_of(inner), local_router_of(outer) as router:
        connection = connect(outer["listeners"]["secure"]["port"], ssl_options=pika.SSLOptions(context, "localhost"))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("secret", exclusive=True)
        body = bytes(range(256)) * 20_000
        channel.basic_publish("", "secret", body)
        assert channel.basic_get("secret", auto_ack=True)[2] == body
        connection.close()
        # TLS to the plain port, and plain to the TLS port: an end, and the router goes on.
        with pytest.raises((pika.exceptions.AMQPError, OSError)):
            connect(router.port, ssl_options=pika.SSLOptions(context, "localhost"))
        with pytest.raises((pika.exceptions.AMQPError, OSError)):
            connect(port)
        connect(router.port).close()


def test_certificates_instead_of_passwords(tmp_path: Path) -> None:
    """EXTERNAL ends at the router: its hook gives the credentials; the router's own certificate names no user."""
    authority = certificate(tmp_path, called="authority", name="ca")
    cert, key = certificate(tmp_path, called="the-router", by=authority)
    client = certificate(tmp_path, called=USER, by=authority, name="client")
    ca = authority[0]
    port = free_port()
    settings = {
        "listeners.ssl.1": f"127.0.0.1:{port}",
        "ssl_options.cacertfile": ca,
        "ssl_options.certfile": cert,
        "ssl_options.keyfile": key,
        "ssl_options.verify": "verify_peer",
        "ssl_options.fail_if_no_peer_cert": "true",
        "ssl_cert_login_from": "common_name",
        "auth_mechanisms.1": "EXTERNAL",
        "auth_mechanisms.2": "PLAIN",
    }
    broker = Broker(
        tmp_path,
        "\n".join(f"{name} = {value}" for name, value in settings.items()),
        plugins=("rabbitmq_auth_mechanism_ssl",),
    )
    mine = {"ca_file": str(ca), "cert_file": str(cert), "key_file": str(key)}
    config = config_of(port)
    config["backends"]["b0"] |= {"tls": mine | {"server_name": "localhost"}}
    config["listeners"]["plain"]["tls"] = mine | {"client_cert": "optional"}
    response = base64.b64encode(f"\0{USER}\0{PASSWORD}".encode()).decode()
    hook = Hook({"result": "allow", "mechanism": "PLAIN", "response": response})
    config["authorization"] = {"url": f"http://127.0.0.1:{hook.server_port}/"}
    context = ssl.create_default_context(cafile=str(ca))
    stranger = pika.SSLOptions(context, "localhost")
    try:
        broker.start()
        with local_router_of(config) as router:
            known = ssl.create_default_context(cafile=str(ca))
            known.load_cert_chain(*client)

            def connect_by_certificate(options: pika.SSLOptions) -> pika.BlockingConnection:
                external = pika.credentials.ExternalCredentials()
                return pika.BlockingConnection(
                    pika.ConnectionParameters("127.0.0.1", router.port, credentials=external, ssl_options=options)
                )

            # Without a certificate the router does not offer EXTERNAL.
            with pytest.raises(pika.exceptions.AMQPError):
                connect_by_certificate(stranger)
            connection = connect_by_certificate(pika.SSLOptions(known, "localhost"))
            (session,) = router.ctl("CONN")
            assert (session["user"], session["phase"]) == (USER, "open")
            assert broker.ctl("-q", "list_connections", "user", "auth_mechanism").split()[-2:] == [USER, "PLAIN"]
            assert [(one["user"], one["certificate_name"]) for one in hook.asked] == [(USER, USER)]
            channel = connection.channel()
            channel.queue_declare("mine", exclusive=True)
            channel.basic_publish("", "mine", b"by certificate")
            wait_for("the message", lambda: channel.basic_get("mine", auto_ack=True)[2] == b"by certificate")
            connection.close()
    finally:
        broker.stop()


def test_another_languages_client(router: Router, tmp_path: Path) -> None:
    """The Go client: declare, confirms, consume, transactions, large messages, channel errors."""
    source = Path(__file__).with_name("goclient")
    for file in source.iterdir():
        shutil.copy(file, tmp_path / file.name)
    url = f"amqp://{USER}:{PASSWORD}@127.0.0.1:{router.port}/"
    done = subprocess.run(["go", "run", "."], cwd=tmp_path, input=url, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.endswith("all done\n"), done.stdout + done.stderr
