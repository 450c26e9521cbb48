"""Long output of a host's command, compressed there: the host holds no more of it in its memory than that."""

from __future__ import annotations

import base64
import zlib

from brokerdrill.base.errors import InfrastructureError

# Bytes of output, unpacked: what is the same again and again can be a thousand times as long as it was on its way.
MOST_UNPACKED = 1 << 30


def packed(command: str) -> str:
    """Return a script whose output is that of the shell's `command`, compressed, and whose status is its own."""
    # A shell without pipefail tells the last one's status only.
    return f"exec 3>&1; rc=$({{ {{ {command}; echo $? >&4; }} | gzip -1 | base64 -w 0 >&3; }} 4>&1); exit ${{rc:-1}}"


def unpacked(text: str) -> str:
    """Return what `packed` made of a command's output. Raises InfrastructureError where it is cut off, and where it is
    more than MOST_UNPACKED bytes."""
    if not text:
        raise InfrastructureError("the output of a host's command did not come")
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        found = stream.decompress(base64.b64decode(text, validate=True), MOST_UNPACKED + 1)
    except (ValueError, zlib.error) as error:
        raise InfrastructureError(f"the output of a host's command came in part: {error}") from None
    if len(found) > MOST_UNPACKED:
        raise InfrastructureError(f"the output of a host's command is more than {MOST_UNPACKED >> 20} MiB")
    if not stream.eof or stream.unused_data:
        raise InfrastructureError("the output of a host's command came in part: it does not end where it should")
    return found.decode(errors="replace")
