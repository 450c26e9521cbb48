"""The generated pages have every verb and setting, as they are; the README's first configuration is good."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from amqp_session_router import reference
from amqp_session_router.config import loader
from amqp_session_router.control.verbs.table import VERBS

ROUTER = Path(__file__).parents[1]
DOCS = ROUTER / "docs"
LONGEST_LINE = 140
LONGEST_README = 100
WIDE_TABLES = {"what-differs.md", "from-amqpprox.md"}
"""Pages that compare by whole sentences, side by side."""


@pytest.mark.parametrize(("name", "text"), reference.pages().items())
def test_a_generated_page_is_up_to_date(name: str, text: str) -> None:
    assert (DOCS / name).read_text("utf-8") == text, "python -m amqp_session_router.reference router/docs"


def test_every_verb_is_there_once_under_its_family() -> None:
    text = reference.pages()["verbs.md"]
    assert [re.findall(rf"^- `{re.escape(verb.pattern)}`", text, re.MULTILINE) for verb in VERBS] == [
        [f"- `{verb.pattern}`"] for verb in VERBS
    ]
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings == [*dict.fromkeys(verb.pattern.split()[0] for verb in VERBS)]


def test_every_kind_of_setting_is_there() -> None:
    text = reference.pages()["settings.md"]
    for setting in (
        "`farms.NAME.cache.timeout`",
        "`rules[].key.filter`",
        "`tls.ingress.client_cert`",
        "`statsd[].host`",
    ):
        assert setting in text
    assert "- `backends.NAME.host` (needed)\\\n  Name or address; resolved anew for each attempt." in text
    assert "- `listeners.NAME.proxy_protocol` (default `false`)" in text
    assert "One of `none`, `optional`, `required`." in text


def test_the_pages_are_written_where_they_are_asked_for(tmp_path: Path) -> None:
    assert reference.main([str(tmp_path)]) == 0
    assert {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()} == reference.pages()


def test_the_readme_is_short() -> None:
    lines = (ROUTER / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= LONGEST_README


@pytest.mark.parametrize(
    "page", [ROUTER / "README.md", *(page for page in DOCS.glob("*.md") if page.name not in WIDE_TABLES)], ids=str
)
def test_lines_can_be_read_beside_the_code(page: Path) -> None:
    assert [line for line in page.read_text("utf-8").splitlines() if len(line) > LONGEST_LINE] == []


def test_the_first_configuration_is_good() -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", (ROUTER / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    settings = loader.parse(text)
    assert [*settings.farms] == ["both"]
    assert settings.listeners["plain"].port == 5673
