"""The package as somebody installs it: a wheel of this checkout, used in an empty folder that is no checkout."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from brokerdrill.base import paths
from brokerdrill.base.extras import EXTRAS

ROOT = paths.ROOT
COLLECTION = "brokerdrill/shipped/.collections/ansible_collections/brokerdrill/ha"
# README, "Exit status".
STATUSES = (0, 1, 2, 3, 64)
OURS = ("BROKERDRILL_", "ANSIBLE_", "XDG_")
TOPOLOGY = "artemis_quorum"

COMMANDS = [
    ["--help"],
    ["--version"],
    ["abort"],
    ["approve"],
    ["audit", "nowhere"],
    ["bench", "status", TOPOLOGY],
    ["bench", "up", "nowhere"],
    ["check", "nowhere"],
    ["compact", "nowhere"],
    ["deploy", "nowhere"],
    ["deploy", TOPOLOGY, "--playbook", "nothing"],
    ["faults"],
    ["gameday", "plan", "nothing.yml"],
    ["heal"],
    ["matrix", "nothing"],
    ["reference"],
    ["run", "kill_active", "nowhere"],
    ["run", "nothing", TOPOLOGY],
    ["scenarios"],
    ["schema"],
    ["sweep", "kill_active", "nowhere", "--vary", "load.rate=1,2"],
    ["topologies"],
    ["trends"],
    ["unknown"],
]
# Command → the extra that it names where none is there.
WITHOUT = {
    "analyze nowhere": "analyze",
    "audit artemis_quorum": "drill",
    "bench status artemis_quorum": "bench",
    "deploy artemis_quorum": "drill",
    "report nowhere": "analyze",
    "run kill_active artemis_quorum": "drill",
    "run kill_active artemis_quorum --no-judge": "drill",
    "scenarios artemis_quorum": "drill",
    "trends": "analyze",
}


def clean(home: Path) -> dict[str, str]:
    """The environment of a user who has set nothing up."""
    return {name: value for name, value in os.environ.items() if not name.startswith((*OURS, "PYTHON"))} | {
        "HOME": str(home)
    }


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the files that git has or would add."""
    work = tmp_path_factory.mktemp("wheel")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    tracked = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, tracked):
        if (ROOT / name).exists() and not name.startswith((".collections", "tests", "molecule")):
            (work / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, work / "source" / name, follow_symlinks=False)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*build, "-w", str(work), str(work / "source")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = work.glob("*.whl")
    return made


@pytest.fixture(scope="session")
def unpacked(wheel: Path) -> Path:
    """The wheel, unpacked: before the checkout on a path it is the package as installed."""
    folder = wheel.parent / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def brokerdrill(
    unpacked: Path, home: Path, *words: str, without: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run the installed package in the empty folder beside `home`, without the modules of some extras."""
    cwd = home.parent / "empty"
    cwd.mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    gone = [module for extra in without for module in EXTRAS[extra]]
    program = f"import sys; sys.modules.update(dict.fromkeys({gone})); from brokerdrill.cli.app import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=cwd,
        env=clean(home) | {"PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_wheel_has_all_that_git_has_of_it(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in tracked.stdout.split():
        top = name.split("/")[0]
        if not (ROOT / name).is_file() or Path(name).name.startswith("."):
            continue
        if name.startswith(("chaos/scenarios/", "chaos/matrices/", "inventories/", "bench/")):
            assert f"brokerdrill/shipped/{name}" in names
        elif top in ("roles", "plugins", "playbooks", "meta") or name.startswith("router/amqp_session_router/"):
            assert f"{COLLECTION}/{name}" in names
        elif name.startswith("chaos/brokerdrill/"):
            assert name.removeprefix("chaos/") in names
    assert {name.split("/")[0] for name in names} <= {"brokerdrill", wheel.name.split("-py3")[0] + ".dist-info"}
    assert wheel.stat().st_size < 4 << 20, "something large is in the wheel"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_ends_in_a_traceback(unpacked: Path, tmp_path: Path, words: list[str]) -> None:
    done = brokerdrill(unpacked, tmp_path / "home", *words)
    assert "Traceback" not in done.stdout + done.stderr
    assert done.returncode in STATUSES
    if done.returncode:
        (said,) = done.stderr.strip().splitlines()
        assert said.startswith("brokerdrill: ")
    assert not [*(tmp_path / "empty").iterdir()], "it left something in the user's folder"


@pytest.mark.parametrize(("words", "extra"), WITHOUT.items())
def test_without_its_extra_a_command_names_it(unpacked: Path, tmp_path: Path, words: str, extra: str) -> None:
    done = brokerdrill(unpacked, tmp_path / "home", *words.split(), without=list(EXTRAS))
    assert done.returncode == 3
    said = rf"brokerdrill: this needs \w+, which is not installed: pip install 'brokerdrill\[{extra}\]'\n"
    assert re.fullmatch(said, done.stderr), done.stderr


def test_judging_is_asked_for_before_anything_is_broken(unpacked: Path, tmp_path: Path) -> None:
    done = brokerdrill(unpacked, tmp_path / "home", "run", "kill_active", TOPOLOGY, without=["analyze"])
    assert done.returncode == 3 and "pip install 'brokerdrill[analyze]'" in done.stderr


def test_what_would_be_drilled_needs_no_analysis(unpacked: Path, tmp_path: Path) -> None:
    done = brokerdrill(unpacked, tmp_path / "home", "scenarios", TOPOLOGY, without=["analyze", "bench", "serve"])
    assert done.returncode == 0 and "kill_active" in done.stdout, done.stderr


def test_without_any_extra_there_are_lists(unpacked: Path, tmp_path: Path) -> None:
    for words in (["topologies"], ["scenarios"], ["faults"], ["schema"], ["--help"]):
        assert brokerdrill(unpacked, tmp_path / "home", *words, without=list(EXTRAS)).returncode == 0


def test_lists_are_as_in_a_checkout(unpacked: Path, tmp_path: Path) -> None:
    topologies = brokerdrill(unpacked, tmp_path / "home", "topologies").stdout
    assert all(path.name in topologies for path in (ROOT / "inventories").iterdir())
    drills = brokerdrill(unpacked, tmp_path / "home", "scenarios").stdout
    assert all(path.stem in drills for path in (ROOT / "chaos" / "scenarios").glob("*/*.yml"))


def test_a_topology_of_the_users_own_folder(unpacked: Path, tmp_path: Path) -> None:
    """What would be deployed comes from the installed collection, and is kept where XDG wants it."""
    own = shutil.copytree(ROOT / "inventories" / TOPOLOGY, tmp_path / "empty" / "inventories" / "mine")
    home = tmp_path / "home"
    assert "\nmine " in brokerdrill(unpacked, home, "topologies").stdout
    done = brokerdrill(unpacked, home, "scenarios", "mine")
    assert done.returncode == 0, done.stderr
    assert "kill_active" in done.stdout
    assert (home / ".cache" / "brokerdrill" / "planned").is_dir()
    assert (home / ".local" / "state" / "brokerdrill" / "logs").is_dir()
    assert sorted(path.name for path in (tmp_path / "empty").iterdir()) == ["inventories"]
    assert {path.name for path in own.iterdir()} == {path.name for path in (ROOT / "inventories" / TOPOLOGY).iterdir()}
    assert not [*unpacked.glob("brokerdrill/shipped/.cache")]


def test_cache_and_state_by_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(OURS)]:
        monkeypatch.delenv(name)
    assert paths.cache() == paths.state() == ROOT / ".cache"
    monkeypatch.setattr(paths, "CHECKOUT", None)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.cache() == tmp_path / ".cache" / "brokerdrill"
    assert paths.state() == tmp_path / ".local" / "state" / "brokerdrill"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "kept"))
    assert paths.cache() == tmp_path / ".cache" / "brokerdrill"
    assert paths.state() == tmp_path / "kept" / "brokerdrill"
    monkeypatch.setenv("BROKERDRILL_CACHE", str(tmp_path / "one"))
    assert paths.cache() == paths.state() == tmp_path / "one"
    monkeypatch.setenv("BROKERDRILL_STATE", str(tmp_path / "two"))
    assert (paths.cache(), paths.state()) == (tmp_path / "one", tmp_path / "two")


def test_extras_bring_all_that_is_imported() -> None:
    """Each module of others that ours import is what every installation has, or an extra's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {
        "yaml": "pyyaml",
        "ansible": "ansible-core",
        "jpype": "jpype1",
        "paho": "paho-mqtt",
        "markupsafe": "jinja2",
        "py4j": "pyspark",
        "pydantic_core": "pydantic",
    }

    def brought(requirements: list[str]) -> set[str]:
        return {re.split(r"[<>=\[]", one)[0].lower() for one in requirements}

    base = brought(project["dependencies"])
    for extra, modules in EXTRAS.items():
        assert {names.get(one, one.lower()) for one in modules} == (brought(project["optional-dependencies"][extra])), (
            extra
        )
    imported = {
        name.partition(".")[0]
        for path in paths.PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
    }
    others = imported - set(sys.stdlib_module_names) - {"brokerdrill"}
    extra_modules = {module for modules in EXTRAS.values() for module in modules}
    assert {names.get(one, one) for one in others - extra_modules} <= base


def test_help_is_quick() -> None:
    """In CPU time, which other work on the machine does not lengthen as much; beside it Python itself."""

    def seconds(*command: str) -> float:
        before = os.times()
        subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    assert min(seconds("-m", "brokerdrill", "--help") for _ in range(3)) < 0.3


@pytest.mark.long
@pytest.mark.parametrize(
    ("extra", "limit_mb", "works"),
    [
        ("drill", 300, ["scenarios", TOPOLOGY]),
        ("analyze", 1200, ["report", "run"]),
        ("bench,serve", 300, ["topologies"]),
    ],
)
def test_installed_from_the_index(wheel: Path, tmp_path: Path, extra: str, limit_mb: int, works: list[str]) -> None:
    """In an environment of its own, with all that the extra asks for and nothing else."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    before = size_mb(site)
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "-q", f"{wheel}[{extra}]"], capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stderr
    grown = size_mb(site) - before
    assert grown < limit_mb
    cwd = tmp_path / "empty"
    cwd.mkdir()
    if extra == "analyze":
        from brokerdrill.results.warm import small_run

        small_run(cwd / "run")
    began = time.monotonic()
    ran = subprocess.run(
        [str(python.with_name("brokerdrill")), *works],
        cwd=cwd,
        env=clean(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    print(f"[{extra}]: {grown:.0f} MB, {' '.join(works)} in {time.monotonic() - began:.1f} s")


def size_mb(folder: Path) -> float:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
