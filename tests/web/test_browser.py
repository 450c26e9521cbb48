"""The live page in a real browser: it follows the run, aborts by keyboard, and fits a phone, light and dark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from brokerdrill.runner.guards.stop_files import ABORT_FILE
from tests.report.browser import Browser

from .conftest import TOKEN
from .running import Running

GOING = "!document.getElementById('going').hidden"
TEXT = "document.getElementById('{}').innerText"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


@pytest.fixture(autouse=True)
def fresh(browser: Browser) -> None:
    # The page of the test before goes on asking its server, which is gone.
    browser.open("about:blank", "true")
    browser.errors.clear()
    browser.requests.clear()


@pytest.mark.parametrize(("width", "dark"), [(1300, False), (1300, True), (390, False), (320, True)])
def test_the_page_follows_the_run(
    browser: Browser, serve: Callable[..., str], tmp_path: Path, width: int, dark: bool
) -> None:
    address = serve()
    browser.view(width, 900, dark)
    browser.open(f"{address}/", f"{TEXT.format('headline')} === 'No drill goes on'")
    with Running(tmp_path / "runs") as run:
        run.sample()
        browser.wait(GOING)
        run.load()
        run.sample(1234)
        browser.wait(f"{TEXT.format('acknowledged')} === '1,234'")
        assert browser.evaluate(TEXT.format("unanswered")) == "2 sends, 3 receipts"
        run.kill()
        run.sample()
        browser.wait(f"{TEXT.format('faults')}.includes('kill artemis1')")
        browser.wait(f"{TEXT.format('roles')}.includes('down')")
        assert browser.evaluate("document.querySelector('#steps [data-state=done]').innerText").startswith(
            "✓ kill-active"
        )
        assert browser.evaluate("document.querySelectorAll('#steps [data-state=now]').length") == 1
        run.heal()
        browser.wait(f"{TEXT.format('faults')} === 'none'")
        # Nothing is wider than the window, so that a phone does not scroll sideways.
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(15, 18, 22)" if dark else "rgb(245, 246, 248)")
        browser.screenshot(tmp_path / "live.png")
    browser.wait(f"{TEXT.format('about')}.includes('has ended')")
    assert browser.errors == []
    assert {request.removeprefix(address) for request in browser.requests} <= {"/", "/events", "data:,"}


def test_abort_by_keyboard(browser: Browser, serve: Callable[..., str], tmp_path: Path) -> None:
    address = serve()
    browser.view(390, 900)
    with Running(tmp_path / "runs") as run:
        run.load()
        run.sample(1)
        browser.open(f"{address}/", GOING)
        browser.evaluate("document.getElementById('token').focus()")
        browser.type("not-the-token-at-all\n")
        browser.wait(f"{TEXT.format('answer')} === 'that is not the token'")
        assert not (run.run_dir / ABORT_FILE).exists()
        # The refusal is on the browser's console, and nothing else.
        assert all("401" in error for error in browser.errors)
        browser.evaluate("document.getElementById('token').value = ''")
        browser.type(f"{TOKEN}\n")
        browser.wait(f"{TEXT.format('answer')} === 'It heals and ends.'")
        assert (run.run_dir / ABORT_FILE).exists()


def test_hostile_names_stay_text(browser: Browser, serve: Callable[..., str], tmp_path: Path) -> None:
    address = serve()
    with Running(tmp_path / "runs") as run:
        run.roles = {"<img src=x onerror=alert(1)>": "<b>active</b>"}
        run.load()
        run.sample(1)
        browser.open(f"{address}/", f"{GOING} && {TEXT.format('roles')}.includes('onerror')")
        assert browser.evaluate("document.images.length") == 0
        assert browser.errors == []
