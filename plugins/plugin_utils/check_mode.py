"""What a check mode that changes nothing works with in place of what a real run would make on the controller."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from ansible import constants


def stand_ins(directory: Path) -> Path:
    """Return the folder, made, for what `directory` has not yet: Ansible's own of this run, which goes with its end.

    It is the same for all tasks and hosts of the run, so that what they are given fits together.
    """
    name = hashlib.sha256(os.fsencode(directory.absolute())).hexdigest()[:16]
    found = Path(constants.DEFAULT_LOCAL_TMP) / f"check-{name}"
    found.mkdir(mode=0o700, parents=True, exist_ok=True)
    return found
