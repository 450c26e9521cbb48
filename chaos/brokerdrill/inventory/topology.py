"""Topologies: Ansible inventories as the rest of the program sees them.

A topology is a folder below `inventories/`, or a folder or file anywhere, that `ansible-playbook -i` takes as it is.
What belongs to the bench alone (addresses, memory limits, SSH key, the permission to drill) is a second inventory,
`bench/TOPOLOGY.yml`, which goes with a topology that is called by its name; a folder or file is taken as it stands.
Hosts, groups and variables are read by Ansible's own code, so that both always agree.
"""

from __future__ import annotations

import functools
import getpass
import hashlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from brokerdrill.base import extras, paths
from brokerdrill.base.errors import UsageError, unknown_name

READ_TIMEOUT_S = 60


@dataclass(frozen=True)
class Host:
    """One host: how SSH reaches it, its groups (all ancestors but `all`, sorted), its inventory variables, and the
    passwords that sudo and SSH ask for there, where the inventory has them: they are in none of the variables, nor in
    what prints.

    Variables named ansible_*, bench_*, drill_* and topology_* are templated, the others are as written. `login` is that
    of the topology.
    """

    name: str
    address: str
    port: int
    user: str
    key_file: str | None
    groups: tuple[str, ...]
    vars: Mapping[str, Any] = field(hash=False)
    become_password: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    login: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Topology:
    """An inventory: hosts by name; `vars` are those all hosts share; `bench` is the second inventory, if there is one.

    `directory` may be one file. `sha256` covers every file in it, or that one and the variables beside it, and the
    bench's. `drill_allowed` holds only where every host's variable of that name is true. `login` is what the user's
    Ansible configuration says of logins, as variables of an environment.
    """

    name: str
    directory: Path
    hosts: tuple[Host, ...]
    drill_allowed: bool
    sha256: str
    vars: Mapping[str, Any] = field(hash=False)
    bench: Path | None = None
    login: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def word(self) -> str:
        """What `find_topology` finds it again by: the name of one on its bench, else the directory."""
        return str(self.directory) if self.bench is None else self.name

    @property
    def folder(self) -> Path:
        """What Ansible calls inventory_dir: the folder, or the one that the file is in."""
        return self.directory if self.directory.is_dir() else self.directory.parent

    @property
    def sources(self) -> tuple[Path, ...]:
        """What `ansible-playbook -i` takes, in this order: a later one's variables go before an earlier one's."""
        return _sources(self.directory, self.bench)

    def group(self, name: str) -> tuple[Host, ...]:
        """Return the hosts of group `name` by name; none where there is no such group."""
        return self.hosts if name == "all" else tuple(host for host in self.hosts if name in host.groups)

    def host(self, name: str) -> Host:
        """Return the host called `name`. Raises UsageError, with the nearest name, where there is none."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise unknown_name(f"host of {self.name}", name, (host.name for host in self.hosts))


def _sources(directory: Path, bench: Path | None) -> tuple[Path, ...]:
    return (directory,) if bench is None else (directory, bench)


def _files(directory: Path) -> Iterator[Path]:
    """Yield the inventory's files, sorted; hidden ones and Ansible's retry files do not count."""
    for path in sorted(directory.rglob("*")):
        parts = path.relative_to(directory).parts
        if path.is_file() and path.suffix != ".retry" and not any(part.startswith(".") for part in parts):
            yield path


def _with_variables(file: Path) -> Iterator[Path]:
    """Yield an inventory's one file and the variables beside it: of all benches, or of all inventories of a folder."""
    yield file
    for folder in ("group_vars", "host_vars"):
        yield from _files(file.parent / folder)


def _named(directory: Path, bench: Path | None) -> Iterator[tuple[str, Path]]:
    """Yield the inventory's files, and the bench's, with their names within it. Of one file these are also the
    variables beside it."""
    place = directory.parent if directory.is_file() else directory
    for path in _with_variables(directory) if directory.is_file() else _files(directory):
        yield path.relative_to(place).as_posix(), path
    if bench is not None:
        for path in _with_variables(bench):
            yield path.relative_to(bench.parent).as_posix(), path


def fingerprint(directory: Path, bench: Path | None = None) -> str:
    """Return the sha256 (hex) over names and contents of the inventory's files (`_named`)."""
    return _digest((name, path.read_bytes()) for name, path in _named(directory, bench))


def meaning_fingerprint(directory: Path, bench: Path | None = None) -> str:
    """Return the sha256 (hex) over names of the inventory's files (`_named`) and what they say: another comment or
    layout of YAML is no other inventory."""
    return _digest((name, _meaning(path)) for name, path in _named(directory, bench))


def _digest(files: Iterable[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, content in files:
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _meaning(path: Path) -> bytes:
    """Return what a file says, as its bytes where it is no YAML: tags and values of its nodes, in their order."""
    content = path.read_bytes()
    if path.suffix not in (".yml", ".yaml"):
        return content

    def said(node: yaml.Node | None) -> Any:
        if isinstance(node, yaml.MappingNode):
            return [node.tag, [[said(key), said(value)] for key, value in node.value]]
        if isinstance(node, yaml.SequenceNode):
            return [node.tag, [said(item) for item in node.value]]
        return None if node is None else [node.tag, node.value]

    try:
        return json.dumps(said(yaml.compose(content))).encode()
    except yaml.YAMLError:
        return content


def _host(directory: Path, found: Mapping[str, Any], login: Mapping[str, str]) -> Host:
    variables = found["vars"]
    key_file = (
        variables.get("ansible_ssh_private_key_file")
        or variables.get("ansible_private_key_file")
        or login.get("ANSIBLE_PRIVATE_KEY_FILE")
    )
    port = str(
        variables.get("ansible_port") or variables.get("ansible_ssh_port") or login.get("ANSIBLE_REMOTE_PORT") or 22
    )
    user = (
        variables.get("ansible_user")
        or variables.get("ansible_ssh_user")
        or login.get("ANSIBLE_REMOTE_USER")
        or getpass.getuser()
    )
    if not (port.isdecimal() and 0 < int(port) < 65536):
        raise UsageError(f"inventory {directory}: host {found['name']} has no valid ansible_port: {port!r}")
    return Host(
        name=found["name"],
        address=str(variables.get("ansible_host") or variables.get("ansible_ssh_host") or found["name"]),
        port=int(port),
        user=str(user),
        key_file=str(Path(key_file).expanduser().resolve()) if key_file else None,
        groups=tuple(found["groups"]),
        vars=variables,
        become_password=found["become_password"],
        password=found["password"],
        login=login,
    )


@functools.lru_cache(maxsize=32)
def _read(sources: tuple[Path, ...], sha256: str, cache: Path) -> str:
    """Return what `_read_inventory` prints for `sources`; the other arguments only distinguish states of them."""
    extras.need("ansible")
    directory = sources[0]
    environment = paths.child_environment() | {
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
        "ANSIBLE_NOCOLOR": "true",
    }
    environment["ANSIBLE_CONFIG"] = str(paths.ansible_configuration())
    try:
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("_read_inventory.py")), *map(str, sources)],
            cwd=paths.working_directory(),
            env=environment,
            capture_output=True,
            text=True,
            timeout=READ_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"inventory {directory} cannot be read within {READ_TIMEOUT_S} s") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise UsageError(f"inventory {directory} cannot be read: {said[-1] if said else 'Ansible says nothing'}")
    return done.stdout


def load(directory: Path, bench: Path | None = None) -> Topology:
    """Return the Topology of an inventory (a directory or a file), as it stands or on its bench.

    Raises UsageError: Ansible cannot read it, or it has no host.
    """
    directory = directory.absolute()
    if not directory.exists():
        raise UsageError(f"there is no inventory {directory}")
    sha256 = fingerprint(directory, bench)
    found = json.loads(_read(_sources(directory, bench), sha256, paths.cache()))
    if "error" in found:
        raise UsageError(f"inventory {directory} cannot be read: {_no_yaml(directory) or found['error']}")
    if not found["hosts"]:
        raise UsageError(f"inventory {directory} has no hosts")
    hosts = tuple(
        _host(directory, host, found["login"]) for host in sorted(found["hosts"], key=lambda host: host["name"])
    )
    first, *others = (host.vars for host in hosts)
    shared = {name: value for name, value in first.items() if all(name in o and o[name] == value for o in others)}
    allowed = all(host.vars.get("drill_allowed") is True for host in hosts)
    return Topology(_name(directory), directory, hosts, allowed, sha256, shared, bench, found["login"])


def _no_yaml(directory: Path) -> str:
    """Say which of the inventory's files of YAML is none: Ansible, which tries other readers then, says of it only that
    it failed."""
    files = [directory] if directory.is_file() else list(_files(directory))
    if not files:
        return "there is no file in it"
    for path in files:
        if path.suffix in (".yml", ".yaml"):
            try:
                yaml.compose(path.read_text(encoding="utf-8"))
            except UnicodeDecodeError:
                return f"{path} is no text in UTF-8"
            except yaml.MarkedYAMLError as error:
                line = error.problem_mark.line + 1 if error.problem_mark else 1
                return f"{path}, line {line}: not YAML: {error.problem}"
            except (OSError, yaml.YAMLError) as error:
                return f"{path}: {' '.join(str(error).split())}"
    return ""


def _name(inventory: Path) -> str:
    """Return how a topology is called: as its folder, or as its file, but for one whose name says nothing."""
    if inventory.is_dir():
        return inventory.name
    return inventory.parent.name if inventory.stem in ("hosts", "inventory") else inventory.stem


def _directories(inventories: Path) -> list[Path]:
    if not inventories.is_dir():
        return []
    return [path for path in sorted(inventories.iterdir()) if path.is_dir() and not path.name.startswith(".")]


def find_topology(
    name_or_dir: str | Path, inventories_dir: Path | None = None, bench_dir: Path | None = None
) -> Topology:
    """Return the topology of that name below `inventories_dir` (default: the user's own and those that ship with the
    program), or of that directory or file.

    One that is called by its name comes with its bench, where `bench_dir` (default: beside `inventories`) has one.

    Raises UsageError: an unknown name (with the nearest one), no such directory or file, or one that Ansible cannot
    read.
    """
    text = str(name_or_dir)
    known = _known(inventories_dir, bench_dir)
    if text in known:
        directory, benches = known[text]
        bench = benches / f"{text}.yml"
        return load(directory, bench if bench.is_file() else None)
    if "/" in text or text in (".", "..") or (text and Path(text).exists()):
        return load(Path(text).expanduser())
    raise unknown_name("topology", text, known)


def _known(inventories_dir: Path | None, bench_dir: Path | None = None) -> dict[str, tuple[Path, Path]]:
    """Return name → (inventory, folder of benches), the user's own before one of the same name that ships."""
    places = [(inventories_dir, bench_dir or paths.BENCH)] if inventories_dir else paths.inventory_places()
    return {
        path.name: (path, bench_dir or benches)
        for inventories, benches in reversed(places)
        for path in _directories(inventories)
    }


def _description(directory: Path) -> str:
    """Return the first comment of the inventory's own files as one line, without its marks; empty without one."""
    for path in _files(directory):
        if path.parent == directory:
            lines = iter(path.read_text(encoding="utf-8", errors="replace").splitlines())
            comment = list(
                itertools.takewhile(_is_comment, itertools.dropwhile(lambda line: not _is_comment(line), lines))
            )
            if comment:
                return " ".join(line[2:].strip() for line in comment)
    return ""


def _is_comment(line: str) -> bool:
    return line.startswith("# ")


def topologies(inventories_dir: Path | None = None) -> list[tuple[str, str]]:
    """Return (name, description) of every topology that `find_topology` knows by its name, by name."""
    known = _known(inventories_dir)
    return [(name, _description(known[name][0])) for name in sorted(known)]
