"""A JVM that reads files as the products do: a line of JSON each, {"parser", "text", …}, is answered by a line of JSON.

Started as `java_reader.py CLASSPATH…`; what a parser refuses is answered as {"error"}.
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

import jpype


def properties(text: str, **_: Any) -> dict[str, str]:
    """As java.util.Properties reads bytes, and so every file of users, groups and passwords."""
    found = jpype.JClass("java.util.Properties")()
    found.load(jpype.JClass("java.io.ByteArrayInputStream")(text.encode()))
    return {str(key): str(found.getProperty(key)) for key in found.stringPropertyNames()}


def artemis_xml(text: str, variables: dict[str, str]) -> list[str]:
    """As the broker reads broker.xml: it replaces ${…}, and then parses; the texts of all elements, then attributes."""
    for name, value in variables.items():
        jpype.JClass("java.lang.System").setProperty(name, value)
    utilities = jpype.JClass("org.apache.activemq.artemis.utils.XMLUtil")
    root = utilities.stringToElement(utilities.replaceSystemPropsInString(text))
    nodes = root.getElementsByTagName("*")
    found: list[str] = []
    for place in range(nodes.getLength()):
        node = nodes.item(place)
        attributes = node.getAttributes()
        found += [str(attributes.item(at).getNodeValue()) for at in range(attributes.getLength())]
        if not node.getElementsByTagName("*").getLength():
            found.append(str(node.getTextContent()))
    return found


def jetty(text: str, user: str, password: str) -> dict[str, Any]:
    """As Jetty's HashLoginService reads a line of its users: whether the password is theirs, and the roles."""
    value = properties(text)[user].strip()
    credentials, _, roles = value.partition(",")
    credential = jpype.JClass("org.eclipse.jetty.util.security.Credential").getCredential(credentials.strip())
    split = jpype.JClass("org.eclipse.jetty.util.StringUtil").csvSplit(roles.strip())
    return {"is": bool(credential.check(password)), "roles": [str(one) for one in split]}


def jaas(text: str) -> list[dict[str, Any]]:
    """As Java reads a file of JAAS: the modules of `activemq`, each with its flag and its options."""
    with tempfile.NamedTemporaryFile("w", suffix=".config") as file:
        file.write(text)
        file.flush()
        where = jpype.JClass("java.io.File")(file.name).toURI()
        place = jpype.JClass("java.security.URIParameter")(where)
        read = jpype.JClass("javax.security.auth.login.Configuration").getInstance("JavaLoginConfig", place)
        return [
            {
                "module": str(entry.getLoginModuleName()),
                "flag": str(entry.getControlFlag()).split()[-1],
                "options": {str(name): str(value) for name, value in entry.getOptions().items()},
            }
            for entry in read.getAppConfigurationEntry("activemq")
        ]


def artemis_configuration(text: str, variables: dict[str, str]) -> dict[str, Any]:
    """What the broker makes of a whole broker.xml: its queues, diverts, bridges, and how many plugins."""
    for name, value in variables.items():
        jpype.JClass("java.lang.System").setProperty(name, value)
    utilities = jpype.JClass("org.apache.activemq.artemis.utils.XMLUtil")
    filled = utilities.replaceSystemPropsInString(text)
    parser = jpype.JClass("org.apache.activemq.artemis.core.deployers.impl.FileConfigurationParser")()
    read = parser.parseMainConfig(jpype.JClass("java.io.ByteArrayInputStream")(str(filled).encode()))
    words = {
        "filter": "getFilterString",
        "max_consumers": "getMaxConsumers",
        "exclusive": "isExclusive",
        "user": "getUser",
    }
    words |= {"last_value_key": "getLastValueKey", "ring_size": "getRingSize", "routing": "getRoutingType"}
    queues = {
        str(queue.getName()): {
            "address": str(queue.getAddress()),
            **{word: str(getattr(queue, getter)()) for word, getter in words.items()},
        }
        for address in read.getAddressConfigurations()
        for queue in address.getQueueConfigs()
    }
    return {
        "queues": queues,
        "diverts": {str(one.getName()): str(one.getFilterString()) for one in read.getDivertConfigurations()},
        "bridges": {str(one.getName()): str(one.getPassword()) for one in read.getBridgeConfigurations()},
        "plugins": len(read.getBrokerPlugins()),
    }


PARSERS = {
    "properties": properties,
    "artemis_xml": artemis_xml,
    "jetty": jetty,
    "jaas": jaas,
    "artemis_configuration": artemis_configuration,
}


def main() -> None:
    jpype.startJVM("-Xmx128m", "-XX:TieredStopAtLevel=1", "-Xshare:auto", classpath=sys.argv[1:], convertStrings=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer: Any = PARSERS[asked.pop("parser")](**asked)
        except jpype.JException as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
