"""What is told of a session that does not start."""

from __future__ import annotations

from brokerdrill.analysis.spark import why

JAVA = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: java.lang.RuntimeException: java.lang.ClassNotFoundException: Class a.Mapping not found
\tat a.b(C.java:1)
Caused by: java.net.ConnectException: Connection refused
\t... 15 more
"""


def test_the_last_cause_is_told() -> None:
    assert why(JAVA) == "java.net.ConnectException: Connection refused"
    first = JAVA.partition("Caused by")[0]
    assert why(first) == "java.lang.RuntimeException: java.lang.ClassNotFoundException: Class a.Mapping not found"


def test_without_java_it_is_named() -> None:
    assert why("Java gateway process exited before sending its port number.\nmore") == (
        "Java gateway process exited before sending its port number. (is Java 17 installed?)"
    )
    assert why("") == " (is Java 17 installed?)"
