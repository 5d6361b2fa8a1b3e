"""Grid and CopyColumn: coordinates by hand, answers computed from the words, documents, decoding, and refusals."""

from collections import Counter

import pytest
import torch

from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import ENCODINGS
from lengthwise.evaluation import check_lengths
from lengthwise.evaluation.decoding import greedy_decode
from lengthwise.models import Decoder
from lengthwise.positions import Grid, position_scheme_for
from lengthwise.tasks import Copy, CopyColumn, generator
from lengthwise.training import train

TASK = CopyColumn(columns=3)
TWO_ROWS = [TASK.bos, *TASK.ids([*"abcdef", "[2]"]), TASK.sep, *TASK.ids("be")]
COORDINATES = [[0, 0], [1, 1], [1, 2], [1, 3], [2, 1], [2, 2], [2, 3], [0, 0], [0, 4], [1, 4], [2, 4]]
ONE_ROW = [TASK.bos, *TASK.ids([*"xyz", "[3]"]), TASK.sep, *TASK.ids("z")]
OF_ONE_ROW = [[0, 0], [1, 1], [1, 2], [1, 3], [0, 0], [0, 4], [1, 4]]


def positions(tokens, documents=None):
    ids = None if documents is None else torch.tensor([documents])
    scheme = Grid().for_task(TASK)
    return scheme.positions(torch.tensor([tokens]), ids, generator(0), training=True)[0].tolist()


def test_coordinates_by_hand():
    assert positions(TWO_ROWS) == COORDINATES
    for end in range(TWO_ROWS.index(TASK.sep) + 1, len(TWO_ROWS)):
        assert positions(TWO_ROWS[:end]) == COORDINATES[:end], "a later token moved an earlier one"
    scheme = Grid().for_task(TASK)
    assert [scheme.num_positions(TASK.tokens(rows), training=False) for rows in (1, 2, 4, 5, 90)] == [5, 5, 5, 6, 91]


def test_documents_by_hand():
    assert positions(TWO_ROWS + ONE_ROW, [3] * 11 + [1] * 7) == COORDINATES + OF_ONE_ROW
    order = [0, 1] * 7 + [0] * 4
    tokens, expected = (iter(TWO_ROWS), iter(ONE_ROW)), (iter(COORDINATES), iter(OF_ONE_ROW))
    mixed = [next(tokens[n]) for n in order]
    assert positions(mixed, order) == [next(expected[n]) for n in order]
    assert positions([TASK.bos, *ONE_ROW], [-1] + [0] * 7) == [[0, 0], *OF_ONE_ROW]


@pytest.mark.parametrize(("columns", "rows"), [(1, 3), (3, 1), (4, 9)])
def test_the_answer_is_the_column(columns, rows):
    task, asked = CopyColumn(columns=columns), Counter()
    for question, answer in task.pairs(task.sample(generator(0), 100, rows)):
        *cells, column = question
        number = int(column.strip("[]"))
        assert len(cells) == rows * columns
        assert answer == cells[number - 1 :: columns]
        assert task.length_of(question, answer) == rows
        asked[number] += 1
    assert len(asked) == columns


@pytest.mark.parametrize("settings", [{"columns": 0}, {"columns": 1025}, {"symbols": 1}])
def test_sizes_that_cannot_be(settings):
    with pytest.raises(ConfigError, match=rf"CopyColumn.{next(iter(settings))} must be between "):
        choose(CopyColumn, **settings)


def test_what_is_refused_in_one_line():
    with pytest.raises(
        ConfigError, match=r"Copy does not give its tokens coordinates; .* one of these tasks: CopyColumn$"
    ) as error:
        position_scheme_for(Copy(), choose(Grid))
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="Grid: the task must give the coordinates of its tokens, got no task"):
        Grid().num_positions(4, training=True)
    for name, words in (("rope", "RoPE has one axis of positions"), ("mrope", "MRoPE has 3 axes of positions")):
        with pytest.raises(ConfigError, match=f"{words}.*, got positions with 2 axes"):
            check_lengths(run_of(name), [2])


def run_of(encoding):
    return Run(
        encoding=ENCODINGS.parse(encoding),
        task=choose(CopyColumn, columns=2, symbols=3),
        model=ModelConfig(d_model=16, num_layers=1, num_heads=2),
        training=TrainingConfig(train_length=2, steps=2, batch_size=4, positions=choose(Grid)),
    )


@pytest.mark.parametrize("name", ["axial-rope", "rope-mixed", pytest.param("nope", marks=pytest.mark.slow)])
@torch.no_grad()
def test_decoding_says_what_one_forward_pass_says(name):
    task = CopyColumn(columns=2, symbols=3)
    scheme = Grid().for_task(task)
    torch.manual_seed(1)
    size = task.vocab_size
    config = ModelConfig(d_model=16, num_layers=2, num_heads=4, num_kv_heads=2)
    model = Decoder(config, ENCODINGS.parse(name), vocab_size=size, output_size=size, train_length=16).eval()
    batch = task.sample(generator(0), 6, 4)
    answers, _ = greedy_decode(model, task, batch, 4, scheme=scheme)
    for n, answer in enumerate(answers):
        tokens = batch.inputs[n, : 4 * 2 + 3].tolist()
        start = len(tokens)
        for _ in range(task.answer_tokens(4)):
            inputs = torch.tensor([tokens])
            ids = scheme.positions(inputs, None, generator(0), training=False)
            tokens.append(int(model(inputs, positions=ids)[0, -1].argmax()))
            if tokens[-1] == task.eos:
                break
        assert task.answer_words(tokens[start:]) == answer


def test_a_model_trains_on_a_grid(tmp_path):
    run = run_of("axial-rope")
    check_lengths(run, EvaluationConfig(lengths=(2, 5)).lengths)
    trained = train(run, tmp_path / "run")
    assert trained is not None
