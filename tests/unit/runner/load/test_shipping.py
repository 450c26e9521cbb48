"""What is shipped to load hosts is whole, and needs nothing but Python there."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

from brokerdrill.runner.load.shipping import bundle
from tests.unpacking import unpack

# Without site-packages: what a load host's Python has by itself.
IMPORTS = """
import sys
sys.path.insert(0, sys.argv[1])
import brokerdrill.workload.worker
import brokerdrill.ledger.contract as contract
assert contract.__file__.startswith(sys.argv[1])
assert contract.PromiseSpec("ordered").scope == "session"
"""


def test_a_worker_starts_from_what_is_shipped(tmp_path: Path) -> None:
    (tmp_path / "code.tar").write_bytes(bundle())
    unpack(tmp_path / "code.tar", tmp_path / "code")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", IMPORTS, str(tmp_path / "code")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_same_code_is_the_same_bytes_and_each_file_is_once_in_it() -> None:
    assert bundle() == bundle()
    with tarfile.open(fileobj=io.BytesIO(bundle())) as archive:
        names = archive.getnames()
    assert len(names) == len(set(names))
