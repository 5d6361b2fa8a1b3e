"""The task `Scrolls`: how rows become prompts and targets, how answers are graded, and that a model learns."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.analysis.protocol import STORAGE_SETTINGS
from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.corpora.tokenizers import train as train_tokenizer
from lengthwise.downstream.scrolls import SCROLLS, demo_rows
from lengthwise.encodings import NoPE, RoPE
from lengthwise.evaluation import evaluate
from lengthwise.evaluation.decoding import greedy_decode
from lengthwise.metrics import ANSWER_F1, EXACT_MATCH, ROUGE
from lengthwise.studies import continued
from lengthwise.studies.study import Study
from lengthwise.tasks import TASKS, Glue, Scrolls, Text, generator
from lengthwise.tasks.text_answers import ExampleBatch
from lengthwise.training import build, train

SMALL = ModelConfig(d_model=16, num_layers=1, num_heads=2)
ROWS = [
    {"id": "a", "input": "Who?\n\nAnn came.", "output": "Ann"},
    {"id": "b", "input": "Whose?\n\nÜ, " + "x" * 300, "output": ""},
    {"id": "a", "input": "Who?\n\nAnn came.", "output": "It was Ann"},
    {"id": "c", "input": "Why?\n\nBecause.", "output": "y" * 50},
]


def write(folder: Path, train_rows: list[Any], test_rows: list[Any]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", train_rows), ("validation", test_rows)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(folder)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return write(tmp_path / "data", ROWS, ROWS)


def test_prompts_and_targets_byte_by_byte(path: str) -> None:
    task = Scrolls(path=path, answer=8)
    batch = task.pack("train", torch.arange(4), [15, 15, 15, 9])
    assert isinstance(batch, ExampleBatch)
    cue = b"\n\nAnswer:"
    answers = [b" Ann", b"", b" It was ", b" yyyyyyy"]  # the last two are cut after 8 bytes
    prompts = [b"Who?\n\nAnn came.", b"Whose?\n\n\xc3\x9c, xxx", b"Who?\n\nAnn came.", b"Why?\n\nBec"]
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        expected = [256, *prompt, *cue, *answer, *([256] if row < 2 else [])]
        size = len(expected) - 1
        assert batch.inputs[row, :size].tolist() == expected[:-1]
        assert batch.targets[row, :size].tolist() == expected[1:]
        assert batch.targets[row, batch.scored[row]].tolist() == [*answer, *([256] if row < 2 else [])]
    assert batch.inputs.shape[1] == 1 + 15 + len(cue) + 7 == task.tokens(15) - 1
    exact = Scrolls(path=path, answer=4)  # as long as the answer, so EOS follows it
    assert exact.pack("train", torch.tensor([0]), [15]).inputs.shape[1] == exact.tokens(15) == 1 + 15 + len(cue) + 4
    rendered = task.render(batch)
    assert rendered[0] == {"input": "Who?\\n\\nAnn came.\\n\\nAnswer:", "target": "Ann", "length": 15}
    assert [row["length"] for row in rendered] == [15, 15, 15, 9]
    assert rendered[1]["target"] == ""


def test_a_long_input_loses_its_end_and_a_short_one_is_whole(path: str) -> None:
    task = Scrolls(path=path)
    long = task.render(task.pack("test", torch.tensor([1]), [10]))[0]
    assert long["input"].startswith("Whose?\\n\\nÜ\\n\\nAnswer:")  # 8 bytes of question and 2 of Ü
    short = task.render(task.pack("test", torch.tensor([0]), [500]))[0]
    assert short["length"] == 15
    assert task.pack("test", torch.tensor([1]), [10_000]).inputs.shape[1] < task.tokens(10_000)


def test_a_test_has_every_question_once_and_the_same_at_every_length(path: str) -> None:
    task = Scrolls(path=path)
    assert task.available(5) == 3
    short, long = task.examples(7, 100, 5), task.examples(7, 100, 50)
    assert isinstance(short, ExampleBatch)
    assert isinstance(long, ExampleBatch)
    assert sorted(short.numbers.tolist()) == [0, 1, 2]
    assert short.numbers.equal(long.numbers)
    assert {tuple(task.examples(seed, 3, 5).numbers.tolist()) for seed in range(20)} > {(0, 1, 2)}
    drawn = task.sample(generator(0), 60, 5)
    assert isinstance(drawn, ExampleBatch)
    assert set(drawn.numbers.tolist()) == {0, 1, 2, 3}


def test_a_fixed_training_set_numbers_every_row_once(path: str) -> None:
    task = Scrolls(path=path)
    batch = task.fixed_examples(3, [0, 1, 2, 3], 4, 5)
    assert isinstance(batch, ExampleBatch)
    assert sorted(batch.numbers.tolist()) == [0, 1, 2, 3]
    assert [row["length"] for row in task.render(batch)] == [4, 5, 4, 5]
    with pytest.raises(ConfigError, match="train_examples must be at most 4, got 5"):
        task.fixed_examples(3, [4], 4, 5)


def test_answers_are_graded_with_all_references(path: str) -> None:
    task = Scrolls(path=path)
    batch = task.pack("test", torch.tensor([0, 1, 2]), [20] * 3)
    words = [task.answer_words([*b" it was ANN. ", 256, *b"more"]), task.answer_words([256]), task.answer_words([])]
    assert words == [["it was ANN."], [""], [""]]
    graded = task.grade(words, batch)
    assert graded.scores.tolist() == [1.0, 0.0, 0.0]  # F1 of two empty texts is 0, as in SQuAD's script
    assert graded.unreadable == [2]  # an empty text, which is an accepted answer of the other question
    assert task.grade([["Ann Ann"], [""], [""]], batch).scores[0] == pytest.approx(2 / 3)
    assert task.answer_words([0xC3, *b"x"]) == ["\ufffdx"]


@pytest.mark.medium
def test_every_data_set_has_its_metric() -> None:
    expected = {"F1": ANSWER_F1, "exact match": EXACT_MATCH, "ROUGE": ROUGE}
    for dataset in SCROLLS:
        task = Scrolls(dataset=dataset.name)
        choice = choose(Scrolls, dataset=dataset.name)
        assert task.metric == expected[dataset.metric.name] == Scrolls.metric_of(dict(choice.settings))
        batch = task.examples(0, 8, 64)
        right = [[task.data.example("test", n).references[-1]] for n in batch.numbers.tolist()]
        graded = task.grade(right, batch)
        assert graded.scores.mean() == pytest.approx(1.0, abs=0.5 if dataset.metric.name == "ROUGE" else 1e-9)
        assert list(graded.details) == (["ROUGE-1", "ROUGE-2", "ROUGE-L"] if task.metric == ROUGE else [])
    report = Scrolls(dataset="gov_report")
    assert report.render(report.examples(0, 1, 9))[0]["input"].endswith("Summary:")


def test_the_formats_are_those_of_the_version() -> None:
    """They are part of what a run is trained on, but not of its key: raise `Scrolls.version` to change them."""
    assert Scrolls.version == 1
    answer, summary = "\n\nAnswer:", "\n\nSummary:"
    assert {one.name: (one.cue, one.answer_tokens) for one in SCROLLS} == {
        "qasper": (answer, 128),
        "contract_nli": (answer, 16),
        "qmsum": (summary, 256),
        "narrative_qa": (answer, 64),
        "summ_screen_fd": (summary, 256),
        "gov_report": (summary, 1024),
        "quality": (answer, 64),
    }
    assert (Glue.version, Glue.cue, Glue().answer) == (1, answer, 32)


def test_the_baseline_is_the_most_frequent_answer(tmp_path: Path) -> None:
    rows = [{"id": str(n), "input": f"{n}?", "output": "yes" if n % 3 else "no"} for n in range(12)]
    task = Scrolls(dataset="quality", path=write(tmp_path, rows, rows))
    (baseline,) = task.baselines()
    scores = baseline.scores(task.examples(0, 12, 4), [4])
    assert scores is not None
    assert scores.shape == (12, 1)
    assert scores.mean() == pytest.approx(8 / 12)
    assert baseline.floor


def test_the_key_depends_on_the_files_and_not_on_their_folder(path: str, tmp_path: Path) -> None:
    folder, copied = choose(Scrolls, path=path), choose(Scrolls, path=str(shutil.copytree(path, tmp_path / "copied")))
    assert folder.identity() == copied.identity()
    assert folder != copied
    assert choose(Scrolls, path=path, dataset="quality").identity() != folder.identity()
    assert Scrolls.changed(dict(folder.settings), {"answer": 3})["sha256"]
    assert Scrolls.changed(dict(folder.settings), {"dataset": "quality"})["sha256"] == ""
    assert folder.build().provenance()["test_examples"] == 3


def test_settings_that_a_hash_stands_for_do_not_make_runs_incomparable() -> None:
    for make in TASKS:
        assert set(make.excluded_from_key) <= set(STORAGE_SETTINGS), make.__name__


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"dataset": "qaspr"}, "no data set 'qaspr'; did you mean 'qasper'"),
        ({"path": "missing"}, "missing does not exist; name the folder"),
        ({"path": " "}, 'Scrolls.path must be a path or "demo"'),
        ({"tokenizer": "gpt3"}, "there is no tokenizer 'gpt3'"),
        (
            {"tokenizer": "bpe:300"},
            "bpe:300 is trained on a corpus; prepare one with lengthwise tokenize, and give its folder",
        ),
        ({"answer": -1}, "Scrolls.answer must be at least 0 tokens"),
        ({"datset": "qasper"}, "did you mean 'dataset'"),
    ],
)
def test_invalid_settings(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as error:
        choose(Scrolls, **settings)
    assert "\n" not in str(error.value)


def test_changed_files_are_refused(path: str) -> None:
    choice = choose(Scrolls, path=path)
    write(Path(path), ROWS[:2], ROWS)
    with pytest.raises(ConfigError, match="the files and the tokenizer of Scrolls must have the SHA-256"):
        choice.build()


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    trained = train_tokenizer([row["input"].encode() for row in demo_rows("train", 50)], 300)
    (tmp_path / "bpe").mkdir()
    for name, content in trained.files().items():
        (tmp_path / "bpe" / name).write_bytes(content)
    return str(tmp_path / "bpe")


def test_tokens_of_a_tokenizer(tokenizer: str) -> None:
    choice = choose(Scrolls, tokenizer=tokenizer)
    task = choice.build()
    assert task.unit == Scrolls.unit_of(dict(choice.settings)) == "tokens"
    assert task.vocab_size == task.text_tokenizer.vocab_size
    batch = task.examples(0, 4, 30)
    for row, text in zip(batch.inputs.tolist(), task.render(batch), strict=True):
        whole = task.data.example("test", batch.numbers[batch.inputs.tolist().index(row)].item()).input
        assert row[0] == task.bos
        assert (
            task.text_tokenizer.decode(row[1:31]).decode()
            == whole[: len(task.text_tokenizer.decode(row[1:31]).decode())]
        )
        assert text["length"] == 30
    assert choice.identity() != choose(Scrolls).identity()


def test_the_end_of_a_long_text_is_not_tokenized(tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Scrolls(tokenizer=tokenizer)
    text = "Which gate? " * 2000
    whole = task.encode([text])[0]
    sizes: list[int] = []
    encode = task.text_tokenizer.encode
    monkeypatch.setattr(
        task.text_tokenizer, "encode", lambda documents: sizes.extend(map(len, documents)) or encode(documents)
    )
    assert task.first_tokens([text], [40])[0].tolist() == whole[:40].tolist()
    assert sum(sizes) < len(text) / 4
    assert task.first_tokens([" " * 9000 + "x"], [50])[0].size > 0  # few tokens of many characters: all are read


# ---- models --------------------------------------------------------------------------------------------------------


def test_the_whole_pipeline_in_seconds(path: str, tmp_path: Path) -> None:
    """A run that starts from language modelling of bytes is trained on answers and scored by decoding."""
    (tmp_path / "text.txt").write_text("The gate is red. " * 200, encoding="utf-8")
    training = TrainingConfig(train_length=16, steps=2, batch_size=2)
    parent = Run(
        encoding=choose(RoPE),
        task=choose(Text, path=str(tmp_path / "text.txt")),
        model=SMALL,
        training=training,
        seed=0,
    )
    (tuned,) = continued([parent], steps=2, task=choose(Scrolls, path=path, answer=6), train_length=24)
    (zero_shot,) = continued([parent], steps=0, task=choose(Scrolls, path=path, answer=6))
    study = Study(
        name="questions", runs=(parent, tuned, zero_shot), evaluation=EvaluationConfig(lengths=(16,), examples=4)
    )
    assert [row["metric"] for row in study.rows()] == ["cross-entropy", "F1", "F1"]
    for run in study.runs:
        trained = train(run, tmp_path / "runs" / run.key)
    task = trained.task
    scores = evaluate(trained.model, task, EvaluationConfig(lengths=(12, 40), examples=4))
    assert [score.n for score in scores] == [3, 3]
    for score in scores:
        assert score.metric == "F1"
        assert 0 <= score.mean <= 1
        assert score.details["baselines"][0]["name"] == "constant answer"


def test_decoding_is_greedy_and_ends_after_the_longest_answer(path: str) -> None:
    task = Scrolls(path=path, answer=3)
    run = Run(
        encoding=choose(NoPE),
        task=choose(Scrolls, path=path, answer=3),
        model=SMALL,
        training=TrainingConfig(train_length=8, steps=1),
        seed=0,
    )
    model, _ = build(run)
    batch = task.examples(0, 3, 8)
    answers, _ = greedy_decode(model.eval(), task, batch, 8)
    for row, words in enumerate(answers):
        prompt = batch.inputs[row, : int(batch.scored[row].int().argmax()) + 1].tolist()
        tokens: list[int] = []
        while len(tokens) < 4 and 256 not in tokens:
            tokens.append(int(model(torch.tensor([prompt + tokens]))[0, -1].argmax()))
        assert words == task.answer_words(tokens)


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["qasper", "contract_nli"])
def test_a_model_learns_to_answer(dataset: str, tmp_path: Path) -> None:
    """In published files with invented questions, a model learns within a minute to read the answers."""
    rows = {split: demo_rows(split, count, sentences=3) for split, count in (("train", 800), ("test", 60))}
    path = write(tmp_path / dataset, rows["train"], [row for row in rows["test"] if "It is" not in row["output"]])
    choice = choose(Scrolls, dataset=dataset, path=str(Path(path).parent), answer=8)
    run = Run(
        encoding=choose(RoPE),
        task=choice,
        model=ModelConfig(d_model=64, num_layers=2, num_heads=4),
        training=TrainingConfig(train_length=96, steps=250, batch_size=16, learning_rate=3e-3),
        seed=0,
    )
    trained = train(run, tmp_path / "run")
    (score,) = evaluate(trained.model, trained.task, EvaluationConfig(lengths=(96,), examples=60))
    chance = score.details["baselines"][0]["score"]
    assert score.mean > chance + 0.3
