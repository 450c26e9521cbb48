"""TLS: the settings that listeners and brokers share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from amqp_session_router.base.errors import UsageError, unknown_name
from amqp_session_router.base.model import ClientTls, ServerTls
from amqp_session_router.control.merging import Reply
from amqp_session_router.control.service import Service
from amqp_session_router.control.verbs.declaration import Arguments, Changes, Data, Edit, Handler, Verb, part_of
from amqp_session_router.net import tls

_FILES = {
    "KEY_FILE": "key_file",
    "RSA_KEY_FILE": "key_file",
    "CERT_CHAIN_FILE": "cert_file",
    "CA_CERT_FILE": "ca_file",
    "CRL_FILE": "crl_file",
    "TMP_DH_FILE": "dh_file",
    "MINIMUM": "minimum",
}
_SERVERS = {"TMP_DH_FILE": "Diffie-Hellman parameters", "CRL_FILE": "revoked certificates of clients"}
_SETTINGS = (*_FILES, "VERIFY_MODE")
_VERIFY = ("NONE", "PEER", "FAIL_IF_NO_PEER_CERT", "CLIENT_ONCE")


def _set(side: str) -> Edit:
    def edit(data: Data, arguments: Arguments) -> None:
        part = part_of(data, "tls", side)
        words = list(arguments["setting"])
        if not words:
            raise UsageError(f"TLS {side.upper()} needs a setting; there are: {', '.join(_SETTINGS)}, CIPHERS")
        while words:
            word = words.pop(0).upper()
            if word not in _SETTINGS:
                raise UsageError(unknown_name("TLS setting", word, _SETTINGS))
            if not words:
                raise UsageError(f"TLS {word} needs a value")
            if word == "VERIFY_MODE":
                modes = []
                while words and words[0].upper() in _VERIFY:
                    modes.append(words.pop(0).upper())
                if not modes:
                    raise UsageError(unknown_name("verify mode", words[0], _VERIFY))
                part.update(_verify(side, modes))
            elif word in _SERVERS and side == "egress":
                raise UsageError(f"{_SERVERS[word]} are the server's: TLS INGRESS {word}")
            else:
                part[_FILES[word]] = words.pop(0)

    return edit


def _verify(side: str, modes: Sequence[str]) -> Data:
    if "NONE" in modes and len(modes) > 1:
        raise UsageError("VERIFY_MODE NONE excludes the others")
    if side == "egress":
        return {"verify": "NONE" not in modes}
    if "NONE" in modes:
        return {"client_cert": "none"}
    # OpenSSL's FAIL_IF_NO_PEER_CERT counts only together with PEER; who asks for it means "required".
    return {"client_cert": "required" if "FAIL_IF_NO_PEER_CERT" in modes else "optional"}


def _set_ciphers(side: str) -> Edit:
    def edit(data: Data, arguments: Arguments) -> None:
        part_of(data, "tls", side)["ciphers"] = arguments["suites"]

    return edit


def _print_ciphers(side: str) -> Handler:
    def handler(service: Service, _: Arguments) -> Reply:
        part = getattr(service.settings.config.tls, side)
        # The ciphers can be looked at before there is a certificate, and without reading those of all authorities.
        context = tls.client_context(ClientTls(verify=False, minimum=part.minimum, ciphers=part.ciphers))
        return {"text": "\n".join(tls.cipher_names(context))}

    return handler


def _print(service: Service, _: Arguments) -> Reply:
    settings = service.settings
    return {
        "data": {
            **settings.config.tls.model_dump(),
            "listeners": {one.name: _as_data(one.tls) for one in settings.listeners.values() if one.tls},
            "backends": {one.name: _as_data(one.tls) for one in settings.backends.values() if one.tls},
        }
    }


def _as_data(part: ClientTls | ServerTls | None) -> dict[str, Any]:
    return {} if part is None else dataclasses.asdict(part)


VERBS = (
    Verb(
        "TLS INGRESS CIPHERS PRINT",
        "Show the ciphers towards clients",
        Changes.NOTHING,
        act=_print_ciphers("ingress"),
    ),
    Verb(
        "TLS EGRESS CIPHERS PRINT",
        "Show the ciphers towards brokers",
        Changes.NOTHING,
        act=_print_ciphers("egress"),
    ),
    Verb(
        "TLS INGRESS CIPHERS SET <suites>",
        "Set them (TLS 1.2), separated by ':'",
        Changes.CONFIGURATION,
        edit=_set_ciphers("ingress"),
    ),
    Verb(
        "TLS EGRESS CIPHERS SET <suites>",
        "Set them (TLS 1.2), separated by ':'",
        Changes.CONFIGURATION,
        edit=_set_ciphers("egress"),
    ),
    Verb(
        "TLS INGRESS [setting...]",
        f"Set the shared TLS towards clients: {', '.join(_SETTINGS)}, each with a value",
        Changes.CONFIGURATION,
        edit=_set("ingress"),
    ),
    Verb("TLS EGRESS [setting...]", "The same towards brokers", Changes.CONFIGURATION, edit=_set("egress")),
    Verb("TLS PRINT", "Show both, and which listeners and brokers use TLS", Changes.NOTHING, act=_print),
)
