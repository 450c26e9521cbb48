"""What a deployment left of the load hosts, seen from inside after a drill."""

from __future__ import annotations

from typing import Any

from conftest import Instance

FACTORIES = {
    "core": "org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory",
    "openwire": "org.apache.activemq.ActiveMQSslConnectionFactory",
}


def test_workers_can_start(instance: Instance, host: Any) -> None:
    assert host.file(instance["spool_dir"]).is_directory
    assert instance["jars"]
    for client, jars in instance["jars"].items():
        client_starts(instance, host, client, jars)


def client_starts(instance: Instance, host: Any, client: str, jars: str) -> None:
    script = (
        "import glob,sys;"
        f"sys.path.insert(0,'{instance['pythonpath']}');"
        "import jpype;"
        f"jpype.startJVM(classpath=glob.glob('{jars}/*.jar'));"
        f"print(jpype.JClass('{FACTORIES[client]}'))"
    )
    assert FACTORIES[client] in host.check_output("python3 -c %s", script)
