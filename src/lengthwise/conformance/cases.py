"""One encoding under test: how to build it, alone, in a layer and in a model, and other values of its settings."""

import typing
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise import attention
from lengthwise.attention import BACKENDS, Mask, TokenInfo, attend, gradients_unsupported_reason, plan, with_content
from lengthwise.config import Choice, ConfigError, ModelConfig, annotation, choose, settings_of
from lengthwise.encodings import PositionEncoding
from lengthwise.forms import AttentionModifiers
from lengthwise.models import Decoder
from lengthwise.positions import consecutive
from lengthwise.span import Span

HEADS, HEAD_DIM, TRAIN_LENGTH, VOCABULARY = 4, 16, 16, 31


@dataclass(frozen=True)
class EncodingCase:
    """An encoding class with settings. It is built in float64, and the same seed gives the same parameters.

    A class may define two class variables for the suite. `alternatives` lists other values of settings, if none can be
    guessed from the annotation ({"path": ("a", "b")}). `conformance_settings` are the settings to start from, if some
    setting has no effect under the defaults ({"factor": 4.0}).
    """

    cls: type[PositionEncoding]
    settings: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, make: type[PositionEncoding]) -> "EncodingCase":
        return cls(make, tuple(getattr(make, "conformance_settings", {}).items()))

    @property
    def choice(self) -> Choice:
        return choose(self.cls, **dict(self.settings))

    @property
    def label(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.settings) or "defaults"

    @property
    def is_default(self) -> bool:
        """Whether the settings are those that the suite starts from."""
        return self == EncodingCase.of(self.cls)

    @property
    def shift_invariant(self) -> bool:
        """The declaration of the built encoding, because a setting may override that of the class."""
        return self.build().shift_invariant

    def build(self, *, seed: int = 0, num_heads: int = HEADS, train_length: int = TRAIN_LENGTH) -> PositionEncoding:
        sizes = {"num_heads": num_heads, "head_dim": HEAD_DIM, "d_model": num_heads * HEAD_DIM}
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed also seeds GPUs, which takes longer
            encoding: PositionEncoding = self.choice.build(**sizes, train_length=train_length)
        encoding = encoding.double().eval()
        randomize_parameters(encoding, seed)
        return encoding

    def modifiers(self) -> AttentionModifiers:
        return modifiers_with(self.build(), Span.of(2), numbers(6, 1, 2, HEADS * HEAD_DIM))

    def decoder(self, backend: str, *, seed: int = 0, num_layers: int = 2, share: bool | None = None) -> Decoder:
        """Return a model with four query heads and two key heads, in float64 and evaluation mode."""
        config = ModelConfig(
            d_model=HEADS * HEAD_DIM,
            num_layers=num_layers,
            num_heads=HEADS,
            num_kv_heads=2,
            d_ff=64,
            share_encoding=share,
        )
        sizes = {"vocab_size": VOCABULARY, "output_size": VOCABULARY, "train_length": TRAIN_LENGTH}
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            model = Decoder(config, self.choice, **sizes, backend=backend)
        model = model.double().eval()
        randomize_parameters(model.encodings, seed)
        return model

    def variants(self) -> list["EncodingCase"]:
        """Return this case, and one case for every other value of every setting in `alternatives`."""
        return [self, *(self.changed(name, value) for name, values in alternatives(self).items() for value in values)]

    def changed(self, name: str, value: Any) -> "EncodingCase":
        return replace(self, settings=tuple({**dict(self.settings), name: value}.items()))


@cache
def alternatives(case: EncodingCase) -> dict[str, list[Any]]:
    """Return other values that the class accepts at these sizes, for each setting; an empty list if there are none."""
    declared: dict[str, tuple[Any, ...]] = getattr(case.cls, "alternatives", {})
    values_of = {}
    for name, parameter in settings_of(case.cls).items():
        current = dict(case.settings).get(name, parameter.default)
        candidates = declared[name] if name in declared else list(guesses(current, annotation(case.cls, parameter)))
        accepted = [value for value in candidates if value != current and _is_accepted(case.changed(name, value))]
        # All options of a Literal and all declared values, but only one value of a number.
        several = name in declared or not isinstance(current, (int, float)) or isinstance(current, bool)
        values_of[name] = accepted if several else accepted[:1]
    return values_of


def guesses(current: Any, annotated: Any) -> Iterator[Any]:
    """Yield other values of a setting, guessed from its type. The class may reject them."""
    if typing.get_origin(annotated) is typing.Literal:
        yield from typing.get_args(annotated)
    elif isinstance(current, bool):
        yield not current
    elif isinstance(current, int):
        yield from (current + 1, 2 * current, current - 1)
    elif isinstance(current, float):
        yield from (current * 1.5, current * 0.5, current + 1.0, current + 0.25)
    elif isinstance(current, tuple) and current:
        for n, value in enumerate(current):
            yield from ((*current[:n], other, *current[n + 1 :]) for other in guesses(value, type(value)))
    elif current is None:
        values: dict[type, tuple[Any, ...]] = {bool: (True,), int: (2, 1, 8), float: (2.0, 0.5)}
        yield from (value for kind in values if kind in typing.get_args(annotated) for value in values[kind])


def _is_accepted(case: EncodingCase) -> bool:
    with suppress(ValueError, TypeError):
        case.build()
        return True
    return False


def differentiable_backends() -> list[str]:
    """Return the backends that have gradients on a CPU, which every question is asked on.

    FlexAttention has none there, and takes about 50 times as long as others. So only its outputs are compared with the
    reference.
    """
    return [name for name in BACKENDS if not gradients_unsupported_reason(name, "cpu")]


def unsupported_reason(case: EncodingCase, backend: str) -> str | None:
    """Return the backend's reason why it does not support this encoding, or None.

    Raise `AssertionError` if the backend does not raise a `ConfigError` with this reason, for example because it falls
    back silently.
    """
    modifiers = case.modifiers()
    reason = attention.unsupported_reason(backend, modifiers, Span.of(2))
    if reason is not None:
        try:
            plan(modifiers, Span.of(2), Mask(2, 2), torch.zeros(1, HEADS, 2, HEAD_DIM), backend=backend)
        except ConfigError as error:
            if reason not in str(error):
                raise AssertionError(f"it raises {error}, but unsupported_reason returns {reason}") from error
        else:
            raise AssertionError(f"it runs, but unsupported_reason returns {reason}")
    return reason


class Layer(nn.Module):
    """x [b, t, c] -> embed -> q, k, v by fixed random matrices -> attention [b, h, i, d], for any encoding."""

    def __init__(
        self, encoding: PositionEncoding, backend: str, *, num_heads: int = HEADS, kv_heads: int | None = None
    ):
        super().__init__()
        self.encoding, self.backend, self.width = encoding, backend, num_heads * HEAD_DIM
        groups = kv_heads or num_heads
        self.to_q, self.to_k, self.to_v = (
            numbers(7 + n, h * HEAD_DIM, self.width) / 4 for n, h in enumerate((num_heads, groups, groups))
        )

    def qkv(self, x: Float[Tensor, "b t c"]) -> tuple[Tensor, Tensor, Tensor]:  # each [b, heads, t, d]
        q, k, v = (
            (x @ m.T.to(x.dtype)).unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2)
            for m in (self.to_q, self.to_k, self.to_v)
        )
        return q, k, v

    def forward(
        self,
        x: Float[Tensor, "b t c"],
        positions: Int[Tensor, "#b t *axes"] | None = None,
        documents: Int[Tensor, "#b t"] | None = None,
        queries: int | None = None,
        causal: bool = True,
    ) -> Float[Tensor, "b h i d"]:
        tokens = x.shape[1]
        queries = queries or tokens
        if self.encoding.acts_on_embedding():
            ids = torch.arange(tokens)[None] if documents is None else consecutive(documents)
            x = self.encoding.embed(x, ids if positions is None else positions)
        q, k, v = self.qkv(x)
        return run(self.encoding, self.backend, q[:, :, tokens - queries :], k, v, positions, documents, x, causal)


def run(
    encoding: PositionEncoding,
    backend: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor | None = None,
    documents: Tensor | None = None,
    x: Tensor | None = None,
    causal: bool = True,
) -> Tensor:
    """Call `attend` as a user does. `x` is the layer's input, with the positions that are added to embeddings."""
    if encoding.acts_on_embedding():
        assert encoding.modifiers(Span.of(1)) == AttentionModifiers(), (
            "an encoding that acts on embeddings and on attention is not supported"
        )
        return attend(q, k, v, tokens=TokenInfo(positions, documents), causal=causal, backend=backend)
    return attend(q, k, v, encoding, tokens=TokenInfo(positions, documents, x), causal=causal, backend=backend)


def modifiers_with(encoding: PositionEncoding, span: Span, x: Tensor) -> AttentionModifiers:
    """Return the encoding's modifiers, including what depends on the content `x` [b, j, c]."""
    modifiers = encoding.modifiers(span)
    if not encoding.reads_content():
        return modifiers
    mask = Mask(span.q.shape[1], span.k.shape[1])
    return with_content(modifiers, encoding, encoding.features(x), span, mask)


@torch.no_grad()
def randomize_parameters(module: nn.Module, seed: int) -> None:
    """Replace parameters that are all 0, with which an encoding may have no effect, by random numbers."""
    for n, parameter in enumerate(module.parameters()):
        if not parameter.any():
            parameter.copy_(numbers(1000 * seed + n, *parameter.shape) / 4)


def numbers(seed: int, *shape: int) -> Float[Tensor, "..."]:
    """Return normally distributed random numbers in float64, a function of the seed and shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tokens(seed: int, *shape: int) -> Int[Tensor, "..."]:
    return torch.randint(VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def on_axes(encoding: PositionEncoding, positions: Int[Tensor, "b t"]) -> Int[Tensor, "b t *axes"]:
    """Return positions that differ between the axes of an encoding; `positions` itself if it has one axis."""
    axes = encoding.num_axes or 1
    return positions if axes == 1 else torch.stack([positions // (1 + axis) for axis in range(axes)], -1)


def supported_positions(encoding: PositionEncoding, *positions: int) -> list[int]:
    """Return the positions that are below the encoding's `max_length`."""
    return [p for p in positions if encoding.max_length is None or p < encoding.max_length]
