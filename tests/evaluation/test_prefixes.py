"""Tasks whose sequences contain shorter ones: one forward pass scores every length, and shifts are questions."""

import dataclasses

import pytest
import torch

from lengthwise.config import ConfigError, Curriculum, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import NoPE, RoPE
from lengthwise.evaluation import check_lengths, evaluate, evaluation_question, questions, shifted, together
from lengthwise.tasks import Copy, LinearRegression, generator
from lengthwise.training import build, check_training

TASK = choose(LinearRegression, dims=3)


def run(**settings):
    training = TrainingConfig(train_length=6, **settings)
    return Run(
        encoding=choose(RoPE),
        task=TASK,
        model=ModelConfig.llama(d_model=16, num_layers=2, num_heads=2),
        training=training,
    )


def test_every_length_by_one_forward_is_that_length_by_its_own():
    model, task = build(run())
    config = EvaluationConfig(lengths=(1, 4, 9), examples=7, prompt=12)
    scores = evaluate(model, task, config)
    whole = task.examples(config.seed, 7, 12)
    for score in scores:
        prefix = task.pack(*(part[:, : score.length] for part in task.examples_of(whole)))
        with torch.no_grad():
            alone = task.score(model.eval()(prefix.inputs), prefix)
        assert score.mean == pytest.approx(float(alone.mean()), rel=1e-5)
        assert score.standard_error == pytest.approx(float(alone.std()) / 7**0.5, rel=1e-5)
        assert score.details["groups"] == pytest.approx(alone.tolist(), rel=1e-4)  # fewer than 40: each its own
        assert score.question == {"length": score.length, "examples": 7, "seed": 0, "prompt": 12}


def test_groups_are_of_all_examples():
    model, task = build(run())
    (score,) = evaluate(model, task, EvaluationConfig(lengths=(3,), examples=120))
    assert len(score.details["groups"]) == 40
    assert sum(score.details["groups"]) / 40 == pytest.approx(score.mean, rel=1e-5)


def test_a_later_part_of_the_lengths_is_the_same_question():
    model, task = build(run())
    config = EvaluationConfig(lengths=(2, 8), examples=5)
    both = evaluate(model, task, config)
    (one,) = evaluate(model, task, dataclasses.replace(config, lengths=(2,), prompt=8))
    assert (one.question, one.mean) == (both[0].question, both[0].mean)


def test_questions_of_one_forward_are_asked_together():
    config = EvaluationConfig(lengths=(2, 8), examples=5, shifts=({"dims": 2},))
    every = questions(choose(LinearRegression), config)
    assert len(every) == 4
    grouped = list(together(every))
    assert [(c.lengths, c.prompt, shift) for c, shift in grouped] == [((2, 8), 8, {}), ((2, 8), 8, {"dims": 2})]
    again = [evaluation_question(LinearRegression, c, n, shift) for c, shift in grouped for n in c.lengths]
    assert again == every
    alone = list(together(questions(choose(Copy), EvaluationConfig(lengths=(2, 8)))))
    assert [c.lengths for c, _ in alone] == [(2,), (8,)]


def test_a_shift_is_a_setting_of_the_task():
    assert shifted(TASK, {"dims": 2}).label == "LinearRegression(dims=2)"
    with pytest.raises(ConfigError, match="did you mean 'dims'"):
        shifted(TASK, {"dim": 2})
    with pytest.raises(ConfigError, match="must change the trained task"):
        shifted(TASK, {"dims": 3})


def test_bad_prompts_and_shifts():
    for settings, words in [
        ({"prompt": 3}, "prompt must be at least the longest length 8, got 3"),
        ({"shifts": ({},)}, "changes no setting"),
        ({"shifts": ({"a": 1}, {"a": 1})}, "twice"),
        ({"shifts": ("skewed",)}, "must be"),
    ]:
        with pytest.raises(ConfigError, match=words):
            EvaluationConfig(lengths=(2, 8), **settings)


def test_a_curriculum_grows():
    """The published one: dims 5 to 20 by 1, points 11 to 51 by 2, every 2,000 steps."""
    plan = Curriculum(every=2000, length=11, length_step=2, dims=5, dims_step=1)
    at = {
        step: (plan.dims_at(step, 20), plan.length_at(step, 51)) for step in (0, 1999, 2000, 10000, 30000, 40000, 90000)
    }
    assert at == {
        0: (5, 11), 1999: (5, 11), 2000: (6, 13), 10000: (10, 21), 30000: (20, 41), 40000: (20, 51), 90000: (20, 51)
    }  # fmt: skip
    assert Curriculum(length=3).dims_at(0, 20) == 20 and Curriculum(dims=3).length_at(0, 20) == 20


def test_a_curriculum_is_part_of_a_run_and_its_key():
    plain, grown = run(), run(curriculum=Curriculum(length=2))
    assert plain.to_data()["training"]["curriculum"] is None
    assert plain.key != grown.key
    assert Run.from_data(grown.to_data()) == grown
    with pytest.raises(ConfigError, match="did you mean 'length'"):
        Run.from_data({**grown.to_data(), "training": {"train_length": 6, "curriculum": {"lenght": 2}}})


def test_steps_follow_the_curriculum():
    from lengthwise.training.trainer import Trainer

    model, task = build(made := run(curriculum=Curriculum(every=2, length=2, length_step=3, dims=1)))
    trainer = Trainer(made, model, task, torch.device("cpu"))
    for step, (length, dims) in enumerate([(2, 1), (2, 1), (5, 2), (5, 2), (6, 3), (6, 3)]):
        trainer.steps_done = step
        xs, _ = task.examples_of(trainer.batch())
        assert xs.shape[1] == length
        assert (xs.abs().amax((0, 1)) > 0).tolist() == [n < dims for n in range(3)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"curriculum": Curriculum(length=7)}, "length must be at most train_length"),
        ({"curriculum": Curriculum(length=2), "min_length": 3}, "cannot be combined with a curriculum"),
        ({"curriculum": {}}, "must be"),
    ],
)
def test_curricula_that_cannot_be(settings, words):
    with pytest.raises(ConfigError, match=words):
        run(**settings)


def test_a_curriculum_needs_dims_to_open():
    made = run(curriculum=Curriculum(dims=9))
    with pytest.raises(ConfigError, match=r"begins with 9 dims, but LinearRegression has 3"):
        check_training(made, made.task.build(), None)
    copy = dataclasses.replace(made, task=choose(Copy), encoding=choose(NoPE))
    with pytest.raises(ConfigError, match="none that a curriculum could open"):
        check_training(copy, copy.task.build(), None)
    for bad in ({}, {"length": 0}, {"length": 1, "every": 0}):
        with pytest.raises(ConfigError):
            Curriculum(**bad)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"curriculum": Curriculum(length=2)}, "must reach length 6 within 1,000 steps, got 2"),
        (
            {"curriculum": Curriculum(length=2, every=10, length_step=4), "steps": 10},
            "must reach length 6 within 10 steps, got 2",
        ),
        ({"curriculum": Curriculum(dims=1, every=5), "steps": 10}, "must reach dims 3 within 10 steps, got 2"),
        ({"curriculum": Curriculum(length=6)}, "begins where it ends"),
        ({"curriculum": Curriculum(dims=3)}, "begins where it ends"),
    ],
)
def test_curricula_that_lead_nowhere(settings, words):
    made = run(**settings)
    with pytest.raises(ConfigError, match=words):
        check_training(made, made.task.build(), None)


def test_every_step_of_a_curriculum_can_be_drawn():
    across = choose(LinearRegression, dims=6, inputs="orthogonal")
    made = dataclasses.replace(run(curriculum=Curriculum(dims=2, every=1)), task=across)
    with pytest.raises(ConfigError, match=r"length must be at most 2 .* got 6"):
        check_training(made, across.build(), None)
    fine = dataclasses.replace(run(curriculum=Curriculum(length=2, length_step=1, dims=2, every=1)), task=across)
    check_training(fine, across.build(), None)
    made = run(curriculum=Curriculum(length=2, every=10, length_step=4), steps=11)
    check_training(made, made.task.build(), None)


def test_prompts_are_interleaved():
    task = LinearRegression(dims=3)
    batch = task.sample(generator(0), 2, 4)
    xs, ys = task.examples_of(batch)
    assert batch.inputs.shape == (2, 8, 3)
    assert torch.equal(batch.inputs[:, 1::2, 0], ys) and not batch.inputs[:, 1::2, 1:].any()
    assert torch.equal(batch.inputs[:, 0::2], xs)
    assert batch.scored.tolist() == [[True, False] * 4] * 2
    logits = torch.zeros(2, 8, 1)
    assert task.loss(logits, batch) == pytest.approx(float(ys.square().mean()))
    assert torch.allclose(task.curve(logits, batch), ys.double().square())


def test_a_prompt_is_for_tasks_of_prefixes():
    copy = dataclasses.replace(run(), task=choose(Copy))
    with pytest.raises(ConfigError, match="prompt is 9, but Copy is not a task"):
        check_lengths(copy, [4], prompt=9)
    check_lengths(copy, [4])
    check_lengths(run(), [4], prompt=9)
