"""Processes that share a table of descriptors."""

from __future__ import annotations

import subprocess
import sys

# By a process of its own, without threads: it is cloned. Its child collects garbage that has a socket, as it does by
# itself now and then.
_CLONED = """
import gc, os, socket
from amqp_session_router.process.descriptors import clone_sharing_files

class Garbage:
    pass

gc.disable()
one = Garbage()
one.self, one.socket = one, socket.socket()
number = one.socket.fileno()
del one
gc.enable()
child = clone_sharing_files()
if child == 0:
    gc.collect()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0 and gc.isenabled()
os.fstat(number)
gc.collect()
try:
    os.fstat(number)
except OSError:
    print("closed by its own")
"""


def test_a_child_that_shares_descriptors_closes_none_of_its_parents_garbage() -> None:
    done = subprocess.run([sys.executable, "-c", _CLONED], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "closed by its own\n"), done.stderr
