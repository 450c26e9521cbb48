"""A load host: it is healthy when the worker's Python starts with what the role put there."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from .answer import Health

SCRIPT = "import jpype; print(jpype.getDefaultJVMPath())"


def read(descriptor: dict[str, Any]) -> Health:
    """Start the worker's Python once."""
    environment = {**os.environ, "PYTHONPATH": descriptor["pythonpath"], "JAVA_HOME": descriptor["java_home"]}
    done = subprocess.run(
        [descriptor["python"], "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return Health("failed", False, (done.stderr.strip() or "no output").splitlines()[-1])
    return Health("active", True, done.stdout.strip())
