"""Long output of a host's command, compressed there: the host holds no more of it in its memory than that."""

from __future__ import annotations

import base64
import binascii
import gzip
import zlib

from brokerdrill.base.errors import InfrastructureError


def packed(command: str) -> str:
    """Return a script whose output is that of the shell's `command`, compressed, and whose status is its own."""
    # A shell without pipefail tells the last one's status only.
    return f"exec 3>&1; rc=$({{ {{ {command}; echo $? >&4; }} | gzip -1 | base64 -w 0 >&3; }} 4>&1); exit ${{rc:-1}}"


def unpacked(text: str) -> str:
    """Return what `packed` made of a command's output. Raises InfrastructureError where it is cut off."""
    if not text:
        raise InfrastructureError("the output of a host's command did not come")
    try:
        return gzip.decompress(base64.b64decode(text, validate=True)).decode(errors="replace")
    except (binascii.Error, EOFError, OSError, zlib.error) as error:
        raise InfrastructureError(f"the output of a host's command came in part: {error}") from None
