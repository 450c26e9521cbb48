"""The user's name in a SASL response. Nothing else of the response is looked at."""

from __future__ import annotations

from amqp_session_router.amqp import tables
from amqp_session_router.amqp.frames import ProtocolError
from amqp_session_router.base.model import ACCESS_REFUSED, SHORT_STRING_MAX

EXTERNAL = "EXTERNAL"


_TEXTS = b"Sx"


def user(mechanism: str, response: bytes, certificate_name: str = "") -> str:
    """Return the user's name, empty for an unknown mechanism; raises ProtocolError (403) for what is forged or has not
    the mechanism's form: a broker would read it otherwise, or end the connection without a word.

    PLAIN is RFC 4616 without another identity to act as; AMQPLAIN a table's inside with LOGIN and PASSWORD, each once;
    EXTERNAL (RFC 4422 appendix A) is the verified name of the client's certificate: the response may repeat it, nothing
    else.
    """
    name = _name(mechanism.upper(), response, certificate_name)
    if len(name.encode(errors="replace")) > SHORT_STRING_MAX:
        raise ProtocolError(ACCESS_REFUSED, f"the user's name is longer than {SHORT_STRING_MAX} bytes")
    return name


def _name(mechanism: str, response: bytes, certificate_name: str) -> str:
    match mechanism:
        case "PLAIN":
            act_as, *parts = response.split(b"\0")
            if act_as or len(parts) != 2:
                raise ProtocolError(ACCESS_REFUSED, "the PLAIN response is not NUL, user, NUL, password")
            return parts[0].decode(errors="replace")
        case "AMQPLAIN":
            return _login(response).decode(errors="replace")
        case "EXTERNAL":
            if response and response != certificate_name.encode():
                raise ProtocolError(ACCESS_REFUSED, "EXTERNAL names another user than the client's certificate")
            return certificate_name
    return ""


def _login(response: bytes) -> bytes:
    """Return the LOGIN of an AMQPLAIN response, by the bytes of its fields: a decoder may know fewer types than the
    broker."""
    try:
        found = tables.fields(response)
    except ProtocolError:
        raise ProtocolError(ACCESS_REFUSED, "the AMQPLAIN response is no table") from None
    logins, passwords = ([one for one in found if one.name == name] for name in (b"LOGIN", b"PASSWORD"))
    if len(logins) > 1:
        raise ProtocolError(ACCESS_REFUSED, "the AMQPLAIN response has LOGIN more than once")
    if not logins or not passwords or any(one.kind not in _TEXTS for one in logins + passwords):
        raise ProtocolError(ACCESS_REFUSED, "the AMQPLAIN response has no LOGIN or PASSWORD that is a text")
    return response[logins[0].start + 4 : logins[0].end]
