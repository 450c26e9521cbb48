"""The page for those who come from amqpprox is true: its words and its file are understood."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from amqp_session_router.config import loader
from amqp_session_router.config.settings import Settings
from amqp_session_router.control.verbs.limit import LIMITS
from amqp_session_router.control.verbs.table import VERBS, find

PAGE = (Path(__file__).parents[1] / "docs" / "from-amqpprox.md").read_text("utf-8")

DEFAULTS = ("TLS EGRESS VERIFY_MODE PEER", "LOG CONSOLE 3")
"""Lines of the script that say what holds without them."""


def block(kind: str) -> str:
    """Return the page's only block of this kind."""
    (found,) = [
        text for name, text in re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE) if name == kind
    ]
    return str(found)


def after(lines: list[str]) -> Iterator[tuple[str, Settings]]:
    """Yield each line with the settings that it leaves behind, from those of an empty file on."""
    data = loader.to_data(loader.parse("default: null").config)
    for line in lines:
        verb, arguments = find(line.split())
        assert verb.edit is not None, line
        verb.edit(data, arguments)
        yield line, loader.from_data(data)


def test_a_script_of_amqpproxs_words_makes_what_they_say() -> None:
    lines = block("").splitlines()
    before = loader.parse("default: null")
    for line, settings in after(lines):
        assert settings != before or line in DEFAULTS, line
        before = settings
    assert [(name, one.host, one.port) for name, one in before.backends.items()] == [
        ("rabbit1", "rabbit1.example.org", 5672),
        ("rabbit2", "rabbit2.example.org", 5671),
    ]
    assert before.backends["rabbit2"].tls is not None
    assert before.backends["rabbit2"].proxy_protocol == 1
    assert before.config.farms["orders"].policies == ["datacenter-affinity"]
    assert [rule.vhost for rule in before.rules] == ["orders", "audit", None]
    assert before.config.authorization is not None
    assert before.config.authorization.url == "http://localhost:8080/auth?tier=dev"
    assert [listener.port for listener in before.listeners.values()] == [5673]


def test_the_file_for_the_simple_mode_is_good() -> None:
    settings = loader.parse(block("yaml"))
    assert [one.port for one in settings.listeners.values()] == [5673]
    assert settings.rules


def test_the_limit_that_amqpprox_calls_data_rate_has_its_name_here() -> None:
    assert "`LIMIT CONN_DATA_RATE`" in PAGE
    assert LIMITS["CONN_DATA_RATE"] == "connection_data_rate"


def test_every_family_of_verbs_that_the_page_says_there_is_more_of_is_there() -> None:
    told = PAGE.partition("More than amqpprox has:")[2].partition("[all verbs]")[0]
    words = {word for verb in VERBS for word in verb.pattern.split()}
    for name in re.findall(r"`([A-Z_ ]+)`", told):
        assert set(name.split()) <= words, name
