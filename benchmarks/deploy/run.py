"""How long a deployment takes, over a plain parallel shell script that does the same steps on the same fresh hosts.

    .venv/bin/python benchmarks/deploy/run.py [TOPOLOGY] [--repeat N] [--json FILE]

Makes the topology's bench hosts anew for every measurement, and leaves them deployed. The cache is warm for both: the
archives are there, the hosts are booted and bare. The script copies ready files; the playbook renders and checks them.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from brokerdrill.base import paths
from brokerdrill.bench import bench
from brokerdrill.inventory.topology import Topology, find_topology

HERE = Path(__file__).parent
RATIO = 2.5
SECOND_S = 60.0
# What the roles write besides archives; the data directories are made by the script.
CONFIGURATION = "/etc/zookeeper /etc/artemis /etc/brokerdrill /etc/systemd/system/{zookeeper,artemis,toxiproxy}.service"
COLLECT = f"""
cd / && [ -f /var/lib/zookeeper/myid ] && cp -p /var/lib/zookeeper/myid /myid
files=$(ls -d {CONFIGURATION} /myid 2>/dev/null)
tar cz $files 2>/dev/null; rm -f /myid
"""


def say(text: str) -> None:
    print(text, flush=True)


def playbook(topology: Topology, *arguments: str) -> tuple[float, str]:
    """Run site.yml; return its wall time in seconds and its recap. Raises SystemExit where it fails."""
    command = [str(Path(sys.executable).with_name("ansible-playbook"))]
    command += [word for source in topology.sources for word in ("-i", str(source))]
    command += [str(paths.ROOT / "playbooks" / "site.yml"), *arguments]
    begin = time.monotonic()
    done = subprocess.run(command, cwd=paths.ROOT, env=paths.child_environment(), capture_output=True, text=True)
    took = time.monotonic() - begin
    if done.returncode != 0:
        raise SystemExit(done.stdout[-4000:] + done.stderr[-2000:])
    return took, done.stdout[done.stdout.index("PLAY RECAP") :]


def changed(recap: str) -> int:
    """Return the number of changes that a recap counts."""
    return sum(int(count) for count in re.findall(r"changed=(\d+)", recap))


def ssh(topology: Topology, host: str, command: str) -> bytes:
    """Run `command` on a bench host and return its output."""
    cache = paths.cache() / "bench"
    options = ["-i", str(cache / "id_ed25519"), "-o", f"UserKnownHostsFile={cache / 'known_hosts'}"]
    target = f"root@{topology.host(host).address}"
    return subprocess.run(
        ["ssh", *options, target, "bash", "-s"], input=command.encode(), capture_output=True, check=True
    ).stdout


def collect(topology: Topology, out: Path) -> None:
    """Keep, for each host, the configuration that the playbook left there."""
    for host in topology.hosts:
        (out / f"{host.name}.tar.gz").write_bytes(ssh(topology, host.name, COLLECT))


def plain(topology: Topology, collected: Path) -> float:
    """Run plain.sh; return its wall time in seconds."""
    cache = paths.cache()
    roles = ("zookeeper", "artemis", "load")
    entries = [
        f"{host.name}={host.address}={next(role for role in roles if role in host.groups)}" for host in topology.hosts
    ]
    command = [str(HERE / "plain.sh"), str(cache / "archives"), str(collected)]
    command += [str(cache / "bench" / "id_ed25519"), str(cache / "bench" / "known_hosts"), *entries]
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    took = time.monotonic() - begin
    if done.returncode != 0:
        raise SystemExit(f"plain.sh: {done.stderr[-2000:]}")
    return took


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topology", nargs="?", default="artemis_quorum")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    topology = find_topology(options.topology)

    bench.up(topology, fresh=True)
    playbook(topology)  # fills the cache
    script, ours, second, check = [], [], [], []
    with tempfile.TemporaryDirectory() as name:
        collect(topology, Path(name))
        for turn in range(options.repeat):
            bench.up(topology, fresh=True)
            script.append(plain(topology, Path(name)))
            bench.up(topology, fresh=True)
            ours.append(playbook(topology)[0])
            took, recap = playbook(topology)
            second.append(took)
            if changed(recap):
                raise SystemExit(f"a second run changes something:\n{recap}")
            took, recap = playbook(topology, "--check")
            check.append(took)
            if changed(recap):
                raise SystemExit(f"a check after a deployment finds something to change:\n{recap}")
            say(
                f"{turn + 1}: script {script[-1]:.1f} s, playbook {ours[-1]:.1f} s, ratio {ours[-1] / script[-1]:.2f}; "
                f"second run {second[-1]:.1f} s, check {check[-1]:.1f} s, nothing changed"
            )
    ratio = statistics.median(ours) / statistics.median(script)
    slowest = max(second)
    result = {
        "script_s": script,
        "playbook_s": ours,
        "second_s": second,
        "check_s": check,
        "ratio": ratio,
        "ratio_bound": RATIO,
        "second_bound_s": SECOND_S,
    }
    say(
        f"deploy: {ratio:.2f} times the script (to reach: ≤ {RATIO}); "
        f"second run {slowest:.1f} s at most (to reach: ≤ {SECOND_S:.0f} s)"
    )
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if ratio <= RATIO and slowest <= SECOND_S else 1


if __name__ == "__main__":
    raise SystemExit(main())
