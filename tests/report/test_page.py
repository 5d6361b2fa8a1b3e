"""The page as text: complete in itself, safe, honest about what is missing, written all or nothing."""

import base64
import dataclasses
import hashlib
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis import Findings, findings, from_rows
from lengthwise.report import ReportError, bundle, page, provenance, render, write
from lengthwise.store import open_store, worker_name
from tests.made_answers import changed
from tests.report.charts_of import charts_of

Make = Callable[..., Any]
EVIL = "</script><!--<script>alert('x')</script><img src=x onerror=alert(1)>\"'{{7*7}}"


def test_everything_that_people_need_is_there(quickstart: Findings) -> None:
    text = render(quickstart)
    for words in (
        "quickstart",
        "Which position encodings keep",
        "Expected before the run",
        "Student’s t",
        "lengthwise run",
    ):
        assert words in text, words
    assert re.search(
        r"<td class=\"best new[^>]*><span class=\"mean\">1\.7\d\d</span><span class=\"spread\">±\xa00\.\d+", text
    )
    assert text.count('class="key" aria-pressed') == 14
    assert "42 of 42 runs done" in text


def test_the_same_findings_give_the_same_page(quickstart: Findings) -> None:
    assert render(quickstart) == render(quickstart)


def test_nothing_outside_is_named_as_something_to_load(quickstart: Findings) -> None:
    text = re.sub(r"<script>.*?</script>", "", render(quickstart), flags=re.S)
    assert not re.findall(r"(?:src|href|action|data)\s*=\s*[\"']?(?!#|data:,)[^\s>]*//", text)
    assert "@import" not in text
    assert "url(" not in text


def test_only_the_pages_own_scripts_may_run(quickstart: Findings) -> None:
    text = render(quickstart)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    allowed = set(re.findall(r"sha256-([^&]+)&#39;", policy[1]))
    scripts = re.findall(r"<script>(.*?)</script>", text, flags=re.S)
    assert {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts} == allowed
    assert len(allowed) == 3
    assert "default-src &#39;none&#39;" in policy[1]


def evil_findings(make_row: Make, make_score: Make, make_study: Make) -> Findings:
    changes = {"label": EVIL, "encoding": EVIL, "task": EVIL, "unit": EVIL, "metric": EVIL}
    runs = [
        make_row(**changes, seed=0, facts={"commit": EVIL, EVIL: "x"}),
        make_row(**changes, seed=1, key=EVIL, status="failed", error=EVIL),
    ]
    study = make_study(name=EVIL, question=EVIL, expectation=EVIL, cost=EVIL, command=EVIL)
    return from_rows([study], runs, [make_score(runs[0], n, 2.0) for n in (128, 1024)])


def test_text_from_users_stays_text(make_row: Make, make_score: Make, make_study: Make) -> None:
    text = render(evil_findings(make_row, make_score, make_study))
    scripts = re.findall(r"<script>.*?</script>", text, flags=re.S)
    for script in scripts:
        text = text.replace(script, "")
    assert "<script>" not in text
    assert "<!--" not in text
    assert "<img" not in text
    assert text.count("<script") == text.count("</script>") == 2  # a chart, what the cells of a table show
    for data in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text, flags=re.S):
        assert not set("<>&") & set(data)
    (chart,) = charts_of(text)
    assert chart["rows"]["label"][0] == EVIL
    assert "{{7*7}}" in text, "text is no template"


def test_control_characters_of_a_database_are_replaced(make_row: Make, make_score: Make, make_study: Make) -> None:
    evil = "a\x1b[2Jb\x00\x07\r\x7f\x9bc\tand\nd"
    run = make_row(label=evil, encoding=evil, task=evil, unit=evil, metric=evil, facts={"commit": evil, evil: evil})
    study = make_study(name=evil, question=evil, expectation=evil, cost=evil, command=evil)
    text = render(from_rows([study], [run], [make_score(run, 128, 2.0)]))
    assert not re.search(r"[^\n\t -~\xa0-\U0010ffff]", text)
    assert text.count("a\ufffd[2Jb\ufffd\ufffd\ufffd\ufffd\ufffdc\tand\nd") >= 5


def test_what_is_missing_is_named(make_rows: Make, make_study: Make) -> None:
    runs, scores = make_rows()
    runs[4] = dataclasses.replace(runs[4], status="failed", error="the loss is not finite at step 312")
    runs[30] = dataclasses.replace(runs[30], status="running", step=211)
    text = render(from_rows([make_study()], runs, [s for s in scores if s.key not in (runs[4].key, runs[30].key)]))
    assert "40 of 42 runs done" in text
    assert "<strong>1 of 42 runs failed</strong>" in text
    assert "the loss is not finite at step 312" in text
    assert "running, 211 of 600 steps" in text
    assert text.count("So far (20 of 21 runs)") == 2
    assert "2 to 3 seeds per score" in text


def test_an_empty_store_says_so() -> None:
    text = render(Findings())
    assert "No results yet" in text
    assert "window.vegaEmbed" not in text
    assert len(text) < 30_000


def test_runs_without_a_score_yet(make_row: Make) -> None:
    text = render(from_rows([], [make_row(status="pending", step=0)], []))
    assert "No run has a score yet." in text
    assert 'class="chart"' not in text


def test_scores_that_are_no_number(make_row: Make, make_score: Make) -> None:
    run = make_row()
    scores = [make_score(run, 128, 2.0), make_score(run, 256, math.nan), make_score(run, 512, math.inf)]
    text = render(from_rows([], [run], scores))
    assert "Not drawn, because the score is not a finite number: FIRE at 256 and FIRE at 512" in text
    assert "NaN" not in text.partition('id="data">')[2].partition("</script>")[0]


def test_one_seed_is_said(make_row: Make, make_score: Make) -> None:
    runs = [make_row(key=label, label=label) for label in ("FIRE", "RoPE")]
    text = render(from_rows([], runs, [make_score(r, n, 2.0 + i) for i, r in enumerate(runs) for n in (128, 1024)]))
    assert "with one seed per encoding, differences may be due to chance" in text
    assert "a score of one seed is not tinted" in text
    assert "over examples" in text
    assert "1 seed per score" in text


def test_best_is_bold_and_what_is_not_apart_is_tinted(quickstart: Findings) -> None:
    task = quickstart.tasks[0]
    cells = {s.label: [page.cell_of(s.point_at(n), task.best(n))["kind"] for n in task.lengths] for s in task.series}
    assert cells["FIRE"][3] == "best"
    assert cells["KerpleLog"][3] == "near"
    assert cells["Sinusoidal"] == [""] * 4


def beside(**scores: float) -> list[dict[str, Any]]:
    """What the store has beside a score: baselines, all floors but the trigram."""
    return [{"name": name, "score": value, "floor": name != "trigram"} for name, value in scores.items()]


def test_nobody_is_marked_best_where_all_are_wrong(make_rows: Make) -> None:
    """Seven times 0.000: no bold and no tint, while the column beside it has its best."""
    runs, scores = make_rows()
    level = [changed(s, mean=0.0) if s.question["length"] == 160 else s for s in scores]
    task = from_rows([], runs, level).tasks[1]
    kinds = [[page.cell_of(s.point_at(n), task.best(n))["kind"] for s in task.series] for n in (80, 160)]
    assert kinds[0].count("best") == 1
    assert kinds[1] == [""] * 7
    wrong = [changed(s, mean=0.0) if "examples" in s.question else s for s in scores]
    text = render(from_rows([], [r for r in runs if r.task == "Copy"], [s for s in wrong if "examples" in s.question]))
    assert '<td class="best' not in text, "neither in the table of lengths nor in the one over all of them"
    assert text.count("<small>not learned</small>") == 14


def test_who_has_not_learned_is_remarked_and_not_best(make_rows: Make) -> None:
    runs, scores = make_rows()
    floors = beside(uniform=5.545, unigram=3.15, bigram=1.80, trigram=1.0)
    text = [changed(s, baselines=floors) if "tokens" in s.question else s for s in scores]
    found = from_rows([], runs, text)
    task = found.tasks[0]
    assert page.cell_of(task.series[1].point_at(128), task.best(128))["kind"] == "", (
        "1.902 of Sinusoidal, where FIRE has 1.807"
    )
    whole = render(found)
    assert "not learned" in whole
    assert "so their scores and ranks compare failures: Text (all encodings)." in whole
    for name, kind in (("bigram", "floor"), ("trigram", "baseline")):
        assert f"<span>{name}</span><small>{kind}</small>" in whole
    assert "compare failures" not in render(from_rows([], runs, scores))


def test_the_caption_promises_as_many_ranges_as_there_are_buttons(
    make_rows: Make, make_row: Make, make_score: Make
) -> None:
    def buttons_and_caption(found: Findings) -> tuple[list[str], str]:
        text = render(found)
        caption = re.search(r"The vertical axis can show (.*?)\. Arrows", text)
        return re.findall(r'data-range="\d">(\w+)<', text), caption[1] if caption else ""

    three = from_rows([], *make_rows())
    assert buttons_and_caption(three) == (
        ["all", "most", "best"],
        "all scores, most of the scores or the better half of the encodings",
    )
    table = {"A": [2.0, 2.0, 2.0, 9.0], "B": [2.0, 2.0, 2.0, 2.8]}
    runs = [make_row(key=label, label=label) for label in table]
    pairs = [(r, a["length"], m) for r in runs for a, m in zip(r.questions, table[r.label], strict=True)]
    two = from_rows([], runs, [make_score(*p) for p in pairs])
    assert buttons_and_caption(two) == (["all", "most"], "all scores or most of the scores")
    some = [(r, length, min(mean, 2.3)) for r, length, mean in pairs]
    floors = beside(uniform=5.545, unigram=3.15, bigram=2.444, trigram=1.9)
    one = from_rows([], runs, [make_score(*p, baselines=floors) for p in some])
    assert buttons_and_caption(one) == (
        ["all", "encodings"],
        "all scores and baselines or the encodings without the baselines",
    )
    assert buttons_and_caption(from_rows([], runs, [make_score(*p) for p in some])) == ([], "")


# ---- where numbers come from ------------------------------------------------------------------------------------


def test_what_runs_share_is_said_once(quickstart: Findings) -> None:
    made = provenance.provenance(quickstart.runs)
    assert ("torch", "2.13.0+cpu") in made.shared
    ((task, pairs),) = made.by_task
    assert task == "Text"
    assert ("corpus SHA-256", "ab" * 32) in pairs
    assert made.names == ()


def test_what_differs_has_a_column(quickstart: Findings) -> None:
    runs = list(quickstart.runs)
    runs[3] = dataclasses.replace(runs[3], facts={**runs[3].facts, "device": "cuda"})
    made = provenance.provenance(runs)
    assert made.names == ("device",)
    assert [cells[0] for _, cells in made.rows][2:5] == ["cpu", "cuda", "cpu"]


def test_folders_of_the_machine_stay_at_home(quickstart: Findings) -> None:
    assert "/home/someone" not in render(quickstart)
    examples = {
        "/home/me/a.txt": "…/a.txt",
        r"C:\Users\me\a.txt": "…/a.txt",
        "python:manual": "python:manual",
        "/": "/",
    }
    assert {k: provenance.without_folders(k) for k in examples} == examples


def test_values_are_readable() -> None:
    values = [None, "", True, 12, 18_202_113, 0.1, [1, 2], "x"]
    assert [provenance.value_text(v) for v in values] == ["–", "–", "yes", "12", "18,202,113", "0.1", "1, 2", "x"]
    assert [provenance.seconds(v) for v in (1.25, 48.2, 725, 12_000, None, math.nan)] == [
        *("1.2 s", "48 s", "12 min 5 s", "3 h 20 min", "–", "–")
    ]


# ---- the file, the script, the time -----------------------------------------------------------------------------


def test_one_run_is_not_some_runs(quickstart: Findings) -> None:
    one = dataclasses.replace(quickstart.tasks[0], keys=quickstart.tasks[0].keys[:1])
    assert "Settings of this run<" in render(dataclasses.replace(quickstart, tasks=(one,)))


def test_writing_is_all_or_nothing(tmp_path: Path, quickstart: Findings, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "new folder" / "report.html"
    assert write(quickstart, target) == target
    before = target.read_text(encoding="utf-8")
    assert before.endswith("</html>")

    def full_disk(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(page.os, "replace", full_disk)
    with pytest.raises(
        ReportError, match=r"cannot be written to .*report\.html \(No space left on device\); free some space"
    ):
        write(Findings(), target)
    assert target.read_text(encoding="utf-8") == before
    assert [p.name for p in target.parent.iterdir()] == ["report.html"]


def test_the_script_is_kept_and_a_damaged_one_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import vl_convert

    made: list[str] = []
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: made.append(snippet) or "a</script>b<!--c")
    for count in (1, 1):
        bundle.script.cache_clear()
        assert bundle.script() == "a<\\/script>b<\\!--c"
        assert len(made) == count
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_bytes(kept.read_bytes()[:-1] + b"!")
    bundle.script.cache_clear()
    assert bundle.script() == "a<\\/script>b<\\!--c"
    assert len(made) == 2
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "file"))
    bundle.script.cache_clear()
    with pytest.warns(UserWarning, match="file: Not a directory"):  # and no error
        assert bundle.script().startswith("a")
    bundle.script.cache_clear()


def test_a_report_needs_no_torch() -> None:
    code = (
        "import sys; from lengthwise.analysis import Findings; from lengthwise.report import render, table; "
        "render(Findings()); table(Findings()); print([m for m in ('torch', 'altair', 'scipy.stats') if m in "
        "sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stdout + done.stderr


@pytest.mark.slow  # filling the store is what takes long
def test_a_store_of_870_runs_is_reported_in_time(tmp_path: Path, make_rows: Make) -> None:
    """Time of this process, so that others on the machine do not count; the script is there already, as usual."""
    names = (
        "key",
        "label",
        "encoding",
        "task",
        "metric",
        "better",
        "unit",
        "seed",
        "train_length",
        "config",
        "questions",
    )
    runs, scores = make_rows(seeds=62)
    with open_store(tmp_path) as store:
        store.add_study("large", evaluation={}, runs=[{n: getattr(r, n) for n in names} for r in runs])
        answers: dict[str, list[Any]] = {}
        for s in scores:
            answers.setdefault(s.key, []).append(
                {n: getattr(s, n) for n in ("measurement", "question", "rows", "facts")}
            )
        worker = worker_name()
        for run in runs:
            assert store.claim("large", worker) is not None
            store.add_answers(run.key, answers[run.key], worker=worker)
            store.finish(run.key, worker, run.facts)
    bundle.script()
    started = time.process_time()
    with open_store(tmp_path, create=False) as store:
        found = findings(store, "large")
    write(found, tmp_path / "report.html")
    took = time.process_time() - started
    assert len(found.runs) == 868
    assert all(r.status == "done" for r in found.runs)
    assert took < 3, f"{took:.1f} s"


def test_intervals_over_prompts_are_said_where_there_are_some(make_rows: Make, make_study: Make) -> None:
    runs, scores = make_rows(3, ("NoPE", "FIRE"))
    said = "the variation of the prompts comes from 1,000 bootstrap resamples"
    assert said not in render(from_rows([make_study()], runs, scores))
    grouped = [changed(s, groups=[s.rows["mean"][0] + off for off in (-0.01, 0.01)] * 4) for s in scores]
    page = render(from_rows([make_study()], runs, grouped))
    assert said in page
    assert "paired by seed (and by group of prompts, where groups were stored)" in page
