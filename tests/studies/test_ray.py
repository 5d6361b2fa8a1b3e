"""Studies in the tasks of a Ray cluster of two nodes on this machine."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lengthwise.config import ConfigError, Inline, Ray
from lengthwise.store import StoreError, open_results, open_store
from lengthwise.studies import Compute, Event, execute, load
from lengthwise.studies.events import Done, Note, Started

StudyFile = Callable[..., Path]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A Ray cluster of two nodes with one CPU each, of which the first is the head."""
    pytest.importorskip("ray")
    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    yield nodes
    ray.shutdown()
    nodes.shutdown()


def numbers(results: Path) -> dict[str, Any]:
    with open_results(results, create=False) as store:
        return {
            run.key: (run.status, run.error, [(s.length, s.mean, s.standard_error) for s in store.scores([run.key])])
            for run in store.runs("tiny")
        }


def steps(results: Path) -> list[int]:
    """The steps of the runs that have workers."""
    with suppress(StoreError), open_store(results, create=False) as store:  # it may not exist yet
        return [run.step for run in store.runs("tiny") if run.worker and run.step]
    return []


def wait_for(condition: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"still not after {seconds} s"
        time.sleep(0.2)


def start(file: Path, results: Path, cluster: Any) -> "subprocess.Popen[str]":
    words = ["run", str(file), "--results", str(results), "--on", f"ray:{cluster.address}"]
    return subprocess.Popen(
        [sys.executable, "-m", "lengthwise", *words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )


def test_results_at_an_address(
    cluster: Any, study_file: StudyFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "cache"))
    study, results, store = load(study_file()), f"file://{tmp_path}/bucket", f"sqlite:///{tmp_path}/results.db"
    outcome = execute(study, results, store=store, executor=Ray(address=cluster.address))
    assert outcome.counts == {"pending": 0, "running": 0, "done": 2, "failed": 0}
    files = {path.parent.name: path.name for path in (tmp_path / "bucket").glob("runs/*/*")}
    assert files == {run.key: "weights.safetensors" for run in study.runs}


def test_a_study_gives_what_it_gives_here(cluster: Any, study_file: StudyFile, tmp_path: Path) -> None:
    study = load(study_file(seeds=2))
    execute(study, tmp_path / "here", executor=Inline())
    heard: list[Event] = []
    outcome = execute(study, tmp_path / "there", executor=Ray(address=cluster.address), on_event=heard.append)
    assert outcome.counts == {"pending": 0, "running": 0, "done": 4, "failed": 0}
    assert numbers(tmp_path / "there") == numbers(tmp_path / "here")
    keys = {run.key for run in study.runs}
    assert {e.key for e in heard if isinstance(e, Started)} == keys
    assert {e.key for e in heard if isinstance(e, Done) and len(e.scores) == 2} == keys
    assert any(
        isinstance(e, Note) and e.text == "submitted the tasks of 4 runs to Ray (nodes: 2, CPUs: 2, GPUs: 0)"
        for e in heard
    )


def test_a_node_is_lost(cluster: Any, study_file: StudyFile, tmp_path: Path) -> None:
    """Its run continues on another node, and the numbers are those of a study that nothing interrupted."""
    file = study_file(steps=20_000)
    execute(load(file), tmp_path / "here", executor=Inline())
    results = tmp_path / "results"
    driver = start(file, results, cluster)
    wait_for(lambda: len(steps(results)) == 2)
    cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
    assert driver.stderr is not None
    error = driver.communicate(timeout=200)[1]
    assert driver.returncode == 0, error
    assert numbers(results) == numbers(tmp_path / "here")
    with open_store(results, create=False) as store:
        assert sorted(run.claims for run in store.runs("tiny")) == [1, 2]


def test_the_driver_is_killed_or_interrupted(cluster: Any, study_file: StudyFile, tmp_path: Path) -> None:
    file, results = study_file(encodings='["nope"]', steps=20_000), tmp_path / "results"
    execute(load(file), tmp_path / "here", executor=Inline())
    driver = start(file, results, cluster)
    wait_for(lambda: steps(results))
    driver.kill()
    driver.wait()
    driver = start(file, results, cluster)
    wait_for(lambda: list(results.glob("runs/*/checkpoint-*")))
    driver.send_signal(signal.SIGINT)
    error = driver.communicate(timeout=100)[1]
    assert driver.returncode == 130 and "all progress is saved; run the same command again to continue" in error
    with open_store(results, create=False) as store:
        (run,) = store.runs("tiny")
    assert (run.status, run.worker) == ("pending", None) and run.step > 0
    assert list((results / "runs" / run.key).glob("checkpoint-*"))
    driver = start(file, results, cluster)
    error = driver.communicate(timeout=200)[1]
    assert driver.returncode == 0, error
    assert numbers(results) == numbers(tmp_path / "here")


def test_what_is_refused(study_file: StudyFile, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    study, results = load(study_file()), tmp_path / "results"
    with pytest.raises(ConfigError, match="must not contain a password"):
        execute(study, results, store="postgresql://me:secret@host/db", executor=Ray())
    with pytest.raises(ConfigError, match=r"gpus is 0\.5 but device is cpu; add --device cuda"):
        execute(study, results, executor=Ray(gpus=0.5))
    with pytest.raises(ConfigError, match="gpus is 0 but device is cuda; add --gpus 1"):
        execute(study, results, executor=Ray(), compute=Compute(device="cuda"))
    assert not results.exists()
