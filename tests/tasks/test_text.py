import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.config import ConfigError, Run, TrainingConfig, choose
from lengthwise.tasks import Text, generator
from lengthwise.tasks.text_data import documents_in_memory

BOS = 256


def pieces(batch):
    return [bytes(row) for row in batch.targets.tolist()]


@pytest.fixture
def folder(tmp_path):
    """Twelve documents in which every three bytes say where they are from and where they lie."""
    for d in range(12):
        data = b"".join(bytes([d, i // 200, i % 200]) for i in range(100 + 30 * d))
        (tmp_path / f"{d:02}.bin").write_bytes(data)
    return tmp_path


@pytest.fixture
def task(folder):
    return Text(path=str(folder), validation=0.3, chunk=64)


def sides(task):
    everything = torch.tensor([0])
    return {split: bytes(d.read(everything, d.size)[0].tolist()) for split, d in task.documents.items()}


def test_the_example_of_the_docstring(tmp_path):
    (tmp_path / "a").write_bytes(b"def f" * 2)
    task = Text(path=str(tmp_path / "a"), validation=0.5)
    batch = task.sample(generator(0), 1, 5)
    assert batch.inputs.tolist() == [[BOS, *b"def "]]
    assert batch.targets.tolist() == [list(b"def f")]
    assert batch.scored.all()
    assert task.render(batch) == [{"input": "<BOS>def ", "target": "def f", "length": 5}]


def test_a_window_never_reaches_across_documents(task):
    documents = [bytes(d.data) for d in task.data.corpus.documents]
    for split in ("train", "test"):
        for piece in pieces(task.sample(generator(0), 200, 50, split)):
            assert sum(piece in document for document in documents) == 1


@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(1, 12), st.integers(0, 5))
def test_every_place_where_a_window_fits_is_as_likely(sizes, length, seed):
    documents = documents_in_memory([bytes(size) for size in sizes])
    want = [
        documents.starts[n].item() + offset
        for n, size in enumerate(sizes)
        for offset in range(max(size - length + 1, 0))
    ]
    if not want:
        return
    drawn = documents.windows(generator(seed), 300 * len(want), length)
    counts = drawn.bincount(minlength=sum(sizes))
    assert counts.nonzero().flatten().tolist() == want
    assert counts[want].min() > 200
    assert counts[want].max() < 400


def test_no_file_is_in_both_splits(task):
    origins = {split: {data[3 * n] for n in range(len(data) // 3)} for split, data in sides(task).items()}
    assert origins["train"]
    assert origins["test"]
    assert origins["train"].isdisjoint(origins["test"])


@pytest.mark.parametrize("length", [1, 2, 8, 32, 64])
def test_every_byte_of_every_chunk_is_asked_exactly_once(task, length):
    data = task.documents["test"]
    chunks = sorted(map(bytes, data.read(data.chunks(64), 64).tolist()))
    assert len(chunks) == sum(n // 64 for n in data.lengths.tolist())
    batch = task.examples(0, 10**9, length)
    assert len(batch) == task.available(length) == len(chunks) * 64 // length
    asked = b"".join(pieces(batch))
    assert sorted(asked[n : n + 64] for n in range(0, len(asked), 64)) == chunks


@given(seed=st.integers(0, 1000), count=st.integers(1, 20))
def test_all_lengths_that_divide_the_chunk_see_the_same_text(tmp_path_factory, seed, count):
    path = tmp_path_factory.getbasetemp() / "same-text"
    if not path.exists():
        path.write_bytes(bytes(i * i % 251 for i in range(9000)))
    task = Text(path=str(path), chunk=64, validation=0.2)
    texts = {b"".join(pieces(task.examples(seed, count * 64 // length, length))) for length in (1, 4, 16, 64)}
    assert len(texts) == 1
    assert len(texts.pop()) == min(count, task.available(64)) * 64


def test_the_order_is_shuffled_by_the_seed(task):
    assert not task.examples(0, 10, 64).targets.equal(task.examples(1, 10, 64).targets)


def test_a_batch_larger_than_the_test_set_goes_round_again(task):
    count = task.available(16)
    batch = pieces(task.sample(generator(0), 2 * count, 16, "test"))
    assert sorted(batch[:count]) == sorted(batch[count:])
    assert batch[:count] != batch[count:]


def test_a_length_that_does_not_divide_the_chunk_leaves_the_rest_and_says_so(task):
    assert len(task.examples(0, 10**9, 48)) == task.available(64)
    assert "the last 16 bytes" in task.note(48)
    assert task.note(32) is None


def test_a_length_over_the_chunk_makes_its_own(task):
    assert "differs from shorter lengths" in task.note(200)
    asked = pieces(task.examples(0, 10**9, 200))
    assert len(asked) == sum(n // 200 for n in task.documents["test"].lengths.tolist()) == len(set(asked))


def test_short_documents_make_short_chunks(tmp_path):
    for n in range(6):
        (tmp_path / str(n)).write_bytes(bytes([n]) * 100)
    task = Text(path=str(tmp_path), validation=0.3)
    assert task.chunk == 64
    assert task.available(32) == 2 * len(task.documents["test"].lengths)


def test_loss_and_score_by_hand(task):
    batch = task.sample(generator(0), 3, 8)
    logits = torch.zeros(3, 8, task.output_size)
    assert task.loss(logits, batch).item() == pytest.approx(math.log(257))
    assert task.score(logits, batch).tolist() == pytest.approx([math.log(257)] * 3)
    # in the first example the right byte gets 256 parts, each of the 256 others one: probability 1/2
    logits[0].scatter_(1, batch.targets[0, :, None], math.log(256))
    assert task.score(logits, batch)[0].item() == pytest.approx(math.log(2), rel=1e-6)
    assert task.loss(logits, batch).item() == pytest.approx((math.log(2) + 2 * math.log(257)) / 3, rel=1e-6)


def test_bytes_are_shown_readably(task):
    readable = task.readable
    text = "a\\b\té\n".encode() + b"\xff\x00" + "𝄞 ".encode()
    assert readable([BOS, *text]) == "<BOS>a\\\\b\\té\\n\\xff\\x00𝄞 "
    assert readable([BOS]) == "<BOS>"
    assert readable([]) == ""


class TestTheHash:
    def test_choosing_writes_it_down_and_makes_the_path_absolute(self, folder, monkeypatch):
        monkeypatch.chdir(folder.parent)
        made = dict(choose(Text, path=folder.name).settings)
        assert made["path"] == str(folder)
        assert made["sha256"] == Text(path=str(folder)).data.sha256
        assert dict(choose(Text, path="python:manual").settings)["path"] == "python:manual"

    def test_a_text_that_changed_is_refused(self, folder):
        choice = choose(Text, path=str(folder))
        choice.build()
        with (folder / "03.bin").open("ab") as file:
            file.write(b"!")
        with pytest.raises(ConfigError, match=r"it has changed; restore the old text") as caught:
            choice.build()
        assert "\n" not in str(caught.value)

    def test_a_described_run_is_read_without_its_text(self, folder, tmp_path):
        """What was run can be shown where the text is not."""
        data = choose(Text, path=str(folder)).to_data() | {"path": str(tmp_path / "gone")}
        settings = {k: v for k, v in data.items() if k not in ("is", "class")}
        again = choose(Text, **settings)
        assert again.to_data() == data
        with pytest.raises(ConfigError, match="there is no text at"):
            again.build()

    def test_it_stands_for_the_path_in_the_key(self, folder, tmp_path_factory):
        from lengthwise.encodings import NoPE

        copy = tmp_path_factory.mktemp("copy")
        for file in folder.iterdir():
            (copy / file.name).write_bytes(file.read_bytes())

        def key(**settings):
            return Run(
                encoding=choose(NoPE), task=choose(Text, **settings), training=TrainingConfig(train_length=8)
            ).key

        base = key(path=str(folder))
        assert base == key(path=str(copy), glob="*") == key(path=str(copy), glob="*.bin")
        assert base != key(path=str(folder), validation=0.2)
        (copy / "03.bin").write_bytes(b"other")
        assert base != key(path=str(copy))


def test_provenance_is_plain_data(task):
    facts = task.provenance()
    assert facts["corpus_sha256"] == task.data.sha256
    assert facts["corpus_documents"] == 12 == facts["train_documents"] + facts["test_documents"]
    assert facts["corpus_bytes"] == sum(map(len, sides(task).values())) == facts["train_bytes"] + facts["test_bytes"]
    assert "corpus_python" not in facts
    assert Text(path="python:manual").provenance()["corpus_python"].startswith("3.")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"validation": 0.0}, "above 0 and below 1"),
        ({"validation": 1.0}, "above 0 and below 1"),
        ({"chunk": 0}, "at least 1 byte"),
        ({"path": "python:sauce"}, "did you mean 'source'"),
        ({"pth": "x"}, "did you mean 'path'"),
    ],
)
def test_settings_that_cannot_be(settings, says):
    with pytest.raises(ConfigError, match=says) as caught:
        choose(Text, **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_length_that_no_document_has(task, split):
    longest = max(task.documents[split].lengths.tolist())
    task.check_length(longest, split)
    task.sample(generator(0), 2, longest, split)
    word = {"train": "training", "test": "validation"}[split]
    with pytest.raises(
        ConfigError, match=rf"at most {longest} bytes, the longest {word} document .*, got {longest + 1}; take"
    ) as caught:
        task.check_length(longest + 1, split)
    assert "\n" not in str(caught.value)


def test_batches_are_values(task):
    batch = task.sample(generator(0), 2, 4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        batch.inputs = batch.targets
