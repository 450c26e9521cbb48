"""What a deployment left of the name server, seen from inside after a drill."""

from __future__ import annotations

from typing import Any

from conftest import Instance, connect, topology

ASK = """
import socket, struct, sys
labels = b"".join(bytes([len(part)]) + part.encode() for part in sys.argv[1].split("."))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
    line.settimeout(10)
    query = struct.pack("!6H", 7, 256, 1, 0, 0, 0) + labels + bytes([0, 0, 1, 0, 1])
    line.sendto(query, (sys.argv[2], int(sys.argv[3])))
    reply = line.recv(512)
print(reply[3] & 15, socket.inet_ntoa(reply[-4:]) if reply[7] else "")
"""


def asked(instance: Instance, host: Any, name: str) -> list[str]:
    """Return the error code of the answer to who asks for the name's address, and that address."""
    (listener,) = instance["listeners"]
    words = [name, listener["address"], str(listener["port"])]
    return list(host.check_output("python3 -c %s %s %s %s", ASK, *words).split())


def test_it_knows_every_host_and_nobody_else(instance: Instance, host: Any) -> None:
    domain = instance["asks"].partition(".")[2]
    for one in topology().hosts:
        assert asked(instance, host, f"{one.name}.{domain}") == ["0", one.address]
    assert asked(instance, host, f"nobody.{domain}") == ["3"]


def test_session_routers_dial_brokers_by_name(instance: Instance) -> None:
    for router in (connect(one.name) for one in topology().group("amqp_router")):
        pid = router.check_output("systemctl show --value -p MainPID amqp-session-router").strip()
        seen = router.check_output("cat /proc/%s/root/etc/resolv.conf", pid)
        assert f"nameserver {instance['listeners'][0]['address']}\n" in seen
