"""Decoded answers: the same exact match as one forward, what is kept of bad ones, and what cannot be decoded."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import ENCODINGS
from lengthwise.evaluation import Division, EvaluationError, check_lengths, decoding, evaluate
from lengthwise.evaluation.decoding import greedy_decode, left_padded
from lengthwise.positions import Randomized, Shift
from lengthwise.tasks import Copy, Summation, Text
from lengthwise.tasks.base import GradedAnswers
from lengthwise.tasks.pairs import Pairs
from lengthwise.training import Progress, Stopped, build, train

BY_ONE = ["RoPE", "T5", "Learned:max_length=40"]
BY_ONE += [pytest.param(name, marks=pytest.mark.slow) for name in ("NoPE", "ALiBi", "FIRE")]


class Ragged(Copy):
    """Copy, but of questions that are of different sizes: some lack their last symbols."""

    def draw(self, generator, count, length):
        pairs = super().draw(generator, count, length)
        sizes = torch.randint(1, length + 1, (count, 1), generator=generator)
        gone = torch.arange(length) >= sizes
        return Pairs(pairs.questions.masked_fill(gone, -1), pairs.answers.masked_fill(gone, -1))

    def all_examples(self, length):
        return None


@pytest.fixture(scope="module", params=BY_ONE)
def model(request, tmp_path_factory):
    """Has begun to learn to copy: sometimes right and sometimes wrong."""
    run = Run(
        encoding=ENCODINGS.parse(request.param),
        task=choose(Ragged, symbols=4),
        model=ModelConfig(d_model=16, num_layers=2, num_heads=2),
        training=TrainingConfig(train_length=4, min_length=2, steps=100, batch_size=32, learning_rate=1e-2),
    )
    return train(run, tmp_path_factory.mktemp("run")).model.eval()


@pytest.mark.medium
@pytest.mark.parametrize("task", [Copy(symbols=4), Ragged(symbols=4)], ids=["of one size", "of many"])
def test_one_forward_says_what_decoding_says(model, task):
    """Example by example."""
    config = EvaluationConfig(lengths=(2, 4, 5, 8), examples=60)
    read = evaluate(model, task, config, decode=False)
    said = evaluate(model, task, config, decode=True)
    assert [(s.n, s.mean, s.standard_error) for s in said] == [(s.n, s.mean, s.standard_error) for s in read]
    assert any(0 < s.mean < 1 for s in read), "nothing to tell apart"
    batch = task.examples(0, 60, 5)
    with torch.no_grad():
        expected = task.score(model(batch.inputs), batch)
        words, nan = greedy_decode(model, task, batch, 5)
    assert task.grade(words, batch).scores.equal(expected)
    assert not nan.any()


@pytest.mark.medium
def test_left_padding_changes_no_answer(model):
    task = Ragged(symbols=4)
    batch = task.examples(1, 20, 8)
    with torch.no_grad():
        together, _ = greedy_decode(model, task, batch, 8)
        alone = [greedy_decode(model, task, batch[n : n + 1], 8)[0][0] for n in range(len(batch))]
    assert together == alone
    assert len({len(words) for words in together}) > 1


@pytest.mark.medium
def test_prompts_with_many_logits_are_processed_in_parts(model, monkeypatch):
    task = Ragged(symbols=4)
    batch = task.examples(1, 20, 8)
    passes = []
    handle = model.register_forward_hook(lambda module, inputs, logits: passes.append(logits.shape[1]))
    with torch.no_grad():
        whole, _ = greedy_decode(model, task, batch, 8)
        longest = max(passes)
        for part in (1, 3, longest - 1):
            passes.clear()
            monkeypatch.setattr(decoding, "MAX_LOGITS", 20 * task.output_size * part)
            assert greedy_decode(model, task, batch, 8)[0] == whole
            depends = any(e.depends_on_length() for e in model.encodings)
            assert (max(passes) == part) != depends
    handle.remove()


def test_a_nan_in_the_prompt_is_not_that_of_an_answer(monkeypatch):
    """With a prompt in parts, the passes before the last one predict nothing that counts."""
    task = Copy(symbols=3)
    run = Run(
        encoding=ENCODINGS.parse("NoPE"),
        task=choose(Copy, symbols=3),
        model=ModelConfig(d_model=16, num_layers=1, num_heads=2),
        training=TrainingConfig(train_length=2, steps=1),
    )
    model, _ = build(run)
    model.eval()
    passes = []

    def spoil(bad, module, inputs, logits):
        passes.append(logits.shape)
        return logits * math.nan if len(passes) in bad else logits

    monkeypatch.setattr(decoding, "MAX_LOGITS", task.output_size * 2)  # a prompt of 6 tokens: three passes
    for bad, expected in (({1, 2}, False), ({3}, True), ({4}, True)):
        passes.clear()
        handle = model.register_forward_hook(partial(spoil, bad))
        with torch.no_grad():
            _, nan = greedy_decode(model, task, task.examples(0, 1, 4), 4)
        handle.remove()
        assert bool(nan) == expected


@pytest.mark.medium
def test_a_scratchpad_that_one_forward_gets_right_is_said_right(tmp_path):
    """All of it right under teacher forcing: then the model says exactly that, and every step of it is right."""
    run = Run(
        encoding=ENCODINGS.parse("RoPE"),
        task=choose(Summation, scratchpad="minimal"),
        model=ModelConfig(d_model=32, num_layers=2, num_heads=2),
        training=TrainingConfig(train_length=3, steps=150, batch_size=32, learning_rate=1e-2),
    )
    model, task = (trained := train(run, tmp_path)).model.eval(), trained.task
    batch = task.examples(0, 200, 3)
    with torch.no_grad():
        whole = task.score(model(batch.inputs), batch)
        said, _ = greedy_decode(model, task, batch, 3)
    graded = task.grade(said, batch)
    assert 0 < whole.sum() <= graded.scores.sum() < len(batch), "nothing to tell apart"
    assert [words == right for words, (_, right) in zip(said, task.pairs(batch), strict=True)] == whole.bool().tolist()
    for n in whole.nonzero()[:, 0].tolist():
        assert graded.scores[n] == 1
        assert {name: float(values[n]) for name, values in graded.details.items()} == {
            "computation": 1,
            "output": 1,
            "failed steps": 0,
        }
    (score,) = evaluate(model, task, EvaluationConfig(lengths=(3,), examples=200))
    assert score.mean == pytest.approx(float(graded.scores.mean()))
    assert score.details["means"]["output"] == pytest.approx(float(graded.details["output"].mean()))


def test_prompts_by_hand():
    task = Copy(symbols=3)
    pairs = Pairs(torch.tensor([[0, 1, 2], [2, -1, -1]]), torch.tensor([[0, 1, 2], [2, -1, -1]]))
    b, s = task.bos, task.sep
    prompts, documents = left_padded(task.pack(pairs))
    assert prompts[0].tolist() == [b, 0, 1, 2, s]
    assert prompts[1, 2:].tolist() == [b, 2, s]
    assert documents.tolist() == [[0] * 5, [-1, -1, 0, 0, 0]]
    prompts, documents = left_padded(task.pack(pairs)[1:])
    assert prompts.tolist() == [[b, 2, s]]
    assert documents is None


class Saying(nn.Module):
    """Says the same tokens to everyone."""

    def __init__(self, tokens, size, value=1.0):
        super().__init__()
        self.tokens, self.size, self.value = tokens, size, value
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, inputs, step=0):
        logits = torch.zeros(*inputs.shape, self.size)
        logits[..., self.tokens[step]] = self.value
        return logits

    def generate(self, prompts, steps, *, documents, positions, stop):
        said = prompts[:, :0]
        for step in range(min(steps, len(self.tokens))):
            said = torch.cat([said, self(prompts, step)[:, -1:].argmax(-1)], 1)
        return said


def test_bad_answers_are_wrong_and_kept():
    task = Copy(symbols=4)
    config = EvaluationConfig(lengths=(3,), examples=10)
    for tokens, said in [
        ([task.bos, task.sep, 0, task.eos], "[BOS] [SEP] a"),
        ([0, 0, 0, 0], "a a a a [...]"),
        ([task.eos, 0, 0, 0], ""),
    ]:
        (score,) = evaluate(Saying(tokens, 7), task, config, decode=True)
        n = score.n
        assert (score.mean, score.details["unreadable"]) == (0, n)
        assert [kept["generated"] for kept in score.details["kept"]] == [said] * 3
        assert all(len(kept["question"].split()) == 3 for kept in score.details["kept"])
    (score,) = evaluate(Saying([0, 1, 2, task.eos], 7), task, config, decode=True)
    assert score.details == {"means": {}, "order": [], "unreadable": 0, "kept": []}
    assert evaluate(Saying([0] * 4, 7), task, config, decode=False)[0].details == {}


def test_answers_with_steps_that_cannot_be_read_are_kept_apart():
    """`out out thus 3`: a step that is none, and an answer. With an answer alone, right or wrong, nothing is kept."""
    task = Summation(scratchpad="i0c0o1v0r0")
    config = EvaluationConfig(lengths=(3,), examples=10)
    for words, broken in (("out out thus 3", 3), ("out 3 thus 3", 0)):
        tokens = [*task.ids(words.split()), task.eos]
        (score,) = evaluate(Saying(tokens, task.vocab_size), task, config)
        assert score.details["kept"] == []
        assert [one["generated"] for one in score.details.get("broken", [])] == [words] * broken
        assert ("broken" in score.details) == bool(broken)


def test_logits_that_are_no_numbers_are_no_score():
    task = Copy(symbols=4)
    model = Saying([0, 1, 2, task.eos], 7, value=math.nan)
    with pytest.raises(EvaluationError, match="at length 3 the exact match of 9 of 9"):
        evaluate(model, task, EvaluationConfig(lengths=(3,), examples=9), decode=True)


class NaNFrom(Saying):
    """Gives the token of every step from `first` on a logit of NaN, which is the greatest to argmax."""

    def __init__(self, tokens, size, first):
        super().__init__(tokens, size)
        self.first = first

    def forward(self, inputs, step=0):
        logits = super().forward(inputs, step)
        return logits.masked_fill(logits > 0, math.nan) if step >= self.first else logits


@pytest.mark.parametrize(("first", "counts"), [(2, True), (3, True), (4, False)])
def test_a_logit_that_is_no_number_counts_up_to_the_end_token_and_not_after_it(first, counts):
    """The answer `a b c` ends in the fourth step. NaN in that step spoils the answer, NaN in a later one does not."""
    task = Copy(symbols=4)
    model = NaNFrom([0, 1, 2, task.eos, 0], 7, first)
    words, nan = greedy_decode(model, task, task.examples(0, 5, 4), 4)
    assert words == [["a", "b", "c"]] * 5
    assert nan.tolist() == [counts] * 5


def test_decoding_takes_four_times_the_places_of_a_forward(model):
    """And whatever the number at once, the score is the same."""
    task = Ragged(symbols=4)
    config = EvaluationConfig(lengths=(5,), examples=30)
    heard: list[Progress] = []
    (together,) = evaluate(model, task, config, decode=True, on_progress=heard.append)
    assert heard[-1].step == heard[-1].steps == 1
    (parts,) = evaluate(
        model, task, config, decode=True, division=Division(2 * task.tokens(5)), on_progress=heard.append
    )
    assert heard[-1].step == heard[-1].steps == 4  # 30 examples, 8 at once
    assert (parts.mean, parts.details["unreadable"]) == (together.mean, together.details["unreadable"])


def test_decoding_can_be_stopped_between_tokens():
    task, asked = Copy(symbols=4), []

    def stop():
        asked.append(0)
        return len(asked) > 2

    with pytest.raises(Stopped):
        evaluate(
            Saying([0] * 4, 7),
            task,
            EvaluationConfig(lengths=(3,), examples=9),
            decode=True,
            should_stop=stop,
        )
    assert len(asked) == 3


class Thinking(Copy):
    decodes = True

    def grade(self, said, batch):
        graded = super().grade(said, batch)
        return GradedAnswers(graded.scores, {"words": torch.tensor([len(words) for words in said])}, graded.unreadable)


def test_a_task_that_decodes_is_decoded_and_its_numbers_are_meant():
    task = Thinking(symbols=4)
    config = EvaluationConfig(lengths=(3,), examples=8)
    (score,) = evaluate(Saying([0, 1, task.eos], 7), task, config)
    assert score.details["means"] == {"words": 2.0}


def test_what_cannot_be_decoded_is_refused_before_any_forward(tmp_path):
    (tmp_path / "a.txt").write_text("words " * 2000)
    config = EvaluationConfig(lengths=(3,), examples=8)
    text = choose(Text, path=str(tmp_path)).build()
    with pytest.raises(ConfigError, match="Text has no answers to decode; evaluate it with decode=False"):
        evaluate(Saying([0], 7), text, config, decode=True)
    random = choose(Randomized, max_length=60)
    words = (
        r"Thinking is scored by decoding, which needs the position of every token .*, but Randomized assigns positions"
    )
    with pytest.raises(ConfigError, match=words):
        evaluate(Saying([0], 7), Thinking(symbols=4), config, positions=random)
    run = Run(encoding=ENCODINGS.parse("NoPE"), task=choose(Thinking), training=TrainingConfig(train_length=4))
    check_lengths(run, [4])
    for scheme, refused in [(random, True), (choose(Shift), False)]:
        run = Run(
            encoding=ENCODINGS.parse("NoPE"),
            task=choose(Thinking),
            training=TrainingConfig(train_length=4, positions=scheme),
        )
        if refused:
            with pytest.raises(ConfigError, match=words):
                check_lengths(run, [4])
        else:
            check_lengths(run, [4])
    model, task = build(
        Run(
            encoding=ENCODINGS.parse("NoPE"),
            task=choose(Thinking, symbols=4),
            model=ModelConfig(d_model=8, num_layers=1, num_heads=1),
            training=TrainingConfig(train_length=4),
        )
    )
    assert evaluate(model, task, config, positions=choose(Shift))
