"""Protocols of evaluation on text: pieces, the same targets with every context, sliding windows, and other texts."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, TrainingConfig, choose
from lengthwise.evaluation import check_lengths, evaluate, questions, shifted
from lengthwise.studies import Study, grid
from lengthwise.studies.cost import cost
from lengthwise.tasks import Copy, Text, generator

LENGTHS = (8, 16, 32, 64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw = torch.Generator().manual_seed(0)
    for n in range(12):
        size = 300 + 10 * n
        letters = torch.randint(97, 123, (size,), generator=draw, dtype=torch.uint8)
        (tmp_path / f"{n}.txt").write_bytes(bytes(letters.tolist()))
    return tmp_path


def text(folder: Path, **settings: Any) -> Text:
    return Text(path=str(folder), validation=0.4, chunk=64, **settings)


def scored_targets(task: Text, length: int, count: int) -> list[list[int]]:
    batch = task.examples(0, count, length)
    return [row[mask].tolist() for row, mask in zip(batch.targets, batch.scored, strict=True)]


def test_every_length_scores_the_same_targets_with_the_text_before_them(folder: Path) -> None:
    task = text(folder, targets=8)
    count = task.num_examples(10 * 64, 8)
    assert count == 10 == task.num_examples(10 * 64, 64), "as many pieces at every length"
    longest = task.examples(0, count, 64)
    for length in LENGTHS:
        batch = task.examples(0, count, length)
        assert scored_targets(task, length, count) == [row[-8:].tolist() for row in longest.targets]
        assert batch.targets.tolist() == longest.targets[:, -length:].tolist(), "the text right before them"
        assert (batch.inputs[:, 0] == 256).all()
        assert batch.inputs[:, 1:].tolist() == longest.inputs[:, 64 - length + 1 :].tolist()


def test_the_controlled_protocol_never_reads_more_than_the_published_one(folder: Path) -> None:
    """Its cost is at most that of the published protocol, at every length and with any number of tokens."""
    for tokens in (64, 100, 640, 10_000):
        for length in LENGTHS:
            published = text(folder).num_examples(tokens, length) * length
            assert text(folder, targets=8).num_examples(tokens, length) * length <= max(published, 64)


class Counting(nn.Module):
    """Predicts each byte from the number of bytes before it in the piece: the cross-entropy is that number."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        nats = torch.arange(inputs.shape[1], dtype=torch.float32) + 6  # above ln 257, so that a probability remains
        share = (torch.exp(nats) - 1) / 256  # of every other byte, relative to the correct one
        following = torch.cat([inputs[:, 1:], torch.full_like(inputs[:, :1], 97)], 1)
        logits = torch.log(share)[None, :, None].expand(*inputs.shape, 257).clone()
        return logits.scatter(-1, following[..., None], 0.0)


def test_scores_are_means_over_the_scored_targets_alone(folder: Path) -> None:
    """The last byte of a piece is not known to `Counting`, so 7 of the 8 targets count from the end of the context."""
    task = text(folder, targets=8)
    config = EvaluationConfig(lengths=(16, 32), tokens=640)
    short, long = evaluate(Counting(), task, config)
    assert (short.n, long.n) == (10, 10)
    assert long.mean - short.mean == pytest.approx(16, rel=0.2)
    (plain,) = evaluate(Counting(), text(folder), EvaluationConfig(lengths=(32,), tokens=640))
    assert plain.mean < long.mean - 8, "all 32 positions"


def test_a_window_slides_and_scores_its_end(folder: Path) -> None:
    task, plain = text(folder, stride=4), text(folder)
    chunks = plain.examples(0, 3, 64)
    pieces = (64 - 16) // 4 + 1
    batch = task.examples(0, 3 * pieces, 16)
    expected = [chunk[start : start + 16].tolist() for chunk in chunks.targets for start in range(0, 49, 4)]
    assert batch.targets.tolist() == expected
    assert batch.scored.tolist() == [[False] * 12 + [True] * 4] * len(expected)
    together = [token for row in scored_targets(task, 16, pieces) for token in row]
    assert together == chunks.targets[0, 12:].tolist(), "each byte after the first context once"
    assert task.available(16) == pieces * len(task.documents["test"].chunks(64))
    without_overlap = text(folder, stride=16).examples(0, 9, 16)
    assert torch.equal(without_overlap.targets, plain.examples(0, 9, 16).targets)
    assert without_overlap.scored.all()


def test_training_windows_are_scored_whole(folder: Path) -> None:
    for settings in ({"targets": 8}, {"stride": 4}):
        batch = text(folder, **settings).sample(generator(0), 5, 16)
        assert batch.scored.all()
        assert torch.equal(batch.targets, text(folder).sample(generator(0), 5, 16).targets)


def test_notes_say_what_is_scored(folder: Path) -> None:
    assert "last 8 bytes of each piece are scored; they are the same at every length" in str(
        text(folder, targets=8).note(16)
    )
    assert "slides by 4 bytes" in str(text(folder, stride=4).note(16))


@pytest.mark.parametrize(
    ("settings", "length", "message"),
    [
        ({"targets": 8}, 4, "length must be from 8 to the chunk of 64 bytes, got 4"),
        ({"targets": 8}, 65, "length must be from 8 to the chunk of 64 bytes, got 65"),
        ({"stride": 8}, 4, "length must be at least 8 bytes, got 4"),
    ],
)
def test_lengths_that_do_not_fit(folder: Path, settings: dict[str, Any], length: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        text(folder, **settings).check_length(length)
    text(folder, **settings).check_length(length, "train")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"targets": -1}, "Text.targets must be at least 0, got -1"),
        ({"stride": -1}, "Text.stride must be at least 0, got -1"),
        ({"targets": 4, "stride": 4}, "takes targets or stride, got targets 4 and stride 4; omit one"),
    ],
)
def test_settings_that_cannot_be(folder: Path, settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        choose(Text, path=str(folder), **settings)


def test_another_text_is_a_shift_and_its_content_identifies_it(folder: Path, tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "a.txt").write_text("another text " * 100)
    task = choose(Text, path=str(folder), validation=0.4, chunk=64)
    config = EvaluationConfig(lengths=(16,), shifts=({"path": str(other)}, {"targets": 8}))
    trained, moved, controlled = questions(task, config)
    assert "shift" not in trained
    assert set(moved["shift"]) == {"path", "sha256"}
    assert moved["shift"]["sha256"] == dict(choose(Text, path=str(other)).settings)["sha256"]
    assert controlled["shift"] == {"targets": 8}
    piece = shifted(task, moved["shift"]).build().examples(0, 1, 16).targets[0]
    assert bytes(piece.tolist()) in (other / "a.txt").read_bytes()
    (other / "a.txt").write_text("it has changed " * 100)
    with pytest.raises(ConfigError, match="it has changed; restore"):
        shifted(task, moved["shift"]).build()
    (_, again, _) = questions(task, config)
    assert again["shift"]["sha256"] != moved["shift"]["sha256"], "a text that changed is another question"


def test_a_shift_keeps_the_vocabulary() -> None:
    (run,) = grid(["nope"], ["copy:symbols=4"], training=TrainingConfig(train_length=4), model=ModelConfig(d_model=16))
    with pytest.raises(ConfigError, match="a shift must keep the vocab_size"):
        check_lengths(run, (4,), ({"symbols": 9},))


def test_costs_count_the_pieces_of_the_protocol(folder: Path) -> None:
    evaluation = EvaluationConfig(lengths=LENGTHS, tokens=6400)
    runs = {
        targets: grid(
            ["nope"], [choose(Text, path=str(folder), validation=0.4, chunk=64, targets=targets)],
            training=TrainingConfig(train_length=16), model=ModelConfig(d_model=16),
        )[0]
        for targets in (0, 8)
    }  # fmt: skip
    published, controlled = (cost(run, evaluation, run.task.build()).evaluate for run in runs.values())
    assert controlled[64] == published[64]
    assert controlled[8] < published[8] / 4


def test_a_study_asks_both_protocols_of_one_training(folder: Path) -> None:
    runs = grid(
        ["nope"], [choose(Text, path=str(folder), validation=0.4, chunk=64)],
        training=TrainingConfig(train_length=16), model=ModelConfig(d_model=16),
    )  # fmt: skip
    evaluation = EvaluationConfig(lengths=(16, 32), shifts=({"targets": 8},))
    study = Study(name="both", question="?", runs=runs, evaluation=evaluation)
    study.check()
    (row,) = study.rows()
    assert [asked.get("shift", {}) for asked in row["questions"]] == [{}, {}, {"targets": 8}, {"targets": 8}]
    assert Copy.changed({"symbols": 4}, {"symbols": 5}) == {"symbols": 5}
