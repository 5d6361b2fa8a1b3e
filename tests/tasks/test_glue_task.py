"""The task `Glue`: which examples a test has, how the average is formed, and that a model learns the mixture."""

from pathlib import Path

import pytest
import torch

from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.downstream import glue
from lengthwise.encodings import RoPE
from lengthwise.evaluation import evaluate
from lengthwise.tasks import Glue, generator
from lengthwise.tasks.text_answers import ExampleBatch
from lengthwise.training import train


@pytest.fixture(scope="module")
def task() -> Glue:
    return Glue()


def datasets_of(task: Glue, batch: object) -> list[str]:
    assert isinstance(batch, ExampleBatch)
    return [task.data.example(batch.split, n).dataset for n in batch.numbers.tolist()]


def test_a_test_has_equally_many_examples_of_each(task: Glue) -> None:
    for count in (15, 45, 7):
        names = datasets_of(task, task.examples(0, count, 20))
        assert len(names) == count
        assert {names.count(name) for name in set(names)} == {max(count // 15, 1)}
    assert len(datasets_of(task, task.examples(0, 1000, 20))) == task.available(20) == 15 * 16
    first, second = (datasets_of(task, task.examples(seed, 7, 20)) for seed in (0, 1))
    assert first != second


def test_multirc_has_whole_questions(task: Glue) -> None:
    only = Glue(tasks="multirc")
    batch = only.examples(0, 8, 20)
    assert isinstance(batch, ExampleBatch)
    groups = [only.data.example("test", n).group for n in batch.numbers.tolist()]
    assert groups[::2] == groups[1::2]
    assert len(set(groups)) == 4


def test_the_score_is_the_mean_of_the_scores_of_the_data_sets(task: Glue) -> None:
    batch = task.examples(0, 240, 40)
    assert isinstance(batch, ExampleBatch)
    examples = [task.data.example("test", n) for n in batch.numbers.tolist()]
    right = [[one.references[0]] for one in examples]
    assert task.grade(right, batch).scores.mean() == pytest.approx(1)
    for name in ("cola", "mnli", "multirc"):
        others = [["nothing"] if one.dataset == name else words for one, words in zip(examples, right, strict=True)]
        graded = task.grade(others, batch)
        assert graded.scores.mean() == pytest.approx(14 / 15)
        means = {key: float(values.mean()) for key, values in graded.details.items()}
        assert means == pytest.approx({key: float(key != name) for key in glue.NAMES})


def test_the_average_weights_data_sets_and_not_examples(tmp_path: Path) -> None:
    task = Glue(tasks="rte+sst2")
    sizes = {"sst2": 3, "rte": 12}
    numbers = [
        n
        for name, size in sizes.items()
        for n in [k for k in range(task.data.count("test")) if task.data.example("test", k).dataset == name][:size]
    ]
    batch = task.pack("test", torch.tensor(numbers), [30] * 15)
    examples = [task.data.example("test", n) for n in numbers]
    texts = [[one.references[0]] if one.dataset == "sst2" else ["no"] for one in examples]
    assert task.grade(texts, batch).scores.mean() == pytest.approx(0.5)


def test_the_baseline_answers_each_data_set_by_its_own_label(task: Glue) -> None:
    assert task.frequent_answers.keys() == set(glue.NAMES)
    for name, answer in task.frequent_answers.items():
        labels = task.datasets[name].labels
        assert answer in labels or not labels
    (baseline,) = task.baselines()
    scores = baseline.scores(task.examples(0, 240, 20), [20])
    assert scores is not None
    assert 0 < scores.mean() < 0.6


def test_equal_data_sets_have_equal_keys() -> None:
    assert choose(Glue, tasks="sst2+cola") == choose(Glue, tasks="cola+sst2")
    assert choose(Glue, tasks="+".join(reversed(glue.NAMES))) == choose(Glue)
    assert choose(Glue, tasks="cola").identity() != choose(Glue, tasks="rte").identity()
    with pytest.raises(ConfigError, match="no data set 'sst'"):
        choose(Glue, tasks="sst")


def test_texts_byte_by_byte(task: Glue) -> None:
    batch = task.sample(generator(0), 30, 12)
    rows = task.render(batch)
    for row, name in zip(rows, datasets_of(task, batch), strict=True):
        assert row["length"] == 12
        assert row["input"].startswith(f"{name} "[:12])
        assert row["input"].endswith("\\n\\nAnswer:")


@pytest.mark.slow
def test_a_model_learns_the_mixture(tmp_path: Path) -> None:
    run = Run(
        encoding=choose(RoPE),
        task=choose(Glue, tasks="sst2+rte+cola"),
        model=ModelConfig(d_model=64, num_layers=2, num_heads=4),
        training=TrainingConfig(train_length=40, steps=250, batch_size=16, learning_rate=3e-3),
        seed=0,
    )
    trained = train(run, tmp_path / "run")
    (score,) = evaluate(trained.model, trained.task, EvaluationConfig(lengths=(40,), examples=48))
    assert score.mean > score.details["baselines"][0]["score"] + 0.3
    assert score.details["means"].keys() == {"cola", "sst2", "rte"}
