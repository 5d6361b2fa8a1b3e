"""A results folder in S3: s3fs and a server on this machine (moto). Both are optional."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
moto_server = pytest.importorskip("moto.server", reason="moto's server is not installed")

from lengthwise.config import EvaluationConfig, Inline, ModelConfig, TrainingConfig  # noqa: E402
from lengthwise.store import StoreError, StoreUnreachable, open_folder, open_results  # noqa: E402
from lengthwise.studies import Study, execute, grid  # noqa: E402
from lengthwise.studies.events import Started  # noqa: E402

KEY = f"{7:016x}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A client of a server with the bucket `bucket`."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hunter2",
        "AWS_DEFAULT_REGION": "us-east-1", "LENGTHWISE_CACHE": str(tmp_path / "cache"),
        "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    client = s3fs.S3FileSystem(use_listings_cache=False)
    client.mkdir("bucket")
    yield client
    client.rm("bucket", recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def objects(client: Any) -> list[str]:
    client.invalidate_cache()
    return sorted(client.find("bucket"))


def test_a_study_on_two_machines(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = TrainingConfig(train_length=4, steps=12, batch_size=4)
    runs = grid(
        ["nope"], ["copy"], seeds=2, model=ModelConfig(d_model=16, num_layers=1, num_heads=2), training=training
    )
    store, heard = f"sqlite:///{tmp_path}/x.db", []
    for lengths in ((4, 8), (4, 8, 12)):
        monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / f"cache-{len(lengths)}"))
        study = Study(name="tiny", question="?", runs=runs, evaluation=EvaluationConfig(lengths=lengths, examples=16))
        heard.clear()
        outcome = execute(study, "s3://bucket/a/b", store=store, executor=Inline(), on_event=heard.append)
        assert outcome.counts["done"] == 2
        assert {e.what for e in heard if isinstance(e, Started)} == {"train" if len(lengths) == 2 else "evaluate"}
        files = [f"bucket/a/b/runs/{run.key}/weights.safetensors" for run in runs]
        assert objects(server) == sorted(["bucket/a/b/results-id", *files])
    with open_results("s3://bucket/a/b", store=store) as opened:
        opened.drop([runs[0].key], finished=True)
    assert objects(server) == ["bucket/a/b/results-id", files[1]]


def test_checkpoints_of_two_machines(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = []
    for name in "ab":
        monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / name))
        folders.append(open_folder("s3://bucket/x"))
        assert folders[-1].path.is_dir()
    a, b = folders
    assert a.identifier(create=True) == b.identifier(create=False) is not None
    size = 12_000_000  # more than one part of an upload

    def save(folder: Any, *steps: int) -> None:
        folder.fetch(KEY)
        for step in steps:
            (folder.run_folder(KEY) / f"checkpoint-{step:08d}.safetensors").write_bytes(bytes([step]) * size)
        for old in sorted(folder.run_folder(KEY).glob("checkpoint-*"))[:-2]:
            old.unlink()
        folder.send(KEY)

    def contents(folder: Any) -> dict[str, int]:
        files = {path.name: path.read_bytes() for path in folder.run_folder(KEY).glob("checkpoint-*")}
        assert all(len(set(data)) == 1 and len(data) == size for data in files.values())
        return {name: data[0] for name, data in files.items()}

    save(a, 10, 20)
    save(b, 30)
    save(a, 40)
    b.fetch(KEY)
    assert contents(a) == contents(b) == {"checkpoint-00000030.safetensors": 30, "checkpoint-00000040.safetensors": 40}
    assert len(objects(server)) == 3


def test_errors_in_one_line(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = f"sqlite:///{tmp_path}/x.db"
    with pytest.raises(StoreError, match="s3://nobucket/x is in no bucket or folder that exists; create it") as caught:
        open_results("s3://nobucket/x", store=store)
    assert not server.exists("nobucket")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(StoreUnreachable, match="s3://bucket/x cannot be reached") as caught:
        open_results("s3://bucket/x", store=store)
    assert "\n" not in str(caught.value)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(StoreError, match=r"s3://bucket/x refuses access \(.*credentials"):
        open_results("s3://bucket/x", store=store)
