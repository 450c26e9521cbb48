"""The support bundle of a run that did not go as expected: one archive for whoever has to find out why.

It holds the run's journal, events, evidence and verdict, the last operations of its ledger, and of each instance's host
a thread dump, the unit, its configuration, sockets, disks and memory. Secrets are masked before anything is written.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import shlex
import tarfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from brokerdrill.base.atomic import replacing
from brokerdrill.base.errors import BrokerdrillError
from brokerdrill.base.masking import masked
from brokerdrill.hosts.connection import HostConnection, connected
from brokerdrill.hosts.descriptors import read_all, read_credentials
from brokerdrill.inventory.descriptors import DIRECTORY, Descriptor
from brokerdrill.inventory.known_secrets import known_secrets
from brokerdrill.inventory.topology import Topology
from brokerdrill.ledger import contract
from brokerdrill.ledger.spool import SUFFIX
from brokerdrill.products.registry import DESCRIPTORS, managed

BUNDLE = "support.tar.gz"
# So much of the end of each worker's operations.
OPS_TAIL = 2 << 20
ASK_TIMEOUT_S = 60
MODE = 0o640
# What is asked of each host; the folder of an instance's configuration is where its service works, or beside it.
_ASKED: Mapping[str, str] = {
    "unit.txt": "systemctl cat {unit}; systemctl status --no-pager {unit}; systemctl show {unit} -p NRestarts,Result",
    "sockets.txt": "ss -tanp",
    "system.txt": "uptime; free -m; df -h; systemctl list-timers --no-pager 'brokerdrill-*'",
    "rules.txt": "nft list ruleset",
    # A Java program prints what its threads do when it gets SIGQUIT, on its unit's journal; others are left alone.
    "threads.txt": """pid=$(systemctl show -p MainPID --value {unit})
java=
for one in $pid $(pgrep -P "$pid"); do
  [ "$(cat /proc/$one/comm)" = java ] && java=$one && break
done
[ -n "$java" ] || {{ echo 'no Java program runs here'; exit 0; }}
kill -QUIT "$java"
n=0
until journalctl -u {unit} --since=-20s -o cat --no-pager | grep -q 'JNI global ref' || [ $n -ge 50 ]; do
  n=$((n + 1)); sleep 0.1
done
journalctl -u {unit} --since=-20s -o cat --no-pager""",
    # Not files of users and secrets, whose keys are names of people.
    "configuration.txt": """home=$(sed -n 's/.*"config_dir": *"\\([^"]*\\)".*/\\1/p' {descriptor} | head -n 1)
[ -n "$home" ] || home=$(systemctl show -p WorkingDirectory --value {unit} | sed 's/^!//')
[ -n "$home" ] && [ "$home" != / ] || exit 0
for file in "$home"/*.xml "$home"/*.conf "$home"/*.config "$home"/*.yml "$home"/*.yaml "$home"/java.options \\
  "$home"/log4j*.properties; do
  [ -f "$file" ] && [ "$(stat -c %s "$file")" -lt 262144 ] && echo "=== $file" && cat "$file"
done
:""",
}


async def bundle(topology: Topology, run_dir: Path) -> Path:
    """Write the support bundle of a run into its directory and return its path; its owner and group alone may read it.

    A host that does not answer is named in the bundle. Raises InfrastructureError where the disk does not take it.
    """
    known = known_secrets(topology)
    said = await _ask_all(topology, known)
    path = run_dir / BUNDLE
    with replacing(path) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        os.fchmod(file.fileno(), MODE)
        parts = [*_of_run(run_dir, known), *((name, masked(text, known).encode()) for name, text in said.items())]
        for name, content in parts:
            entry = tarfile.TarInfo(f"{run_dir.name}/{name}")
            entry.size, entry.mode = len(content), MODE
            archive.addfile(entry, io.BytesIO(content))
    return path


def _of_run(run_dir: Path, known: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of what is taken from the run's directory, without the `known` secrets and all others."""
    kept = [run_dir / name for name in (contract.RUN_FILE, contract.JOURNAL_FILE, "verdict.json", "summary.md")]
    kept += sorted((run_dir / contract.EVENTS_DIR).glob("*.jsonl")) + sorted((run_dir / "evidence").glob("*"))
    for path in kept:
        if path.is_file():
            packed = path.suffix == ".gz"
            content = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
            content = masked(content.decode(errors="replace"), known).encode()
            yield str(path.relative_to(run_dir)), gzip.compress(content, mtime=0) if packed else content
    ops = run_dir / contract.OPS_DIR
    for path in sorted([*ops.glob("*.jsonl"), *ops.glob(f"*{SUFFIX}")]):
        with path.open("rb") as file:
            size = path.stat().st_size
            # Without its header a spool says nothing.
            header = file.readline() if path.suffix == SUFFIX else b""
            file.seek(max(0, size - OPS_TAIL))
            tail = file.read()
        # The first line of a tail is rarely whole.
        content = tail if size <= OPS_TAIL else header + tail.partition(b"\n")[2]
        yield f"ops-tail/{path.name}", masked(content.decode(errors="replace"), known).encode()


async def _ask_all(topology: Topology, known: set[str]) -> dict[str, str]:
    """Return what the instances' hosts say, by file name, and add the secrets that these hosts have to `known`."""
    try:
        async with connected(topology.hosts) as connections:
            found = await read_all(connections.values(), DESCRIPTORS)
            for item in found:
                if item.credentials:
                    known.add((await read_credentials(connections[item.host], item))["password"])
            parts = await asyncio.gather(*(_ask(connections[item.host], item) for _, item in managed(found)))
    except BrokerdrillError as error:
        return {"hosts/unreachable.txt": f"{error}\n"}
    return {name: text for part in parts for name, text in part.items()}


async def _ask(connection: HostConnection, item: Descriptor) -> dict[str, str]:
    folder = f"hosts/{item.host}/{item.instance}"
    said = {f"{folder}/descriptor.json": json.dumps(item.model_dump(mode="json"), indent=2)}
    descriptor = f"{DIRECTORY}/{item.instance}.json"
    words = {"unit": shlex.quote(item.unit or ""), "descriptor": shlex.quote(descriptor)}
    for name, script in _ASKED.items():
        if item.unit is None and "{unit}" in script:
            continue
        try:
            done = await connection.sh(script.format(**words), timeout=ASK_TIMEOUT_S)
            said[f"{folder}/{name}"] = done.out + done.err
        except BrokerdrillError as error:
            said[f"{folder}/{name}"] = f"{error}\n"
    return said
