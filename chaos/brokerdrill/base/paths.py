"""Where things are on the controller: the checkout, inventories, benches, the cache. The only place that knows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
INVENTORIES = ROOT / "inventories"
BENCH = ROOT / "bench"
CACHE_VARIABLE = "BROKERDRILL_CACHE"


def cache() -> Path:
    """Return the cache directory (not created): `$BROKERDRILL_CACHE`, else `.cache` in the checkout."""
    return Path(os.environ.get(CACHE_VARIABLE) or ROOT / ".cache").expanduser().absolute()


def private_dir(path: Path) -> Path:
    """Create `path` (with parents) so that only its owner may read it, and return it."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def child_environment() -> dict[str, str]:
    """Return the environment for Ansible and others of our own children: ours, with the cache made explicit.

    The virtual environment's programs come first on PATH, whether or not it is activated.
    """
    environment = dict(os.environ)
    environment[CACHE_VARIABLE] = str(cache())
    programs = str(Path(sys.prefix) / "bin")
    if programs not in environment.get("PATH", "").split(os.pathsep):
        environment["PATH"] = programs + os.pathsep + environment.get("PATH", os.defpath)
    return environment
