"""A controller that wants the same hosts many times at once: a program for tests.

    python -m tests.bench.controller INVENTORY NAME TRIES

It connects over SSH, says `ready`, and waits for a line. Then it asks for the lease TRIES times at once, each as a run
of its own; it prints a line of JSON: which of them has it, how the others were refused, and how long all that took
(s). It keeps what it has until its input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from brokerdrill.faults.lease import Lease, LeaseRequest, take
from brokerdrill.hosts.connection import KernelRefused, connected
from brokerdrill.inventory.topology import find_topology


async def main(inventory: str, name: str, tries: str) -> None:
    async with connected(find_topology(inventory).hosts) as connections:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        begun = time.monotonic()
        requests = [LeaseRequest(f"{name}-{number}", name) for number in range(int(tries))]
        taken = await asyncio.gather(*(take(one, connections) for one in requests), return_exceptions=True)
        took_s = time.monotonic() - begun
        leases = [one for one in taken if isinstance(one, Lease)]
        refused = [str(one) for one in taken if isinstance(one, KernelRefused)]
        others = [repr(one) for one in taken if not isinstance(one, (Lease, KernelRefused))]
        won = [one.request.run for one in leases]
        print(json.dumps({"won": won, "refused": refused, "others": others, "took_s": took_s}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for lease in leases:
            await lease.give_back()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
