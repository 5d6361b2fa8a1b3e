"""Coupled: position IDs derived by hand from the paper's assignment, documents, offsets in training, and decoding."""

import pytest
import torch

from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import ENCODINGS
from lengthwise.evaluation import check_lengths, evaluate
from lengthwise.evaluation.decoding import greedy_decode
from lengthwise.models import Decoder
from lengthwise.positions import Coupled, Digits, position_scheme_for
from lengthwise.tasks import TASKS, Addition, Copy, Reverse, Sorting, generator
from lengthwise.training import build

SUM = Addition(reverse=True, pad=True)
UNPADDED = Addition(reverse=True)


def row(task, question, answer=""):
    return [task.bos, *task.ids(question), task.sep, *task.ids(answer)]


def positions(task, tokens, documents=None):
    ids = None if documents is None else torch.tensor([documents])
    scheme = Coupled().for_task(task)
    return scheme.positions(torch.tensor([tokens]), ids, torch.Generator(), training=False)[0].tolist()


@pytest.mark.parametrize(
    ("task", "question", "answer", "expected"),
    [
        # + and the equals sign have 1; the units 2, the tens 3, the hundreds 4; the last carry 5.
        (SUM, "653+049", "2070", [0, 4, 3, 2, 1, 4, 3, 2, 1, 2, 3, 4, 5]),
        (UNPADDED, "653+49", "207", [0, 4, 3, 2, 1, 3, 2, 1, 2, 3, 4]),
        (SUM, "9+9", "81", [0, 2, 1, 2, 1, 2, 3]),
        (Copy(), "abc", "abc", [0, 2, 3, 4, 1, 2, 3, 4]),
        (Copy(pattern="repeated"), "aa", "a", [0, 2, 3, 1, 2]),
        (Reverse(), "abc", "cba", [0, 1, 2, 3, 4, 3, 2, 1]),
    ],
)
def test_positions_by_hand(task, question, answer, expected):
    tokens = row(task, question, answer)
    assert positions(task, tokens) == expected
    assert positions(task, [*tokens, task.eos]) == [*expected, 0]
    for end in range(len(row(task, question)), len(tokens)):
        assert positions(task, tokens[:end]) == expected[:end], "a later token moved an earlier one"
    length = len(question) if not isinstance(task, Addition) else max(map(len, question.split("+")))
    assert max(expected) < Coupled().for_task(task).num_positions(task.tokens(length), training=False)


def test_documents_by_hand():
    """Two sums, one after the other; then the same tokens mixed; and left padding, which is a document of its own."""
    one, other = row(SUM, "12+30", "240"), row(SUM, "9+9", "81")
    expected = [0, 3, 2, 1, 3, 2, 1, 2, 3, 4], [0, 2, 1, 2, 1, 2, 3]
    assert positions(SUM, one + other, [0] * 10 + [1] * 7) == [*expected[0], *expected[1]]
    mixed = [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0]
    sources = [iter(one), iter(other)], [iter(expected[0]), iter(expected[1])]
    tokens, places = ([next(source[n]) for n in mixed] for source in sources)
    assert positions(SUM, tokens, mixed) == places
    assert positions(SUM, [SUM.bos, SUM.bos, *other], [-1, -1] + [0] * 7) == [0, 0, *expected[1]]


def test_training_adds_one_offset_to_each_sequence():
    """The offsets of 653 + 049, whose highest position is 5, are uniform over 0 ... 3 if `max_position` is 8."""
    scheme = Coupled(max_position=8).for_task(SUM)
    tokens = torch.tensor([row(SUM, "653+049", "2070")]).expand(400, -1)
    plain = scheme.positions(tokens, None, generator(0), training=False)
    moved = scheme.positions(tokens, None, generator(0), training=True)
    offsets = (moved - plain)[:, 1:]
    assert bool((moved[:, 0] == 0).all())
    assert bool((offsets == offsets[:, :1]).all())
    counts = offsets[:, 0].bincount()
    assert len(counts) == 4
    assert int(counts.min()) > 70
    assert int(moved.max()) == 8 == scheme.num_positions(tokens.shape[1], training=True) - 1
    documents = torch.tensor([[0] * 7 + [1] * 7])
    two = torch.tensor([row(SUM, "9+9", "81") * 2])
    drawn = [scheme.positions(two, documents, generator(n), True)[0, [1, 8]].tolist() for n in range(60)]
    assert len(set(map(tuple, drawn))) > 15, "documents have offsets of their own"  # of 36


def test_too_few_positions_for_training():
    words = "Coupled: max_position must be at least 5, the highest position of a training sequence of 13 tokens, got 4"
    with pytest.raises(ConfigError, match=words):
        Coupled(max_position=4).for_task(SUM).require(13, training=True)
    with pytest.raises(ConfigError, match=words):
        tokens = torch.tensor([row(SUM, "653+049", "2070")])
        Coupled(max_position=4).for_task(SUM).positions(tokens, None, generator(), training=True)
    Coupled(max_position=4).for_task(SUM).require(13, training=False)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (Sorting(), "Sorting does not say which of its tokens share a position"),
        (Addition(), r"Addition couples positions only with reverse=true"),
        (Copy(times=2), "Copy couples positions only of one copy"),
        (Reverse(answer="twice"), "Reverse couples positions only with answer=once"),
    ],
)
def test_a_task_without_coupling_is_refused(task, words):
    with pytest.raises(ConfigError, match=words) as error:
        position_scheme_for(task, choose(Coupled))
    assert "\n" not in str(error.value)


class Backwards(Copy):
    def coupling(self):
        raise NotImplementedError


def test_the_message_names_the_tasks_in_the_list(monkeypatch):
    monkeypatch.setattr(TASKS, "_classes", {make.__name__: make for make in (Sorting, Backwards, Addition)})
    with pytest.raises(ConfigError, match=r"or one of these tasks: Backwards, Addition$"):
        Sorting().coupling()


def test_without_a_task():
    with pytest.raises(ConfigError, match="Coupled: the task must say which tokens share a position, got no task"):
        Coupled().positions(torch.zeros(1, 3, dtype=torch.long), None, generator(), training=False)


def test_a_table_needs_only_the_shared_positions():
    """Addition of 12 digits has 40 token slots and positions up to 14: a table of 15 rows is enough, 14 are not."""
    for rows in (15, 14):
        run = Run(
            encoding=ENCODINGS.parse(f"learned:max_length={rows}"),
            task=choose(Addition, reverse=True, pad=True),
            training=TrainingConfig(train_length=3, positions=choose(Coupled, max_position=13)),
        )
        if rows == 15:
            check_lengths(run, [12])
        else:
            with pytest.raises(ConfigError, match="needs 15 positions with Coupled, but Learned has 14"):
                check_lengths(run, [12])


BRIEF = ("Learned", "RoPE", "FIRE")


@pytest.mark.parametrize(
    "name", [*BRIEF, *(pytest.param(e.__name__, marks=pytest.mark.slow) for e in ENCODINGS if e.__name__ not in BRIEF)]
)
@pytest.mark.parametrize("scheme", [Coupled(), Digits()], ids=["coupled", "digits"])
def test_decoding_says_what_one_forward_pass_says(name, scheme):
    """With questions of several sizes, of which some are padded: tokens get the positions of the whole sequence."""
    task = UNPADDED
    scheme = scheme.for_task(task)
    torch.manual_seed(1)
    size = task.vocab_size
    config = ModelConfig(d_model=16, num_layers=2, num_heads=2)
    model = Decoder(config, ENCODINGS.parse(name), vocab_size=size, output_size=size, train_length=16).eval()
    batch = task.examples(0, 6, 3)
    with torch.no_grad():
        answers, _ = greedy_decode(model, task, batch, 3, scheme=scheme)
        for n, answer in enumerate(answers):
            question = task.pairs(batch[n : n + 1])[0][0]
            start = len(question) + 1
            tokens = batch.inputs[n, : start + 1].tolist()
            for _ in range(task.answer_tokens(3)):
                inputs = torch.tensor([tokens])
                ids = scheme.positions(inputs, None, generator(), training=False)
                tokens.append(int(model(inputs, positions=ids)[0, -1].argmax()))
                if tokens[-1] == task.eos:
                    break
            assert task.answer_words(tokens[start + 1 :]) == answer


def test_evaluation_by_decoding_scores_what_one_forward_pass_scores():
    run = Run(
        encoding=ENCODINGS.parse("learned:max_length=20"),
        task=choose(Addition, reverse=True, pad=True),
        model=ModelConfig(d_model=16, num_layers=1, num_heads=2),
        training=TrainingConfig(train_length=2, positions=choose(Coupled, max_position=10)),
    )
    model, task = build(run)
    with torch.no_grad():  # the model always says 0, which is right for no sum of two digits but the padding
        model.lm_head.weight.zero_()
    config = EvaluationConfig(lengths=(2,), examples=20)
    scores = [
        evaluate(model, task, config, positions=run.training.positions, decode=decode)[0].mean
        for decode in (True, False)
    ]
    assert scores == [0, 0]
