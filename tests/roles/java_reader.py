"""A JVM that reads files as the products do: a line of JSON each, {"parser", "text", …}, is answered by a line of JSON.

Started as `java_reader.py CLASSPATH…`; what a parser refuses is answered as {"error"}.
"""

from __future__ import annotations

import json
import sys
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


PARSERS = {"properties": properties, "artemis_xml": artemis_xml, "jetty": jetty}


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
