"""The page in a real browser that is offline: it draws, answers, stays safe, and fits a phone and paper."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis import Findings, from_rows
from lengthwise.report import write
from lengthwise.report.score_chart import describe

Make = Callable[..., Any]
EVIL = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'><b>FIRE</b>"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, quickstart: Findings) -> Path:
    return write(quickstart, tmp_path_factory.mktemp("page") / "report.html")


@contextmanager
def opened(open_page: Any, path: Path, **settings: Any) -> Iterator[Any]:
    """The page, offline. Afterwards: no error in the console, and nothing was asked for but the file itself."""
    page = open_page(path, **settings)
    try:
        yield page
        page.wait_for_timeout(50)
        assert page.messages == []
        assert [url for url in page.requests if not url.startswith("data:")] == [path.as_uri()]
    finally:
        page.context.close()


def drawn(page: Any, slot: int, chart: int = 0) -> int:
    """How many marks of a colour a chart shows."""
    return page.evaluate(
        "([chart, colour]) => [...document.querySelectorAll('figure .chart')[chart].querySelectorAll('path, line')]"
        ".filter(e => [e.getAttribute('stroke'), e.getAttribute('fill')].includes(colour)).length",
        [chart, f"var(--c{slot})"],
    )


def test_draws_every_encoding_and_fetches_nothing(open_page: Any, report: Path) -> None:
    with opened(open_page, report) as page:
        assert page.locator("figure .chart svg").count() == 2
        for slot in (0, 1, 2, 3, 4, 5, 6):
            assert drawn(page, slot) >= 6, f"slot {slot}: a line, a band and points at four lengths"
            assert drawn(page, slot, chart=1) >= 6
        words = page.locator("figure .chart").first.text_content()
        for word in ("128", "1,024", "8×", "trained at 128", "longer than training (extrapolation)"):
            assert word in words


@pytest.mark.medium
def test_the_legend_hides_and_shows(open_page: Any, report: Path) -> None:
    with opened(open_page, report) as page:
        key = page.locator(".key", has_text="FIRE").first
        before = drawn(page, 3)
        key.click()
        assert key.get_attribute("aria-pressed") == "false"
        page.wait_for_timeout(100)
        assert drawn(page, 3) == 0
        assert drawn(page, 3, chart=1) == 0, "the same encodings in every chart"
        assert drawn(page, 1) > 0
        assert "off" in page.locator(".scores tr[data-label=FIRE]").first.get_attribute("class")
        key.click()
        page.wait_for_timeout(100)
        assert drawn(page, 3) == before
        page.locator(".key", has_text="RoPE").first.click()
        page.locator(".key", has_text="NoPE").first.click()
        page.locator(".legend .all").first.click()
        page.wait_for_timeout(100)
        assert page.locator(".key[aria-pressed=false]").count() == 0
        assert drawn(page, 1) > 0


@pytest.mark.medium
def test_the_legend_by_keyboard(open_page: Any, report: Path) -> None:
    with opened(open_page, report) as page:
        page.locator(".key", has_text="Sinusoidal").first.focus()
        page.keyboard.press("Space")
        page.wait_for_timeout(100)
        assert drawn(page, 4) == 0
        page.keyboard.press("Enter")
        page.wait_for_timeout(100)
        assert drawn(page, 4) > 0


@pytest.mark.medium
def test_the_legend_by_touch(open_page: Any, report: Path) -> None:
    with opened(open_page, report, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True) as page:
        page.locator(".key", has_text="ALiBi").first.tap()
        page.wait_for_timeout(100)
        assert drawn(page, 2) == 0
        assert drawn(page, 3) > 0
        page.locator("figure .chart").first.tap(position={"x": 150, "y": 150})
        assert page.locator(".tip").first.is_visible()


@pytest.mark.medium
def test_the_tooltip_has_the_numbers(open_page: Any, report: Path, quickstart: Findings) -> None:
    with opened(open_page, report) as page:
        page.locator("figure .chart").first.scroll_into_view_if_needed()
        box = page.locator("figure .chart svg").first.bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.89, box["y"] + 200)
        tip = page.locator(".tip").first
        tip.wait_for(state="visible")
        text = tip.inner_text()
        point = next(s for s in quickstart.tasks[0].series if s.label == "FIRE").point_at(1024)
        assert "1,024 bytes" in text
        assert "8× the training length (extrapolation)" in text
        assert f"{point.mean:.3f}" in text
        assert f"{point.interval.low:.3f}" in text
        assert "3 seeds × 64 examples" in text
        assert tip.locator("tr").count() == 7
        assert tip.locator("tr th").first.inner_text() == "FIRE", "best first"
        page.mouse.move(2, 2)
        tip.wait_for(state="hidden")
        page.locator("figure .chart").first.focus()
        page.keyboard.press("ArrowRight")
        assert "128 bytes" in tip.inner_text()
        page.keyboard.press("ArrowRight")
        assert "256 bytes" in tip.inner_text()
        page.keyboard.press("Escape")
        tip.wait_for(state="hidden")


@pytest.mark.medium
def test_the_axis_can_show_all_or_the_best(open_page: Any, report: Path) -> None:
    def ticks(page: Any) -> str:
        return page.locator("figure .chart").first.text_content()

    with opened(open_page, report) as page:
        most = ticks(page)
        page.get_by_role("button", name="all", exact=True).first.click()
        page.wait_for_timeout(100)
        everything = ticks(page)
        page.get_by_role("button", name="best", exact=True).first.click()
        page.wait_for_timeout(100)
        best = ticks(page)
        assert "8" in everything
        assert "1.85" in best
        assert len({most, everything, best}) == 3
        assert page.locator("[data-range][aria-pressed=true]").count() == 1


@pytest.mark.medium
def test_tables_sort(open_page: Any, report: Path) -> None:
    def order(page: Any) -> list[str]:
        return page.locator(".task .scores").first.locator("tbody th").all_inner_texts()

    with opened(open_page, report) as page:
        assert order(page)[0] == "FIRE"
        head = page.locator(".task .scores").first.locator("thead button")
        head.nth(1).click()
        assert order(page)[0] == "FIRE"
        assert order(page)[-1] == "Sinusoidal"
        head.nth(1).click()
        assert order(page)[0] == "Sinusoidal"
        head.nth(0).click()
        assert order(page) == sorted(order(page), key=str.lower)
        assert page.locator(".task .scores").first.locator("[aria-sort]").count() == 1


def test_what_is_missing_sorts_below(open_page: Any, tmp_path: Path, make_row: Make, make_score: Make) -> None:
    runs = [make_row(key=label, label=label) for label in ("A", "B", "C")]
    scores = [make_score(r, n, m) for r, m in zip(runs, (3.0, 1.0, 2.0), strict=True) for n in (128, 1024)]
    path = write(
        from_rows([], runs, [s for s in scores if (s.key, s.question["length"]) != ("B", 128)]), tmp_path / "r.html"
    )
    with opened(open_page, path) as page:
        head = page.locator(".task .scores thead button").nth(1)
        for expected in (["C", "A", "B"], ["A", "C", "B"]):
            head.click()
            assert page.locator(".task .scores").first.locator("tbody th").all_inner_texts() == expected


@pytest.mark.medium
def test_names_from_users_run_nothing(
    open_page: Any, tmp_path: Path, make_row: Make, make_score: Make, make_study: Make
) -> None:
    changes = {"label": EVIL, "encoding": EVIL, "task": EVIL, "unit": EVIL, "metric": EVIL}
    runs = [make_row(**changes, key=str(n), seed=n, facts={EVIL: EVIL}) for n in range(2)]
    runs.append(make_row(**changes, key="2", seed=2, status="failed", error=EVIL))
    scores = [make_score(r, n, 2.0 + n / 99) for r in runs[:2] for n in (128, 1024)]
    study = make_study(name=EVIL, question=EVIL, expectation=EVIL, command=EVIL)
    with opened(open_page, write(from_rows([study], runs, scores), tmp_path / "evil.html")) as page:
        assert page.locator("h1").inner_text() == EVIL
        assert page.locator(".key").first.inner_text() == EVIL
        page.locator(".key").first.click()
        page.locator(".key").first.click()
        page.locator("figure .chart").first.focus()
        page.keyboard.press("ArrowRight")
        assert EVIL in page.locator(".tip").first.inner_text()
        assert page.evaluate("window.hacked") is None
        assert page.locator("img").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_an_injected_script_would_not_run(browser: Any, tmp_path: Path, report: Path) -> None:
    """The second lock: even if a text broke out, the page's policy runs no script but its own."""
    path = tmp_path / "broken.html"
    path.write_text(report.read_text(encoding="utf-8").replace("<h1>", "<script>window.hacked=1</script><h1>"), "utf-8")
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready=yes]", state="attached")
    assert page.evaluate("window.hacked") is None
    context.close()


@pytest.mark.medium
@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_scrolls_only_downwards(width: int, open_page: Any, report: Path) -> None:
    with opened(open_page, report, viewport={"width": width, "height": 844}, is_mobile=True, has_touch=True) as page:
        for details in page.locator("details > summary").all():
            details.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        size = page.locator("figure .chart svg").first.bounding_box()
        assert 200 < size["width"] <= width
        small = page.evaluate(
            "[...document.querySelectorAll('.key, [data-range]')]"
            ".filter(e => e.getBoundingClientRect().height < 30).length"
        )
        assert small == 0, "keys are large enough for a finger"


@pytest.mark.medium
def test_a_table_that_does_not_fit_says_that_it_scrolls(
    open_page: Any, tmp_path: Path, make_row: Make, make_score: Make
) -> None:
    lengths = [2**n for n in range(4, 12)]
    run = make_row(questions=[{"length": n, "tokens": 9, "seed": 0} for n in lengths], train_length=16)
    path = write(from_rows([], [run], [make_score(run, n, 2.0) for n in lengths]), tmp_path / "wide.html")
    table, hint = ".task .scroll", ".task .hint"
    with opened(open_page, path, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True) as page:
        box = page.locator(table).first
        assert box.evaluate("e => e.scrollWidth > e.clientWidth + 1")
        assert page.locator(hint).first.is_visible()
        assert "scroll sideways to see more columns" in page.locator(hint).first.inner_text()
        assert "gradient" in box.evaluate("e => getComputedStyle(e).maskImage")
        name = page.locator(f"{table} tbody th").first
        assert name.evaluate("e => getComputedStyle(e).boxShadow") == "none"
        box.evaluate("e => e.scrollTo(e.scrollWidth, 0)")
        page.wait_for_timeout(100)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert name.evaluate("e => getComputedStyle(e).boxShadow") != "none", "columns are hidden behind the first"
        assert box.evaluate("e => getComputedStyle(e).maskImage") == "none", "nothing more behind the edge"
        page.emulate_media(media="print")
        assert name.evaluate("e => getComputedStyle(e).boxShadow") == "none"
        assert not page.locator(hint).first.is_visible()
    with opened(open_page, path, viewport={"width": 1280, "height": 800}) as page:
        assert not page.locator(hint).first.is_visible()
        assert page.locator(table).first.evaluate("e => getComputedStyle(e).maskImage") == "none"
        page.locator("details.provenance > summary").click()
        page.wait_for_timeout(100)
        folded = page.locator("details.provenance .scroll")
        assert folded.evaluate("e => e.classList.contains('more') === (e.scrollWidth > e.clientWidth + 1)")


def test_a_chart_is_described_to_who_does_not_see_it(open_page: Any, report: Path, quickstart: Findings) -> None:
    with opened(open_page, report) as page:
        for n, task in enumerate(quickstart.tasks):
            chart = page.locator("figure .chart").nth(n)
            assert chart.get_attribute("aria-label") == describe(task)
            assert chart.get_attribute("role") == "img"
            assert chart.get_attribute("aria-roledescription") is None


def test_dark_differs_and_follows_a_change(open_page: Any, report: Path) -> None:
    def colours(page: Any) -> list[str]:
        return page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('h1')).color,"
            " getComputedStyle(document.querySelector('figure .chart path[stroke=\"var(--c3)\"]')).stroke,"
            " getComputedStyle(document.querySelector('figure .chart text')).fill]"
        )

    with opened(open_page, report, color_scheme="light") as page:
        light = colours(page)
        page.emulate_media(color_scheme="dark")
        dark = colours(page)
        assert all(a != b for a, b in zip(light, dark, strict=True))
        assert "var" not in "".join(light + dark)
        page.emulate_media(color_scheme="light")
        assert colours(page) == light


@pytest.mark.medium
def test_paper_is_light_and_complete(open_page: Any, report: Path) -> None:
    with opened(open_page, report, color_scheme="dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.evaluate("getComputedStyle(document.querySelector('h1')).color") == "rgb(22, 26, 33)"
        assert page.locator("details:not([open])").count() == 0
        assert not page.locator("[data-range]").first.is_visible()
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("details[open]").count() == 0
        assert len(page.pdf()) > 20_000


def test_an_empty_page_opens(open_page: Any, tmp_path: Path) -> None:
    with opened(open_page, write(Findings(), tmp_path / "empty.html")) as page:
        assert "No results yet" in page.locator("main").inner_text()


def test_one_length_and_one_encoding_draw(open_page: Any, tmp_path: Path, make_row: Make, make_score: Make) -> None:
    run = make_row(questions=[{"length": 128, "tokens": 1, "seed": 0}])
    path = write(from_rows([], [run], [make_score(run, 128, 2.0)]), tmp_path / "one.html")
    with opened(open_page, path) as page:
        assert drawn(page, 3) > 0
