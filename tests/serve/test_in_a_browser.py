"""`lengthwise serve` as its own process, seen in a browser, while this process writes to the store."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lengthwise.store import Store, open_results

from .conftest import WORKER, advance, finish, key


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "lengthwise", "serve", "--port", "0", "--results", str(folder)]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    match = re.search(r"http://\S+/", server.stdout.readline())
    assert match
    yield match[0].rstrip("/")
    server.terminate()
    server.wait()
    server.stdout.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1000, "height": 800})
    page = context.new_page()
    page.messages, page.documents, page.outside = [], [], []
    page.on("console", lambda message: page.messages.append(message.text))
    page.on("pageerror", lambda error: page.messages.append(str(error)))
    page.on("request", lambda request: request.is_navigation_request() and page.documents.append(request.url))
    page.on("request", lambda request: "127.0.0.1" in request.url or page.outside.append(request.url))
    page.set_default_timeout(15_000)
    yield page
    context.close()


def show(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("html[data-ready=yes]", state="attached")
    page.documents.clear()


@pytest.mark.medium
def test_progress_and_curves_change_without_reloading(page: Any, address: str, store: Store) -> None:
    trained, running, waiting = key(1, 0), key(1, 3), key(1, 4)
    show(page, f"{address}/study?name=first")
    page.evaluate("window.same = true")
    page.check(f"#run-{trained} .choose")
    page.check(f"#run-{waiting} .choose")
    page.wait_for_selector("#plot-curves svg path")
    assert page.url == f"{address}/study?name=first&runs={trained},{waiting}"
    assert "step 100 of 1,000" in page.inner_text("#progress")
    drawn = page.locator("#plot-curves svg").inner_html()

    advance(store, running, 400)
    page.wait_for_selector("#progress:has-text('step 400 of 1,000')")
    assert finish(store, "first") == waiting
    page.wait_for_selector("#progress:has-text('3 done')")
    page.wait_for_function("old => document.querySelector('#plot-curves svg')?.innerHTML !== old", arg=drawn)
    assert page.locator("#plot-curves svg").count() == 1
    assert page.is_checked(f"#run-{trained} .choose") and page.is_checked(f"#run-{waiting} .choose")
    page.wait_for_selector(f"#run-{key(1, 4)}:has-text('0.375')")
    assert page.evaluate("window.same") is True
    assert page.documents == []
    assert (page.messages, page.outside) == ([], [])


@pytest.mark.medium
def test_runs_of_two_studies_side_by_side(page: Any, address: str, store: Store) -> None:
    finish(store, "second", 0.9)
    show(page, f"{address}/study?name=first")
    page.check(f"#run-{key(1, 0)} .choose")
    page.check(f"#run-{key(1, 1)} .choose")
    page.click(".brand a")
    page.wait_for_selector("html[data-ready=yes]", state="attached")
    page.click("h2 a:text-is('second')")
    page.check(f"#run-{key(2, 0)} .choose")
    assert page.inner_text("#tray span") == "3 runs chosen"
    page.click("#tray a")
    page.wait_for_selector("#plot-scores-1 svg path")
    page.wait_for_selector("#plot-curves svg path")
    assert page.url.endswith(f"/compare?runs={key(1, 0)},{key(1, 1)},{key(2, 0)}")
    assert page.locator("#scores tbody tr").count() == 3
    settings = page.inner_text("#settings")
    assert "training.learning_rate" in settings
    assert "training.steps" not in settings
    assert page.evaluate("window.hacked") is None, "a name is no code"

    def visible() -> int:
        return page.locator("#plot-scores-1 svg .mark-symbol path").count()

    page.focus("#plot-scores-1 .chart")
    page.keyboard.press("ArrowRight")
    assert "NoPE" in page.inner_text("#plot-scores-1 .tip")
    before = visible()
    page.click("#scores .key >> nth=0")
    page.wait_for_function(
        "n => document.querySelectorAll('#plot-scores-1 svg .mark-symbol path').length < n", arg=before
    )
    assert page.get_attribute("#curves .key >> nth=0", "aria-pressed") == "false"
    assert (page.messages, page.outside) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("device", ["keyboard", "mouse"])
def test_a_press_is_not_lost_when_the_page_changes(page: Any, address: str, store: Store, device: str) -> None:
    running = key(1, 3)
    show(page, f"{address}/study?name=first")
    box = page.locator(f"#run-{running} .choose")
    if device == "keyboard":
        box.focus()
        page.keyboard.down("Space")
    else:
        box.hover()
        page.mouse.down()
    advance(store, running, 700)
    page.wait_for_timeout(3500)
    assert "step 100 of 1,000" in page.inner_text("#progress"), "the page waits for the release"
    page.keyboard.up("Space") if device == "keyboard" else page.mouse.up()
    page.wait_for_url(f"{address}/study?name=first&runs={running}")
    assert box.is_checked()
    page.wait_for_selector("#progress:has-text('step 700 of 1,000')")


@pytest.mark.slow
def test_the_page_waits_for_a_store_that_is_gone(page: Any, address: str, store: Store, folder: Path) -> None:
    show(page, address)
    store.close()
    away = folder.rename(folder.with_name("away"))
    page.wait_for_selector("#notice:has-text('The results cannot be read now')")
    assert "2 done" in page.inner_text("#studies"), "what was known stays"
    away.rename(folder)
    page.wait_for_selector("#notice", state="hidden")
    with open_results(folder, create=False) as opened:
        assert opened.claim("first", WORKER) is not None
    page.wait_for_selector("#studies:has-text('2 running')")
    page.goto(f"{address}/report?study=first")
    page.wait_for_selector("#title-summary, .task", timeout=60_000)
    assert page.evaluate("document.querySelectorAll('.plot').length") > 0


@pytest.mark.medium
@pytest.mark.parametrize("width", [390, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_page_is_wider_than_the_window(page: Any, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    runs = ",".join(key(1, n) for n in range(5))
    for path in ("/", f"/study?name=first&runs={runs}", f"/compare?runs={runs}"):
        show(page, address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
