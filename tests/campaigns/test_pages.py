"""The pages of sweeps, matrices and trends in a real browser: complete, quiet, loading nothing, fit for a phone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from brokerdrill.campaigns.execute import DONE, Ended
from brokerdrill.campaigns.pages import write_results
from brokerdrill.campaigns.plan import CampaignPlan, Cell
from brokerdrill.campaigns.results import CellOutcome
from brokerdrill.cli.app import app
from brokerdrill.ledger.verdict import RunVerdict
from tests.report.browser import Browser

from .series import failovers, rows, verdict, write

EVIL = '<script>document.title="evil"</script>"\'&$$x$$ \u202e'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


def cells(
    axes: tuple[str, ...], labels: list[tuple[str, ...]], words: list[str], runs: Path
) -> tuple[CampaignPlan, list[CellOutcome]]:
    """A plan with two runs of each place, the first as `words` say."""
    made: list[CellOutcome] = []
    for place, (label, word) in enumerate(zip(labels, words, strict=True)):
        for repeat in (1, 2):
            cell = Cell(dict(zip(axes, label, strict=True)), repeat, "s", "t", {"n": place}, repeat)
            ended: Ended | None = Ended(DONE, f"run-{place}-{repeat}")
            result: RunVerdict | None = RunVerdict.from_json(
                verdict(f"run-{place}-{repeat}", 3000.0 + 500 * place + repeat, ("no_loss",) * (word == "broken"))
            )
            if word in ("failed", "refused"):
                ended, result = Ended(word, None, f"because of {EVIL}"), None
            elif word == "pending" and repeat == 2:
                ended, result = None, None
            else:
                (runs / f"run-{place}-{repeat}").mkdir(parents=True)
                (runs / f"run-{place}-{repeat}" / "report.html").write_text("<title>a run</title>")
            made.append(CellOutcome(cell, ended, result))
    kind = "matrix" if "mode" in axes else "sweep"
    return CampaignPlan(kind, "name", f"What is kept {EVIL}", axes, tuple(one.cell for one in made)), made


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    runs = tmp_path_factory.mktemp("runs")
    found = {}
    words = ["kept", "broken", "refused", "pending"]
    plan, made = cells(("session_ms", "mode of x"), [(str(n), EVIL) for n in range(4)], words, runs / "a")
    found["sweep"] = write_results(plan, made, runs / "a", runs / "a" / "plans" / plan.folder)
    axes = ("mode", "fault", "client", "settings")
    labels = [(mode, fault, "c", one) for mode in ("m1", "m2") for fault in ("kill", EVIL) for one in ("x", "y")]
    words = ["kept", "broken", "kept", "kept", "broken", "broken", "failed", "pending"]
    plan, made = cells(axes, labels, words, runs / "b")
    found["matrix"] = write_results(plan, made, runs / "b", runs / "b" / "plans" / plan.folder)
    rng = np.random.default_rng(1)
    write(runs, rows(failovers(rng, 20) + failovers(rng, 5, median=9000), broken=[23], scenario="evil"))
    write(runs, rows(failovers(rng, 9), scenario=f"x{EVIL}".replace("/", "-")))
    assert CliRunner().invoke(app, ["trends", str(runs)]).exit_code == 1
    found["trends"] = runs / "trends.html"
    return found


@pytest.mark.parametrize(("width", "dark"), [(1300, False), (390, True)])
@pytest.mark.parametrize("name", ["sweep", "matrix", "trends"])
def test_the_page_renders(browser: Browser, pages: dict[str, Path], name: str, width: int, dark: bool) -> None:
    browser.errors.clear()
    browser.requests.clear()
    browser.view(width, 900, dark)
    browser.open(pages[name], "document.documentElement.dataset.plots === 'ready'" if name == "trends" else "true")
    assert browser.errors == []
    assert set(browser.requests) <= {pages[name].absolute().as_uri(), "data:,"}
    assert browser.evaluate("document.title") != "evil"
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    links = browser.evaluate("[...document.querySelectorAll('.runs a')].map(link => decodeURI(link.pathname))")
    assert (len(links) > 0) == (name != "trends") and all(Path(link).is_file() for link in links)


def test_what_the_pages_say(browser: Browser, pages: dict[str, Path]) -> None:
    said = {}
    for name, page in pages.items():
        browser.open(page, "true")
        said[name] = browser.evaluate("document.querySelector('main').innerText")
    for words in ("7 of 8 runs are done", "cannot show a difference", "0 % to 84.2 %"):
        assert words in said["sweep"], words
    for words in ("kept only with x", "broken: no_loss (2 of 2 runs)", "not made", "15 of 16 runs are done"):
        assert words in said["matrix"], words
    for words in ("1 regression", "failover became slower", "not drilled", "artemis 2.56.0"):
        assert words in said["trends"], words
    told = json.loads((pages["matrix"].parent / "results.json").read_text())
    assert [square["verdict"] for square in told["squares"]] == ["only", "kept", "broken", "failed"]
