"""Where things are on the controller: what ships with the program, inventories, benches, cache and state. The only
place that knows.

In a checkout all of it is the checkout's. Where the package is installed, what ships is in the package's folder
`shipped`, laid out like a checkout, and cache and state are where the XDG Base Directory Specification wants them.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED = PACKAGE / "shipped"
CACHE_VARIABLE = "BROKERDRILL_CACHE"
STATE_VARIABLE = "BROKERDRILL_STATE"
# Files that the user's environment may name for Ansible.
ANSIBLE_FILES = (
    "ANSIBLE_BECOME_PASSWORD_FILE",
    "ANSIBLE_CONFIG",
    "ANSIBLE_PRIVATE_KEY_FILE",
    "ANSIBLE_VAULT_PASSWORD_FILE",
)


def _checkout() -> Path | None:
    root = PACKAGE.parents[1]
    return root if (root / "galaxy.yml").is_file() and (root / "chaos" / "brokerdrill") == PACKAGE else None


# None: the package is installed.
CHECKOUT = _checkout()
ROOT = CHECKOUT or SHIPPED
# Playbooks, roles and plug-ins.
COLLECTION = CHECKOUT or SHIPPED / ".collections" / "ansible_collections" / "brokerdrill" / "ha"
INVENTORIES = ROOT / "inventories"
BENCH = ROOT / "bench"


def inventory_places() -> list[tuple[Path, Path]]:
    """Return (inventories, benches) where topologies are called by their names: the user's own, `inventories` and
    `bench` in the working directory, before those that ship with the program."""
    own = Path.cwd()
    places = [(own / "inventories", own / "bench"), (INVENTORIES, BENCH)]
    return places if places[0][0].is_dir() and not _same(*(place for place, _ in places)) else places[1:]


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def working_directory() -> Path:
    """Return where our own children work: in the checkout, else where the user is."""
    return CHECKOUT or Path.cwd()


def _xdg(variable: str, default: str) -> Path:
    given = os.environ.get(variable, "")
    # A relative path is to be ignored, says the specification.
    return (Path(given) if given.startswith("/") else Path.home() / default) / "brokerdrill"


def cache() -> Path:
    """Return the cache directory (not created), which can be made anew: `$BROKERDRILL_CACHE`, else `.cache` in the
    checkout, else `brokerdrill` in `$XDG_CACHE_HOME`."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given).expanduser().absolute()
    return ROOT / ".cache" if CHECKOUT else _xdg("XDG_CACHE_HOME", ".cache")


def state() -> Path:
    """Return the directory (not created) of what nobody can make again, secrets first: `$BROKERDRILL_STATE`, else the
    cache directory where that is given or the checkout's, else `brokerdrill` in `$XDG_STATE_HOME`."""
    given = os.environ.get(STATE_VARIABLE)
    if given:
        return Path(given).expanduser().absolute()
    if CHECKOUT or os.environ.get(CACHE_VARIABLE):
        return cache()
    return _xdg("XDG_STATE_HOME", ".local/state")


def private_dir(path: Path) -> Path:
    """Create `path` (with parents) so that only its owner may read it, and return it."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def ansible_configuration() -> Path:
    """Return the file that Ansible would take its configuration from where the user is; where there is none, the one
    that ships with the program."""
    here = Path.cwd()
    # In a directory where everybody may write, it may be anybody's.
    own = [] if here.stat().st_mode & stat.S_IWOTH else [here / "ansible.cfg"]
    given = [_config_in(one)] if (one := os.environ.get("ANSIBLE_CONFIG")) else []
    places = [*given, *own, Path.home() / ".ansible.cfg", Path("/etc/ansible/ansible.cfg")]
    return next((place for place in places if os.access(place, os.R_OK)), ROOT / "ansible.cfg")


def _config_in(given: str) -> Path:
    path = Path(given).expanduser().absolute()
    return path / "ansible.cfg" if path.is_dir() else path


def child_environment() -> dict[str, str]:
    """Return the environment for Ansible and others of our own children: ours, with cache, state and collection made
    explicit.

    The virtual environment's programs come first on PATH, whether or not it is activated.
    """
    environment = dict(os.environ)
    environment[CACHE_VARIABLE] = str(cache())
    environment[STATE_VARIABLE] = str(state())
    # They work in another directory than the user.
    for name in ANSIBLE_FILES:
        if given := environment.get(name):
            environment[name] = str(Path(given).expanduser().absolute())
    # ansible.cfg has it first, but the environment goes before that.
    if others := environment.get("ANSIBLE_COLLECTIONS_PATH"):
        environment["ANSIBLE_COLLECTIONS_PATH"] = os.pathsep.join((str(ROOT / ".collections"), others))
    programs = str(Path(sys.prefix) / "bin")
    if programs not in environment.get("PATH", "").split(os.pathsep):
        environment["PATH"] = programs + os.pathsep + environment.get("PATH", os.defpath)
    return environment
