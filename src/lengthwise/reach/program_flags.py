"""Flags with which vLLM and llama.cpp compute a method in the same model, where they compute the same angles.

Sources: the page "Context Extension" of vLLM's documentation, and its `model_executor/layers/rotary_embedding`;
llama.cpp's tools/server/README.md, its src/llama-context.cpp, and `rope_yarn` of ggml. Versions of both programs differ
in what they do with an attention factor of YaRN other than 0.1 ln s + 1, so there are no flags for one.
"""

import json
import math
from dataclasses import dataclass
from typing import Any

import torch

from lengthwise.config import Choice, ConfigError
from lengthwise.encodings import NoPE
from lengthwise.huggingface import LengthwiseForCausalLM
from lengthwise.huggingface.own_encoding import head_dim_of, train_length_of
from lengthwise.huggingface.replacement import encoding_of
from lengthwise.measurements.reach import OWN
from lengthwise.measurements.table import Row
from lengthwise.models.conversion import equivalent, rope_parameters_from_encoding
from lengthwise.reach.methods import choice_for, own_choice
from lengthwise.values import join_names

COMPUTED = ("RoPE", "PI", "YaRN", "Llama3")  # rotations that a program computes at every length alike
ATTENTION_FACTOR = ("attention_factor", "mscale", "mscale_all_dim")


@dataclass(frozen=True)
class Rotation:
    """A method's only rotation, in place of the model's own. `longest`: the length of its factor, if it has one."""

    config: Any
    choice: Choice
    model_choice: Choice
    longest: int | None

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.choice.settings)

    @property
    def train_length(self) -> int:
        return train_length_of(self.config)


def program_flags(model: Any, method: str) -> tuple[Row, ...]:
    """Return a row for each program with its flags for a method, or with the reason why there are none.

    There are no rows for the model as it is, and for models with encodings of ours.
    """
    if method == OWN or isinstance(model, LengthwiseForCausalLM) or encoding_of(model) is not None:
        return ()
    rows = []
    for program, write in {"vLLM": _vllm, "llama.cpp": _llama_cpp}.items():
        try:
            cells = {"flags": write(_rotation(model, method))}
        except ConfigError as error:
            cells = {"reason": str(error)}
        rows.append({"method": method, "program": program, **cells})
    return tuple(rows)


def _rotation(model: Any, method: str) -> Rotation:
    """Return the rotation of a method. Raises `ConfigError` with the reason if no program computes it."""
    config, model_choice, choice = model.config, own_choice(model), choice_for(model, method)
    if model_choice is None or "rope_type" not in (getattr(config, "rope_parameters", None) or {}):
        raise ConfigError("the model has no RoPE with the same settings in all layers")
    layers = range(int(config.num_hidden_layers))
    pairs = {(choice.layers[n % len(choice.layers)], model_choice.layers[n % len(model_choice.layers)]) for n in layers}
    pairs = {(new, old) for new, old in pairs if new.cls is not NoPE or old.cls is not NoPE}
    if len(pairs) != 1 or any(old.cls is NoPE for _, old in pairs):
        raise ConfigError("the method differs between layers")
    ((new, old),) = pairs
    context = {"head_dim": head_dim_of(config), "train_length": train_length_of(config)}
    factor, same = dict(new.settings).get("factor"), equivalent(new, **context)
    if same.name not in COMPUTED:
        raise ConfigError(f"it has no flags that compute {new.name} as it is measured here")
    if new.layer.non_defaults:
        raise ConfigError(f"it has no {join_names(list(new.layer.non_defaults))}")
    if dict(same.settings)["layout"] != dict(old.settings)["layout"]:
        raise ConfigError("the method pairs other dimensions than the model's weights")
    if not _has_usual_attention_factor(same, config):
        raise ConfigError("its versions differ in what they do with another attention factor than YaRN's")
    longest = None if factor is None else int(factor * context["train_length"])
    return Rotation(config, same, old, longest)


def _has_usual_attention_factor(choice: Choice, config: Any) -> bool:
    if choice.name != "YaRN":
        return True
    encoding = choice.build(head_dim=head_dim_of(config), train_length=train_length_of(config))
    return math.isclose(encoding.gain(torch.tensor(1)), 0.1 * math.log(encoding.factor) + 1, rel_tol=1e-6)


def _vllm(rotation: Rotation) -> str:
    """Return overrides of config.json with all settings of the rotation, because they replace those of the model."""
    choice, config = rotation.choice, rotation.config
    if rotation.model_choice.name not in COMPUTED:
        raise ConfigError(f"overrides for models with {rotation.model_choice.name} are not known")
    parameters = rope_parameters_from_encoding(choice, train_length=rotation.train_length) or {}
    parameters = {name: value for name, value in parameters.items() if name not in ATTENTION_FACTOR}
    if "partial_rotary_factor" in config.rope_parameters:
        parameters.setdefault("partial_rotary_factor", 1.0)
    overrides: dict[str, Any] = {"rope_parameters": parameters}
    if rotation.longest is not None and choice.name not in ("PI", "YaRN"):
        overrides["max_position_embeddings"] = rotation.longest  # of those two, the factor multiplies it
    length = "" if rotation.longest is None else f" --max-model-len {rotation.longest}"
    return f"--hf-overrides '{json.dumps(overrides)}'{length}"


def _llama_cpp(rotation: Rotation) -> str:
    choice, model_choice, settings = rotation.choice, rotation.model_choice, rotation.settings
    if choice.name == "Llama3":
        raise ConfigError("it reads these frequencies from the GGUF file only")
    if model_choice.name not in ("RoPE", "PI", "YaRN") or not _has_usual_attention_factor(
        model_choice, rotation.config
    ):
        raise ConfigError(f"the GGUF file of a model with {model_choice.name} has factors that no flag replaces")
    if settings["rotary_fraction"] != dict(model_choice.settings)["rotary_fraction"]:
        raise ConfigError("it has no flag for the fraction of rotated dimensions")
    if getattr(rotation.config, "sliding_window", None):
        raise ConfigError("its flags do not change layers with a window")
    kind = {"RoPE": "none", "PI": "linear", "YaRN": "yarn"}[choice.name]
    flags: dict[str, Any] = {"rope-scaling": kind, "rope-freq-base": settings["base"]}
    if choice.name != "RoPE":
        flags["rope-scale"] = settings["factor"]
    if choice.name == "YaRN":
        if settings["ramp"] != "index" or not settings["truncate"]:
            raise ConfigError("its ramp is linear in the index of the dimensions and rounded")
        flags |= {"yarn-orig-ctx": rotation.train_length, "yarn-ext-factor": 1}
        flags |= {"yarn-beta-fast": settings["beta_fast"], "yarn-beta-slow": settings["beta_slow"]}
    if rotation.longest is not None:
        flags["ctx-size"] = rotation.longest
    return " ".join(
        f"--{name} {value if isinstance(value, str) else format(value, '.10g')}" for name, value in flags.items()
    )
