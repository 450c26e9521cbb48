"""Keep an archive once in the controller's cache, made from pinned sources. Runs on the controller only."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.error import URLError
from xml.sax.saxutils import escape

from ansible.errors import AnsibleActionFail
from ansible.module_utils.urls import open_url
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.action import ControllerAction

CHUNK = 1 << 20
NO_DEPENDENCIES = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def sha256_of(path: Path) -> str:
    """Return the hex SHA-256 of the file at `path`."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def recipe_key(source: Mapping[str, Any]) -> str:
    """Return a hash of all that the archive is made from, so that a changed pin makes a new archive."""
    return hashlib.sha256(json.dumps(source, sort_keys=True, default=str).encode()).hexdigest()


def pom_for(coordinates: list[str]) -> str:
    """Return a Maven project that depends on exactly `coordinates` (group:artifact:version[:type[:classifier]])."""
    rows = []
    for coordinate in coordinates:
        group, artifact, version, *rest = coordinate.split(":")
        kind, classifier = (rest + ["jar", ""][len(rest) :])[:2]
        rows.append(
            f"<dependency><groupId>{escape(group)}</groupId><artifactId>{escape(artifact)}</artifactId>"
            f"<version>{escape(version)}</version><type>{escape(kind)}</type>"
            + (f"<classifier>{escape(classifier)}</classifier>" if classifier else "")
            + f"{NO_DEPENDENCIES}</dependency>"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>brokerdrill</groupId><artifactId>fetch</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(rows)}</dependencies></project>"
    )


def maven_file_name(coordinate: str) -> str:
    """Return the file name that Maven gives to `coordinate` (group:artifact:version[:type[:classifier]])."""
    _group, artifact, version, *rest = coordinate.split(":")
    kind, classifier = (rest + ["jar", ""][len(rest) :])[:2]
    return f"{artifact}-{version}{'-' + classifier if classifier else ''}.{kind}"


def pack(directory: Path, target: Path) -> None:
    """Write all files of `directory` to the tar file `target`, the same bytes for the same files."""
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                info = tarfile.TarInfo(str(path.relative_to(directory)))
                info.size = path.stat().st_size
                info.mode = 0o755 if os.access(path, os.X_OK) else 0o644
                with path.open("rb") as stream:
                    archive.addfile(info, io.BufferedReader(stream))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`: the tasks of several hosts may ask for one archive at the same time."""
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _run(what: str, argv: list[str], environment: Mapping[str, str] | None = None) -> str:
    if shutil.which(argv[0]) is None:
        raise AnsibleActionFail(f"{what}: the controller has no program {argv[0]!r}")
    done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **(environment or {})}, check=False)
    if done.returncode != 0:
        words = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise AnsibleActionFail(f"{what}: {argv[0]} ended with status {done.returncode}: {' | '.join(words[-4:])}")
    return done.stdout


def _check(path: Path, expected: str) -> None:
    found = sha256_of(path)
    if found != expected:
        raise AnsibleActionFail(f"{path.name} has the SHA-256 {found}, but {expected} is pinned")


def _from_maven(name: str, items: list[dict[str, str]], work: Path) -> Path:
    out = work / "out"
    pom = work / "pom.xml"
    pom.write_text(pom_for([item["coordinate"] for item in items]))
    _run(name, ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={out}"])
    for item in items:
        _check(out / maven_file_name(item["coordinate"]), item["sha256"])
    if len(items) == 1:
        return out / maven_file_name(items[0]["coordinate"])
    pack(out, work / "packed.tar")
    return work / "packed.tar"


def _from_url(name: str, source: Mapping[str, str], work: Path) -> Path:
    target = work / "download"
    try:
        with open_url(source["url"], timeout=60) as reply, target.open("wb") as stream:
            shutil.copyfileobj(reply, stream, CHUNK)
    except (URLError, OSError, ValueError) as error:
        raise AnsibleActionFail(f"{name}: {source['url']} cannot be read: {error}") from None
    _check(target, source["sha256"])
    return target


def _from_go(name: str, source: Mapping[str, Any], work: Path) -> Path:
    module = f"{source['module']}@{source['version']}"
    found = json.loads(_run(name, ["go", "mod", "download", "-json", module])).get("Sum")
    if found != source["sum"]:
        raise AnsibleActionFail(f"{name}: Go module {module} has the checksum {found}, but {source['sum']} is pinned")
    environment = {
        "GOOS": "linux",
        "GOARCH": source["arch"],
        "CGO_ENABLED": "0",
        "GOMODCACHE": _run(name, ["go", "env", "GOMODCACHE"]).strip(),
        "GOPATH": str(work / "go"),
        "GOBIN": "",
    }
    ldflags = "-ldflags=-s -w " + source.get("ldflags", "")
    out = work / "out"
    out.mkdir()
    for program, package in source["programs"].items():
        _run(
            name,
            ["go", "install", "-trimpath", ldflags, f"{source['module']}{package}@{source['version']}"],
            environment,
        )
        (built,) = [path for path in (work / "go" / "bin").rglob("*") if path.is_file()]
        built.rename(out / program)
    pack(out, work / "packed.tar")
    return work / "packed.tar"


# What a set-up or a build leaves in a Python project, and what no host needs of it.
NO_SOURCE = ("__pycache__", "*.so", "*.c", "*.egg-info", "build", "dist", "tests", ".*")


def tree_digest(directory: Path) -> str:
    """Return a hash of the files of a Python project and of their names, but not of what a build leaves there."""
    digest = hashlib.sha256()
    ignored = shutil.ignore_patterns(*NO_SOURCE)
    for folder, folders, files in os.walk(directory):
        skipped = ignored(folder, [*folders, *files])
        folders[:] = sorted(set(folders) - skipped)
        for name in sorted(set(files) - skipped):
            path = Path(folder) / name
            digest.update(f"{path.relative_to(directory)}\0{sha256_of(path)}\n".encode())
    return digest.hexdigest()


def not_compiled(name: str, source: Mapping[str, Any]) -> str | None:
    """Return why the Python project of `source` is built without its compiled parts: the controller's Python makes
    them, for hosts with the same one. None: it is built with them."""
    host = (source["python_version"], source["machine"])
    own = (f"{sys.version_info.major}.{sys.version_info.minor}", platform.machine())
    if host == own:
        return None
    return (
        f"{name}: the host has Python {host[0]} on {host[1]} and the controller {own[0]} on {own[1]}, so that it is "
        "built without its compiled parts, and is slower; a controller with the host's Python builds all of it"
    )


def _build(name: str, source: Mapping[str, Any], work: Path, into: Path) -> None:
    """Build the Python project of `source` with the controller's own Python, and unpack its wheel into `into`."""
    project = work / "project"
    shutil.copytree(source["project"], project, ignore=shutil.ignore_patterns(*NO_SOURCE))
    argv = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    what = "pure" if not_compiled(name, source) else "compiled"
    try:
        _run(name, [*argv, "--wheel-dir", str(work / "wheels"), str(project)], {source["build_variable"]: what})
    except AnsibleActionFail as error:
        raise AnsibleActionFail(
            f"{name} cannot be built {what}; has the controller a C compiler and Python's headers? ({error})"
        ) from None
    (wheel,) = (work / "wheels").iterdir()
    with zipfile.ZipFile(wheel) as content:
        content.extractall(into)


def _from_pip(name: str, source: Mapping[str, Any], work: Path) -> Path:
    lock = work / "requirements.txt"
    lock.write_text(source["requirements"])
    argv = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--target",
        str(work / "out"),
        "--no-deps",
        "--no-compile",
    ]
    argv += ["--only-binary=:all:", "--require-hashes", "--python-version", source["python_version"], "-r", str(lock)]
    for tag in source["platforms"]:
        argv += ["--platform", tag]
    _run(name, argv)
    if "wheel" in source:
        _unpack_wheel(name, source, _wheel(name, source, work), work / "out")
    elif "project" in source:
        _build(name, source, work, work / "out")
    pack(work / "out", work / "packed.tar")
    return work / "packed.tar"


def _wheel(name: str, source: Mapping[str, Any], work: Path) -> Path:
    """Return the wheel that `wheel` means: a file of the controller's, a URL, or NAME==VERSION in the package index."""
    wheel, folder = str(source["wheel"]), work / "wheel"
    if is_requirement(wheel):
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        argv += ["--python-version", source["python_version"], "--dest", str(folder), wheel]
        for tag in source["platforms"]:
            argv += ["--platform", tag]
        _run(name, argv)
        (found,) = folder.iterdir()
    elif "://" in wheel:
        folder.mkdir()
        found = _from_url(name, {"url": wheel, "sha256": source["wheel_sha256"]}, work).rename(
            folder / wheel.rpartition("/")[2]
        )
    else:
        found = Path(wheel)
    if source.get("wheel_sha256"):
        _check(found, source["wheel_sha256"])
    return found


def is_requirement(wheel: str) -> bool:
    """Return whether this is NAME==VERSION."""
    return "==" in wheel and "/" not in wheel


def wheel_problem(wheel: str, python_version: str, machine: str) -> str | None:
    """Return why a wheel of this file name is not for a host with that Python and machine; None where it is."""
    parts = wheel.removesuffix(".whl").split("-")
    if not wheel.endswith(".whl") or len(parts) not in (5, 6):
        return "it is no wheel"
    pythons, _abi, platforms = (part.split(".") for part in parts[-3:])
    major, minor = python_version.split(".")[:2]
    if not {f"py{major}", f"py{major}{minor}", f"cp{major}{minor}"} & set(pythons):
        return f"it is for {' and '.join(pythons)}, and the host has Python {python_version}"
    if not any(platform == "any" or platform.endswith(machine) for platform in platforms):
        return f"it is for {' and '.join(platforms)}, and the host is {machine}"
    return None


def _unpack_wheel(name: str, source: Mapping[str, Any], wheel: Path, into: Path) -> None:
    if problem := wheel_problem(wheel.name, source["python_version"], source["machine"]):
        raise AnsibleActionFail(f"{name}: {wheel.name} cannot be used: {problem}")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(into)


MAKERS = {"maven": _from_maven, "url": _from_url, "go": _from_go, "pip": _from_pip}


class ActionModule(ControllerAction):
    """See plugins/modules/cached.py for the documentation of the arguments."""

    ARGUMENTS: ClassVar[dict[str, Any]] = {
        "name": {"type": "str", "required": True},
        "directory": {"type": "path", "required": True},
        "maven": {"type": "list", "elements": "dict"},
        "url": {"type": "dict"},
        "go": {"type": "dict"},
        "pip": {"type": "dict"},
    }
    TOGETHER: ClassVar[dict[str, Any]] = {
        "mutually_exclusive": [tuple(MAKERS)],
        "required_one_of": [tuple(MAKERS)],
    }

    def act(self, args: dict[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        (kind,) = [kind for kind in MAKERS if args[kind] is not None]
        name, source = args["name"], args[kind]
        if "wheel" in source:
            # Beside a wheel the project is not asked for.
            source.pop("project", None)
            wheel = Path(source["wheel"])
            if wheel.is_file():
                source["wheel_content"] = sha256_of(wheel)
            elif not is_requirement(source["wheel"]) and "://" not in source["wheel"]:
                raise AnsibleActionFail(f"{name}: there is no wheel {wheel} on the controller")
        if "project" in source:
            project = Path(source["project"])
            if not (project / "pyproject.toml").is_file():
                raise AnsibleActionFail(f"{name}: {project} is no Python project: it has no pyproject.toml")
            source["project_sha256"] = tree_digest(project)
        result = keep(Path(args["directory"]).resolve(), name, kind, source)
        if "project" in source and (why := not_compiled(name, source)):
            result["warnings"] = [why]
        return result


def _kept(directory: Path, name: str, key: str) -> str | None:
    """Return the SHA-256 of the archive `name` where it is there, of the recipe with that key."""
    try:
        known = json.loads((directory / f"{name}.json").read_text())
        state = (directory / name).stat()
        if (known["recipe"], known["size"], known["mtime_ns"]) == (key, state.st_size, state.st_mtime_ns):
            return str(known["sha256"])
    except (OSError, ValueError, KeyError):
        pass  # not there, or cut off while it was written
    return None


def is_kept(directory: Path, name: str, kind: str, source: Any) -> bool:
    """Return whether `keep` would find the archive, and make nothing."""
    return _kept(directory, name, recipe_key({kind: source})) is not None


def keep(directory: Path, name: str, kind: str, source: Any) -> dict[str, Any]:
    """Return {changed, path, sha256} of the archive `name` in `directory`, made first where it is missing or stale."""
    directory.mkdir(parents=True, exist_ok=True)
    target, note = directory / name, directory / f"{name}.json"
    key = recipe_key({kind: source})
    with locked(directory / f"{name}.lock"):
        if sha256 := _kept(directory, name, key):
            return {"changed": False, "path": str(target), "sha256": sha256}
        with tempfile.TemporaryDirectory(dir=directory, prefix=".making-") as work:
            made = MAKERS[kind](name, source, Path(work))  # type: ignore[operator]
            digest = sha256_of(made)
            made.replace(target)
        state = target.stat()
        record = {"recipe": key, "sha256": digest, "size": state.st_size, "mtime_ns": state.st_mtime_ns}
        note.write_text(json.dumps(record) + "\n")
    # The cache is the controller's: filling it changes nothing on any host.
    return {"changed": False, "fetched": True, "path": str(target), "sha256": digest}
