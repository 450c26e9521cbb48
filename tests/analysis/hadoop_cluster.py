"""HDFS and YARN in earnest: the NameNode, a DataNode, the ResourceManager and two NodeManagers that Hadoop has for its
own tests, in one process of this machine; beside them pyspark's jars have the clients.

    python hadoop_cluster.py FOLDER JAR...

runs them until its standard input ends, and writes the configuration of clients into FOLDER/conf before it says so.
"""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
import tarfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import jpype
import pyspark

from brokerdrill.base import java, paths

PYSPARK_JARS = Path(pyspark.__file__).parent / "jars"
# What the classes of Hadoop's tests ask for, by coordinate, with the SHA-256.
JARS = {
    "org.apiguardian:apiguardian-api:1.1.2": "b509448ac506d607319f182537f0b35d71007582ec741832a1f111e5b5b70b38",
    "org.bouncycastle:bcpkix-jdk18on:1.82": "bdc723e20834832ac6af136cb5b5ff05e43b71d4fa151cc6510d9212ee086e63",
    "org.bouncycastle:bcprov-jdk18on:1.82": "14cde2fdfaa8890480a8e5b67aceef0c90f96682c1e23c133bafdc9e0b3255ce",
    "org.bouncycastle:bcutil-jdk18on:1.82": "4420691958ad1c0ba275a6d6d8a6317adbdbdc9277055b6a72aa89c88cda8c7d",
    "org.apache.hadoop:hadoop-client-minicluster:3.5.0": (
        "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c"
    ),
    "org.junit.jupiter:junit-jupiter-api:5.13.4": "d1bb81abfd9e03418306b4e6a3390c8db52c58372e749c2980ac29f0c08278f1",
    "org.junit.platform:junit-platform-commons:1.13.4": (
        "1c25ca641ebaae44ff3ad21ca1b2ef68d0dd84bfeb07c4805ba7840899b77408"
    ),
    "org.opentest4j:opentest4j:1.3.0": "48e2df636cab6563ced64dcdff8abb2355627cb236ef0bf37598682ddf742f1b",
}
READY = "ready"
SETTINGS = {
    "dfs.replication": "1",
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.minimum-allocation-mb": "256",
    # The limits of a machine that others use, too, are none of the cluster's.
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.enable": "false",
}
# What clients must know. Defaults of YARN win over what stands in core-site.xml.
CLIENTS = {
    "core-site.xml": ["fs.defaultFS", "dfs.replication"],
    "yarn-site.xml": [
        "yarn.resourcemanager.address",
        "yarn.resourcemanager.scheduler.address",
        "yarn.application.classpath",
    ],
}
NODE_MANAGERS = 2
STOP_S = 60


def main(folder: Path, jars: Sequence[str]) -> None:
    """Run the cluster with its files in `folder` until standard input ends."""
    os.chdir(folder)
    jpype.startJVM("-Xmx700m", classpath=[*jars, *map(str, PYSPARK_JARS.glob("*.jar"))], convertStrings=True)
    settings = jpype.JClass("org.apache.hadoop.yarn.conf.YarnConfiguration")()
    settings.set("hdfs.minidfs.basedir", str(folder / "dfs"))
    for name, value in SETTINGS.items():
        settings.set(name, value)
    dfs = jpype.JClass("org.apache.hadoop.hdfs.MiniDFSCluster$Builder")(settings).numDataNodes(1).build()
    settings.set("fs.defaultFS", dfs.getFileSystem().getUri().toString())
    yarn = jpype.JClass("org.apache.hadoop.yarn.server.MiniYARNCluster")("drill", NODE_MANAGERS, 1, 1)
    yarn.init(settings)
    yarn.start()
    given = yarn.getResourceManager().getConfig()
    (folder / "conf").mkdir()
    for file, names in CLIENTS.items():
        told = jpype.JClass("org.apache.hadoop.conf.Configuration")(False)
        for name in names:
            if given.get(name) is not None:
                told.set(name, given.get(name))
        out = jpype.JClass("java.io.FileOutputStream")(str(folder / "conf" / file))
        told.writeXml(out)
        out.close()
    print(READY, flush=True)
    sys.stdin.read()
    yarn.stop()
    dfs.shutdown()


def client(conf: Path) -> dict[str, str]:
    """Return the environment of what asks the cluster whose configuration is in `conf`."""
    return {"HADOOP_CONF_DIR": str(conf), "HADOOP_USER_NAME": getpass.getuser(), "SPARK_LOCAL_IP": "127.0.0.1"}


def put(conf: Path, source: Path, target: str) -> None:
    """Copy a folder into HDFS."""
    command = [f"{java.use()}/bin/java", "-cp", f"{conf}:{PYSPARK_JARS}/*", "org.apache.hadoop.fs.FsShell"]
    subprocess.run([*command, "-put", str(source), target], check=True, env=os.environ | client(conf))


@contextmanager
def hadoop_cluster(folder: Path) -> Iterator[Path]:
    """Yield the folder of the configuration of a cluster whose files are in `folder`."""
    from tests.roles.test_plugins import cached  # not for the cluster's own process

    java.use()
    pinned = [{"coordinate": name, "sha256": digest} for name, digest in JARS.items()]
    kept = cached.keep(paths.cache() / "archives", "hadoop-test-cluster.tar", "maven", pinned)
    with tarfile.open(kept["path"]) as archive:
        archive.extractall(folder / "jars", filter="data")
    command = [sys.executable, __file__, str(folder), *map(str, (folder / "jars").glob("*.jar"))]
    log = folder / "cluster.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == READY, log.read_text(errors="replace")[-3000:]
        yield folder / "conf"
    finally:
        try:
            process.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    status = 1
    try:
        main(Path(sys.argv[1]), sys.argv[2:])
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)  # the JVM's own threads would go on
