"""A measurement: a model whose reach is known, interruptions, and what the machine cannot do."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from lengthwise.config import ConfigError
from lengthwise.reach import measure
from lengthwise.reach.loading import load_folder
from lengthwise.reach.measure import Measurement, bin_starts, stored_results
from lengthwise.reach.model import Reader
from lengthwise.reach.plan import Plan
from lengthwise.reach.results import ModelRecord, Results, Unit, read, write
from lengthwise.reach.summary import effective, headline, position_losses, score
from lengthwise.reach.tasks import TASKS
from lengthwise.reach.text import read_text
from tests.reach.models import folder, prose, remembering

LENGTHS = (256, 512, 1024)


def quiet(*_: Any) -> None:
    pass


def started(
    path: Path, model: Any, *, save: Any = quiet, max_minutes: float | None = None, **settings: Any
) -> Measurement:
    """A measurement with a text beside the model. It continues with what the file reach.json in the folder has."""
    file = path / "text.txt"
    if not file.exists():
        file.write_text(prose(8000))
    text = read_text(file)
    asked = {"lengths": LENGTHS, "examples": 2, "targets": 16, "depths": 3, **settings}
    plan = Plan(text_sha256=text.sha256, **asked)
    results = stored_results(path / "reach.json", "tiny", model, plan, "cpu", 1)
    return Measurement(model, plan, text, results, save, max_minutes)


def without_times(results: Results) -> Results:
    return replace(results, units=tuple(replace(unit, seconds=0.0) for unit in results.units))


@pytest.mark.parametrize("length", [320, 512])
def test_every_prompt_has_its_length_and_one_first_token(tmp_path: Path, length: int) -> None:
    """Where the tokenizer adds BOS to every text of which a prompt consists. The last token of an answer is only a target.

    skylight-org/skylight-research#90 (three BOS in each prompt of RULER), EleutherAI/lm-evaluation-harness#3333 (two in rolling
    log-likelihoods) and #2963 (prompts of 262,000 tokens had 4,800).
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
    measurement.run(quiet)
    assert len(seen) >= 2 * len(TASKS)
    for ids in seen:
        assert ids.shape == (1, length - 1)
        assert (ids == bos).nonzero().tolist() == [[0, 0]]


# ---- a known reach ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reach", [400, 10_000])
def test_a_model_that_sees_the_last_tokens_reaches_that_far(tmp_path: Path, reach: int) -> None:
    """Sentences within its reach are found, and sentences beyond are not, at every depth and length."""
    model = remembering(tmp_path, reach)
    results = started(tmp_path, model, tasks=("needle", "copying"), lengths=(300, 512, 1024)).run(quiet)
    for unit in results.units:
        assert unit.depth is not None
        distance = unit.length * (1 - unit.depth)
        if unit.depth == 1 or distance < reach - 170:  # a sentence and a question have up to 170 letters
            assert unit.scores == (1.0, 1.0), unit
        elif distance > reach:
            assert unit.scores == (0.0, 0.0), unit
    for task in ("needle", "copying"):
        found = effective(results, "own", task)
        assert found is not None and (found.text == "≥ 1,024" if reach > 1024 else 300 <= found.value < 512)
    overall = headline(results, "own")
    assert overall is not None and (overall.text == "≥ 1,024" if reach > 1024 else 300 <= overall.value < 512)


def test_what_a_perfect_copying_model_answers(tmp_path: Path) -> None:
    """It finds one needle among several keys, and not the number behind two other variables."""
    results = started(tmp_path, remembering(tmp_path, 10_000), tasks=("keys", "variables"), lengths=(512,)).run(quiet)
    shares = {unit.task: sum(unit.scores) for unit in results.units}
    assert shares == {"keys": 2.0, "variables": 0.0}


def test_cross_entropy_is_that_of_the_same_tokens_at_every_length(tmp_path: Path) -> None:
    model = remembering(tmp_path, 10_000)
    model.model.__class__ = model.model.__class__.__mro__[2]  # a Llama again
    measurement = started(tmp_path, model, tasks=("text",))
    results = measurement.run(quiet)
    for length in LENGTHS:
        (unit,) = results.find("own", "text", length)
        for window, loss in zip(measurement.windows, unit.scores, strict=True):
            ids = torch.tensor([window[-length:]])
            with torch.no_grad():
                logits = model.model(ids[:, :-1], use_cache=False).logits[0]
            expected = F.cross_entropy(logits, ids[0, 1:], reduction="none")
            assert loss == pytest.approx(float(expected[-16:].mean()), rel=1e-4)
    found = position_losses(results, "own")
    assert found is not None
    length, cells = found
    assert length == 1024 and [start for start, _, _ in cells] == bin_starts(1024)
    assert sum(tokens for _, _, tokens in cells) == 1023  # a vocabulary of bytes: the loss of every token is known
    means = expected.split([63, 32, 32, 64, 64, 128, 128, 256, 256])
    for (_, interval, _), last in zip(cells, means, strict=True):
        assert interval.low - 1e-6 <= float(last.mean()) <= interval.high + 1e-6


@pytest.mark.parametrize(("words", "unit"), [(2000, "tokens"), (8000, "characters")])
def test_scores_can_be_computed_again_from_the_file(tmp_path: Path, words: int, unit: str) -> None:
    """With the text, the tokenizer and transformers alone. The model reads the end of each window."""
    (tmp_path / "text.txt").write_text(prose(words))
    pretrained = load_folder(str(folder(tmp_path)), "cpu", "float32")
    write(tmp_path / "out.json", started(tmp_path, pretrained, tasks=("text",), examples=3).run(quiet))
    data = json.loads((tmp_path / "out.json").read_text())
    text, tokenizer = (tmp_path / "text.txt").read_text(), pretrained.tokenizer
    assert data["windows"]["unit"] == unit and len(data["windows"]["starts"]) == 3
    for unit_ in data["units"]:
        for start, found in zip(data["windows"]["starts"], unit_["scores"], strict=True):
            part = text[start:] if unit == "characters" else text
            ids = tokenizer(part, add_special_tokens=False).input_ids
            ids = ids[0 if unit == "characters" else start :][: data["plan"]["lengths"][-1]][-unit_["length"] :]
            with torch.no_grad():
                logits = pretrained.model(torch.tensor([ids]), use_cache=False).logits[0].double()
            losses = F.cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="none")
            assert found == pytest.approx(float(losses[-data["plan"]["targets"] :].mean()), rel=1e-5)


# ---- interruptions ------------------------------------------------------------------------------------------------


def test_an_interrupted_measurement_continues_with_the_same_results(tmp_path: Path) -> None:
    model = remembering(tmp_path, 300)
    settings: dict[str, Any] = {"tasks": ("text", "needle"), "lengths": (256, 512)}
    whole = started(tmp_path, model, **settings).run(quiet)
    file = tmp_path / "reach.json"

    def stopping(results: Results) -> None:
        write(file, results)
        if len(results.units) == 3:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        started(tmp_path, model, save=stopping, **settings).run(quiet)
    assert len(read(file).units) == 3
    calls = type(model.model).calls
    again = started(tmp_path, model, save=lambda results: write(file, results), **settings).run(quiet)
    assert without_times(again) == without_times(whole) == without_times(read(file))
    assert len(again.units) == 8 and type(model.model).calls > calls
    calls = type(model.model).calls
    started(tmp_path, model, **settings).run(quiet)
    assert type(model.model).calls == calls  # nothing is left to do


def test_another_plan_or_model_is_refused(tmp_path: Path) -> None:
    model = remembering(tmp_path, 300)
    write(tmp_path / "reach.json", started(tmp_path, model, tasks=("text",)).results)
    with pytest.raises(ConfigError, match="seed 0 instead of 1; name another --output, or delete the file"):
        started(tmp_path, model, tasks=("text",), seed=1)
    torch.manual_seed(5)
    with (tmp_path / "config.json").open("a") as config:
        config.write("\n")
    with pytest.raises(ConfigError, match="results of another measurement: another model"):
        started(tmp_path, model, tasks=("text",))


@pytest.mark.slow
def test_a_killed_command_continues(tmp_path: Path) -> None:
    folder(tmp_path / "tiny")
    (tmp_path / "text.txt").write_text(prose(8000))
    file, other = tmp_path / "a.json", tmp_path / "b.json"
    words = ["reach", "tiny", "--text", "text.txt", "--lengths", "256,512,1k", "--examples", "2", "--depths", "3"]
    words += ["--tasks", "text,needle,keys", "--output"]

    def command(output: Path) -> list[str]:
        return [sys.executable, "-m", "lengthwise", *words, str(output)]

    process = subprocess.Popen(command(file), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while time.monotonic() < end and not (file.exists() and len(json.loads(file.read_text())["units"]) >= 2):
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    first = read(file).units
    assert len(first) >= 2
    for output in (file, other):
        subprocess.run(command(output), cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert read(file).units[0] in first  # with its time, so it was not measured again
    assert without_times(read(file)) == without_times(read(other))
    assert len(read(file).units) == 3 * 7


# ---- limits of the machine ----------------------------------------------------------------------------------------


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
    results = started(tmp_path, remembering(tmp_path, 300), tasks=("text", "needle")).run(quiet)
    assert {unit.length for unit in results.units} == {256}
    assert [(skip.length, skip.reason) for skip in results.skipped] == [
        (512, "out of memory on this machine"),
        (1024, "out of memory on this machine"),
    ]
    monkeypatch.undo()
    write(tmp_path / "reach.json", results)
    again = started(tmp_path, remembering(tmp_path, 300), tasks=("text", "needle")).run(quiet)  # with more memory
    assert not again.skipped and {unit.length for unit in again.units} == set(LENGTHS)


@pytest.mark.parametrize("place", ["progress", "file"])
def test_a_full_disk_or_a_closed_terminal_is_not_blamed_on_the_model(tmp_path: Path, place: str) -> None:
    def failing(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    saved: list[Results] = []
    save = failing if place == "file" else saved.append
    measurement = started(tmp_path, remembering(tmp_path, 300), tasks=("needle",), lengths=(256,), save=save)
    with pytest.raises(OSError, match="No space left"):
        measurement.run(failing if place == "progress" else quiet)
    assert not measurement.skipped and not any(results.skipped for results in saved)


def test_a_cache_that_does_not_fit_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = remembering(tmp_path, 300)
    cache = {length: 2 * 8 * (length - 1) for length in LENGTHS}  # token IDs as float64, for keys and for values
    monkeypatch.setattr(measure, "free_memory", lambda device: cache[512] + 100)
    results = started(tmp_path, model, tasks=("text",)).run(quiet)
    assert [unit.cache_bytes for unit in results.units] == [cache[256], cache[512]]
    assert [skip.length for skip in results.skipped] == [1024]
    assert "out of memory on this machine: the cache needs about" in results.skipped[0].reason


def test_free_memory() -> None:
    free = measure.free_memory(torch.device("cpu"))
    assert free is None or 2**20 < free < 2**50


def test_lengths_that_take_too_long_are_left_out(tmp_path: Path) -> None:
    """Two lengths that took 1 and 2 minutes for each of 4 units: the third takes 4 minutes for each."""
    model = remembering(tmp_path, 300)
    settings: dict[str, Any] = {"tasks": ("text", "needle")}
    done = started(tmp_path, model, **settings).run(quiet)
    slow = [replace(unit, seconds={256: 60.0, 512: 120.0}[unit.length]) for unit in done.units if unit.length < 1024]
    write(tmp_path / "reach.json", replace(done, units=tuple(slow)))
    results = started(tmp_path, model, max_minutes=15.9, **settings).run(quiet)
    assert [(skip.length, skip.reason) for skip in results.skipped] == [
        (1024, "not within --max-minutes 15.9: it needs about 16 min")
    ]
    assert {unit.length for unit in results.units} == {256, 512}
    results = started(tmp_path, model, max_minutes=16.5, **settings).run(quiet)
    assert not results.skipped and {unit.length for unit in results.units} == set(LENGTHS)


def test_a_length_is_measured_with_all_methods_or_with_none(tmp_path: Path) -> None:
    model = remembering(tmp_path, 300)
    settings: dict[str, Any] = {"tasks": ("text",), "methods": ("own", "rope"), "lengths": (256, 512)}
    model.model.__class__ = model.model.__class__.__mro__[2]
    done = started(tmp_path, model, **settings).run(quiet)
    slow = tuple(replace(unit, seconds=60.0) for unit in done.units if unit.length == 256)
    write(tmp_path / "reach.json", replace(done, units=slow))
    results = started(tmp_path, model, max_minutes=7.9, **settings).run(quiet)
    reason = "not within --max-minutes 7.9: it needs about 8 min"  # one of them would need 4
    assert [(skip.method, skip.reason) for skip in results.skipped] == [("own", reason), ("rope", reason)]


def test_a_length_after_one_that_was_left_out_is_not_measured(tmp_path: Path) -> None:
    model = remembering(tmp_path, 300)
    done = started(tmp_path, model, tasks=("text",)).run(quiet)
    slow = replace(done.units[0], seconds=60.0)
    write(tmp_path / "reach.json", replace(done, units=(slow,)))
    results = started(tmp_path, model, tasks=("text",), max_minutes=2).run(quiet)
    assert [(skip.length, skip.reason) for skip in results.skipped] == [
        (512, "not within --max-minutes 2: it needs about 4 min"),
        (1024, "not within --max-minutes 2"),
    ]


def test_losses_that_are_no_numbers_are_not_stored(tmp_path: Path) -> None:
    model = remembering(tmp_path, 300)
    model.model.__class__ = model.model.__class__.__mro__[2]
    with torch.no_grad():
        model.model.get_output_embeddings().weight[3] = torch.nan
    results = started(tmp_path, model, tasks=("text",), lengths=(256,)).run(quiet)
    assert not results.units
    hint = "check its position settings with lengthwise model; if they are right, its weights may be damaged"
    assert results.skipped[0].reason == f"its losses are not finite in float32; {hint}"


def test_progress_never_decreases(tmp_path: Path) -> None:
    shown: list[tuple[float, float]] = []
    measurement = started(tmp_path, remembering(tmp_path, 300), tasks=("text", "needle"))
    measurement.run(lambda _, done, total: shown.append((done, total)))
    assert shown == sorted(shown) and len({total for _, total in shown}) == 1
    assert 0 <= shown[0][0] < shown[-1][0] < shown[-1][1]


# ---- summary ----------------------------------------------------------------------------------------------------


def results_of(task: str, scores: dict[int, tuple[float, ...]], tmp_path: Path) -> Results:
    model = remembering(tmp_path, 300)
    found = started(tmp_path, model, tasks=(task,), lengths=tuple(scores), depths=1).results
    depth = None if task == "text" else 0.5
    units = [Unit(method="own", task=task, length=n, depth=depth, scores=s, seconds=1.0) for n, s in scores.items()]
    return replace(found, units=tuple(units))


def test_the_effective_length_of_a_share(tmp_path: Path) -> None:
    def found(*correct: int, of: int = 20) -> tuple[str, str]:
        scores = {256 * 2**n: (1.0,) * c + (0.0,) * (of - c) for n, c in enumerate(correct)}
        length = effective(results_of("needle", scores, tmp_path), "own", "needle")
        assert length is not None
        return length.text, length.interval_text

    # 512 · 2 ^ (0.2 / 1.0): a later length that passes does not count. Wilson's intervals are 0.981 … 1 and 0 … 0.019.
    assert found(200, 200, 0, 200, of=200) == ("588", "581 … 589")
    assert found(200, 200, of=200) == ("≥ 512", "≥ 512")
    assert found(0, 200, of=200) == ("< 256", "< 256")
    assert found(160, 0, of=200)[0] == "256"  # exactly the share
    assert found(159, 0, of=200)[0] == "< 256"
    assert found(20, 16, 0) == ("512", "284 … 571")
    assert found(3, of=3) == ("≥ 256", "< 256 … ≥ 256")  # three correct answers prove little


def test_the_effective_length_of_cross_entropies(tmp_path: Path) -> None:
    def found(*losses: tuple[float, ...]) -> tuple[str, str]:
        scores = {256 * 2**n: s for n, s in enumerate(losses)}
        length = effective(results_of("text", scores, tmp_path), "own", "text")
        assert length is not None
        return length.text, length.interval_text

    low = tuple(2.0 + 0.1 * n for n in range(10))
    assert found(low, tuple(x - 0.3 for x in low), tuple(x + 0.049 for x in low)) == ("≥ 1,024", "≥ 1,024")
    assert found(low, tuple(x + 0.02 for x in low), tuple(x + 0.06 for x in low)) == ("861", "861")
    mixed = tuple(x + (0.5 if n % 5 == 0 else -0.05) for n, x in enumerate(low))
    assert found(low, low, mixed) == ("912", "593 … ≥ 1,024")  # it depends on the texts
    assert found((2.0,), (2.5,)) == ("274", "")


def test_scores_have_intervals_and_counts(tmp_path: Path) -> None:
    results = results_of("needle", {256: (1.0,) * 10}, tmp_path)
    found = score(results.units)
    assert found is not None
    interval, count = found
    assert count == 10 and interval.mean == interval.high == 1.0
    assert interval.low == pytest.approx(0.722, abs=1e-3)  # Wilson's
    text = score(results_of("text", {256: (1.0, 2.0, 3.0, 4.0)}, tmp_path).units)
    assert text is not None
    assert text[0].mean == 2.5 and 1.0 < text[0].low < 2.0 < 3.0 < text[0].high < 4.0
    assert score([]) is None


def test_answers_at_several_depths_are_no_further_examples(tmp_path: Path) -> None:
    """An example has the same text and names at every depth, so three examples at two depths are three."""
    found = results_of("needle", {256: (1.0, 1.0, 0.0)}, tmp_path)
    (unit,) = found.units
    twice = replace(
        found, units=(replace(unit, depth=0.0), replace(unit, depth=1.0)), plan=replace(found.plan, depths=2)
    )
    (one, few), (both, count) = score(found.units), score(twice.units)  # type: ignore[misc]
    assert (few, count) == (3, 3)
    assert (both.mean, both.low, both.high) == (one.mean, one.low, one.high)
    lengths = [effective(results, "own", "needle") for results in (found, twice)]
    assert lengths[0] == lengths[1] is not None


def test_a_method_that_does_harm_at_the_shortest_length_reaches_nowhere() -> None:
    """Its losses are the same at every length, but a nat above those of the model as it is."""
    plan = Plan(lengths=(128, 256), tasks=("text",), methods=("own", "nope"), examples=2, targets=8)
    scores = {"own": {128: (2.0, 2.2), 256: (2.5, 2.6)}, "nope": {128: (3.0, 3.2), 256: (3.0, 3.2)}}
    units = [
        Unit(method=method, task="text", length=length, scores=values, seconds=1.0)
        for method, found in scores.items()
        for length, values in found.items()
    ]
    model = ModelRecord(name="m", architecture="a", parameters=1, encoding="RoPE", sha256={})
    results = Results(plan=plan, model=model, origin={"device": "cpu"}, units=tuple(units))
    found = {method: effective(results, method, "text") for method in scores}
    assert {method: length and length.text for method, length in found.items()} == {"own": "138", "nope": "< 128"}
    alone = replace(results, plan=replace(plan, methods=("nope",)), units=tuple(u for u in units if u.method == "nope"))
    length = effective(alone, "nope", "text")
    assert length is not None and length.text == "≥ 256"
    length = effective(alone, "nope", "text", reference=results)
    assert length is not None and length.text == "< 128"
