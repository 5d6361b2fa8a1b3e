"""The questions that every implementation answers.

An answer is the error of an implementation in nats: the largest error of a log-probability, of a key in a row of
attention weights or of a token that a model predicts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from comparisons.implementation import TRAIN_LENGTH, VOCABULARY, Implementation, Model, OurModel, Ours, RowInputs
from lengthwise.conformance.answers import NotApplicable

MIN_LOG_WEIGHT = -20.0  # keys with a smaller log weight under the formula are ignored, because they change nothing
FLOAT32_TOLERANCE, BFLOAT16_TOLERANCE = 1e-3, 0.05  # nats; bfloat16 has about 3 digits
SHORT, MIDDLE, LONG = TRAIN_LENGTH * 3 // 4, TRAIN_LENGTH * 2, TRAIN_LENGTH * 3  # numbers of tokens that models read

Side = Implementation | Ours
Measure = Callable[[Implementation, Side], float | None]


@dataclass(frozen=True)
class Question:
    """A question with the measurement of one side, which may raise `NotApplicable`.

    `measure` takes an implementation and the side that is asked: the implementation itself, or ours. It returns an
    error in nats, or None if the question is whether it runs at all. `tolerance`: the largest error that counts as
    agreement, or None.
    `in_half_precision`: ours is measured with the rounding of a GPU too.
    """

    name: str
    text: str
    tolerance: float | None
    measure: Measure
    in_half_precision: bool = False


# ---- one row of attention weights ---------------------------------------------------------------------------------


def row_inputs(implementation: Implementation, length: int, dtype: torch.dtype) -> RowInputs:
    """Return one query and keys at up to about 256 distances: every near distance, and far ones at growing steps.

    The query is the last token, or the middle one of a bidirectional encoding.
    """
    query = length // 2 if implementation.bidirectional else length - 1
    if implementation.needs_every_key:
        keys = torch.arange(length)
    else:
        far = torch.logspace(6, torch.tensor(float(max(query, 64))).log2().item(), 192, base=2.0).long()
        distance = torch.cat([torch.arange(64), far]).clamp(max=query).unique()
        keys = query - distance
        if implementation.bidirectional:
            keys = torch.cat([keys, query + distance[(distance > 0) & (query + distance < length)]])
        keys = keys.sort().values
    generator = torch.Generator().manual_seed(length)
    q = torch.randn(implementation.heads, implementation.head_dim, generator=generator)
    k = torch.randn(implementation.heads, len(keys), implementation.head_dim, generator=generator)
    return RowInputs(length, query, keys, q.to(dtype), k.to(dtype))


def row_question(name: str, text: str, length: int, dtype: torch.dtype, *, loaded: bool = False) -> Question:
    """Return a question about one row of attention weights. `loaded`: the model is loaded in the dtype instead of cast
    to it.
    """

    def measure(implementation: Implementation, side: Side) -> float:
        if implementation.needs_every_key and length > 2**15:
            raise NotApplicable("its row needs every key, which takes too much memory")
        longest = implementation.encoding.max_length
        if longest is not None and length > longest:
            raise NotApplicable(f"ours supports {longest} positions, and refuses more")
        inputs = row_inputs(implementation, length, dtype)
        row = side.loaded_row(inputs) if loaded else side.row(inputs)
        return row_difference(row, implementation.our_row(inputs.in_float64()))

    half = dtype != torch.float32
    return Question(name, text, BFLOAT16_TOLERANCE if half else FLOAT32_TOLERANCE, measure, half)


def row_difference(logits: Tensor, formula: Tensor) -> float:
    """Return the largest difference of log weights between two rows of logits."""
    actual, expected = logits.double().log_softmax(-1), formula.log_softmax(-1)
    return _largest((actual - expected)[expected > MIN_LOG_WEIGHT])


def _largest(difference: Tensor) -> float:
    """Return the largest absolute difference; infinity if one is NaN."""
    return float(difference.abs().nan_to_num(nan=float("inf")).max())


# ---- a model ------------------------------------------------------------------------------------------------------


def tokens(rows: int, length: int) -> Tensor:
    return torch.randint(VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(7))


def model_difference(a: Tensor, b: Tensor) -> float:
    """Return the largest difference of log-probabilities between the logits of two models."""
    return _largest(a.double().log_softmax(-1) - b.double().log_softmax(-1))


def whole_model(implementation: Implementation, side: Side) -> float:
    """Compare a model with ours in float64 with the same weights, below and above the training length."""
    implementation.model()
    if not implementation.has_our_architecture:
        raise NotApplicable("its model has another architecture than ours, so the weights do not fit")
    # Each length gets a new model, because "history" asks whether an earlier call matters.
    texts = [tokens(2, length) for length in (SHORT, LONG)]
    ours = (OurModel(implementation.decoder().double()).forward(text) for text in texts)
    return max(map(model_difference, (side.model().forward(text) for text in texts), ours))


def runs_past(implementation: Implementation, side: Side) -> None:
    """Read more tokens than the model was built for. There is no number: it runs, or it raises."""
    side.short_model().forward(tokens(1, LONG))


def model_question(name: str, text: str, measure: Callable[[Callable[[], Model]], float]) -> Question:
    """Return a question about models. `measure` takes a function that builds a new model."""
    return Question(name, text, FLOAT32_TOLERANCE, lambda implementation, side: measure(side.model))


def decoding_within(build: Callable[[], Model]) -> float:
    """Compare decoding with the cache to one forward pass, below the training length."""
    text = tokens(2, SHORT)
    return model_difference(build().decode(text, SHORT // 2), build().forward(text))


def decoding_past(build: Callable[[], Model]) -> float:
    """Compare the last token of both, if decoding starts below the training length and ends above it."""
    text = tokens(2, LONG)
    return model_difference(build().decode(text, SHORT)[:, -1], build().forward(text)[:, -1])


def history(build: Callable[[], Model]) -> float:
    """Compare a model that has read a longer input before with a new one, on the same input."""
    used, largest = build(), 0.0
    for length in (SHORT, MIDDLE):
        used.forward(tokens(1, LONG))
        text = tokens(1, length)
        largest = max(largest, model_difference(used.forward(text), build().forward(text)))
    return largest


def left_padding(build: Callable[[], Model]) -> float:
    """Compare a short row that is padded on the left, beside a long row, with the short row alone."""
    short, long = tokens(1, SHORT), tokens(1, LONG)
    padding = LONG - SHORT
    rows = torch.cat([torch.cat([torch.zeros(1, padding, dtype=torch.long), short], 1), long])
    return model_difference(build().padded(rows, [padding, 0])[:1, padding:], build().forward(short))


def packed(build: Callable[[], Model], method: str = "packed") -> float:
    """Compare two documents that are packed into one row with each document alone."""
    lengths = (SHORT, MIDDLE)
    documents = [tokens(1, length) for length in lengths]
    logits = getattr(build(), method)(torch.cat(documents, 1), lengths).split(lengths, 1)
    return max(map(model_difference, logits, (build().forward(document) for document in documents)))


_ROW = "One row of attention weights at {} tokens, in {}; the training length is 2048"

QUESTIONS: tuple[Question, ...] = (
    *(row_question(f"value at {name}", _ROW.format(name, "float32"), n, torch.float32)
      for name, n in (("512", 512), ("32768", 2**15), ("10^5", 10**5), ("10^6", 10**6))),
    *(row_question(f"bfloat16 at {name}", _ROW.format(name, "bfloat16 after model.to(torch.bfloat16)"), n,
                   torch.bfloat16)
      for name, n in (("512", 512), ("32768", 2**15), ("10^5", 10**5))),
    row_question("loaded at 32768", _ROW.format(2**15, "bfloat16 after loading with dtype=torch.bfloat16"), 2**15,
                 torch.bfloat16, loaded=True),
    Question("model",
             f"A whole model and ours, with the same weights, at {SHORT} and {LONG} tokens; the training length is "
             f"{TRAIN_LENGTH}", FLOAT32_TOLERANCE, whole_model),
    Question("runs past", f"Whether a model for {TRAIN_LENGTH} tokens can read {LONG}", None, runs_past),
    model_question("decoding within", f"Decoding {SHORT} tokens with the cache, and one forward pass", decoding_within),
    model_question("decoding past", f"Decoding with the cache from {SHORT} to {LONG} tokens, and one forward pass",
                   decoding_past),
    model_question("history", f"{SHORT} or {MIDDLE} tokens read after {LONG} others, and read by a new model", history),
    model_question("left padding", f"{SHORT} tokens padded beside a row of {LONG}, and alone", left_padding),
    model_question("packed", f"Documents of {SHORT} and {MIDDLE} tokens packed into one row, and each alone", packed),
    model_question("packed, as called", "The same documents in a forward call without further options",
                   partial(packed, method="packed_as_called")),
)  # fmt: skip
