"""The model of one encoding at one length, with the actions that are measured."""

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthwise.config import Choice, ConfigError, TrainingConfig, choose
from lengthwise.config.mixers import MIXERS
from lengthwise.encodings import ENCODINGS, NoPE
from lengthwise.measurements.speed import SpeedOptions
from lengthwise.models import Decoder, MixerModel, Model
from lengthwise.studies import encoding
from lengthwise.training.optimizer import make_optimizer

VOCABULARY = 256  # bytes: with a vocabulary of 50,000, the output layer would take most of the time of a small model
LEARNING_RATE = 1e-6  # small, so that no weight changes its size within the measurement
DECODED_TOKENS = 8  # at the end of a sequence, or fewer if it is shorter
SHARED_MODULES = ("token_embedding", "dropout", "blocks", "norm", "lm_head")


@dataclass(frozen=True)
class EncodingPlan:
    """An encoding as it was named, its choice, and whether its layers share one module (None: as in its source).

    Or the name of a mixer, which is measured in its own model, with NoPE.
    """

    text: str
    choice: Choice
    share: bool | None
    mixer: str | None = None

    @property
    def label(self) -> str:
        """Return the label, with -S or -per-layer where the layers differ from the source of the encoding."""
        if self.mixer is not None:
            return MIXERS[self.mixer].label
        name, label = self.choice.name, self.choice.label
        suffix = {True: "-S", False: "-per-layer", None: ""}[self.share]
        return name + suffix + label.removeprefix(name)

    def settings(self) -> dict[str, Any]:
        """Return everything that determines what is measured, as plain JSON data."""
        return self.choice.to_data() | ({} if self.mixer is None else {"mixer": self.mixer})

    def model(self, options: SpeedOptions, length: int) -> Model:
        """Return the model of a question with this encoding or mixer. Raise `ConfigError` if it does not fit."""
        config = options.model(self.share, self.mixer)
        sizes: dict[str, Any] = {"vocab_size": VOCABULARY, "output_size": VOCABULARY, "train_length": length}
        if self.mixer is not None:
            return MixerModel(config, self.choice, **sizes)
        return Decoder(config, self.choice, **sizes, backend=options.backend)

    def require_possible(self, options: SpeedOptions) -> None:
        """Raise `ConfigError` if no length has a model with this encoding. Nothing is allocated."""
        errors = []
        for length in options.lengths:
            try:
                with torch.device("meta"):
                    self.model(options, length)
            except ConfigError as error:
                errors.append(error)
        if len(errors) == len(options.lengths):
            raise errors[0]


def encoding_plans(texts: Sequence[str]) -> list[EncodingPlan]:
    """Return the plans of the named encodings and mixers (all encodings, if none is named), NoPE first, each once.

    Raise `ConfigError` for an unknown name.
    """
    plans: dict[tuple[Choice, bool | None, str | None], EncodingPlan] = {}
    for text in ["nope", *(texts or [make.__name__ for make in ENCODINGS])]:
        mixer = text.replace("-", "_").lower()
        plan = EncodingPlan(text, choose(NoPE), None, mixer) if mixer in MIXERS else EncodingPlan(text, *encoding(text))
        plans.setdefault((plan.choice, plan.share, plan.mixer), plan)
    return list(plans.values())


class Subject:
    """One encoding in the model of a question, at one length.

    With `base`, all parts of the model but the encodings are those of `base`, and so are the optimizer's moments of
    their weights. The models of all encodings together then take hardly more memory than one. The weights are those of
    the same seed anyway. A model with a mixer shares nothing.
    """

    def __init__(self, plan: EncodingPlan, options: SpeedOptions, length: int, base: "Subject | None" = None):
        self.plan, self.length, self.batch = plan, length, options.batch(length)
        self.device = torch.device(options.device)
        self._dtype = options.dtype
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(options.seed)
            self.model = plan.model(options, length)
            tokens = torch.randint(0, VOCABULARY, (self.batch, length + 1))
        base = base if plan.mixer is None else None
        for name in SHARED_MODULES if base is not None else ():
            setattr(self.model, name, getattr(base.model, name))  # type: ignore[union-attr]
        self.model.to(self.device)
        tokens = tokens.to(self.device)
        self._cache: Any = None
        self._inputs, self._targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        config = TrainingConfig(train_length=length, learning_rate=LEARNING_RATE)
        self.optimizer = make_optimizer(self.model, config)
        if base is not None:
            parameters = set(self.model.parameters())
            self.optimizer.state.update({p: state for p, state in base.optimizer.state.items() if p in parameters})

    def forward(self) -> None:
        """Compute the logits of a batch, without gradients."""
        with torch.no_grad(), self._autocast():
            self.model(self._inputs)

    def training(self) -> None:
        """Train one step: forward pass, cross-entropy, backward pass, AdamW."""
        with self._autocast():
            logits = self.model(self._inputs)
        F.cross_entropy(logits.flatten(0, 1).float(), self._targets.flatten()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def prefill(self) -> int:
        """Process the first tokens of a batch with a new cache, and return how many are left for `decoding`."""
        count = min(DECODED_TOKENS, self.length)
        self._cache = self.model.new_cache(self.length)
        if count < self.length:
            self._decode(self._inputs[:, :-count])
        return count

    def decoding(self) -> None:
        """Decode the tokens one by one that `prefill` has left."""
        count = min(DECODED_TOKENS, self.length)
        for tokens in self._inputs[:, -count:].split(1, dim=1):
            self._decode(tokens)
        self._cache = None

    @torch.no_grad()
    def _decode(self, tokens: Tensor) -> None:
        with self._autocast():
            self.model(tokens, cache=self._cache)

    def _autocast(self) -> AbstractContextManager[Any]:
        if self._dtype == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, self._dtype))


def order(count: int, seed: int, length: int, number: int) -> list[int]:
    """Return the order of the encodings in a round, which depends on the seed, the length and the round alone."""
    numbers = list(range(count))
    random.Random(f"{seed} {length} {number}").shuffle(numbers)
    return numbers
