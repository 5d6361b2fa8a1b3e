"""Studies and grids as values, and their check before anything trains."""

from pathlib import Path

import pytest

from lengthwise.config import ConfigError, Curriculum, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import FIRE, Learned, NoPE
from lengthwise.positions import Randomized, Shift
from lengthwise.studies import Study, encoding, grid
from lengthwise.tasks import Copy, Text

TRAINING = TrainingConfig(train_length=4, steps=5)
ASKED = EvaluationConfig(lengths=(4, 8))


def a_study(**changes: object) -> Study:
    values = {"name": "s", "runs": grid(["nope"], ["copy"], training=TRAINING), "evaluation": ASKED, **changes}
    return Study(**values)  # type: ignore[arg-type]


def test_grid_has_every_combination_once_and_first_seeds_first() -> None:
    runs = grid(["nope", "rope"], ["copy", "copy:symbols=5"], seeds=3, training=TRAINING)
    assert len({run.key for run in runs}) == len(runs) == 12
    assert [run.seed for run in runs] == [0] * 4 + [1] * 4 + [2] * 4
    assert [(r.encoding.name, r.task.label) for r in runs[:4]] == [
        ("NoPE", "Copy"),
        ("RoPE", "Copy"),
        ("NoPE", "Copy(symbols=5)"),
        ("RoPE", "Copy(symbols=5)"),
    ]


def test_words_classes_and_choices_are_the_same_run() -> None:
    by_word, by_class, by_choice = (
        grid([spelled], ["COPY"], training=TRAINING)[0] for spelled in ("fIrE", FIRE, choose(FIRE))
    )
    assert by_word == by_class == by_choice
    assert by_word.key == by_choice.key


def test_training_and_model_by_task() -> None:
    longer = TrainingConfig(train_length=16, steps=7)
    runs = grid(
        ["nope"],
        ["copy", "text:path=python:manual"],
        training={"copy": TRAINING, "TEXT": longer},
        model={"copy": ModelConfig(d_model=32), "text": ModelConfig(d_model=64)},
    )
    assert [(r.training, r.model.d_model) for r in runs] == [(TRAINING, 32), (longer, 64)]


def test_position_schemes_are_a_dimension() -> None:
    runs = grid(
        ["nope", "rope"], ["copy"], 2, training=TRAINING, positions=["consecutive", "randomized:max_length=64", Shift]
    )
    assert len({run.key for run in runs}) == len(runs) == 12
    assert [(run.label, run.seed) for run in runs[:6]] == [
        ("NoPE", 0),
        ("NoPE with Randomized(max_length=64)", 0),
        ("NoPE with Shift", 0),
        ("RoPE", 0),
        ("RoPE with Randomized(max_length=64)", 0),
        ("RoPE with Shift", 0),
    ]
    assert runs[0] == grid(["nope"], ["copy"], training=TRAINING)[0]
    (moved,) = grid(["nope"], ["copy"], training=TrainingConfig(train_length=4, steps=5, positions=choose(Shift)))
    assert moved == runs[2]
    assert [row["label"] for row in a_study(runs=runs).rows()[:2]] == ["NoPE", "NoPE with Randomized(max_length=64)"]


def test_seeds_may_be_named() -> None:
    assert [run.seed for run in grid(["nope"], ["copy"], [7, 3], training=TRAINING)] == [7, 3]


def test_dash_s_shares_one_module() -> None:
    choice, share = encoding("fire-s:hidden_layers=2")
    assert (choice, share) == (choose(FIRE, hidden_layers=2), True)
    (run,) = grid(["FIRE-S"], ["copy"], training=TRAINING)
    assert run.model.share_encoding is True
    assert run.label == "FIRE-S"
    assert run.key != grid(["fire"], ["copy"], training=TRAINING)[0].key
    (apart,) = grid(["t5-per-layer"], ["copy"], training=TRAINING)
    assert apart.label == "T5-per-layer"


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("t5-s", "'t5-s': T5 has one module for all layers by default; write 't5'"),
        ("fire-per-layer", "FIRE has one module per layer by default"),
        ("rope-s", "RoPE has no parameters that layers could share; write 'rope'"),
        ("alibi-per-layer", "ALiBi has no parameters that layers could share; write 'alibi'"),
        ("fier-s", "there is no encoding 'fier'; did you mean 'FIRE'?"),
        ("fier", "there is no encoding 'fier'; did you mean 'FIRE'?"),
        ("fire:hiden_layers=1", "FIRE has no setting 'hiden_layers'; did you mean 'hidden_layers'?"),
        ("fire-s:hiden_layers=1", "did you mean 'hidden_layers'?"),
    ],
)
def test_words_that_are_no_encoding(word: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        encoding(word)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"encodings": []}, "encodings must have at least one element"),
        ({"encodings": "rope"}, "must be a list, even of a single element"),
        ({"tasks": ["cpoy"]}, "there is no task 'cpoy'; did you mean 'Copy'?"),
        ({"seeds": 0}, "seeds must be at least 1, or a list of seeds, got 0"),
        ({"seeds": []}, "seeds must have at least one element"),
        ({"training": {"text": TRAINING}}, "training contains 'text', but no run has this task; available: Copy"),
        ({"training": {}}, "training lacks the task Copy"),
        ({"training": {"copy": ASKED}}, "must be a TrainingConfig"),
        ({"training": 3}, "must be a TrainingConfig, or one per task name"),
        ({"model": 3}, "must be a ModelConfig"),
        ({"encodings": [3]}, "got 3"),
        ({"positions": "shift"}, "positions must be a list"),
        ({"positions": []}, "positions must have at least one element"),
        ({"positions": ["randomised"]}, "there is no position scheme 'randomised'; did you mean 'Randomized'?"),
        ({"positions": ["shift:max=3"]}, "Shift has no setting 'max'"),
        ({"positions": [NoPE]}, "TrainingConfig.positions must be of kind position scheme, got the encoding NoPE"),
    ],
)
def test_grids_that_cannot_be(arguments: dict[str, object], says: str) -> None:
    values = {"encodings": ["nope"], "tasks": ["copy"], "training": TRAINING, **arguments}
    with pytest.raises(ConfigError) as error:
        grid(**values)  # type: ignore[arg-type]
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"runs": ()}, "study 's' has no runs"),
        ({"runs": grid(["nope"], ["copy"], training=TRAINING) * 2}, "the same run twice (NoPE on Copy, seed 0)"),
        ({"runs": [3]}, "must be a list of Run, got 3 in it"),
        ({"runs": "nope"}, "must be a list of Run"),
        ({"name": " "}, "must be one line of printable text"),
        ({"name": "two\nlines"}, "must be one line of printable text"),
        ({"name": None}, "must be one line of printable text"),
        ({"evaluation": {}}, "lacks the task Copy"),
        ({"evaluation": {"txet": ASKED}}, "contains 'txet', but no run has this task"),
        ({"evaluation": {"copy": TRAINING}}, "must be an EvaluationConfig"),
        ({"evaluation": (4, 8)}, "must be an EvaluationConfig"),
    ],
)
def test_studies_that_cannot_be(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        a_study(**changes)
    assert says in str(error.value)


def test_what_the_store_gets() -> None:
    study = a_study(evaluation={"COPY": ASKED}, question="why?")
    (row,) = study.rows()
    (run,) = study.runs
    assert row["key"] == run.key
    assert Run.from_data(row["config"]) == run
    assert row["questions"] == [{"length": 4, "examples": 256, "seed": 0}, {"length": 8, "examples": 256, "seed": 0}]
    assert (row["metric"], row["better"], row["unit"], row["train_length"]) == ("exact match", "higher", "symbols", 4)
    assert study.metadata()["question"] == "why?"
    assert study.metadata()["evaluation"] == {"Copy": ASKED.to_data()}


def test_check_passes_what_can_be() -> None:
    a_study().check()


def test_check_finds_a_length_past_a_learned_table() -> None:
    runs = grid(["nope", choose(Learned, max_length=12)], ["copy"], training=TRAINING)
    a_study(runs=runs, evaluation=EvaluationConfig(lengths=(4, 5))).check()
    with pytest.raises(ConfigError, match=r"^Learned.* on Copy: length 8 symbols needs 18 positions.* has 12"):
        a_study(runs=runs).check()


def test_check_finds_a_trained_length_past_a_learned_table() -> None:
    runs = grid([choose(Learned, max_length=8)], ["copy"], training=TRAINING)
    with pytest.raises(ConfigError, match="train_length 4 needs 10 positions, but the encoding has 8"):
        a_study(runs=runs, evaluation=EvaluationConfig(lengths=(1,))).check()


def test_check_finds_positions_past_a_learned_table_or_a_range() -> None:
    def study(encoding: object, scheme: object, lengths: tuple[int, ...] = (4,)) -> Study:
        runs = grid(
            ["nope", encoding],  # type: ignore[list-item]
            ["copy"],
            training=TRAINING,
            positions=["consecutive", scheme],  # type: ignore[list-item]
        )
        return a_study(runs=runs, evaluation=EvaluationConfig(lengths=lengths))

    with pytest.raises(
        ConfigError,
        match=r"^Learned\(max_length=32\) with Shift\(max_shift=23\) on Copy: train_length 4 needs 33 positions "
        r"with Shift",
    ):
        study(choose(Learned, max_length=32), choose(Shift, max_shift=23)).check()
    study(choose(Learned, max_length=32), choose(Shift, max_shift=22), (4, 15)).check()
    message = (
        r"^NoPE with Randomized.* on Copy: Randomized: max_length must be at least the number of tokens, 18, "
        r"got 17; make"
    )
    with pytest.raises(ConfigError, match=message):
        study("rope", choose(Randomized, max_length=17), (4, 8)).check()
    study("rope", choose(Randomized, max_length=18), (4, 8)).check()
    study("rope", choose(Randomized, max_length=10, at_evaluation="consecutive"), (4, 8)).check()


def test_check_finds_a_text_that_is_too_short(tmp_path: Path) -> None:
    text = tmp_path / "short.txt"
    text.write_text("To be, or not to be.\n" * 50)
    study = a_study(
        runs=grid([NoPE], [choose(Text, path=str(text))], training=TrainingConfig(train_length=32, steps=5)),
        evaluation=EvaluationConfig(lengths=(32, 512)),
    )
    with pytest.raises(ConfigError, match="the longest validation document"):
        study.check()


def test_a_task_of_ones_own_is_checked_by_its_class() -> None:
    class Hard(Copy):
        def check_length(self, length: int, split: str = "test") -> None:
            if length > 6:
                raise ConfigError(f"{length} is too hard ({split})")

    runs = grid(["nope"], [Hard], training=TRAINING)
    with pytest.raises(ConfigError, match=r"8 is too hard \(test\)"):
        a_study(runs=runs).check()


@pytest.mark.parametrize(
    "word", ["rope+fire-s", "fire-s:c=1+rope", "fire-s*2", "fire+nope-per-layer", "t5-per-layer:std=1+rope"]
)
def test_marks_of_sharing_are_for_single_encodings(word):
    with pytest.raises(ConfigError, match="needs a single encoding"):
        encoding(word)


def test_runs_that_differ_in_their_curriculum_are_each_checked() -> None:
    task = ["linearregression:dims=3"]
    grown = TrainingConfig(train_length=4, steps=5, curriculum=Curriculum(dims=9))
    runs = grid(["nope"], task, training=TRAINING) + grid(["nope"], task, training=grown)
    with pytest.raises(ConfigError, match="begins with 9 dims, but LinearRegression has 3"):
        a_study(runs=runs).check()


def test_a_prompt_is_as_long_as_it_is_read() -> None:
    """If the last input differs, every length has prompts of its own, and none of the prompt's length is drawn."""
    task = ["linearregression:dims=4"]
    asked = EvaluationConfig(lengths=(2, 4), prompt=12, shifts=({"inputs": "orthogonal"},))
    study = a_study(runs=grid(["nope"], task, training=TRAINING), evaluation=asked)
    study.check()
    short = a_study(runs=grid(["learned:max_length=20"], task, training=TRAINING), evaluation=asked)
    with pytest.raises(ConfigError, match="length 12 examples needs 24 positions, but Learned has 20"):
        short.check()
