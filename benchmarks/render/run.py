"""How much longer a broker's files take to render with a large estate than with the defaults, whole plays in one run.

    .venv/bin/python benchmarks/render/run.py [--addresses 650] [--roles 620] [--repeat 3] [--json FILE]

The estate: so many addresses, each with settings of its own, and so many roles, each with a user and permissions of its
own. A play reads the inventory, runs preflight and renders, as a deployment does before it touches a host. Large and
small plays alternate; the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.roles.conftest import render_all  # noqa: E402

FILES = {name: f"{name}.j2" for name in ("broker.xml", "artemis-users.properties", "artemis-roles.properties")}
RATIO = 6.0


def estate(addresses: int, roles: int) -> dict[str, Any]:
    """Return the role's variables for so many addresses and roles."""
    names = [f"address.{number}" for number in range(addresses)]
    own = [f"role{number}" for number in range(roles)]
    return {
        "artemis_addresses": [{"name": name, "routing": "anycast"} for name in names],
        "artemis_address_settings": [{"match": name, "settings": {"max-delivery-attempts": 3}} for name in names],
        "artemis_security_settings": [
            {"match": f"address.{number}", "permissions": {"send": [role], "consume": [role]}}
            for number, role in enumerate(own)
        ],
        "artemis_more_users": [{"name": f"user-{role}", "password": f"p-{role}", "roles": [role]} for role in own],
    }


def seconds(work: Path, extra: dict[str, Any]) -> float:
    begin = time.perf_counter()
    render_all(work, "artemis", "artemis1", FILES, **extra)
    return time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--addresses", type=int, default=650)
    parser.add_argument("--roles", type=int, default=620)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    large = estate(options.addresses, options.roles)
    times: dict[str, list[float]] = {"small": [], "large": []}
    with tempfile.TemporaryDirectory() as work:
        seconds(Path(work), {})  # makes the secrets that every later play reads
        for _ in range(options.repeat):
            times["small"].append(seconds(Path(work), {}))
            times["large"].append(seconds(Path(work), large))
    ratio = statistics.median(times["large"]) / statistics.median(times["small"])
    print(f"{options.addresses} addresses and {options.roles} roles: {ratio:.2f} times the defaults (limit {RATIO})")
    if options.json:
        options.json.write_text(json.dumps({"ratio": ratio, "limit": RATIO, "seconds": times}, indent=1) + "\n")
    return 0 if ratio <= RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
