"""Two Artemis brokers of a shared store that no role deployed, made by `artemis create` and systemd units by hand;
beside them a host of clients and a control host. They have production's queues, and some for drills."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
from pathlib import Path

import yaml

from brokerdrill.base import paths
from brokerdrill.base.atomic import write
from brokerdrill.bench import bench
from brokerdrill.hosts.connection import HostConnection, connected
from brokerdrill.inventory.topology import Topology, load

NAME = "shop"
SUBNET = "172.30.238"
VERSION = "2.56.0"
PRODUCTION = ("orders", "orders.flow", "DLQ", "ExpiryQueue")
DRILLS = ("drill.q0", "drill.q1", "drill.q2", "drill.q3")
KEY = "/etc/brokerdrill-key"
PASSWORDS = {name: secrets.token_hex(12) for name in ("admin", "drill", "cluster")}

CREATE = """
set -eu
command -v java >/dev/null || {{ apt-get update -q; apt-get install -qy openjdk-17-jre-headless; }} >/tmp/java.log 2>&1
mkdir -p /opt && tar -xzf /root/artemis.tar.gz -C /opt
useradd --system --create-home --home-dir /var/lib/shop shop
chown shop: /srv/shop
cd /opt/apache-artemis-{version}
runuser -u shop -- bin/artemis create /var/lib/shop/broker --silent --name {name} --user admin --password {admin} \\
  --require-login --role amq --host {address} --http-host {address} --relax-jolokia --no-mqtt-acceptor \\
  --no-amqp-acceptor --no-stomp-acceptor --no-hornetq-acceptor --clustered --cluster-user cluster \\
  --cluster-password {cluster} --static-cluster tcp://{peer}:61616 --shared-store --failover-on-shutdown {backup} \\
  --data /srv/shop/data --java-memory 512M --no-autotune --queues {queues}
cd /var/lib/shop/broker/etc
python3 - <<'PY'
from pathlib import Path
place = Path("broker.xml")
text = place.read_text()
rights = "".join(f'<permission type="{{kind}}" roles="amq,drill"/>' for kind in ("send", "consume", "browse"))
own = f'<security-setting match="drill.#">{{rights}}</security-setting>'
letters = \"\"\"<security-setting match="DLQ"><permission type="browse" roles="amq,drill"/>
<permission type="send" roles="amq"/><permission type="consume" roles="amq"/></security-setting>\"\"\"
place.write_text(text.replace("<security-settings>", "<security-settings>" + own + letters, 1))
place = Path("management.xml")
text = place.read_text()
keys = "".join(f\"\"\"<match domain="org.apache.activemq.artemis" key="address=drill.q{{number}}">
<access method="removeAllMessages" roles="amq,drill"/><access method="get*" roles="amq,drill"/>
<access method="*" roles="amq"/></match>\"\"\" for number in range(4))
keys += \"\"\"<match domain="org.apache.activemq.artemis"><access method="get*" roles="amq,drill"/>
<access method="is*" roles="amq,drill"/><access method="listPreparedTransactions" roles="amq,drill"/>
<access method="*" roles="amq"/></match>\"\"\"
before, _, rest = text.partition("<role-access>")
place.write_text(before + "<role-access>" + keys + "</role-access>" + rest.partition("</role-access>")[2])
PY
printf '\ndrill = {drill}\n' >>artemis-users.properties
printf '\ndrill = drill\n' >>artemis-roles.properties
sed -i "s/^HAWTIO_ROLES=.*/HAWTIO_ROLES='amq,drill'/" artemis.profile
cat >/etc/systemd/system/shop-broker.service <<'UNIT'
[Unit]
Description=The shop's broker
[Service]
User=shop
ExecStart=/var/lib/shop/broker/bin/artemis run
Restart=always
RestartSec=5
[Install]
WantedBy=multi-user.target
UNIT
systemctl daemon-reload
systemctl enable --now --quiet shop-broker
"""


def inventory(key: str, approval: bool) -> str:
    """The inventory as an operator writes it, with the SSH key `key`."""
    said = {
        "all": {
            "vars": {
                "bench_subnet": f"{SUBNET}.0/24",
                "bench_memory": "1g",
                "ansible_user": "root",
                "ansible_ssh_private_key_file": key,
                "ansible_ssh_common_args": "-o StrictHostKeyChecking=no",
                "drill_allowed": True,
                "drill_approval": approval,
                "drill_radius": {"groups": ["artemis"], "at_once": 1},
            },
            "children": {
                "artemis": {
                    "hosts": {f"shop{n}": {"ansible_host": f"{SUBNET}.2{n}"} for n in (1, 2)},
                    "vars": {"bench_volumes": {"orders": "/srv/shop"}},
                },
                "load": {"hosts": {"load1": {"ansible_host": f"{SUBNET}.31"}}},
                "gameday": {"hosts": {"control": {"ansible_host": f"{SUBNET}.41", "bench_memory": "4g"}}},
            },
        }
    }
    return yaml.safe_dump(said)


def up(folder: Path) -> Topology:
    """Make the hosts, with an inventory below `folder`, and the brokers on them."""
    directory = folder / NAME
    directory.mkdir()
    (directory / "hosts.yml").write_text(inventory(str(paths.cache() / "bench" / "id_ed25519"), approval=True))
    topology = load(directory)
    bench.down(topology.name)
    bench.up(topology, progress=print)
    archive = paths.cache() / "archives" / f"apache-artemis-{VERSION}-bin.tar.gz"

    async def create(connection: HostConnection, address: str, peer: str, backup: str) -> None:
        await connection.put(archive, "/root/artemis.tar.gz")
        script = CREATE.format(
            version=VERSION,
            name=connection.name,
            address=address,
            peer=peer,
            backup=backup,
            queues=",".join((*PRODUCTION[:2], *DRILLS)),
            **PASSWORDS,
        )
        await connection.sh(script, check=True, timeout=400)

    async def brokers() -> None:
        one, two = topology.host("shop1"), topology.host("shop2")
        async with connected([one, two]) as connections:
            await create(connections["shop1"], one.address, two.address, "")
            await create(connections["shop2"], two.address, one.address, "--backup")

    asyncio.run(brokers())
    return topology


def describe(topology: Topology, command: list[str], folder: Path) -> str:
    """Leave the descriptors by `brokerdrill describe`, and deploy the clients' host; return what was said."""
    password = write(folder / "drill-password", PASSWORDS["drill"].encode())
    words = ["describe", str(topology.directory), "artemis", "--store", "orders", "--password-file", str(password)]
    for address in DRILLS:
        words += ["--drill-address", address]
    said = subprocess.run([*command, *words], cwd=paths.ROOT, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    return said.stdout
