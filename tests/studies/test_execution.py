"""What `execute` trains, asks, repeats and gives up; in worker processes where they matter."""

import dataclasses
import queue
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lengthwise.cli.study_progress import Overview
from lengthwise.config import ConfigError, EvaluationConfig, ExecutorConfig, Inline, Local, ModelConfig, TrainingConfig
from lengthwise.models.linear import matmul_library
from lengthwise.store import RunRow, open_store
from lengthwise.studies import Compute, Event, Outcome, RunOptions, Study, StudyError, execute, grid, load
from lengthwise.studies.events import Advanced, Begun, Counted, Done, Failed, Note, Started
from lengthwise.studies.executors import WorkerError
from lengthwise.studies.spec import Spec
from lengthwise.studies.worker_process import Finished, WorkerProcess
from lengthwise.tasks import Copy
from lengthwise.tasks.base import Batch
from tests.made_answers import losses

pytestmark = pytest.mark.timeout(300)


INLINE = Inline()
SMALL = ModelConfig(d_model=16, num_layers=1, num_heads=2)


class Heard(list[Event]):
    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self if isinstance(event, kind)]


def run(study: Study, results: Path, executor: ExecutorConfig = INLINE, **options: object) -> tuple[Outcome, Heard]:
    heard = Heard()
    return execute(study, results, executor=executor, on_event=heard.append, **options), heard  # type: ignore[arg-type]


def rows(results: Path, study: str = "tiny") -> list[RunRow]:
    with open_store(results, create=False) as store:
        return store.runs(study)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


def test_scores_before_memory_runs_out_are_kept(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def examples(task: Copy, seed: int, count: int, length: int, split: str) -> Batch:
        if length > 4:
            raise MemoryError
        return draw(task, seed, count, length, split)

    draw = Copy.examples
    monkeypatch.setattr(Copy, "examples", examples)
    runs = grid(["nope"], ["copy"], model=SMALL, training=TrainingConfig(train_length=4, steps=1, batch_size=2))
    study = Study(name="tiny", runs=runs, evaluation=EvaluationConfig(lengths=(4, 8), examples=2))
    outcome, _ = run(study, results)
    line = (
        "length 8 symbols: not enough memory; use shorter lengths, fewer examples, smaller batches or a smaller model"
    )
    assert outcome.failed == ((study.runs[0].key, line),)
    with open_store(results) as store:
        assert [score.length for score in store.scores([study.runs[0].key])] == [4]


def test_a_study_from_nothing_to_done_and_no_run_twice(study_file: Callable[..., Path], results: Path) -> None:
    study = load(study_file())
    outcome, heard = run(study, results)
    assert outcome.counts == {"pending": 0, "running": 0, "done": 2, "failed": 0}
    assert outcome.failed == ()
    keys = [r.key for r in study.runs]
    assert [event.key for event in heard.of(Started)] == keys
    assert [event.key for event in heard.of(Done)] == keys
    assert {e.phase for e in heard if isinstance(e, Advanced)} == {"train", "evaluate"}
    (begun,) = heard.of(Begun)
    assert isinstance(begun, Begun)
    assert set(begun.costs) == set(keys)
    assert heard[-2:] == [Counted(counts=outcome.counts, waiting=False), heard.of(Done)[-1]]

    with open_store(results) as store:
        for row in store.runs("tiny"):
            assert (row.status, row.step, row.steps, row.claims, row.worker) == ("done", 12, 12, 1, None)
            assert [score.length for score in store.scores([row.key])] == [4, 8]
            assert losses(store, row.key)[-1][0] == 12
            assert {"parameters", "seconds", "peak_memory", "loop_overhead", "backend", "device", "threads"} <= set(
                row.facts
            )
            assert set(row.facts["versions"]) == {"lengthwise", "torch", "numpy"}
            assert row.facts["threads"] == 1
            assert row.facts["matmul_library"] == matmul_library()
            assert (results / row.facts["weights"]).is_file()
    before = rows(results)
    begin = time.perf_counter()
    outcome, heard = run(study, results, Local())
    assert time.perf_counter() - begin < 3  # no worker starts
    assert outcome.counts["done"] == 2
    assert heard.of(Started) == []
    assert rows(results) == before


def test_another_length_trains_nothing(study_file: Callable[..., Path], results: Path) -> None:
    run(load(study_file()), results)
    (first, *_) = rows(results)
    weights = results / first.facts["weights"]
    written = weights.stat().st_mtime_ns
    _, heard = run(load(study_file(lengths=(4, 8, 16))), results)
    assert [(e.what) for e in heard if isinstance(e, Started)] == ["evaluate"] * 2
    assert not [e for e in heard if isinstance(e, Advanced) and e.phase == "train"]
    assert [[length for length, _ in e.scores] for e in heard if isinstance(e, Done)] == [[16], [16]]
    assert weights.stat().st_mtime_ns == written
    assert rows(results)[0].facts == first.facts


def test_missing_and_damaged_weights_are_said_and_trained_again(study_file: Callable[..., Path], results: Path) -> None:
    run(load(study_file()), results)
    with open_store(results) as store:
        old = {(s.key, s.length): s.mean for s in store.scores([r.key for r in store.runs("tiny")])}
    missing, damaged = (results / row.facts["weights"] for row in rows(results))
    missing.unlink()
    damaged.write_bytes(damaged.read_bytes()[:-40])
    _, heard = run(load(study_file(lengths=(4, 8, 16))), results)
    notes = [event.text for event in heard if isinstance(event, Note)]
    assert any("weights are missing" in text and "training again" in text for text in notes)
    assert any(damaged.name in text and "damaged" in text for text in notes)
    assert rows(results)[0].status == rows(results)[1].status == "done"
    with open_store(results) as store:
        new = {(s.key, s.length): s.mean for s in store.scores([r.key for r in store.runs("tiny")])}
    assert {k: v for k, v in new.items() if k[1] != 16} == old
    assert len(new) == 6


FAULTY = """
class Faulty(NoPE):
    def modifiers(self, span):
        raise RuntimeError("broken on purpose\\nand a second line with a byte of a Latin-1 file name: \\udcef")
"""


def test_a_run_that_fails_is_named_and_the_others_go_on(study_file: Callable[..., Path], results: Path) -> None:
    study = load(study_file(encodings='[Faulty, "rope"]', before=FAULTY))
    outcome, heard = run(study, results)
    ((key, error),) = outcome.failed
    assert key == study.runs[0].key
    assert re.search(r"tiny\.py, line \d+: RuntimeError: broken on purpose \(see ", error), error
    assert "\n" not in error
    assert "broken on purpose" in (results / "runs" / key / "error.txt").read_text()
    assert "tiny.py" in (results / "runs" / key / "error.txt").read_text()
    assert [e.error for e in heard if isinstance(e, Failed)] == [error]
    assert outcome.counts == {"pending": 0, "running": 0, "done": 1, "failed": 1}
    outcome, heard = run(study, results)  # tried again, and alone
    assert [event.key for event in heard.of(Started)] == [key]
    assert outcome.counts["failed"] == 1


DEADLY = """
import os
class Deadly(NoPE):
    def modifiers(self, span):
        os._exit(7)
"""


@pytest.mark.slow
def test_a_run_that_kills_its_worker_is_given_up(study_file: Callable[..., Path], results: Path) -> None:
    study = load(study_file(encodings='[Deadly, "rope"]', before=DEADLY))
    outcome, heard = run(study, results, Local(workers=1))
    ((key, error),) = outcome.failed
    assert key == study.runs[0].key
    assert "its worker ended 2 times (exit code 7)" in error
    assert [event.key for event in heard.of(Note)] == [key]
    assert outcome.counts["done"] == 1


@pytest.mark.slow
def test_workers_that_cannot_start_end_the_study(study_file: Callable[..., Path], results: Path) -> None:
    own = study_file(encodings="[Mine]", before="class Mine(NoPE): ...")
    study = load(own)
    own.write_text("raise RuntimeError('gone')\n")  # so that the worker's reading of it fails
    with pytest.raises((StudyError, WorkerError), match=r"tiny\.py, line 1: RuntimeError: gone"):
        run(study, results, Local(workers=1))
    assert [row.status for row in rows(results)] == ["pending"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"options": RunOptions(retries=-1)}, "retries must be from 0 to 100, got -1"),
        ({"compute": Compute(threads=0)}, "threads must be at least 1, got 0"),
        ({"compute": Compute(device="gpu")}, "device 'gpu' cannot be used"),
        ({"compute": Compute(device="meta")}, "device 'meta' cannot be used"),
        ({"compute": Compute(backend="sdpaa")}, "there is no backend 'sdpaa'; did you mean 'sdpa'?"),
    ],
)
def test_options_that_cannot_be(
    study_file: Callable[..., Path], results: Path, options: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError) as error:
        run(load(study_file()), results, **options)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert not results.exists()


@pytest.mark.slow
def test_a_worker_makes_no_new_results_where_they_were_moved_away(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    store = f"sqlite:///{tmp_path / 'empty' / 'results.db'}"
    inbox: queue.SimpleQueue[tuple[WorkerProcess, Event]] = queue.SimpleQueue()
    worker = WorkerProcess(Spec(store=store, study="s", results=str(tmp_path)), inbox)
    _, event = inbox.get(timeout=60)
    assert isinstance(event, Finished) and event.error is not None and "there are no results at" in event.error
    worker.close()
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_class_that_workers_cannot_find(study_file: Callable[..., Path], results: Path) -> None:
    study = load(study_file(encodings="[made()]", before="def made():\n    class Inner(NoPE): ...\n    return Inner"))
    with pytest.raises(ConfigError, match="worker processes cannot import Inner from lengthwise_file_tiny"):
        run(study, results, Local(workers=1))
    assert not results.exists()
    assert run(study, results)[0].counts["done"] == 1, "this process has the class"


SCRIPT = """
from pathlib import Path
from beside import Beside
from lengthwise.config import EvaluationConfig, Local, ModelConfig, TrainingConfig
from lengthwise.encodings import NoPE
from lengthwise.studies import Study, execute, grid

class Mine(NoPE):
    pass

SMALL = ModelConfig(d_model=8, num_layers=1, num_heads=1)
training = TrainingConfig(train_length=4, steps=1)
study = Study(name="script", runs=grid([Mine, Beside], ["copy"], model=SMALL, training=training),
              evaluation=EvaluationConfig(lengths=(4,), examples=2))
if __name__ == "__main__":
    print(execute(study, Path(__file__).with_name("results"), executor=Local(workers=1)).counts)
"""


@pytest.mark.slow
def test_a_script_with_classes_of_its_own(tmp_path: Path) -> None:
    """Its own ones, and those of a module beside it; worker processes load the script and must not execute it."""
    script = tmp_path / "script.py"
    (tmp_path / "beside.py").write_text("from lengthwise.encodings import RoPE\nclass Beside(RoPE): ...\n")
    for text, code in ((SCRIPT.replace('__name__ == "__main__"', "True"), 1), (SCRIPT, 0)):
        script.write_text(text)
        done = subprocess.run([sys.executable, str(script)], cwd="/", capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert code == 0 or 'call execute() under if __name__ == "__main__":' in done.stderr
    assert done.stdout == "{'pending': 0, 'running': 0, 'done': 2, 'failed': 0}\n"


def test_nothing_is_written_when_a_run_cannot_be(study_file: Callable[..., Path], results: Path) -> None:
    study = load(study_file(encodings='["nope", "learned:max_length=12"]'))
    with pytest.raises(ConfigError, match="has 12"):
        run(study, results)
    assert not results.exists()


def test_prefixes_and_shifts(results: Path) -> None:
    """One line about a run says its lengths once: what is asked of shifts is counted, and kept."""
    asked = EvaluationConfig(lengths=(2, 4), examples=8, prompt=6, shifts=({"inputs": "skewed"}, {"noise": 1.0}))
    model = ModelConfig.llama(d_model=8, num_layers=1, num_heads=2)
    training = TrainingConfig(train_length=3, steps=2, batch_size=2)
    runs = grid(["nope"], ["linearregression:dims=2"], model=model, training=training)
    study = Study(name="tiny", runs=runs, evaluation=asked)
    _, heard = run(study, results)
    (done,) = (event for event in heard if isinstance(event, Done))
    assert [length for length, _ in done.scores] == [2, 4]
    assert done.shift_scores == 4
    assert Overview(study).scores(done).startswith("squared error ")
    assert Overview(study).scores(done).endswith(" at 4; 4 scores under shifts")
    more = dataclasses.replace(
        study, evaluation=dataclasses.replace(asked, shifts=(*asked.shifts, {"label_scale": 2.0}))
    )
    _, heard = run(more, results)
    (done,) = (event for event in heard if isinstance(event, Done))
    assert (done.scores, done.shift_scores) == ((), 2)
    assert Overview(study).scores(done) == "2 scores under shifts"
    with open_store(results) as store:
        assert len(store.scores([runs[0].key])) == 8


def test_fewer_examples_than_were_asked_for_are_noted(results: Path) -> None:
    """Of a length with too many questions to list, and fewer for tests than are asked; others are not noted."""
    study = Study(
        name="few",
        question="How many are there?",
        runs=grid(
            ["nope"],
            ["copy:pattern=repeated,symbols=5000", "copy"],
            seeds=1,
            model=SMALL,
            training=TrainingConfig(train_length=4, steps=1, batch_size=4),
        ),
        evaluation=EvaluationConfig(lengths=(4,), examples=800),
    )
    run(study, results)
    with open_store(results) as store:
        few, many = (store.scores([row.key])[0] for row in store.runs("few"))
    assert 500 < few.n < 700
    assert few.note == f"at length 4 there are only {few.n} different test examples"
    assert many.n == 800
    assert many.note == ""
