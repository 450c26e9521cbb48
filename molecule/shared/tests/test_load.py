"""What a deployment left of the load hosts, seen from inside after a drill."""

from __future__ import annotations

from typing import Any

from conftest import Instance


def test_workers_can_start(instance: Instance, host: Any) -> None:
    assert host.file(instance["spool_dir"]).is_directory
    script = (
        "import glob,sys;"
        f"sys.path.insert(0,'{instance['pythonpath']}');"
        "import jpype;"
        f"jpype.startJVM(classpath=glob.glob('{instance['jars']}/*.jar'));"
        "print(jpype.JClass('org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory'))"
    )
    assert "ActiveMQConnectionFactory" in host.check_output("python3 -c %s", script)
