"""The pages, as a client gets them."""

import math
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from lengthwise.report import render
from lengthwise.serve import app, pages, snapshots
from lengthwise.serve.comparison import MOST
from lengthwise.serve.pages import ROWS
from lengthwise.serve.snapshots import Pace, Watcher
from lengthwise.store import Store, open_results

from .conftest import EVIL, WORKER, add_study, advance, finish, key


def eventually(client: Any, address: str, text: str, seconds: float = 10.0) -> str:
    """Return the page as soon as it contains a text."""
    end = time.monotonic() + seconds
    while text not in (page := client.get(address).text):
        assert time.monotonic() < end, f"{text!r} does not appear in {page}"
        time.sleep(0.05)
    return page


def words(page: str) -> str:
    return " ".join(re.sub("<[^>]*>", " ", page).split())


def test_studies_with_their_progress(client: Any) -> None:
    page = words(client.get("/").text)
    assert "2 done 1 running 1 failed 1 waiting 5 runs" in page
    assert re.search(r"NoPE , Copy, seed 1 on \S+, step 100 of 1,000", page)
    assert "0 done 2 waiting 2 runs" in page


def test_a_study_with_its_runs(client: Any) -> None:
    page = client.get("/study?name=first").text
    rows = [words(row) for row in re.findall(r'<tr id="run-.*?</tr>', page, flags=re.S)]
    assert len(rows) == 5
    assert re.fullmatch(r"NoPE Copy, seed 0 · 00000001 done 1,000 of 1,000 0\.071 0\.750 0\.375", rows[0])
    assert "failed the loss is not finite – – – –" in rows[2]
    assert re.search(r"running on \S+ 100 of 1,000 – – –", rows[3])
    assert "waiting – – – –" in rows[4]
    assert 'href="/report?study=first"' in page
    assert "page=" not in page, "all runs are on one page"


def test_the_curves_of_chosen_runs_of_several_studies(client: Any, store: Store) -> None:
    trained = finish(store, "second")
    page = eventually(client, f"/study?name=first&runs={key(1, 0)},{trained}", "One line for each of 2 runs")
    assert "Training loss of the chosen runs" in page
    assert page.count(" checked>") == 1, "the other run belongs to another study"
    assert f'href="/compare?runs={key(1, 0)}%2C{trained}"' in page
    eventually(client, "/study?name=second", 'href="/report?study=second"')


def test_a_filter_finds_runs_with_all_words(client: Any) -> None:
    page = client.get("/study?name=first&words=nope+RUNNING").text
    assert re.findall(r'<tr id="run-(\w+)"', page) == [key(1, 3)]
    assert "0 runs" in client.get("/study?name=first&words=nothing").text


def test_many_runs_have_several_pages(client: Any, store: Store) -> None:
    add_study(store, "many", 3, ROWS + 1)
    page = eventually(client, "/study?name=many&page=2&words=copy", "page 2 of 2")
    assert re.findall(r'<tr id="run-(\w+)"', page) == [key(3, ROWS)]
    assert 'page=1"' in page
    assert 'page=2"' in client.get("/study?name=many").text
    for wrong in ("0", "99", "x", "-1", "9" * 99, "²"):
        assert "page" in client.get(f"/study?name=many&page={wrong}").text


def test_runs_side_by_side(client: Any, store: Store) -> None:
    trained = finish(store, "second", 0.9)
    page = eventually(
        client, f"/compare?runs={key(1, 0)},{key(1, 1)},{trained},{key(1, 3)}", "One line for each of 3 runs"
    )
    assert words(page).count("0.750 0.375") == 1
    assert "0.900 0.450" in words(page)
    assert "Without any score yet: NoPE, seed 1" in page
    rows = {
        words(name): words(cells)
        for name, cells in re.findall(r"<th scope=\"row\".*?<code>(.*?)</code></th>(.*?)</tr>", page, flags=re.S)
    }
    assert rows["training.learning_rate"] == "0.002 0.002 0.003 0.002"
    assert rows["encoding.is"] == "NoPE FIRE NoPE NoPE"
    assert "training.steps" not in rows, "all have the same one"
    assert rows["versions.torch"] == "2.0 2.0 2.0 –"


def test_a_share_is_drawn_from_0_to_1_with_space_around_the_lengths(watcher: Watcher) -> None:
    (group,) = pages.compare(watcher, watcher.snapshot(), [key(1, 0)])["groups"]
    (axis,), columns = group["chart"].ranges, group["chart"].columns
    assert (axis.low, axis.high) == (-0.03, 1.03)
    assert (columns.low, columns.high) == (8 / 2**0.3, 16 * 2**0.3)


def test_different_tasks_and_questions_are_not_one_chart(client: Any, store: Store) -> None:
    add_study(store, "text", 4, 1, task="Text", metric="cross-entropy", better="lower", unit="bytes")
    trained = finish(store, "text", 1.5)
    page = eventually(client, f"/compare?runs={key(1, 0)},{trained}", "lower is better")
    assert page.count("<h2>Scores by length</h2>") == 2
    assert "different tasks (Copy, Text)" in page
    assert "NoPE, Text, seed 0" in page


def test_what_cannot_be_shown_is_one_line(client: Any) -> None:
    for address, line in {
        "/study?name=frist": "There is no study &#39;frist&#39;; did you mean &#39;first&#39;?",
        "/study": "There is no study &#39;&#39;",
        "/report?study=nothing": "There is no study &#39;nothing&#39;",
        "/compare?runs=0123": "There is no run &#39;0123&#39;",
        "/nothing": "Not Found",
        "/files/..%2Fapp.py": "Not Found",
        "/files/app.py": "There is no such file",
    }.items():
        answer = client.get(address)
        assert answer.status_code == 404
        assert line in answer.text
    answer = client.get("/compare?runs=" + ",".join(map(str, range(MOST + 1))))
    assert answer.status_code == 400
    assert f"At most {MOST} runs are shown side by side, got {MOST + 1}" in answer.text
    assert "No runs chosen" in client.get("/compare").text


def test_a_study_without_finished_runs_says_so(client: Any) -> None:
    page = client.get("/study?name=second").text
    assert "No run of this study is done yet" in page
    assert "/report" not in page


def test_texts_of_others_are_escaped(client: Any, store: Store) -> None:
    trained = finish(store, "second")
    store.reopen([trained])
    addresses = [
        "/",
        f"/study?name=second&runs={trained}",
        f"/compare?runs={trained},{key(2, 1)}",
        f"/study?name={EVIL}",
    ]
    for address in addresses:
        page = client.get(address).text
        assert "<img" not in page
        assert "<script>" not in page
        assert "&lt;/script&gt;" in page
    for address in ("/study?name=first&words=%22%3E%3Cimg%3E", "/study?name=first&runs=%22%3E%3Cimg%3E"):
        assert "<img" not in client.get(address).text


def test_nothing_can_be_changed(client: Any) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.request(method, "/study?name=first").status_code == 405


def test_an_unchanged_page_is_sent_once(client: Any, store: Store) -> None:
    first = client.get("/study?name=first")
    same = client.get("/study?name=first", headers={"If-None-Match": first.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    advance(store, key(1, 3), 500)
    eventually(client, "/study?name=first", "500 of 1,000")
    assert client.get("/study?name=first", headers={"If-None-Match": first.headers["etag"]}).status_code == 200


def test_the_remaining_time_follows_from_the_steps(client: Any, store: Store) -> None:
    assert "of training left" not in words(client.get("/").text)
    advance(store, key(1, 3), 500)
    page = words(eventually(client, "/", "of training left"))
    assert re.search(r"step 500 of 1,000, [\d.]+ s left", page)


def test_the_speed_of_a_run_follows_from_its_newest_steps() -> None:
    pace = Pace()
    for now, step in [(0.0, 100), (10.0, 200), (15.0, 200)]:
        pace.add(now, step)
    assert pace.steps_per_second == 10.0, "the time since the last step does not count"
    pace.add(130.0, 800)
    assert pace.steps_per_second == 5.0, "over the last 120 seconds and the point before them"
    pace.add(140.0, 400)
    assert pace.steps_per_second == 0.0, "another worker continues from a checkpoint"


def test_the_reading_takes_at_most_a_fifth_of_the_time(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[int] = []
    start = time.monotonic()
    monkeypatch.setattr(watcher, "refresh", lambda: (readings.append(1), time.sleep(0.05)))
    time.sleep(0.6)
    assert 1 <= len(readings) <= 1 + (time.monotonic() - start) / 0.25


def test_a_store_that_is_gone_is_read_again_when_it_is_back(client: Any, store: Store, folder: Path) -> None:
    store.close()
    away = folder.rename(folder.with_name("away"))
    page = eventually(client, "/", "The results cannot be read now")
    assert client.get("/study?name=first").status_code == 503
    assert "results.db" in page
    shutil.copytree(away, folder)  # another file, as after restoring a backup
    eventually(client, "/", "2 done")
    with open_results(folder, create=False) as opened:
        assert opened.claim("first", WORKER) is not None
    eventually(client, "/", "2 running")


def test_the_reading_pauses_while_nobody_looks(
    client: Any, watcher: Watcher, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"IDLE": 0.3, "FRESH": 0.1, "INTERVAL": 0.01}.items():
        monkeypatch.setattr(snapshots, name, value)
    time.sleep(0.6)
    readings: list[int] = []
    read = watcher.refresh
    monkeypatch.setattr(watcher, "refresh", lambda: readings.append(1))
    time.sleep(0.2)
    assert not readings
    monkeypatch.setattr(watcher, "refresh", read)
    advance(store, key(1, 3), 600)
    eventually(client, "/", "600 of 1,000", 30.0)


def test_rows_of_unchanged_runs_are_read_once(watcher: Watcher, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "REMEMBERED_SECONDS", math.inf)
    queries: list[int] = []

    def read(what: str) -> None:
        runs = pages.activities(watcher.snapshot(), [key(1, 3)])
        watcher.remembered(runs, what, lambda store: queries.append(runs[0].step))

    read("curve"), read("curve"), read("scores"), read("curve")
    assert queries == [100, 100]
    advance(store, key(1, 3), 500)
    watcher.refresh()
    read("curve")
    assert queries == [100, 100, 500]


def test_the_full_report_is_rendered_again_when_the_rows_have_changed(
    client: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[int] = []
    monkeypatch.setattr(app, "render", lambda findings: (rendered.append(1), render(findings))[1])
    first = client.get("/report?study=first").text
    assert "Written by Lengthwise" in first
    assert client.get("/report?study=first").text == first
    assert len(rendered) == 1
    finish(store, "first", 0.9)
    assert "0.900" in client.get("/report?study=first").text
    assert "Is it live?" not in client.get("/report?study=second").text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8090", 200),
        ("localhost:9999", 200),  # the other end of a tunnel
        ("evil.example", 400),
        ("127.0.0.1.evil.example:8090", 400),
        ("", 400),
    ],
)
def test_only_the_names_of_this_machine_are_served(client: Any, host: str, status: int) -> None:
    answer = client.get("/", headers={"Host": host})
    assert answer.status_code == status
    assert ("Studies" in answer.text) == (status == 200)
