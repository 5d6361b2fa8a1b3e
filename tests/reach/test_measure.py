"""A measurement: a model whose reach is known, interruptions, and what the machine cannot do."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from lengthwise.analysis.answer_files import of_files
from lengthwise.analysis.answers import summarize
from lengthwise.measurements.answer_file import FileAnswer, read
from lengthwise.measurements.reach import Reach, ReachOptions
from lengthwise.measurements.table import Table
from lengthwise.reach.loading import load_folder
from lengthwise.reach.measure import MeasuredModel, bin_starts
from lengthwise.reach.model import Reader
from lengthwise.reach.tasks import TASKS
from lengthwise.reach.text import read_text
from tests.reach.models import folder, prose, remembering

LENGTHS = (256, 512, 1024)
Rows = list[dict[str, Any]]


def started(
    path: Path,
    model: Any,
    *,
    rows: Sequence[Any] = (),
    max_minutes: float | None = None,
    show: Any = None,
    **settings: Any,
) -> MeasuredModel:
    """A model with a text beside it. `rows`: what was measured before."""
    file = path / "text.txt"
    if not file.exists():
        file.write_text(prose(8000))
    options = ReachOptions(**{"lengths": LENGTHS, "examples": 2, "targets": 16, "depths": 3, **settings})
    found = MeasuredModel(model, options, read_text(file), list(rows), max_minutes=max_minutes)
    if show is not None:
        found.show = show
    return found


def measured(path: Path, model: Any, **settings: Any) -> Rows:
    return [dict(row) for row in started(path, model, **settings).measure()]


def scores(row: Any) -> list[float]:
    return list(row.get("losses") or row.get("answers"))


def reasons(rows: Rows) -> list[tuple[int, str]]:
    return [(row["length"], row["reason"]) for row in rows if "reason" in row]


def lengths(rows: Rows) -> set[int]:
    return {row["length"] for row in rows if "n" in row}


def effective(rows: Rows, task: str, method: str = "own") -> str:
    """The effective length with its interval, as the page shows it."""
    shown = Reach().derive(Table.from_rows(rows), {})
    return next(
        row["effective"] for row in shown if (row["method"], row["task"]) == (method, task) and row["effective"]
    )


def without_times(rows: Rows) -> Rows:
    return [{name: cell for name, cell in row.items() if name != "seconds"} for row in rows]


@pytest.mark.parametrize("length", [320, 512])
def test_every_prompt_has_its_length_and_one_first_token(tmp_path: Path, length: int) -> None:
    """Where the tokenizer adds BOS to every text of which a prompt consists. The last token of an answer is only a
    target.

    skylight-org/skylight-research#90 (three BOS in each prompt of RULER), EleutherAI/lm-evaluation-harness#3333 (two in
    rolling log-likelihoods) and #2963 (prompts of 262,000 tokens had 4,800).
    """
    from tokenizers import Tokenizer, processors

    made = folder(tmp_path)
    tokenizer = Tokenizer.from_file(str(made / "tokenizer.json"))
    bos = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    tokenizer.save(str(made / "tokenizer.json"))
    model, seen = load_folder(str(made), "cpu", "float32"), []
    measurement = started(tmp_path, model, lengths=(length,), tasks=("text", *TASKS))
    model.model.get_input_embeddings().register_forward_hook(lambda _, args, out: seen.append(args[0]))
    assert len(list(measurement.measure())) == 12
    assert len(seen) >= 2 * len(TASKS)
    for ids in seen:
        assert ids.shape == (1, length - 1)
        assert (ids == bos).nonzero().tolist() == [[0, 0]]


# ---- a known reach ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reach", [400, 10_000])
def test_a_model_that_sees_the_last_tokens_reaches_that_far(tmp_path: Path, reach: int) -> None:
    """Sentences within its reach are found, and sentences beyond are not, at every depth and length."""
    rows = measured(tmp_path, remembering(tmp_path, reach), tasks=("needle", "copying"), lengths=(300, 512, 1024))
    for row in rows:
        distance = row["length"] * (1 - row["depth"])
        if row["depth"] == 1 or distance < reach - 170:  # a sentence and a question have up to 170 letters
            assert row["answers"] == [1.0, 1.0], row
        elif distance > reach:
            assert row["answers"] == [0.0, 0.0], row
    for task in ("needle", "copying"):
        text = effective(rows, task)
        assert text.startswith("≥ 1,024") if reach > 1024 else 300 <= int(text.partition(" ")[0]) < 512


def test_what_a_perfect_copying_model_answers(tmp_path: Path) -> None:
    """It finds one needle among several keys, and not the number behind two other variables."""
    rows = measured(tmp_path, remembering(tmp_path, 10_000), tasks=("keys", "variables"), lengths=(512,), depths=1)
    assert {row["task"]: row["correct"] for row in rows} == {"keys": 1.0, "variables": 0.0}


def test_cross_entropy_is_that_of_the_same_tokens_at_every_length(tmp_path: Path) -> None:
    model = remembering(tmp_path, 10_000)
    model.model.__class__ = model.model.__class__.__mro__[2]  # a Llama again
    measurement = started(tmp_path, model, tasks=("text",))
    for row in (rows := list(measurement.measure())):
        for window, loss in zip(measurement.windows, row["losses"], strict=True):
            ids = torch.tensor([window[-row["length"] :]])
            with torch.no_grad():
                logits = model.model(ids[:, :-1], use_cache=False).logits[0]
            expected = F.cross_entropy(logits, ids[0, 1:], reduction="none")
            assert loss == pytest.approx(float(expected[-16:].mean()), rel=1e-4)
    row = rows[-1]
    assert row["length"] == 1024 and row["bins"] == bin_starts(1024)
    assert sum(row["bin_tokens"]) == 1023  # a vocabulary of bytes: the loss of every token is known
    means = expected.split(row["bin_tokens"])
    assert [losses[-1] for losses in row["bin_losses"]] == pytest.approx([float(x.mean()) for x in means], rel=1e-4)


@pytest.mark.parametrize(("words", "unit"), [(2000, "tokens"), (8000, "characters")])
def test_scores_can_be_computed_again(tmp_path: Path, words: int, unit: str) -> None:
    """With the text, the tokenizer and transformers alone. The model reads the end of each window."""
    (tmp_path / "text.txt").write_text(prose(words))
    pretrained = load_folder(str(folder(tmp_path)), "cpu", "float32")
    model = started(tmp_path, pretrained, tasks=("text",), examples=3)
    text, tokenizer, begins = (tmp_path / "text.txt").read_text(), pretrained.tokenizer, model.facts["windows"]
    assert begins["unit"] == unit and len(begins["starts"]) == 3
    for row in model.measure():
        for start, loss in zip(begins["starts"], row["losses"], strict=True):
            part = text[start:] if unit == "characters" else text
            ids = tokenizer(part, add_special_tokens=False).input_ids
            ids = ids[0 if unit == "characters" else start :][: LENGTHS[-1]][-row["length"] :]
            with torch.no_grad():
                logits = pretrained.model(torch.tensor([ids]), use_cache=False).logits[0].double()
            losses = F.cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="none")
            assert loss == pytest.approx(float(losses[-16:].mean()), rel=1e-5)


# ---- interruptions ------------------------------------------------------------------------------------------------


def test_only_the_missing_rows_are_measured(tmp_path: Path) -> None:
    model = remembering(tmp_path, 300)
    settings: dict[str, Any] = {"tasks": ("text", "needle"), "lengths": (256, 512)}
    whole = measured(tmp_path, model, **settings)
    assert len(whole) == 8
    rest = measured(tmp_path, model, rows=whole[:3], **settings)
    assert without_times([*whole[:3], *rest]) == without_times(whole)
    calls = type(model.model).calls
    assert measured(tmp_path, model, rows=whole, **settings) == []
    assert type(model.model).calls == calls


@pytest.mark.slow
def test_a_killed_command_continues(tmp_path: Path) -> None:
    folder(tmp_path / "tiny")
    (tmp_path / "text.txt").write_text(prose(8000))
    file, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    words = ["reach", "tiny", "--text", "text.txt", "--lengths", "256,512,1k", "--examples", "2", "--depths", "3"]
    words += ["--tasks", "text,needle,keys", "--out"]

    def command(out: Path) -> list[str]:
        return [sys.executable, "-m", "lengthwise", *words, str(out)]

    process = subprocess.Popen(command(file), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while time.monotonic() < end and not (file.exists() and len(file.read_text().splitlines()) >= 3):
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    first = read(file).rows
    assert len(first) >= 2
    for out in (file, other):
        subprocess.run(command(out), cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    rows, others = (read(out).rows for out in (file, other))
    assert rows[0]["seconds"] == first[0]["seconds"]  # it was not measured again
    assert without_times(rows) == without_times(others) and len(rows) == 3 * 7


# ---- limits of the machine ----------------------------------------------------------------------------------------


@pytest.mark.medium
@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail at x] DefaultCPUAllocator"),
    ],
)
def test_a_length_without_memory_is_reported_and_the_rest_is_kept(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = Reader.losses

    def failing(self: Reader, tokens: Any, rows: Any) -> Any:
        if len(tokens) > 300:
            raise error
        return losses(self, tokens, rows)

    monkeypatch.setattr(Reader, "losses", failing)
    rows = measured(tmp_path, remembering(tmp_path, 300), tasks=("text", "needle"))
    assert lengths(rows) == {256}
    assert reasons(rows) == [(512, "out of memory on this machine"), (1024, "out of memory on this machine")]
    monkeypatch.undo()
    again = measured(tmp_path, remembering(tmp_path, 300), tasks=("text", "needle"), rows=rows)  # with more memory
    assert not reasons(again) and lengths(again) == {512, 1024}
    shown = Reach().derive(Table.from_rows([*rows, *again]), {})
    assert not any(row.get("not_reached") for row in shown), "the reasons are outdated"


def test_a_closed_terminal_is_not_blamed_on_the_model(tmp_path: Path) -> None:
    def failing(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    model = started(tmp_path, remembering(tmp_path, 300), tasks=("needle",), lengths=(256,), show=failing)
    with pytest.raises(OSError, match="No space left"):
        list(model.measure())


def test_lengths_that_take_too_long_are_left_out(tmp_path: Path) -> None:
    """Two lengths that took 1 and 2 minutes for each of 4 parts: the third takes 4 minutes for each."""
    model = remembering(tmp_path, 300)
    settings: dict[str, Any] = {"tasks": ("text", "needle")}
    seconds = {256: 60.0, 512: 120.0}
    whole = measured(tmp_path, model, **settings)
    slow = [{**row, "seconds": seconds[row["length"]]} for row in whole if row["length"] < 1024]
    rows = measured(tmp_path, model, max_minutes=15.9, rows=slow, **settings)
    assert reasons(rows) == [(1024, "not within --max-minutes 15.9: it needs about 16 min")] and not lengths(rows)
    rows = measured(tmp_path, model, max_minutes=16.5, rows=slow, **settings)
    assert not reasons(rows) and lengths(rows) == {1024}


def test_a_length_is_measured_with_all_methods_or_with_none(tmp_path: Path) -> None:
    model = remembering(tmp_path, 300)
    settings: dict[str, Any] = {"tasks": ("text",), "methods": ("own", "rope"), "lengths": (256, 512)}
    model.model.__class__ = model.model.__class__.__mro__[2]
    slow = [{**row, "seconds": 60.0} for row in measured(tmp_path, model, **settings) if row.get("length") == 256]
    rows = measured(tmp_path, model, max_minutes=7.9, rows=slow, **settings)
    reason = "not within --max-minutes 7.9: it needs about 8 min"  # one of them would need 4
    found = [(row["method"], row["reason"]) for row in rows if "length" in row]
    assert found == [("own", reason), ("rope", reason)]


def test_a_length_after_one_that_was_left_out_is_not_measured(tmp_path: Path) -> None:
    model = remembering(tmp_path, 300)
    first = {**measured(tmp_path, model, tasks=("text",))[0], "seconds": 60.0}
    rows = measured(tmp_path, model, tasks=("text",), max_minutes=2, rows=[first])
    assert reasons(rows) == [
        (512, "not within --max-minutes 2: it needs about 4 min"),
        (1024, "not within --max-minutes 2"),
    ]


def test_losses_that_are_no_numbers_are_not_stored(tmp_path: Path) -> None:
    model = remembering(tmp_path, 300)
    model.model.__class__ = model.model.__class__.__mro__[2]
    with torch.no_grad():
        model.model.get_output_embeddings().weight[3] = torch.nan
    rows = measured(tmp_path, model, tasks=("text",), lengths=(256,))
    hint = "check its position settings with lengthwise model; if they are right, its weights may be damaged"
    assert reasons(rows) == [(256, f"its losses are not finite in float32; {hint}")] and len(rows) == 1


def test_progress_never_decreases(tmp_path: Path) -> None:
    shown: list[tuple[float, float]] = []
    measured(
        tmp_path,
        remembering(tmp_path, 300),
        tasks=("text", "needle"),
        show=lambda _, done, total: shown.append((done, total)),
    )
    assert shown == sorted(shown) and len({total for _, total in shown}) == 1
    assert 0 <= shown[0][0] < shown[-1][0] < shown[-1][1]


# ---- effective lengths --------------------------------------------------------------------------------------------


def rows_of(task: str, at: dict[int, Sequence[float]], method: str = "own") -> Rows:
    """Rows with these losses or answers by length."""
    column = "losses" if task == "text" else "answers"
    more = {"bins": [], "bin_losses": [], "bin_tokens": []} if task == "text" else {"depth": 0.5}
    return [{"method": method, "task": task, "length": n, column: list(s), "n": len(s), **more} for n, s in at.items()]


def test_the_effective_length_of_a_share() -> None:
    def found(*correct: int, of: int = 20) -> str:
        at = {256 * 2**n: (1.0,) * c + (0.0,) * (of - c) for n, c in enumerate(correct)}
        return effective(rows_of("needle", at), "needle")

    # 512 · 2 ^ (0.2 / 1.0): a later length that passes does not count. Wilson's intervals are 0.981 … 1 and 0 … 0.019.
    assert found(200, 200, 0, 200, of=200) == "588 (581 … 589)"
    assert found(200, 200, of=200) == "≥ 512 (≥ 512)"
    assert found(0, 200, of=200) == "< 256 (< 256)"
    assert found(160, 0, of=200).startswith("256 (")  # exactly the share
    assert found(159, 0, of=200).startswith("< 256 (")
    assert found(20, 16, 0) == "512 (284 … 571)"
    assert found(3, of=3) == "≥ 256 (< 256 … ≥ 256)"  # three correct answers prove little


def test_the_effective_length_of_cross_entropies() -> None:
    def found(*losses: tuple[float, ...]) -> str:
        return effective(rows_of("text", {256 * 2**n: s for n, s in enumerate(losses)}), "text")

    low = tuple(2.0 + 0.1 * n for n in range(10))
    assert found(low, tuple(x - 0.3 for x in low), tuple(x + 0.049 for x in low)) == "≥ 1,024 (≥ 1,024)"
    assert found(low, tuple(x + 0.02 for x in low), tuple(x + 0.06 for x in low)) == "861 (861)"
    mixed = tuple(x + (0.5 if n % 5 == 0 else -0.05) for n, x in enumerate(low))
    assert found(low, low, mixed) == "912 (593 … ≥ 1,024)"  # it depends on the texts
    assert found((2.0,), (2.5,)) == "274 (no interval)"


def test_the_smaller_effective_length_counts() -> None:
    text = rows_of("text", {256: (2.0, 2.2), 512: (2.0, 2.2)})
    needle = rows_of("needle", {256: (1.0,) * 40, 512: (0.0,) * 40})
    assert effective([*text, *needle], "text") == "≥ 512 (≥ 512)"
    both = effective([*text, *needle], "text and needle")
    assert both == effective(needle, "needle") and both.startswith("294 (")


def test_answers_at_several_depths_are_no_further_examples() -> None:
    """An example has the same text and names at every depth, so three examples at two depths are three."""
    once = rows_of("needle", {256: (1.0, 1.0, 0.0)})
    twice = [{**once[0], "depth": 0.0}, {**once[0], "depth": 1.0}]
    (row,) = (row for row in Reach().derive(Table.from_rows(twice), {}) if row["depth"] is None and row["correct"])
    assert (row["correct"], row["n"]) == (pytest.approx(2 / 3), 3)
    assert effective(once, "needle") == effective(twice, "needle")


def test_a_method_that_does_harm_at_the_shortest_length_reaches_nowhere() -> None:
    """Its losses are the same at every length, but a nat above those of the model as it is."""
    own = rows_of("text", {128: (2.0, 2.2), 256: (2.5, 2.6)})
    nope = rows_of("text", {128: (3.0, 3.2), 256: (3.0, 3.2)}, "nope")
    assert effective([*own, *nope], "text").startswith("138 (")
    assert effective([*own, *nope], "text", "nope").startswith("< 128 (")
    assert effective(nope, "text", "nope").startswith("≥ 256 (")


def test_scores_have_intervals_over_examples() -> None:
    rows = [*rows_of("text", {256: (1.0, 2.0, 3.0, 4.0)}), *rows_of("needle", {256: (1.0,) * 10})]
    rows[0]["loss"], rows[1]["correct"] = 2.5, 1.0
    origin: dict[str, Any] = {"subject": {"name": "tiny"}, "question": ReachOptions().to_data(), "origin": {}}
    summary = of_files([FileAnswer(measurement=Reach(), rows=list(rows), **origin)])
    (text,) = summarize(summary, "loss", ("length",), {"task": "text", "position": None})
    (needle,) = summarize(summary, "correct", ("length",), {"task": "needle", "depth": None})
    assert text[256,].mean == 2.5 and 1.0 < text[256,].low < 2.0 < 3.0 < text[256,].high < 4.0
    assert needle[256,].mean == needle[256,].high == 1.0
    assert needle[256,].low == pytest.approx(0.722, abs=1e-3)  # Wilson's
