"""Builds the site of these pages: `make site`, into site/, or a folder that is named.

Every page stands where it stands in the repository, so that links among pages stay as they are; a link to anything else
leads to the repository. With MkDocs (`--strict`): a link that leads nowhere, or to no heading, is an error.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["repository"]
# Pages, and pictures in them.
PAGES = (
    "*.md",
    "docs/**/*.md",
    "docs/**/*.png",
    "docs/**/*.svg",
    "roles/*/README.md",
    "router/README.md",
    "router/docs/*.md",
)
LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
# The theme's pages are narrow, and its tables have no line breaks.
STYLE = """\
.wy-nav-content { max-width: 75rem }
.wy-table-responsive table td, .wy-table-responsive table th { white-space: normal }
"""
NAVIGATION = {
    "Tutorial": ["README.md", "docs/tonight.md", "docs/own-drills.md"],
    "How to": [
        "docs/installing.md", "docs/operations.md", "docs/gamedays.md", "docs/campaigns.md", "docs/explore.md",
        "docs/reports.md", "docs/adding-a-product.md",
    ],
    "Reference": ["docs/drills.md", "docs/reference", "roles", "router", "docs/ledger.md", "docs/glossary.md"],
    "What was seen": [
        "FINDINGS.md", "docs/artemis-high-availability.md", "docs/artemis-clients.md", "docs/artemis-limits.md",
        "docs/artemis-routers.md", "docs/activemq-classic.md", "docs/openmq.md", "docs/rabbitmq-router.md", "docs",
    ],
    "Explanation": [
        "docs/architecture.md", "docs/safety.md", "docs/analysis.md", "docs/role-anatomy.md", "CONTRIBUTING.md",
    ],
    "Changes": ["CHANGELOG.md"],
}  # fmt: skip


def pages() -> list[Path]:
    """Return the files of the site, relative to the repository."""
    return sorted({path.relative_to(ROOT) for pattern in PAGES for path in ROOT.glob(pattern)})


def rewritten(page: Path, text: str, shown: set[Path]) -> str:
    """Return the text of a page with links that lead out of the site as links to the repository, but for code."""

    def led(match: re.Match[str]) -> str:
        target, mark, heading = match[1].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        path = (ROOT / page.parent / target).resolve()
        if not path.is_relative_to(ROOT) or not path.exists():
            raise SystemExit(f"{page}: {match[1]} is not there")
        inside = path.relative_to(ROOT)
        if inside in shown:
            return match[0]
        if inside / "README.md" in shown:
            return f"]({target.rstrip('/')}/README.md{mark}{heading})"
        return f"]({REPOSITORY}/{'tree' if path.is_dir() else 'blob'}/main/{inside}{mark}{heading})"

    parts = CODE.split(text)
    parts[::2] = [LINK.sub(led, part) for part in parts[::2]]
    return "".join(parts)


def navigation(shown: set[Path]) -> list[dict[str, list[str]]]:
    """Return the pages by what they are for, each once; of a folder all that nobody has named."""
    named = {Path(entry) for entries in NAVIGATION.values() for entry in entries}
    found = []
    for title, entries in NAVIGATION.items():
        listed: list[str] = []
        for entry in entries:
            folder = Path(entry)
            within = [one for one in sorted(shown - named) if one.suffix == ".md" and one.is_relative_to(folder)]
            listed += [entry] if folder in shown else [str(one) for one in within]
            named |= set(within)
        found.append({title: listed})
    return found


def build(out: Path) -> None:
    """Build the site into the folder `out`. Raises SystemExit where a link leads nowhere, or MkDocs refuses it."""
    shown = set(pages())
    with tempfile.TemporaryDirectory() as made:
        source = Path(made) / "pages"
        for page in shown:
            (source / page).parent.mkdir(parents=True, exist_ok=True)
            if page.suffix == ".md":
                text = rewritten(page, (ROOT / page).read_text(encoding="utf-8"), shown)
                (source / page).write_text(text, encoding="utf-8")
            else:
                shutil.copy2(ROOT / page, source / page)
        (source / "wide.css").write_text(STYLE, encoding="utf-8")
        settings = {
            "site_name": "Brokerdrill",
            "repo_url": REPOSITORY,
            "docs_dir": str(source),
            "site_dir": str(out.resolve()),
            "theme": {"name": "readthedocs", "highlightjs": False},
            "plugins": ["search"],
            "extra_css": ["wide.css"],
            "edit_uri": "edit/main/",
            "use_directory_urls": False,
            "nav": navigation(shown),
            # As GitHub reads them.
            "markdown_extensions": ["tables", "fenced_code", "sane_lists", {"toc": {"permalink": True}}],
            "validation": {
                "nav": {"omitted_files": "warn"},
                "links": {"anchors": "warn", "unrecognized_links": "warn"},
            },
        }
        (Path(made) / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "-f", f"{made}/mkdocs.yml"]
        if status := subprocess.run(command, check=False).returncode:
            raise SystemExit(status)


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site")
