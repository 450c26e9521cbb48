"""The limit of the kernel that all hosts on one machine share: each systemd among them watches files, and where the
limit is reached a host does not boot and says nothing."""

from __future__ import annotations

import contextlib
from pathlib import Path

from brokerdrill.base.errors import InfrastructureError

INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
# Of one host some ten were seen; the kernel's own default is 128.
WANTED = 8192


def ensure_watches(limit: Path = INSTANCES, wanted: int = WANTED) -> None:
    """Raise the machine's number of inotify instances to `wanted`, where it is less and we may; else it stays."""
    with contextlib.suppress(OSError, ValueError):
        if int(limit.read_text()) < wanted:
            limit.write_text(f"{wanted}\n")


def not_up(said: str, limit: Path = INSTANCES, wanted: int = WANTED) -> InfrastructureError:
    """Return the error of a host that does not boot, with what may be the cause where the limit is low."""
    with contextlib.suppress(OSError, ValueError):
        if (found := int(limit.read_text())) < wanted:
            said += f" (fs.inotify.max_user_instances is {found}: for many hosts it has to be more, such as {wanted})"
    return InfrastructureError(said)
