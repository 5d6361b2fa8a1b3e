"""One encoding to be questioned: how to build it, in a layer and in a model, and other values of its settings."""

import typing
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise import attention
from lengthwise.attention import BACKENDS, Mask, attend, no_gradients, plan
from lengthwise.config import Choice, ConfigError, ModelConfig, annotation, choose, settings_of
from lengthwise.encodings import PositionEncoding
from lengthwise.forms import AttentionModifiers
from lengthwise.models import Decoder
from lengthwise.positions import consecutive
from lengthwise.span import Span

HEADS, HEAD_DIM, TRAIN_LENGTH, VOCABULARY = 4, 16, 16, 31


@dataclass(frozen=True)
class EncodingCase:
    """An encoding class with some settings, in float64 unless asked otherwise; the same seed gives the same numbers.

    A class may help with two class variables: `alternatives`, values of settings for which no other can be guessed from
    the annotation ({"path": ("a", "b")}), and `conformance_settings`, the settings to start from where some setting
    means nothing under the defaults ({"factor": 4.0}).
    """

    make: type[PositionEncoding]
    settings: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, make: type[PositionEncoding]) -> "EncodingCase":
        return cls(make, tuple(getattr(make, "conformance_settings", {}).items()))

    @property
    def choice(self) -> Choice:
        return choose(self.make, **dict(self.settings))

    @property
    def label(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.settings) or "defaults"

    @property
    def is_usual(self) -> bool:
        return self == EncodingCase.of(self.make)

    @property
    def depends_on_length(self) -> bool:
        """The current length changes what a pair of positions gets."""
        return self.make.depends_on_length()

    @property
    def shift_invariant(self) -> bool:
        """As the encoding itself declares it: a setting may change what the class says of its defaults."""
        return self.build().shift_invariant

    def build(
        self, *, seed: int = 0, num_heads: int = HEADS, head_dim: int = HEAD_DIM, train_length: int = TRAIN_LENGTH
    ) -> PositionEncoding:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = self.choice.build(
                num_heads=num_heads, head_dim=head_dim, d_model=num_heads * head_dim, train_length=train_length
            )
        encoding: PositionEncoding = made.double().eval()
        randomize_parameters(encoding, seed)
        return encoding

    def decoder(self, backend: str, *, seed: int = 0, num_layers: int = 2, share: bool | None = None) -> Decoder:
        """Two layers, four query and two key heads, in float64 and evaluation mode."""
        config = ModelConfig(
            d_model=HEADS * HEAD_DIM,
            num_layers=num_layers,
            num_heads=HEADS,
            num_kv_heads=2,
            d_ff=64,
            share_encoding=share,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = Decoder(
                config,
                self.choice,
                vocab_size=VOCABULARY,
                output_size=VOCABULARY,
                train_length=TRAIN_LENGTH,
                backend=backend,
            )
        model = model.double().eval()
        randomize_parameters(model.encodings, seed)
        return model

    def variants(self) -> list["EncodingCase"]:
        """This case, and one for every setting with every other value that the class accepts."""
        return [self, *(self.changed(name, value) for name, values in alternatives(self).items() for value in values)]

    def changed(self, name: str, value: Any) -> "EncodingCase":
        return replace(self, settings=tuple({**dict(self.settings), name: value}.items()))


@cache
def alternatives(case: EncodingCase) -> dict[str, list[Any]]:
    """For every setting, other values that the class accepts at these sizes; an empty list where there are none."""
    given: dict[str, tuple[Any, ...]] = getattr(case.make, "alternatives", {})
    found = {}
    for name, parameter in settings_of(case.make).items():
        now = dict(case.settings).get(name, parameter.default)
        others = given[name] if name in given else list(guesses(now, annotation(case.make, parameter)))
        accepted = [value for value in others if value != now and _accepted(case.changed(name, value))]
        # Every option of a Literal and every value that the class names; of a number one is enough.
        several = name in given or not isinstance(now, (int, float)) or isinstance(now, bool)
        found[name] = accepted if several else accepted[:1]
    return found


def guesses(now: Any, wanted: Any) -> Iterator[Any]:
    """Other values of a setting, from its type: a class may refuse them."""
    if typing.get_origin(wanted) is typing.Literal:
        yield from typing.get_args(wanted)
    elif isinstance(now, bool):
        yield not now
    elif isinstance(now, int):
        yield from (now + 1, 2 * now, now - 1)
    elif isinstance(now, float):
        yield from (now * 1.5, now * 0.5, now + 1.0, now + 0.25)
    elif isinstance(now, tuple) and now:
        for n, value in enumerate(now):
            yield from ((*now[:n], other, *now[n + 1 :]) for other in guesses(value, type(value)))
    elif now is None:
        kinds = typing.get_args(wanted)
        yield from (
            v
            for kind, values in ((bool, (True,)), (int, (2, 1, 8)), (float, (2.0, 0.5)))
            if kind in kinds
            for v in values
        )


def _accepted(case: EncodingCase) -> bool:
    try:
        case.build()
    except (ValueError, TypeError):
        return False
    return True


def asked_backends() -> list[str]:
    """The backends that every question is asked on: those that have gradients here. FlexAttention on a CPU has none, and its
    calls take fifty times those of others; of it no more is asked than whether its outputs agree with the reference."""
    return [name for name in BACKENDS if not no_gradients(name, "cpu")]


def unsupported_reason(case: EncodingCase, backend: str) -> str | None:
    """The backend's reason not to serve this encoding. It has to raise then, and never falls back in silence."""
    modifiers = modifiers_with(case.build(), Span.of(2), numbers(6, 1, 2, HEADS * HEAD_DIM))
    reason = attention.unsupported_reason(backend, modifiers, Span.of(2))
    if reason is not None:
        try:
            plan(modifiers, Span.of(2), Mask(2, 2), torch.zeros(1, HEADS, 2, HEAD_DIM), backend=backend)
        except ConfigError as error:
            if reason not in str(error):
                raise AssertionError(f"it refuses with another reason ({error}) than it gives ({reason})") from error
        else:
            raise AssertionError(f"it should refuse ({reason}), and serves")
    return reason


class Layer(nn.Module):
    """x [b, t, c] -> embed -> q, k, v by fixed matrices -> attention [b, h, i, d], for absolute and relative alike."""

    def __init__(
        self,
        encoding: PositionEncoding,
        backend: str,
        *,
        num_heads: int = HEADS,
        kv_heads: int | None = None,
        head_dim: int = HEAD_DIM,
    ):
        super().__init__()
        self.encoding, self.backend, self.head_dim = encoding, backend, head_dim
        self.width = num_heads * head_dim
        groups = kv_heads or num_heads
        self.to_q, self.to_k, self.to_v = (
            numbers(7 + n, h * head_dim, self.width) / 4 for n, h in enumerate((num_heads, groups, groups))
        )

    def qkv(self, x: Float[Tensor, "b t c"]) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (
            (x @ m.T.to(x.dtype)).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for m in (self.to_q, self.to_k, self.to_v)
        )
        return q, k, v

    def forward(
        self,
        x: Float[Tensor, "b t c"],
        positions: Int[Tensor, "#b t"] | None = None,
        documents: Int[Tensor, "#b t"] | None = None,
        queries: int | None = None,
        causal: bool = True,
    ) -> Float[Tensor, "b h i d"]:
        tokens = x.shape[1]
        queries = queries or tokens
        at = positions
        if at is None:
            at = torch.arange(tokens)[None] if documents is None else consecutive(documents)
        x = self.encoding.embed(x, at)
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
    """`attend`, as a user calls it: what acts on embeddings was added there, and is left out here. `x`: the layer's input."""
    if encoding.acts_on_embedding():
        assert encoding.modifiers(Span.of(1)) == AttentionModifiers(), (
            "acts on embeddings and on attention: no layer here knows how to use it"
        )
        return attend(q, k, v, positions=positions, documents=documents, causal=causal, backend=backend)
    return attend(q, k, v, encoding, positions=positions, documents=documents, x=x, causal=causal, backend=backend)


def modifiers_with(encoding: PositionEncoding, span: Span, x: Tensor) -> AttentionModifiers:
    """Everything that the encoding does to a call, what follows from the content `x` [b, j, c] included."""
    modifiers = encoding.modifiers(span)
    if not encoding.reads_content():
        return modifiers
    return replace(modifiers, terms=(*modifiers.terms, *encoding.content(encoding.features(x), span, None)))


@torch.no_grad()
def randomize_parameters(module: nn.Module, seed: int) -> None:
    """Draw the parameters that begin at 0: else every question would be asked of an encoding that does nothing yet."""
    for n, parameter in enumerate(module.parameters()):
        if not parameter.any():
            parameter.copy_(numbers(1000 * seed + n, *parameter.shape) / 4)


def numbers(seed: int, *shape: int) -> Float[Tensor, "..."]:
    """Normal numbers in float64, the same for the same seed and shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tokens(seed: int, *shape: int) -> Int[Tensor, "..."]:
    return torch.randint(VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def served(encoding: PositionEncoding, *positions: int) -> list[int]:
    """Those of the given positions that the encoding can serve."""
    return [p for p in positions if encoding.max_length is None or p < encoding.max_length]
