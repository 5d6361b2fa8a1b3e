"""A study of many short runs is interrupted ten times on each executor: workers, driver and server are killed.

Every run is finished once, and its numbers are those of a study that nothing interrupted. LENGTHWISE_TEST_RUNS=870
tries it with as many runs as the study of the NoPE paper has.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lengthwise.config import Inline
from lengthwise.store import Store, open_results
from lengthwise.studies import execute, load
from tests.postgres_server import Server, needs_own_postgres, new_server
from tests.slurm_cluster import needs_slurm, slurm

__all__ = ["slurm"]

RUNS = int(os.environ.get("LENGTHWISE_TEST_RUNS", "60"))
STUDY = Path(__file__).parents[2] / "benchmarks" / "stand_in.py"
OPTIONS = {"runs": str(RUNS), "seconds": "0.05"}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), needs_own_postgres]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    results = tmp_path_factory.mktemp("expected")
    study = load(str(STUDY), {**OPTIONS, "seconds": "0.0"})
    execute(study, results, executor=Inline())
    with open_results(results, create=False) as store:
        return {f"seed {run.seed}": numbers(store, run.key) for run in store.runs(study.name)}


@pytest.fixture
def server() -> Iterator[Server]:
    with new_server() as running:
        yield running


@pytest.fixture(params=["local", pytest.param("slurm", marks=needs_slurm), "ray"])
def engine(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """The options of an executor."""
    if request.param == "local":
        yield ["--workers", "2"]
    elif request.param == "slurm":
        request.getfixturevalue("slurm")
        yield ["--on", "slurm", "--slots", "2", "--time", "30m"]
    else:
        pytest.importorskip("ray")
        import ray
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        yield ["--on", f"ray:{cluster.address}"]
        ray.shutdown()
        cluster.shutdown()


def numbers(store: Store, key: str) -> list[tuple[int, float, float]]:
    return [(score.length, score.mean, score.standard_error) for score in store.scores([key])]


def test_a_study_that_is_interrupted_ten_times(
    engine: list[str], server: Server, expected: dict[str, Any], tmp_path: Path
) -> None:
    results, drivers = tmp_path / "results", list[subprocess.Popen[str]]()

    def drive() -> None:
        settings = [word for name, value in OPTIONS.items() for word in ("--set", f"{name}={value}")]
        words = ["run", str(STUDY), *settings, *engine, "--results", str(results), "--store", server.url]
        with open(tmp_path / f"driver-{len(drivers)}.txt", "w", encoding="utf-8") as log:
            command = [sys.executable, "-m", "lengthwise", *words]
            drivers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, text=True))

    def require_driver() -> None:
        """A driver that begins while the server is down says so and ends; the same command continues."""
        if drivers[-1].poll() is not None:
            said = (tmp_path / f"driver-{len(drivers) - 1}.txt").read_text()
            down = "cannot be reached" in said or "has closed the connection" in said
            assert drivers[-1].returncode == 0 or (drivers[-1].returncode == 2 and down), said[-2000:]
            if drivers[-1].returncode:
                drive()

    def look(read: Callable[[Store], Any]) -> Any:
        with suppress(ValueError, IndexError), open_results(results, create=False, store=server.url) as store:
            return read(store)
        return None

    def done() -> int:
        return look(lambda store: store.studies()[0].progress["done"]) or 0

    def kill_a_worker() -> None:
        runs = look(lambda store: store.activity(store.studies()[0].name)) or []
        pids = {int(run.worker.split(":")[1]) for run in runs if run.worker and run.status == "running"}
        for pid in list(pids)[:1]:
            if pid != drivers[-1].pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def kill_the_driver() -> None:
        drivers[-1].kill()
        drivers[-1].wait()
        drive()

    def crash_the_server() -> None:
        server.stop()
        time.sleep(1)
        server.start()

    drive()
    interruptions = [kill_a_worker, crash_the_server, kill_the_driver, kill_a_worker, kill_the_driver]
    interruptions += [crash_the_server, kill_a_worker, kill_the_driver, crash_the_server, kill_a_worker]
    for n, interrupt in enumerate(interruptions, 1):
        end = time.monotonic() + 300
        while done() < n * RUNS // (len(interruptions) + 2):
            assert time.monotonic() < end, f"only {done()} of {RUNS} runs are done after {n - 1} interruptions"
            require_driver()
            time.sleep(0.1)
        interrupt()
    while drivers[-1].poll() != 0:
        require_driver()
        time.sleep(0.5)
    with open_results(results, create=False, store=server.url) as store:
        (study,) = store.studies()
        assert study.progress == {"pending": 0, "running": 0, "done": RUNS, "failed": 0}
        assert {f"seed {run.seed}": numbers(store, run.key) for run in store.runs(study.name)} == expected
        claims = sum(run.claims for run in store.runs(study.name))
        print(f"{RUNS} runs, {len(interruptions)} interruptions, {claims} claims, {engine}")
        assert claims < RUNS + 10 * len(interruptions)
