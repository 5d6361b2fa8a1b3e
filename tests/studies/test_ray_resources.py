"""What Ray does with the resources of runs: a GPU that runs share, and nodes that start on demand.

No GPU is opened: a node declares one, and waiting stands in for training.
"""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lengthwise.config import Inline, Ray
from lengthwise.store import open_store
from lengthwise.studies import Compute, execute, load
from lengthwise.studies.events import Note

STAND_IN = Path(__file__).parents[2] / "benchmarks" / "stand_in.py"
FAKE_HEAD = "fffffffffffffffffffffffffffffffffffffffffffffffffff00000"  # the ID that Ray's fake provider expects
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

# In a process of Ray, training notes what Ray has given it, waits for another run, and uses the CPU.
NOTING = """
import json
import os
import sys
import time

import lengthwise.studies.worker as worker
from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.encodings import PositionEncoding
from lengthwise.studies import Study, grid
from lengthwise.studies.provenance import facts
from lengthwise.training import train

class Noting(PositionEncoding):
    pass

def noting_train(run, folder, **options):
    import ray
    folder.mkdir(parents=True)
    note = {"gpus": ray.get_gpu_ids(), "visible": os.environ.get("CUDA_VISIBLE_DEVICES"), "process": os.getpid()}
    note["device"] = options["device"]
    (folder / "begun").touch()
    begin = note["begin"] = time.time()
    while len(list(folder.parent.glob("*/begun"))) < 2 and time.time() < begin + 100:
        time.sleep(0.1)
    note["free"] = ray.available_resources().get("GPU", 0)
    time.sleep(1)
    trained = train(run, folder, **options | {"device": "cpu"})
    note["end"] = time.time()
    (folder / "note.json").write_text(json.dumps(note))
    return trained

if sys.argv[0].endswith("default_worker.py"):
    worker.train = noting_train
    worker.facts = lambda device, threads: facts("cpu", threads)

study = Study(
    name="noting",
    question="What does Ray give a run?",
    runs=grid([Noting], ["copy"], seeds=3, model=ModelConfig(d_model=4, num_layers=1, num_heads=1),
              training=TrainingConfig(train_length=2, steps=1, batch_size=4)),
    evaluation=EvaluationConfig(lengths=(2,), examples=4),
)
"""


@pytest.fixture
def gpu_cluster() -> Iterator[Any]:
    """A node of Ray with many CPUs, which declares a GPU that it does not have."""
    pytest.importorskip("ray")
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "num_gpus": 1})
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_two_runs_share_a_gpu_and_a_third_one_waits(gpu_cluster: Any, tmp_path: Path) -> None:
    file, results = tmp_path / "noting.py", tmp_path / "results"
    file.write_text(NOTING)
    execute(load(file), tmp_path / "here", executor=Inline())
    executor, compute = Ray(address=gpu_cluster.address, gpus=0.5), Compute(device="cuda")
    outcome = execute(load(file), results, executor=executor, compute=compute)
    assert outcome.counts == {"pending": 0, "running": 0, "done": 3, "failed": 0}
    assert scores(results) == scores(tmp_path / "here")
    notes = [json.loads(path.read_text()) for path in results.glob("runs/*/note.json")]
    first, second, third = sorted(notes, key=lambda note: note["begin"])
    assert second["begin"] < first["end"], "at the same time"
    assert third["begin"] >= min(first["end"], second["end"])
    assert first["free"] == second["free"] == 0, "nothing is left for the third one"
    assert {note["device"] for note in notes} == {"cuda"}
    assert [note["gpus"] for note in notes] == [[0]] * 3 and {note["visible"] for note in notes} == {"0"}
    assert len({note["process"] for note in notes}) == 3, "because the next task may get another GPU"


@pytest.fixture
def growing_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Ray cluster whose head has no CPU. Its autoscaler starts up to two nodes with one CPU by Ray's fake provider.

    `ray.cluster_utils.AutoscalingCluster` would need a file that Ray's packages lack, and would end all processes of
    Ray here.
    """
    pytest.importorskip("ray")
    try:
        import ray
        from ray.autoscaler._private.fake_multi_node import node_provider  # noqa: F401
        from ray.cluster_utils import Cluster
    except ImportError as error:
        pytest.skip(f"this version of Ray has no fake provider: {error}")
    monkeypatch.setenv("RAY_FAKE_CLUSTER", "1")
    monkeypatch.setenv("RAY_OVERRIDE_NODE_ID_FOR_TESTING", FAKE_HEAD)
    monkeypatch.setenv("AUTOSCALER_UPDATE_INTERVAL_S", "1")
    with socket.socket() as listening:
        listening.bind(("", 0))
        port = listening.getsockname()[1]
    address = f"{ray.util.get_node_ip_address()}:{port}"
    provider = {
        "type": "fake_multinode",
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
        "gcs_address": address,
    }
    commands = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
    settings = {
        "cluster_name": "growing",
        "max_workers": 2,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 0.05,
        "provider": provider,
        "auth": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        **{f"{name}_commands": [] for name in commands},
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {}, "node_config": {}, "max_workers": 0},
            "one CPU": {
                "resources": {"CPU": 1, "object_store_memory": 100_000_000},
                "node_config": {},
                "min_workers": 0,
                "max_workers": 2,
            },
        },
    }
    file = tmp_path / "autoscaling.json"
    file.write_text(json.dumps(settings))
    head = {"num_cpus": 0, "gcs_server_port": port, "autoscaling_config": str(file)}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster
    ray.shutdown()
    end = time.monotonic() + 60  # the nodes of the autoscaler would outlive the head for a while
    while sum(node["Alive"] for node in cluster.global_state.node_table()) > 1 and time.monotonic() < end:
        time.sleep(0.5)
    cluster.shutdown()


def test_the_cluster_grows_for_a_study_and_shrinks_again(growing_cluster: Any, tmp_path: Path) -> None:
    import ray

    execute(load(STAND_IN, {"runs": "6", "seconds": "0.0"}), tmp_path / "here", executor=Inline())
    study = load(STAND_IN, {"runs": "6", "seconds": "2.0"})
    ray.init(address=growing_cluster.address, log_to_driver=False)
    notes: list[str] = []
    outcome = execute(
        study,
        tmp_path / "there",
        executor=Ray(address=growing_cluster.address),
        on_event=lambda event: notes.append(event.text) if isinstance(event, Note) else None,
    )
    assert outcome.counts == {"pending": 0, "running": 0, "done": 6, "failed": 0}
    assert "submitted the tasks of 6 runs to Ray (nodes: 1, CPUs: 0, GPUs: 0)" in notes
    assert len(ray.nodes()) == 3, "the head, and two others"
    assert scores(tmp_path / "there") == scores(tmp_path / "here")
    end = time.monotonic() + 120
    while sum(node["Alive"] for node in ray.nodes()) > 1:
        assert time.monotonic() < end, "idle nodes do not end"
        time.sleep(0.5)


def scores(results: Path) -> dict[str, Any]:
    """The scores of the runs, by seed: `seconds` is a part of the key."""
    with open_store(results, create=False) as store:
        (study,) = store.studies()
        runs = {run.key: f"seed {run.seed}" for run in store.runs(study.name)}
        return {(runs[s.key], s.length): (s.mean, s.standard_error) for s in store.scores(list(runs))}
