"""The brokers' own schemas, out of the distributions that the role pins."""

from __future__ import annotations

from pathlib import Path

from lxml import etree

from tests.roles.conftest import ROOT, load
from tests.roles.test_plugins import cached
from tests.unpacking import unpack

ARCHIVES = load(ROOT / "roles" / "artemis" / "vars" / "main" / "archive.yml")["__artemis_archives"]


def schema_of(version: str, work: Path) -> etree.XMLSchema:
    """Return the schema of that version's distribution, fetched once into the controller's cache."""
    from brokerdrill.base import paths

    name = f"apache-artemis-{version}-bin.tar.gz"
    archive = cached.keep(paths.cache() / "archives", name, "maven", [ARCHIVES[version]])
    unpack(archive["path"], work, ".xsd")
    (found,) = work.rglob("artemis-configuration.xsd")
    return etree.XMLSchema(etree.parse(found))
