"""docs/role-anatomy.md follows one variable through the role: what it names is there, and the variable arrives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lxml import etree

from tests.roles.conftest import ROOT, Render

PAGE = ROOT / "docs" / "role-anatomy.md"
CORE = "{urn:activemq:core}"
# To what the built collection has, and to what only the repository has.
LINK = re.compile(r"\]\((?:\.\.|https://github\.com/\S+?/blob/main)/([^)#]+)\)")


def linked(text: str) -> list[Path]:
    return [ROOT / target for target in LINK.findall(text)]


def excerpts() -> list[tuple[Path, list[str]]]:
    """Return each code block of the page, as lines without indentation, with the file that is linked last before it."""
    parts = re.split(r"^ *```\w*\n(.*?)^ *```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [
        (linked(text)[-1], [line.strip() for line in block.splitlines() if line.strip()])
        for text, block in zip(parts[::2], parts[1::2], strict=False)
    ]


@pytest.mark.parametrize(("file", "lines"), excerpts(), ids=lambda value: getattr(value, "name", ""))
def test_what_the_page_shows_stands_in_the_file_in_this_order(file: Path, lines: list[str]) -> None:
    rest = iter([line.strip().rstrip(",") for line in file.read_text().splitlines()])
    missing = [line for line in lines if not any(line.rstrip(",") in there for there in rest)]
    assert missing == []


def test_the_page_has_an_excerpt_of_each_step() -> None:
    shown = {file.relative_to(ROOT).parts[0] for file, _ in excerpts()}
    assert shown == {"roles", "plugins", "chaos"}
    assert len(excerpts()) >= 9


def test_each_name_in_the_text_is_somewhere() -> None:
    text = PAGE.read_text()
    sources = "".join(path.read_text() for path in linked(text) if path.is_file())
    names = set(re.findall(r"`(_{0,2}[A-Za-z]\w*_\w+|[A-Z]{4,}|connection-ttl)`", text))
    assert {"artemis_connection_ttl_ms", "__artemis_elements", "TAKES"} <= names
    assert [name for name in names if name not in sources] == []
    # Paths in code: of the checkout, or below a role; not those of a host.
    paths = {name for name in re.findall(r"`(\w[\w./]*(?:\.\w+|/))`", text) if "/" in name}
    assert len(paths) >= 8
    assert [name for name in paths if not (ROOT / name).exists() and not [*ROOT.glob(f"roles/*/{name}")]] == []


def test_an_inventorys_value_reaches_the_line_of_broker_xml(render: Render) -> None:
    found = render(
        "artemis", "artemis1", {"broker.xml": "broker.xml.j2"}, ["__artemis_descriptor"], artemis_connection_ttl_ms=7777
    )
    root = etree.fromstring(found["files"]["broker.xml"].encode())
    (ttl,) = root.iter(f"{CORE}connection-ttl")
    assert ttl.text == "7777"
    assert found["variables"]["__artemis_descriptor"]["settings"]["connection_ttl_ms"] == 7777
