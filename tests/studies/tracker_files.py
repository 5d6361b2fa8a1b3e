"""Runs in trackers, read back from the files that the trackers' own libraries wrote."""

import importlib.util
import json
import os
import struct
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

BLOCK = 32768  # bytes, of an offline file of W&B


@dataclass
class ReadBack:
    """A tracked run: how often each value of the curve was logged, the values, the scores and the settings."""

    times: Counter[tuple[str, int]] = field(default_factory=Counter)
    curve: dict[str, dict[int, float]] = field(default_factory=partial(defaultdict, dict))
    scores: dict[tuple[str, int], float] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, step: int, value: float) -> None:
        if name.startswith("score/"):
            assert (name, step) not in self.scores
            self.scores[name, step] = value
            return
        self.times[name, step] += 1
        self.curve[name][step] = value

    def add_full_score(self, name: str, value: float) -> None:
        first, _, length = name.rpartition("/")
        self.add(first, int(length), value)


def read_tensorboard(results: Path, key: str) -> ReadBack:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    (folder,) = results.glob(f"tensorboard/*/{key}")
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    found = ReadBack()
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            found.add(name, event.step, event.value)
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    for name, value in HParamsPluginData.FromString(content).session_start_info.hparams.items():
        found.settings[name] = getattr(value, value.WhichOneof("kind"))
    return found


def wandb_records(file: Path) -> Iterator[Any]:
    """The records of an offline file, in the framing of LevelDB's logs: pieces in blocks, after a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, record = file.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or its last piece
            yield Record.FromString(record)
            record = b""


def read_wandb_here(results: Path, key: str) -> ReadBack:
    found = ReadBack()
    (file,) = results.glob(f"wandb/offline-run-*/run-{key}-*.wandb")
    scores = {}
    for record in wandb_records(file):
        for update in record.run.config.update:
            found.settings[update.key] = json.loads(update.value_json)
        values = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        step = int(values.get("_step", record.history.step.num))
        for name, value in values.items():
            if not name.startswith("_"):
                found.add(name, step, value)
        for item in record.summary.update:
            scores[item.key or item.nested_key[0]] = json.loads(item.value_json)
    for name, value in scores.items():
        if name.startswith("score/"):
            found.add_full_score(name, value)
    return found


def read_wandb(results: Path, key: str) -> ReadBack:
    """In another process, because W&B also imports pydantic, which changes how cyclopts checks options."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(read_wandb_here, results, key).result()


def read_mlflow(results: Path, key: str) -> ReadBack:
    return read_mlflow_at(f"sqlite:///{results / 'mlflow' / 'mlflow.db'}", key)


def read_mlflow_at(uri: str, key: str) -> ReadBack:
    """In another process, because the import of MLflow changes what this one prints."""
    code = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
experiments = [experiment.experiment_id for experiment in client.search_experiments()]
(run,) = client.search_runs(experiments, f"tags.`lengthwise.key` = '{sys.argv[2]}'")
metrics = [m for name in run.data.metrics for m in client.get_metric_history(run.info.run_id, name)]
print(json.dumps([run.data.params, [(m.key, m.step, m.value) for m in metrics]]))
"""
    ran = subprocess.run([sys.executable, "-c", code, uri, key], capture_output=True, text=True, check=True)
    settings, values = json.loads(ran.stdout.splitlines()[-1])
    found = ReadBack(settings=settings)
    for name, step, value in values:
        found.add(name, step, value)
    return found


def read_trackio(results: Path, key: str) -> ReadBack:
    """In another process, because trackio reads its folder from the environment when it is imported."""
    code = """
import json, sys
from trackio.sqlite_storage import SQLiteStorage
names = [name for name in SQLiteStorage.get_runs("lengthwise") if sys.argv[1] in name]
assert len(names) == 1, names
rows = SQLiteStorage.get_logs("lengthwise", run=names[0])
print(json.dumps([rows, SQLiteStorage.get_run_config("lengthwise", names[0])], default=str))
"""
    environment = dict(os.environ, TRACKIO_DIR=str(results / "trackio"))
    ran = subprocess.run([sys.executable, "-c", code, key], capture_output=True, text=True, env=environment, check=True)
    rows, settings = json.loads(ran.stdout.splitlines()[-1])
    found = ReadBack(settings=settings)
    for row in rows:
        for name, value in row.items():
            if name.startswith("score/"):
                found.add_full_score(name, value)
            elif name not in ("timestamp", "step") and not name.startswith("_"):
                found.add(name, row["step"], value)
    return found


READERS: dict[str, Callable[[Path, str], ReadBack]] = {
    "tensorboard": read_tensorboard,
    "wandb": read_wandb,
    "mlflow": read_mlflow,
    "trackio": read_trackio,
}


def each_tracker() -> list[Any]:
    """A parameter for each tracker. Those whose library is not in the extra `test` are slow, and skipped without it."""
    found = []
    for name in READERS:
        spec = importlib.util.find_spec(name)
        is_missing = spec is None or spec.origin is None
        marks = [pytest.mark.skipif(is_missing, reason=f"needs the extra {name}")]
        found.append(pytest.param(name, marks=marks if name == "tensorboard" else [*marks, pytest.mark.slow]))
    return found


OPTIONS = {"wandb": "wandb:mode=offline"}
