"""The broker's own check of configurations: its Spring context is made from each, and what it understood is read back.

`python classic_check.py CLASSPATH... -- FILE...` prints, for each file, a JSON object of its beans' properties, or the
broker's complaint as {"error"}. Nothing is started but the management's port.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import jpype

PLAIN = ("java.lang.String", "java.lang.Boolean", "java.lang.Integer", "java.io.File")


def properties(bean: Any) -> dict[str, Any]:
    """Return the class of a bean, its plain properties, and its plain fields: not every property has a getter."""
    found: dict[str, Any] = {"class": str(bean.getClass().getName())}
    for one in jpype.JClass("java.beans.Introspector").getBeanInfo(bean.getClass()).getPropertyDescriptors():
        getter = one.getReadMethod()
        if getter is not None and (
            getter.getReturnType().isPrimitive() or str(getter.getReturnType().getName()) in PLAIN
        ):
            try:
                found[str(one.getName())] = str(getter.invoke(bean))
            except jpype.JException:
                continue  # not before the start
    at = bean.getClass()
    while at is not None:
        for field in at.getDeclaredFields():
            kind = field.getType()
            if kind.isPrimitive() or str(kind.getName()) in PLAIN:
                try:
                    field.setAccessible(True)
                except jpype.JException:
                    continue
                found.setdefault(str(field.getName()), str(field.get(bean)))
        at = at.getSuperclass()
    return found


def field_of(bean: Any, name: str) -> Any:
    """Return what the private field of that name holds, None where there is no such field."""
    at = bean.getClass()
    while at is not None:
        for field in at.getDeclaredFields():
            if str(field.getName()) == name:
                field.setAccessible(True)
                return field.get(bean)
        at = at.getSuperclass()
    return None


def check(file: str) -> dict[str, Any]:
    factory = jpype.JClass("org.apache.activemq.broker.BrokerFactory")
    # Made, but not started.
    made = Path(file).with_name("made.xml")
    made.write_text(Path(file).read_text().replace("<broker ", '<broker start="false" ', 1))
    try:
        broker = factory.createBroker(f"xbean:file:{made}", False)
    except jpype.JException as error:
        return {"error": str(error)}
    adapter = broker.getPersistenceAdapter()
    locker = adapter.getLocker()
    found = {
        "broker": properties(broker),
        "adapter": properties(adapter),
        "locker": properties(locker),
        "handler": properties(broker.getIoExceptionHandler()),
        "connectors": [str(one.getUri()) for one in broker.getTransportConnectors()],
    }
    if (statements := field_of(locker, "statements")) is not None:
        found["statements"] = properties(statements)
    if "jdbc" in found["adapter"]["class"]:
        found["database"] = properties(adapter.getDataSource())
    return found


def main() -> None:
    split = sys.argv.index("--")
    home = sys.argv[1]
    jpype.startJVM(f"-Dactivemq.home={home}", "-Xmx256m", "-XX:TieredStopAtLevel=1", classpath=sys.argv[2:split])
    print(json.dumps({file: check(file) for file in sys.argv[split + 1 :]}), flush=True)
    # The brokers' threads would keep the process.
    os._exit(0)


if __name__ == "__main__":
    main()
