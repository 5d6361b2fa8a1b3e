"""Observe what the attention layers of a model of transformers do with positions, without its weights.

A copy of the model computes two forward passes. All its parameters lie on the device meta, so nothing is read from the
weights and no memory is needed for them. What a matrix of parameters would be multiplied by is replaced by random
numbers, and vectors of parameters by random vectors. Everything else is computed on the CPU, for eight tokens. In the
second pass, all rotary embeddings return an angle of 0. Therefore, queries and keys of a layer without RoPE are the
same in both passes, and those of the first pass are otherwise those of the second one after their rotation.
"""

import copy
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from lengthwise.huggingface.model_rotation import NoRotation

NAME = "lengthwise_observation"  # of the attention function and the mask function
TOKENS = 8
FURTHEST = 1024  # positions, whose angles float32 computes to about 1e-4
LARGEST_VECTOR = 1 << 20
LINEAR = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "embedding", "conv1d")

SHAPES = re.compile(r"[Ss]izes? of tensors? ")  # in errors that do not come from the missing weights or the machine


@dataclass(frozen=True)
class ObservedLayer:
    """What an attention layer passed to its attention function.

    `name`: the class of the layer. `q`, `k` [1, heads, tokens, head_dim]: of tokens at `positions`. `plain_q`,
    `plain_k`: the same with angles of 0. `factor`: by what it has multiplied its projections, that of queries times
    that of keys (OPT scales queries); 1 if it does more with them, such as a norm. `shows(query, key)`: whether the
    mask shows a key to a query; None if the layer has computed another mask. `window`, `scale`, `softcap`: as the layer
    passes them, None if it does not. `has_sinks`: it passes a sink logit for each head.
    """

    name: str
    positions: Tensor
    q: Tensor
    k: Tensor
    plain_q: Tensor
    plain_k: Tensor
    factor: float
    shows: Callable[[Tensor, Tensor], Tensor] | None
    window: int | None
    scale: float | None
    softcap: float | None
    has_sinks: bool

    @property
    def head_dim(self) -> int:
        return self.q.shape[-1]

    @property
    def rotates(self) -> bool:
        """Whether a rotary embedding changes its queries or keys."""
        return not (torch.equal(self.q, self.plain_q) and torch.equal(self.k, self.plain_k))

    @property
    def query_growth(self) -> float:
        """By what the layer has multiplied the last query, relative to the first one."""
        norms = self.plain_q.norm(dim=-1).mean((0, 1))
        return float(norms[-1] / norms[0])


@dataclass(frozen=True)
class Observation:
    """`layers`: by index, those that call transformers' attention interface. `layer_error`: the error about sizes that
    an attention layer raises, "" if there is none. `reason`: why nothing was observed.
    """

    layers: dict[int, ObservedLayer]
    layer_error: str = ""
    reason: str = ""


class _LayerRaises(Exception):
    """An attention layer has raised an error about sizes."""


def observe(model: Any) -> Observation:
    """Return what the attention layers of a model do, with its settings and without its weights."""
    try:
        decoder = _without_weights(decoder_of(model))
        positions = torch.linspace(0, 1, TOKENS).square().mul(_furthest(decoder.config) - 1).long()
        rotated = _forward(decoder, positions)
        for module in rotary_embeddings(decoder):
            module.register_forward_hook(_without_angle)
        plain = _forward(decoder, positions)
    except _LayerRaises as error:
        return _confirmed(decoder, positions, error)
    except Exception as error:
        return Observation({}, reason=_described(error))
    return Observation(
        {
            index: ObservedLayer(name, positions, q, k, *plain[index][1:4], *further)
            for index, (name, q, k, _, *further) in rotated.items()
        }
    )


def _confirmed(decoder: Any, positions: Tensor, error: _LayerRaises) -> Observation:
    """Return an observation with the error if the attention function of transformers itself makes no difference."""
    _set_attention(decoder, "eager")
    try:
        _forward(decoder, positions)
    except _LayerRaises as again:
        return Observation({}, layer_error=str(again), reason=str(again))
    except Exception as other:  # transformers' own attention needs weights, so nothing is confirmed
        return Observation({}, reason=f"{error}; {_described(other)}")
    return Observation({}, reason=str(error))


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def decoder_of(model: Any) -> Any:
    """Return the part of a model that contains its layers, without the head."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    # The attribute "decoder" of ModernBERT's decoder is its last linear layer.
    return model.base_model if isinstance(decoder, nn.Linear) else decoder


def rotary_embeddings(model: nn.Module) -> list[nn.Module]:
    """Return the modules that compute the cosines and sines of RoPE."""
    return [module for module in model.modules() if "RotaryEmbedding" in type(module).__name__]


def attention_layers(model: nn.Module) -> list[Any]:
    """Return the attention modules with an index, in the order of their indices."""
    layers: list[Any] = [m for m in model.modules() if type(m).__name__.endswith("Attention")]
    layers = [m for m in layers if getattr(m, "layer_idx", None) is not None]
    return sorted(layers, key=lambda layer: int(layer.layer_idx))


class _WithoutWeights(TorchFunctionMode):
    """Replaces what is computed from parameters on the device meta by random numbers, the same in each forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.random = torch.Generator().manual_seed(0)
        self.vectors: dict[int, tuple[Tensor, Tensor]] = {}
        self.rows: list[Tensor] = []  # by which products with parameters were replaced

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        on_meta = [x for x in tensors if x.is_meta]
        are_all = len(on_meta) == len(tensors) and name != "embedding"
        if not on_meta or are_all or name == "__getitem__":  # a part of a parameter
            return func(*args, **kwargs)
        if name in LINEAR or any(x.numel() > LARGEST_VECTOR for x in on_meta):
            args, kwargs = tree_map_only(Tensor, _to_meta, (args, kwargs))
            return self._random_rows(func(*args, **kwargs))
        args, kwargs = tree_map_only(Tensor, self._vector, (args, kwargs))
        return func(*args, **kwargs)

    def _random_rows(self, result: Any) -> Any:
        if not isinstance(result, Tensor) or not result.is_floating_point():
            return result
        row = torch.randn(result.shape[-1:], generator=self.random).to(result.dtype)
        self.rows.append(row)
        return row.expand(result.shape).contiguous()

    def factor(self, states: Tensor) -> float:
        """Return the factor of one of the last products in the first token of q or k [1, heads, tokens, head_dim]."""
        first = states[0, :, 0].flatten().double()
        for row in reversed(self.rows[-4:]):
            product = row.double()[: len(first)]
            if len(product) == len(first):
                factor = float(first @ product / (product @ product))
                if torch.allclose(first, factor * product, rtol=1e-5):
                    return float(f"{factor:.7g}")  # the precision of float32
        return 1.0

    def _vector(self, tensor: Tensor) -> Tensor:
        if not tensor.is_meta:
            return tensor
        if id(tensor) not in self.vectors:
            generator = torch.Generator().manual_seed(len(self.vectors))
            self.vectors[id(tensor)] = tensor, torch.rand(tensor.shape, generator=generator).add(0.5).to(tensor.dtype)
        return self.vectors[id(tensor)][1]


def _to_meta(tensor: Tensor) -> Tensor:
    return tensor.to("meta")


def _furthest(config: Any) -> int:
    """Return a length below which no scaling depends on the length."""
    rope = getattr(config, "rope_parameters", None) or {}
    entries = [rope, *(entry for entry in rope.values() if isinstance(entry, Mapping))]
    lengths = [
        getattr(config, "max_position_embeddings", None),
        *(e.get("original_max_position_embeddings") for e in entries),
    ]
    return min([FURTHEST, *(int(n) for n in lengths if n)])


def _without_weights(decoder: nn.Module) -> Any:
    """Return a copy in evaluation mode, with parameters on meta and buffers on the CPU."""
    memo: dict[int, Any] = {}
    for p in decoder.parameters():
        dtype = torch.float32 if p.is_floating_point() else p.dtype
        memo[id(p)] = nn.Parameter(torch.empty(p.shape, dtype=dtype, device="meta"), requires_grad=False)
    for module in decoder.modules():  # what `use` has added, which the copy does not need
        for added in ("_lengthwise", "_lengthwise_replaced"):
            if (state := module.__dict__.get(added)) is not None:
                memo[id(state)] = state
    result: Any = copy.deepcopy(decoder, memo).eval()
    for module in result.modules():
        module._forward_pre_hooks.clear()
        module._forward_hooks.clear()
    for parent in list(result.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, NoRotation):
                child = child.original
            if "RotaryEmbedding" in type(child).__name__:
                # Its frequencies may be on meta, rounded to 16 bits, or older than the settings.
                config = copy.deepcopy(getattr(child, "config", None) or result.config)
                setattr(parent, name, type(child)(config))
    for module in result.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and not buffer.is_meta:
                module._buffers[name] = buffer.cpu()
    for module in attention_layers(result):
        module.forward = _naming(module, module.forward)
    for module in result.modules():
        if any(isinstance(child, nn.Conv1d) for child in module.children()):
            module.forward = _skipping(module.forward)
            if hasattr(module, "chunk_size"):
                module.chunk_size = TOKENS  # instead of some hundred, which take seconds
    _set_attention(result, NAME)
    return result


def _set_attention(decoder: nn.Module, name: str) -> None:
    for module in decoder.modules():
        if getattr(module, "config", None) is not None:
            config: Any = module.config
            config._attn_implementation_internal, config._experts_implementation_internal = name, "eager"


def _naming(module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the forward method of an attention layer with an error that names it."""

    def forward_with_name(*arguments: Any, **options: Any) -> Any:
        try:
            return forward(*arguments, **options)
        except RuntimeError as error:
            if SHAPES.search(str(error)) is None:
                raise
            raise _LayerRaises(f"{type(module).__name__}: {' '.join(str(error).split())[:200]}") from error

    return forward_with_name


def _skipping(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the forward method of a layer of convolutions and states, which is left out if it needs a GPU."""

    def skipped(*arguments: Any, **options: Any) -> Any:
        try:
            return forward(*arguments, **options)
        except RuntimeError:
            return next(x for x in (*arguments, *options.values()) if isinstance(x, Tensor))

    return skipped


def _without_angle(module: nn.Module, arguments: Any, result: Any) -> Any:
    if isinstance(result, tuple):
        return torch.ones_like(result[0]), torch.zeros_like(result[1])
    return torch.ones_like(result)


def _forward(decoder: Any, positions: Tensor) -> dict[int, Any]:
    """Return what each attention layer passes to its attention function in one forward pass."""
    passed: dict[int, Any] = {}
    tokens = torch.ones(1, len(positions), dtype=torch.long)
    options: dict[str, Any] = {"attention_mask": torch.ones_like(tokens), "use_cache": False}
    if "position_ids" in inspect.signature(type(decoder).forward).parameters:
        options["position_ids"] = positions[None]
    without_weights = _WithoutWeights()
    _register(passed, without_weights)
    with torch.no_grad(), without_weights:
        decoder(input_ids=tokens, **options)
    return passed


def _register(passed: dict[int, Any], without_weights: _WithoutWeights) -> None:
    """Make functions known to transformers that store the arguments of each layer in `passed`."""

    def attention(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: Any = None, **further: Any
    ) -> tuple[Tensor, None]:
        has_sinks = further.get("s_aux") is not None
        passed[int(module.layer_idx)] = (
            type(module).__name__, query, key, without_weights.factor(query) * without_weights.factor(key),
            getattr(attention_mask, "shows", None), further.get("sliding_window"), scaling, further.get("softcap"),
            has_sinks,
        )  # fmt: skip
        out = value.repeat_interleave(query.shape[1] // value.shape[1], 1)
        return out.transpose(1, 2).contiguous(), None

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, _mask)


def _mask(q_length: int, kv_length: int, mask_function: Any = None, **further: Any) -> Tensor:
    """Return a mask that shows all keys, with the function of the real one."""
    mask: Any = torch.zeros(1, 1, q_length, kv_length)
    mask.shows = mask_function
    return mask
