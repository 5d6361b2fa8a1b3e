"""Checkpoints: whole or absent, damage found and named, the newest two kept."""

import json
import os
import re
import subprocess
import sys
import textwrap
import warnings

import pytest
import torch
from safetensors import safe_open

from lengthwise.config import ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import ALiBi, NoPE
from lengthwise.tasks import Copy
from lengthwise.training import CheckpointError, CheckpointWarning, Stopped, load_weights, train
from lengthwise.training.checkpoint import model_tensors
from lengthwise.training.tensor_file import DamagedFile, read, write


def a_run(seed=0, encoding=ALiBi) -> Run:
    return Run(
        encoding=choose(encoding),
        task=choose(Copy, symbols=4),
        model=ModelConfig(d_model=8, num_layers=1, num_heads=2),
        training=TrainingConfig(train_length=3, steps=10, batch_size=4),
        seed=seed,
    )


def stopped_at(step, folder, run=None, every=1):
    count = iter(range(step + 1))
    with pytest.raises(Stopped):
        train(run or a_run(), folder, checkpoint_every=every, should_stop=lambda: next(count) == step)


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


# ---- the file ---------------------------------------------------------------------------------------------------


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "a.safetensors"
    tensors = {
        "matrix": torch.randn(3, 4),
        "turned": torch.randn(3, 4).T,
        "number": torch.tensor(2.5, dtype=torch.float64),
        "nothing": torch.zeros(2, 0),
        "half": torch.randn(5).bfloat16(),
        "bits": torch.arange(7, dtype=torch.uint8),
        "nan": torch.tensor([float("nan"), float("-inf")]),
    }
    write(path, tensors, {"a": "1", "ü": "\n"})
    back, facts = read(path)
    assert facts == {"a": "1", "ü": "\n"}
    for name, t in tensors.items():
        assert back[name].dtype == t.dtype
        torch.testing.assert_close(back[name], t, rtol=0, atol=0, equal_nan=True)
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_every_flipped_bit_and_every_cut_is_found(tmp_path):
    path = tmp_path / "a.safetensors"
    write(path, {"a": torch.arange(6.0), "b": torch.ones(2)}, {"step": "7", "key": "abc"})
    whole = path.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    for place in range(len(whole)):
        for bit in (0, 5):
            content = bytearray(whole)
            content[place] ^= 1 << bit
            path.write_bytes(content)
            with pytest.raises(DamagedFile, match=re.escape(str(path))) as error:
                read(path)
            assert "\n" not in str(error.value)
    for length in (0, 1, 7, 8, 9, end - 1, end, end + 1, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedFile):
            read(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(DamagedFile):
        read(path)


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    write(path, {"a": torch.zeros(3)}, {})
    before = path.read_bytes()
    for step in ("fsync", "replace"):
        with monkeypatch.context() as m:
            m.setattr(os, step, lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(
                CheckpointError, match=r"cannot write .*a.safetensors: No space left on device; make room"
            ):
                write(path, {"a": torch.ones(3)}, {})
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["a.safetensors"]


@pytest.mark.medium
@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on file sizes, as Unix has it")
def test_a_full_disk_is_one_plain_line(tmp_path):
    """A real failing write in the middle of a file: the process may not make files of more than 8 KiB."""
    code = f"""
        import resource, torch
        from lengthwise.training.tensor_file import CheckpointError, write
        from pathlib import Path
        path = Path({str(tmp_path)!r}) / "a.safetensors"
        write(path, {{"a": torch.zeros(10)}}, {{}})
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        try:
            write(path, {{"a": torch.ones(10_000)}}, {{}})
        except CheckpointError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"cannot write [^\n]* too large[^\n]*\n", done.stdout, re.IGNORECASE)
    assert os.listdir(tmp_path) == ["a.safetensors"]
    assert float(read(tmp_path / "a.safetensors")[0]["a"].sum()) == 0


# ---- a run's folder ---------------------------------------------------------------------------------------------


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_the_newest_two_stay(tmp_path):
    stopped_at(7, tmp_path, every=2)
    assert names(tmp_path) == ["checkpoint-00000006.safetensors", "checkpoint-00000007.safetensors"]


@pytest.mark.parametrize("place", [3, 40, -1])  # the header's length, the header, the last tensor
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_serves(place, tmp_path):
    whole = train(a_run(), tmp_path / "whole")
    folder = tmp_path / "broken"
    stopped_at(6, folder)
    flip(folder / "checkpoint-00000006.safetensors", place)
    begun_at = []
    with pytest.warns(
        CheckpointWarning, match=r"checkpoint-00000006.safetensors is damaged.*moved aside.*the one before"
    ) as w:
        broken = train(a_run(), folder, on_progress=lambda p: begun_at.append(p.step))
    assert len(w) == 1
    assert "\n" not in str(w[0].message)
    assert begun_at[0] == 6, "continues after step 5"
    assert names(folder) == ["checkpoint-00000006.safetensors.damaged", "weights.safetensors"]
    for name, t in model_tensors(whole.model).items():
        assert torch.equal(t, model_tensors(broken.model)[name]), name


def test_when_all_are_damaged_training_begins_again(tmp_path):
    whole = train(a_run(), tmp_path / "whole")
    folder = tmp_path / "broken"
    stopped_at(6, folder)
    for path in list(folder.iterdir()):
        path.write_bytes(b"")
    with pytest.warns(CheckpointWarning) as w:
        broken = train(a_run(), folder)
    assert [str(x.message).rpartition(", and training ")[2] for x in w] == [
        "continues from the one before it",
        "starts again",
    ]
    assert all(torch.equal(t, model_tensors(broken.model)[n]) for n, t in model_tensors(whole.model).items())


def test_damaged_weights_are_named_and_trained_again(tmp_path):
    first = train(a_run(), tmp_path)
    flip(tmp_path / "weights.safetensors", -1)
    with pytest.raises(CheckpointError, match=r"weights.safetensors is damaged"):
        load_weights(tmp_path, a_run())
    with pytest.warns(CheckpointWarning, match=r"weights.safetensors is damaged.*trained again"):
        again = train(a_run(), tmp_path)
    assert all(torch.equal(t, model_tensors(again.model)[n]) for n, t in model_tensors(first.model).items())
    load_weights(tmp_path, a_run())


def test_another_runs_files_are_refused_and_left(tmp_path):
    stopped_at(4, tmp_path)
    before = names(tmp_path)
    with pytest.raises(CheckpointError, match=rf"belongs to run '{a_run().key}', not to {a_run(seed=1).key}"):
        train(a_run(seed=1), tmp_path)
    assert names(tmp_path) == before
    train(a_run(), tmp_path)
    for use in (train, lambda run, folder: load_weights(folder, run)):
        with pytest.raises(CheckpointError, match="belongs to run"):
            use(a_run(seed=1), tmp_path)
    assert names(tmp_path) == ["weights.safetensors"]


def test_missing_weights_are_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"there is no .*weights.safetensors; run .* is not finished"):
        load_weights(tmp_path, a_run())


def test_a_file_of_another_format_or_model_is_refused(tmp_path, monkeypatch):
    stopped_at(4, tmp_path)
    with monkeypatch.context() as m:
        m.setattr("lengthwise.training.checkpoint.FORMAT", "2")
        with pytest.raises(CheckpointError, match="must have format '2', got '1'"):
            train(a_run(), tmp_path)
    path = tmp_path / "checkpoint-00000004.safetensors"
    tensors, facts = read(path)
    tensors["model/other"] = tensors.pop("model/lm_head.weight")
    write(path, tensors, facts)
    with pytest.raises(CheckpointError, match="does not fit the model of this version"):
        train(a_run(), tmp_path)


def test_what_a_killed_writer_left_is_cleared_away(tmp_path):
    left = tmp_path / ".lengthwise-0123"
    left.write_bytes(b"half")
    train(a_run(), tmp_path)
    assert names(tmp_path) == ["weights.safetensors"]


def test_checkpoints_left_beside_finished_weights_go(tmp_path):
    stopped_at(4, tmp_path)
    kept = (tmp_path / "checkpoint-00000004.safetensors").read_bytes()
    train(a_run(), tmp_path)
    (tmp_path / "checkpoint-00000004.safetensors").write_bytes(
        kept
    )  # killed between writing the one and removing the other
    train(a_run(), tmp_path)
    assert names(tmp_path) == ["weights.safetensors"]


def test_other_conditions_are_mentioned(tmp_path):
    stopped_at(4, tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        with pytest.warns(CheckpointWarning, match=f"threads {threads} then, {threads + 1} now"):
            train(a_run(), tmp_path)
    finally:
        torch.set_num_threads(threads)


def test_nothing_is_said_when_all_is_well(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stopped_at(4, tmp_path)
        train(a_run(), tmp_path)


def test_a_folder_that_cannot_be_is_one_plain_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot use the folder .*file"):
        train(a_run(), tmp_path / "file" / "deeper")


def test_a_full_disk_ends_training_and_a_later_call_continues(tmp_path, monkeypatch):
    whole = train(a_run(), tmp_path / "whole")
    folder = tmp_path / "full"
    stopped_at(4, folder)
    with monkeypatch.context() as m:
        m.setattr(os, "fsync", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(CheckpointError, match=r"checkpoint-00000005.safetensors: No space left on device"):
            train(a_run(), folder, checkpoint_every=1)
    assert names(folder) == ["checkpoint-00000003.safetensors", "checkpoint-00000004.safetensors"]
    continued = train(a_run(), folder)
    assert all(torch.equal(t, model_tensors(continued.model)[n]) for n, t in model_tensors(whole.model).items())


def test_the_weights_say_what_they_are(tmp_path):
    run = a_run(encoding=NoPE)
    trained = train(run, tmp_path)
    with safe_open(tmp_path / "weights.safetensors", "pt") as file:
        facts = file.metadata()
        assert set(file.keys()) == set(trained.model.state_dict())
    assert facts["key"] == run.key
    assert Run.from_data(json.loads(facts["run"])) == run
