"""What ships with the package beside its modules, which pyproject.toml cannot fetch from other folders: drills,
matrices, topologies, the collection. A wheel has it in brokerdrill/shipped, laid out like a checkout; an editable
install uses the checkout itself."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
COLLECTION = Path(".collections", "ansible_collections", "brokerdrill", "ha")
# From a checkout → where in brokerdrill/shipped.
SHIPPED = {
    **{Path(name): Path(name) for name in ("ansible.cfg", "bench", "chaos/scenarios", "chaos/matrices", "inventories")},
    **{
        Path(name): COLLECTION / name for name in ("galaxy.yml", "LICENSE", "README.md", "meta", "playbooks", "plugins")
    },
    **{Path(name): COLLECTION / name for name in ("requirements.txt", "bindep.txt", "roles")},
    **{
        Path("router", name): COLLECTION / "router" / name
        for name in ("README.md", "amqp_session_router", "pyproject.toml", "setup.py")
    },
}
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so", "*.c", "*.egg-info", ".*")


class WithWhatShips(build_py):
    """Copies it beside the modules."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for source, place in SHIPPED.items():
                self._copy(ROOT / source, Path(self.build_lib, "brokerdrill", "shipped") / place)

    def _copy(self, source: Path, target: Path) -> None:
        if source.is_dir():
            # What an earlier build left there is not shipped.
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target, ignore=IGNORED)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


setup(cmdclass={"build_py": WithWhatShips})
