"""Writes docs/NAME-statements.md of each docs/statements/NAME.yml and of the kept runs in results/: `make docs`.

What a product's documentation says, statement by statement, with what holds it here: the drills that put it to the
test and how many of their runs were as expected, the tests on the real product, what refuses a deployment in which it
would matter, and what is only rendered. With --check nothing is written, and status 1 says which pages are not
current. What a statement names and is not there is told (UsageError).
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml
from generated_files import write
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from brokerdrill.base import paths
from brokerdrill.base.errors import UsageError
from brokerdrill.results.proof import PROVEN, current, read, seen
from brokerdrill.scenario.drill import load_drill
from brokerdrill.scenario.table import KeptResults

DOCS = Path(__file__).resolve().parent
# Not in the built collection, whose pages these are, too.
REPOSITORY = yaml.safe_load((paths.ROOT / "galaxy.yml").read_text(encoding="utf-8"))["repository"]
KEPT_RUNS = f"[results/]({REPOSITORY}/tree/main/results)"
Found = Mapping[tuple[str, str], KeptResults]
"""(drill, topology) → what kept runs have shown."""


class Statement(BaseModel):
    """One statement: in short what the document says, what would fail if it were false, and what was found beside.

    `drills`: DRILL where it holds on all topologies of the product, else DRILL TOPOLOGY. `tests`: FILE::FUNCTION of
    tests on the real product. `refused`: FILE or FILE::FUNCTION of what refuses it, `rendered`: FILE::FUNCTION of tests
    of what is written for the product, which never runs there. `findings`: first cells of rows of FINDINGS.md.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    says: str
    drills: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    rendered: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    found: str = ""

    @field_validator("says", "found")
    @classmethod
    def _one_cell(cls, text: str) -> str:
        if "|" in text or "\n" in text.strip():
            raise ValueError("a cell of a table has neither | nor a line break")
        return text.strip()

    @property
    def held_by(self) -> str:
        """The strongest of what holds it."""
        kinds = ("drills", "tests", "refused", "rendered")
        return next((kind for kind in kinds if getattr(self, kind)), "nothing")


class Document(BaseModel):
    """The statements of one document by section, in its order; `product`: whose versions stand beside the runs; `note`:
    what a reader of the whole page has to know."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    product: str
    note: str = ""
    sections: dict[str, tuple[Statement, ...]]

    @property
    def statements(self) -> list[Statement]:
        """All of them, in the document's order."""
        return [one for of in self.sections.values() for one in of]


def load(source: Path) -> Document:
    """Return what stands in a file. Raises UsageError where it is no document, or names what is not there."""
    try:
        document = Document.model_validate(yaml.safe_load(source.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError) as error:
        raise UsageError(f"{source.name}: {error}") from None
    wrong = [f"{one.says!r} names {problem}" for one in document.statements for problem in _not_there(one)]
    if wrong:
        raise UsageError(f"{source.name}: " + "; ".join(wrong))
    return document


def _not_there(one: Statement) -> Iterable[str]:
    for entry in one.drills:
        name, _, topology = entry.partition(" ")
        load_drill(name)  # whose name is wrong is told
        if topology and topology not in _applies().get(name, ()):
            yield f"the drill {name} on {topology}, where it does not apply"
    for entry in (*one.tests, *one.refused, *one.rendered):
        file, _, function = entry.partition("::")
        if not (paths.ROOT / file).is_file():
            yield f"{file}, which is not there"
        elif function and function not in _functions(paths.ROOT / file):
            yield f"{function}, which is not in {file}"
    for entry in (*one.tests, *one.rendered):
        if not entry.partition("::")[2].startswith("test_"):
            yield f"{entry}, which is no test"
    for entry in one.findings:
        if f"\n| {entry} |" not in _findings():
            yield f"the finding {entry}, which FINDINGS.md does not have"


@functools.cache
def _functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@functools.cache
def _findings() -> str:
    return (paths.ROOT / "FINDINGS.md").read_text(encoding="utf-8")


@functools.cache
def _applies() -> Mapping[str, frozenset[str]]:
    """Drill → the topologies on which it applies, as docs/drills.md has it: to ask the roles takes minutes."""
    text = (DOCS / "drills.md").read_text(encoding="utf-8").partition("\n## Where they apply\n")[2]
    rows = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in text.partition("\n## ")[0].splitlines()
        if line.startswith("| ")
    ]
    names = [name.strip("`") for name in rows[0][1:]]
    return {
        row[0].strip("`"): frozenset(name for name, cell in zip(names, row[1:], strict=True) if cell)
        for row in rows[2:]
    }


def page(document: Document, found: Found) -> str:
    """Return the page of a document's statements."""
    statements, product = document.statements, document.product
    count = Counter(one.held_by for one in statements)
    proven = [one for one in statements if any(_runs(entry, product, found) for entry in one.drills)]
    lines = [
        f"# {document.title}",
        "",
        f"Generated by `make docs` from `docs/statements/` and the kept runs in {KEPT_RUNS}; a test compares it. Each "
        "statement is told in short, in the order of its document, with what would fail if it were false.",
        "",
        f"Of {len(statements)} statements {count['drills']} have a drill ({len(proven)} of them one with kept runs), "
        f"{count['tests']} more a test on the real product; {count['refused']} more are about what is refused before "
        f"anything is deployed, {count['rendered']} more are only rendered; {count['nothing']} have nothing. A drill's "
        "numbers are how many of its runs were as it expects, on each topology; what it expects and promises there "
        "says [drills.md](drills.md).",
        *(["", document.note] if document.note else []),
    ]
    for section, of in document.sections.items():
        lines += ["", f"## {section}", "", "| the document says | held by | found |", "|---|---|---|"]
        lines += [f"| {one.says} | {_held(one, product, found)} | {_beside(one)} |" for one in of]
    return "\n".join(lines) + "\n"


def _runs(entry: str, product: str, found: Found) -> list[tuple[str, KeptResults]]:
    """The topologies of `product` on which there are kept runs of DRILL or DRILL TOPOLOGY."""
    name, _, place = entry.partition(" ")
    return [
        (topology, one)
        for (drill, topology), one in sorted(found.items())
        if drill == name and product in one.versions and place in ("", topology)
    ]


def _held(one: Statement, product: str, found: Found) -> str:
    names = dict.fromkeys(entry.partition(" ")[0] for entry in one.drills)
    parts = [_drill([entry for entry in one.drills if entry.split()[0] == name], product, found) for name in names]
    parts += [f"test {_link(entry)}" for entry in one.tests]
    parts += [f"refused: {_link(entry)}" for entry in one.refused]
    only = "rendered, not drilled" if one.held_by == "rendered" else "rendered"
    parts += [f"{only}: {_link(entry)}" for entry in one.rendered]
    return "<br>".join(parts) or "**not drilled**"


def _drill(entries: Sequence[str], product: str, found: Found) -> str:
    """What the runs of one drill have shown, on the topologies that the statement names."""
    runs = {entry: _runs(entry, product, found) for entry in entries}
    said = [
        f"{place} {one.as_expected}/{one.runs} ({one.versions[product]})" for of in runs.values() for place, one in of
    ]
    never = ", ".join(entry.partition(" ")[2] for entry, of in runs.items() if not of)
    said += [f"no run kept on {never}"] if never else []
    return f"`{entries[0].split()[0]}`: {', '.join(said) or 'no run kept'}"


def _link(entry: str) -> str:
    """What stands in a file, or the file, as a link to it."""
    file, _, function = entry.partition("::")
    return f"[{function if function.startswith('test_') else file}]({_place(file)})"


def _place(file: str) -> str:
    """Where a page finds a file: beside itself in the collection, or in the repository what the collection has not."""
    return f"{REPOSITORY}/blob/main/{file}" if file.startswith(("router/tests/", "tests/")) else f"../{file}"


def _beside(one: Statement) -> str:
    findings = [f"[{re.sub(r'[][]', '', name)}](../FINDINGS.md)" for name in one.findings]
    told = f"Finding: {'; '.join(findings)}." if findings else ""
    return " ".join(filter(None, (one.found, told)))


def main() -> int:
    """Write the pages, or with --check say which are not current."""
    found = seen(current(read(PROVEN)))
    sources = sorted((DOCS / "statements").glob("*.yml"))
    return write(
        {DOCS / f"{source.stem.replace('_', '-')}-statements.md": page(load(source), found) for source in sources}
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UsageError as error:
        sys.exit(str(error))
