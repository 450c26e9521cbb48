"""SSL contexts from the settings. They are made when the configuration is read: a bad file is a bad configuration."""

from __future__ import annotations

import contextlib
import ssl
from dataclasses import replace
from pathlib import Path

from amqp_session_router.base.errors import UsageError
from amqp_session_router.base.model import ClientTls, ServerTls

_MINIMUM = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def _prepare(context: ssl.SSLContext, tls: ClientTls | ServerTls) -> None:
    context.minimum_version = _MINIMUM[tls.minimum]
    if tls.ciphers is not None:
        try:
            context.set_ciphers(tls.ciphers)
        except ssl.SSLError:
            raise UsageError(f"OpenSSL knows no cipher of {tls.ciphers!r}") from None
    if tls.cert_file is not None:
        for file in (tls.cert_file, tls.key_file or tls.cert_file):
            _must_read(file)
        try:
            # No passphrase is ever asked for: a router starts without a terminal.
            context.load_cert_chain(tls.cert_file, tls.key_file, password=lambda: b"")
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or "not a PEM file, or one with a passphrase"
            raise UsageError(f"{tls.cert_file} and its key do not load: {reason}") from None
    if tls.ca_file is not None:
        _must_read(tls.ca_file)
        try:
            context.load_verify_locations(tls.ca_file)
        except ssl.SSLError as error:
            raise UsageError(f"{tls.ca_file} holds no certificate: {error.reason or error}") from None


def _must_read(file: str) -> None:
    try:
        with Path(file).open("rb"):
            pass
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None


def server_context(tls: ServerTls) -> ssl.SSLContext:
    """Return the context of a listener; raises UsageError for a file or cipher that does not serve.

    The object of each connection notes the name that its client asks for (`asked_for`), and shows the certificate for
    that.
    """
    context = _server_context(tls)
    by_name: dict[str, ssl.SSLContext] = {}
    for one in tls.certificates:
        # OpenSSL takes the authorities from the context that it is given then, too.
        own = _server_context(replace(tls, cert_file=one.cert_file, key_file=one.key_file))
        by_name |= dict.fromkeys(one.names, own)

    def asked(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        connection.asked_for = name or ""  # type: ignore[attr-defined]
        if by_name and name:
            name = name.lower().removesuffix(".")
            found = by_name.get(name) or by_name.get("*." + name.partition(".")[2])
            if found is not None:
                connection.context = found

    context.sni_callback = asked
    return context


def _server_context(tls: ServerTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _prepare(context, tls)
    if tls.dh_file is not None:
        _must_read(tls.dh_file)
        try:
            context.load_dh_params(tls.dh_file)
        except ssl.SSLError as error:
            raise UsageError(f"{tls.dh_file} holds no Diffie-Hellman parameters: {error.reason or error}") from None
    if tls.client_cert != "none" and tls.ca_file is None:
        raise UsageError("client certificates cannot be verified without ca_file")
    if tls.crl_file is not None:
        _load_revoked(context, tls)
    context.verify_mode = {
        "none": ssl.CERT_NONE,
        "optional": ssl.CERT_OPTIONAL,
        "required": ssl.CERT_REQUIRED,
    }[tls.client_cert]
    return context


def _load_revoked(context: ssl.SSLContext, tls: ServerTls) -> None:
    assert tls.crl_file is not None
    if tls.client_cert == "none":
        raise UsageError("crl_file revokes certificates of clients, and client_cert asks for none")
    _must_read(tls.crl_file)
    before = context.cert_store_stats()
    with contextlib.suppress(ssl.SSLError):
        context.load_verify_locations(tls.crl_file)
    after = context.cert_store_stats()
    if after["crl"] == before["crl"]:
        raise UsageError(f"{tls.crl_file} holds no revocation list")
    if after["x509"] != before["x509"]:
        raise UsageError(f"{tls.crl_file} holds a certificate, which would be trusted")
    context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_CHAIN


def client_context(tls: ClientTls) -> ssl.SSLContext:
    """Return the context towards a backend; raises UsageError for a file or cipher that does not serve."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif tls.ca_file is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    _prepare(context, tls)
    return context


def cipher_names(context: ssl.SSLContext) -> list[str]:
    """Return the names of the ciphers that `context` offers, the preferred first."""
    return [str(cipher["name"]) for cipher in context.get_ciphers()]
