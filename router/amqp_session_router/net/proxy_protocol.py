"""The PROXY protocol's headers, versions 1 and 2, read and written (haproxy.org, doc/proxy-protocol.txt)."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_V1_MAX = 107
_V2_MAX = 4096
_AUTHORITY = 0x02


class ProxyError(Exception):
    """The connection does not begin with a PROXY header that can be read."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says. `source` is None where it speaks for nobody (UNKNOWN, LOCAL): use the peer's address."""

    source: tuple[str, int] | None
    authority: str = ""
    """The host name that the client asked the proxy for (TLV PP2_TYPE_AUTHORITY)."""


def build(version: int, source: tuple[str, int], destination: tuple[str, int], authority: str = "") -> bytes:
    """Return the header for a connection from `source` to `destination` (IP address, port)."""
    ends = [ipaddress.ip_address(end[0].partition("%")[0]) for end in (source, destination)]
    if ends[0].version != ends[1].version:
        # One header has one family: an IPv4 address also has a form as an IPv6 one (RFC 4291, 2.5.5.2).
        ends = [e if e.version == 6 else ipaddress.ip_address(f"::ffff:{e}") for e in ends]
    six = ends[0].version == 6
    if version == 1:
        return f"PROXY TCP{6 if six else 4} {ends[0]} {ends[1]} {source[1]} {destination[1]}\r\n".encode()
    body = ends[0].packed + ends[1].packed + struct.pack(">HH", source[1], destination[1])
    if authority:
        name = authority.encode()[:255]
        body += struct.pack(">BH", _AUTHORITY, len(name)) + name
    return SIGNATURE + struct.pack(">BBH", 0x21, 0x21 if six else 0x11, len(body)) + body


def parse(data: bytes) -> tuple[Header, int] | None:
    """Return the header that `data` begins with and its length, None while more bytes are needed; raises ProxyError."""
    if data.startswith(SIGNATURE):
        return _parse_v2(data)
    if data.startswith(b"PROXY "):
        return _parse_v1(data)
    if SIGNATURE.startswith(data) or b"PROXY ".startswith(data):
        return None
    raise ProxyError("the connection does not begin with a PROXY header")


def _parse_v1(data: bytes) -> tuple[Header, int] | None:
    end = data.find(b"\r\n", 0, _V1_MAX)
    if end < 0:
        if len(data) >= _V1_MAX:
            raise ProxyError("a PROXY line is longer than 107 bytes")
        return None
    words = data[:end].decode("ascii", errors="replace").split(" ")
    if words[1] == "UNKNOWN":
        return Header(None), end + 2
    try:
        _, family, source, destination, port, port_to = words
        address = ipaddress.ip_address(source)
        wanted = {"TCP4": 4, "TCP6": 6}[family]
        if {address.version, ipaddress.ip_address(destination).version} != {wanted}:
            raise ValueError("family")
        if not (port.isascii() and port.isdigit() and int(port) < 65536 and port_to.isdigit()):
            raise ValueError("port")
    except (ValueError, KeyError):
        raise ProxyError("a PROXY line cannot be read") from None
    return Header((str(address), int(port))), end + 2


def _parse_v2(data: bytes) -> tuple[Header, int] | None:
    if len(data) < 16:
        return None
    command, family, length = struct.unpack_from(">BBH", data, 12)
    if command >> 4 != 2 or command & 15 > 1:
        raise ProxyError(f"a PROXY header of version and command {command:#x} cannot be read")
    if length > _V2_MAX:
        raise ProxyError(f"a PROXY header of {length} bytes is too long")
    end = 16 + length
    if len(data) < end:
        return None
    if command & 15 == 0 or family not in (0x11, 0x21):
        return Header(None), end
    width = 4 if family == 0x11 else 16
    tail = 16 + 2 * width + 4
    if tail > end:
        raise ProxyError("a PROXY header is too short for its addresses")
    address = ipaddress.ip_address(data[16 : 16 + width])
    (port,) = struct.unpack_from(">H", data, 16 + 2 * width)
    authority = ""
    while tail + 3 <= end:
        kind, size = struct.unpack_from(">BH", data, tail)
        tail += 3
        if tail + size > end:
            raise ProxyError("a part of a PROXY header is longer than the header")
        if kind == _AUTHORITY:
            if size > 255:
                raise ProxyError("the host name in a PROXY header is longer than 255 bytes")
            authority = data[tail : tail + size].decode(errors="replace")
        tail += size
    return Header((str(address), port), authority), end
