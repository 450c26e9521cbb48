"""The pages in a real browser: nothing is logged, nothing loaded, nothing overlaps, and what can be clicked works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from . import sample
from .browser import Browser
from .test_page import everything_evil

DRAWN = "document.documentElement.dataset.plots === 'ready'"
# Pixels of a figure's canvas that are not transparent.
INK = """
(plot => {
  let painted = 0;
  (function walk(node) {
    if (node.tagName === "CANVAS" && node.width) {
      const pixels = node.getContext("2d").getImageData(0, 0, node.width, node.height).data;
      for (let at = 3; at < pixels.length; at += 4) painted += pixels[at] > 0;
    }
    [...(node.shadowRoot ? node.shadowRoot.children : []), ...node.children].forEach(walk);
  })(plot);
  return painted;
})
"""
TIPS = "[...document.querySelectorAll('.bk-Tooltip')].map(tip => tip.shadowRoot)"
LABELS = """
[...Bokeh.documents[0]._all_models.values()].filter(model => model.tags.includes("fit")).flatMap(
  source => source.data.label.map((label, at) => ({label: label, middle: source.data.middle[at]})))
"""
RANGE = "(range => [range.start, range.end])(Bokeh.documents[0].get_model_by_name('run_time'))"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = sample.write_run(tmp_path_factory.mktemp("run") / "run")
    return sample.write_report(run_dir, sample.broken(), sample.series(), run_dir / "report.html")


def clean(browser: Browser, page: Path) -> None:
    assert browser.errors == []
    assert set(browser.requests) <= {page.absolute().as_uri(), "data:,"}


@pytest.fixture(autouse=True)
def fresh(browser: Browser) -> None:
    browser.errors.clear()
    browser.requests.clear()


@pytest.mark.parametrize(("width", "dark"), [(1300, False), (1300, True), (390, False), (320, True)])
def test_renders_without_a_word_on_the_console(
    browser: Browser, page: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    browser.view(width, 900, dark)
    browser.open(page, DRAWN)
    browser.wait(f"[...document.querySelectorAll('.plot')].every(plot => {INK}(plot) > 500)")
    assert browser.evaluate("document.querySelectorAll('.plot').length") == 6
    # Nothing is wider than the window, so that a phone does not scroll sideways.
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(15, 18, 22)" if dark else "rgb(245, 246, 248)")
    picture = browser.screenshot(tmp_path / "report.png")
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 100_000
    clean(browser, page)


def test_the_time_pictures_share_one_zoom(browser: Browser, page: Path) -> None:
    browser.view(1300, 900)
    browser.open(page, DRAWN)
    whole = browser.evaluate(RANGE)
    assert whole == [0, sample.END / 1e9]
    browser.wait(f"{LABELS}.some(bar => bar.label === 'drain')")
    # The menu shows a fault and what follows.
    browser.evaluate(
        "(menu => { menu.selectedIndex = 1; menu.dispatchEvent(new Event('change')); })"
        "(document.querySelector('.zoom select'))"
    )
    start, end = browser.evaluate(RANGE)
    assert 0 < start < sample.KILL / 1e9 < sample.ACTIVE_AGAIN / 1e9 < end < whole[1]
    # Names follow: what is out of view is not written, what is in view stands in its visible part.
    browser.wait(f"{LABELS}.every(bar => !bar.label || bar.middle > {start} && bar.middle < {end})")
    assert {"active", "passive", "load"} <= set(browser.evaluate(f"{LABELS}.map(bar => bar.label)"))
    click = "document.querySelector('.zoom button[data-act={}]').click()"
    browser.evaluate(click.format("in"))
    closer = browser.evaluate(RANGE)
    assert closer[1] - closer[0] == pytest.approx((end - start) / 2)
    browser.evaluate(click.format("left"))
    assert browser.evaluate(RANGE)[0] < closer[0]
    browser.evaluate(click.format("whole"))
    assert browser.evaluate(RANGE) == whole
    # A drag in one picture zooms all of them; a double click goes back.
    browser.evaluate("document.querySelectorAll('.timed')[1].scrollIntoView({block: 'center'})")
    left, top, width, height = browser.evaluate(
        "(r => [r.left, r.top, r.width, r.height])(document.querySelectorAll('.timed')[1].getBoundingClientRect())"
    )
    at = top + height / 2
    browser.mouse("mouseMoved", left + width * 0.4, at)
    browser.mouse("mousePressed", left + width * 0.4, at, button="left", clickCount=1)
    for share in (0.45, 0.5, 0.6):
        browser.mouse("mouseMoved", left + width * share, at, button="left", buttons=1)
    browser.mouse("mouseReleased", left + width * 0.6, at, button="left", clickCount=1)
    browser.wait(f"(r => r[1] - r[0] < {whole[1] / 3})({RANGE})")
    for kind in ("mousePressed", "mouseReleased"):
        for count in (1, 2):
            browser.mouse(kind, left + width * 0.7, at, button="left", clickCount=count)
    browser.wait(f"(r => r[1] - r[0] === {whole[1]})({RANGE})")
    clean(browser, page)


@pytest.mark.parametrize(("plot", "words"), [(1, "acknowledged sends"), (2, "end to end")])
def test_numbers_under_the_pointer(browser: Browser, page: Path, plot: int, words: str) -> None:
    browser.view(1300, 900)
    browser.open(page, DRAWN)
    browser.evaluate(f"document.querySelectorAll('.timed')[{plot}].scrollIntoView({{block: 'center'}})")
    box = f"document.querySelectorAll('.timed')[{plot}].getBoundingClientRect()"
    left, top, width, height = browser.evaluate(f"(r => [r.left, r.top, r.width, r.height])({box})")
    # Under load and in the outage, wherever the pointer stands.
    for x, y in ((0.2, 0.3), (0.36, 0.5), (0.7, 0.6)):
        browser.mouse("mouseMoved", left + width * x, top + height * y)
        browser.mouse("mouseMoved", left + width * x + 3, top + height * y)
        browser.wait(f"{TIPS}.some(tip => tip.textContent.includes('{words}'))")
    clean(browser, page)


def test_the_toggle_recolours_page_and_pictures(browser: Browser, page: Path) -> None:
    browser.view(1300, 900)
    browser.open(page, DRAWN)
    label = "[...Bokeh.documents[0]._all_models.values()].find(m => m.type === 'LinearAxis').axis_label_text_color"
    before = browser.evaluate(label)
    browser.evaluate("document.getElementById('theme').click()")
    assert browser.evaluate("document.documentElement.dataset.theme") == "dark"
    assert browser.evaluate(label) != before
    browser.evaluate("document.getElementById('theme').click()")
    assert browser.evaluate(label) == before
    browser.evaluate("localStorage.clear()")
    clean(browser, page)


def test_terms_explain_themselves(browser: Browser, page: Path) -> None:
    browser.view(390, 800)
    browser.open(page, DRAWN)
    for index in range(browser.evaluate("document.querySelectorAll('.term').length")):
        box = browser.evaluate(
            f"(term => {{ term.focus(); const r = document.getElementById('tip').getBoundingClientRect();"
            f" return [document.getElementById('tip').textContent, r.left, r.right]; }})"
            f"(document.querySelectorAll('.term')[{index}])"
        )
        assert len(box[0]) > 5
        assert box[1] >= 0 and box[2] <= 390
    clean(browser, page)


def test_hostile_names_stay_text(browser: Browser, tmp_path: Path) -> None:
    run_dir = sample.write_run(tmp_path / "run")
    result, series = everything_evil()
    page = sample.write_report(run_dir, result, series, tmp_path / "report.html")
    browser.view(1300, 900)
    browser.open(page, DRAWN)
    # Hovers show names as well: of faults and roles, of outages, of routing keys, of the parts of a failover.
    for plot, x in ((0, 0.4), (1, 0.38), (3, 0.8), (4, 0.4)):
        browser.evaluate(f"document.querySelectorAll('.plot')[{plot}].scrollIntoView({{block: 'center'}})")
        left, top, width, height = browser.evaluate(
            f"(r => [r.left, r.top, r.width, r.height])"
            f"(document.querySelectorAll('.plot')[{plot}].getBoundingClientRect())"
        )
        found = 0
        for y in range(4, int(height), 4):
            browser.mouse("mouseMoved", left + width * x + y % 8, top + y)
            browser.frames()
            text, parsed = browser.evaluate(
                f"[tip => tip.textContent.includes('onerror'), tip => tip.querySelector('img, script')]"
                f".map(is => {TIPS}.filter(is).length)"
            )
            found += text
            assert parsed == 0
        assert found, f"plot {plot} shows no name"
    assert browser.evaluate("document.images.length") == 0
    clean(browser, page)


def test_a_run_without_a_send_renders(browser: Browser, tmp_path: Path) -> None:
    run_dir = sample.write_run(tmp_path / "run")
    result = sample.result(failover=[], outages=[], messages={}, promises=[], verdict="unknown", as_expected=False)
    page = sample.write_report(run_dir, result, {}, tmp_path / "report.html")
    browser.view(390, 800)
    browser.open(page, "document.readyState === 'complete'")
    assert browser.evaluate("document.querySelectorAll('.plot').length") == 0
    clean(browser, page)


@pytest.mark.parametrize("width", [1300, 360])
def test_the_index_renders(browser: Browser, tmp_path: Path, width: int) -> None:
    runs = [(sample.write_run(tmp_path / f"run-{index}"), sample.result(f"run-{index}")) for index in range(20)]
    page = sample.write_index([*runs, (tmp_path / "gone", {"error": "no run.json"})], tmp_path / "index.html")
    browser.view(width, 900)
    browser.open(page, "document.readyState === 'complete'")
    assert browser.evaluate("document.querySelectorAll('.strip i').length") == 20
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert "at most 13.9 % of failovers break a promise" in browser.evaluate("document.body.innerText")
    clean(browser, page)
