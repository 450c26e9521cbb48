"""Who a client says it is: the user's name out of a SASL response. Nothing else of the response is looked at."""

from __future__ import annotations

from amqp_session_router.frames import ProtocolError
from amqp_session_router.wire import table


def user(mechanism: str, response: bytes, certificate_name: str = "") -> str:
    """Return the user's name, empty where the response has none.

    PLAIN is RFC 4616, AMQPLAIN a table's inside with LOGIN and PASSWORD; EXTERNAL names the identity that it acts as,
    or leaves it to the client's certificate (RFC 4422 appendix A).
    """
    match mechanism.upper():
        case "PLAIN" | "RABBIT-CR-DEMO":
            parts = response.split(b"\0")
            return parts[1].decode(errors="replace") if len(parts) > 2 else ""
        case "AMQPLAIN":
            try:
                name = table(response).get("LOGIN", "")
            except ProtocolError:
                return ""
            return name if isinstance(name, str) else ""
        case "EXTERNAL":
            return response.decode(errors="replace") or certificate_name
    return ""
