"""The user's name in a SASL response. Nothing else of the response is looked at."""

from __future__ import annotations

from amqp_session_router.amqp.codec import field_names, table
from amqp_session_router.amqp.frames import ProtocolError
from amqp_session_router.base.model import ACCESS_REFUSED, SHORT_STRING_MAX

EXTERNAL = "EXTERNAL"


def user(mechanism: str, response: bytes, certificate_name: str = "") -> str:
    """Return the user's name, empty where the response has none; raises ProtocolError (403) for a forged one.

    PLAIN is RFC 4616; AMQPLAIN a table's inside with LOGIN and PASSWORD, each once; EXTERNAL (RFC 4422 appendix A) is
    the verified name of the client's certificate: the response may repeat it, nothing else.
    """
    name = _name(mechanism.upper(), response, certificate_name)
    if len(name.encode(errors="replace")) > SHORT_STRING_MAX:
        raise ProtocolError(ACCESS_REFUSED, f"the user's name is longer than {SHORT_STRING_MAX} bytes")
    return name


def _name(mechanism: str, response: bytes, certificate_name: str) -> str:
    match mechanism:
        case "PLAIN" | "RABBIT-CR-DEMO":
            parts = response.split(b"\0")
            return parts[1].decode(errors="replace") if len(parts) > 2 else ""
        case "AMQPLAIN":
            try:
                names, name = field_names(response), table(response).get("LOGIN", "")
            except ProtocolError:
                return ""
            if names.count(b"LOGIN") > 1:
                raise ProtocolError(ACCESS_REFUSED, "the AMQPLAIN response has LOGIN more than once")
            return name if isinstance(name, str) else ""
        case "EXTERNAL":
            if response and response != certificate_name.encode():
                raise ProtocolError(ACCESS_REFUSED, "EXTERNAL names another user than the client's certificate")
            return certificate_name
    return ""
