"""The settings of a stored run: those that decide which scores may be compared, and which runs are one series."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.store import RunRow

# Settings that say where a text or a tokenizer was stored. A hash identifies them. (In the tasks: `excluded_from_key`.)
STORAGE_SETTINGS = ("path", "glob", "tokenizer")


def protocol(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that runs with comparable scores share: all but the encoding, the position scheme and the
    seed.

    A run that started from another one is compared with it, so its training settings are those of the first run of its
    lineage.
    """
    shared = {k: v for k, v in config.items() if k not in ("encoding", "seed", "parent")}
    if (first := first_config(config)) is not config:
        shared["training"] = first.get("training")
    if isinstance(model := shared.get("model"), Mapping):
        shared["model"] = {k: v for k, v in model.items() if k != "share_encoding"}  # part of the encoding
    if isinstance(training := shared.get("training"), Mapping):  # position schemes are compared like encodings
        shared["training"] = {k: v for k, v in training.items() if k != "positions"}
    if isinstance(task := shared.get("task"), Mapping) and task.get("sha256"):
        shared["task"] = {k: v for k, v in task.items() if k not in STORAGE_SETTINGS}
    return shared


def text_path(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the path of the run's text as a flat setting, for titles. Its hash decides what may be compared."""
    path = (config.get("task") or {}).get("path")
    return {} if path is None else {"task.path": path}


def series_of(run: "RunRow") -> str:
    """Return what identifies the run's series: its runs with other seeds have the same."""
    # Labels omit defaults, which may differ between versions: the same label with other settings is another encoding.
    return canonical([run.label, encoding_settings(run)])


def encoding_settings(run: "RunRow") -> dict[str, Any]:
    """Return the settings in which the series of a task may differ."""
    model, training = run.config.get("model") or {}, training_of(run.config)
    own = {"encoding": run.config.get("encoding", run.encoding), "share_encoding": model.get("share_encoding")}
    if mixer_of(run) is not None:
        own["model"] = model
    return own | {"positions": training.get("positions")} | lineage_settings(run.config)


def lineage_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return in which settings runs that started from others differ: their own training, and their ancestors."""
    parent = config.get("parent")
    if not isinstance(parent, Mapping):
        return {}
    inherited = protocol(parent) | {
        "encoding": parent.get("encoding"),
        "positions": training_of(parent).get("positions"),
    }
    return {"training": training_of(config), "parent": inherited | lineage_settings(parent)}


def first_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of the first run of the lineage, which started with random weights."""
    while isinstance(parent := config.get("parent"), Mapping):
        config = parent
    return config


def first_train_length(run: "RunRow") -> int:
    """Return the training length of the first run of the lineage."""
    first = first_config(run.config)
    return run.train_length if first is run.config else int(training_of(first).get("train_length") or run.train_length)


def training_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the training settings of a run's configuration."""
    return config.get("training") or {}


def training_set(training: Mapping[str, Any]) -> str:
    """Return the training examples in words: `new examples at every step`, `100,000 fixed examples, 25.6 epochs`."""
    count = training.get("train_examples")
    if count is None:
        return "new examples at every step"
    epochs = training.get("steps", 0) * training.get("batch_size", 0) / count
    return f"{count:,} fixed examples, {epochs:.3g} epochs"


def mixer_of(run: "RunRow") -> str | None:
    """Return the mixer that the run's model uses instead of attention, or None."""
    return (run.config.get("model") or {}).get("mixer")


canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str).encode
