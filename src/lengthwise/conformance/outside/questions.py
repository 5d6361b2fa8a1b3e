"""What is asked of every implementation. A figure is in nats: how far a token's or a key's log probability is off."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.conformance.outside.implementation import (
    TRAINED,
    VOCABULARY,
    Absent,
    Implementation,
    Model,
    Ours,
    Scene,
)

FADED = -20.0  # keys whose log weight is below this under the formula are left out: nobody sees them
EXACT, ROUNDED = 1e-3, 0.05  # nats that count as agreement: in float32, and in bfloat16 with its 3 digits
SHORT, LONG = TRAINED * 3 // 4, TRAINED * 3  # tokens within what the models are made for, and past it
BETWEEN = TRAINED * 2


Measure = Callable[[Implementation], float | None]  # nats, or None where there is nothing to measure


@dataclass(frozen=True)
class Question:
    """`theirs` and `ours` are asked apart, since what one raises is the answer of that one. Both may raise `Absent`.

    `ours_on_gpu`: ours as it is rounded there, where that is something else.
    """

    name: str
    text: str
    tolerance: float | None  # None: whether it runs at all
    theirs: Measure
    ours: Measure
    ours_on_gpu: Measure = lambda one: None


# ---- the value --------------------------------------------------------------------------------------------------


def scene(one: Implementation, length: int, dtype: torch.dtype) -> Scene:
    """The last token as query (the middle one, looking both ways): near keys one by one, far ones ever sparser."""
    query = length // 2 if one.bidirectional else length - 1
    if one.every_key:
        keys = torch.arange(length)
    else:
        reach = torch.logspace(6, torch.tensor(float(max(query, 64))).log2().item(), 192, base=2.0).long()
        distance = torch.cat([torch.arange(64), reach]).clamp(max=query).unique()
        keys = query - distance
        if one.bidirectional:
            keys = torch.cat([keys, query + distance[(distance > 0) & (query + distance < length)]])
        keys = keys.sort().values
    draw = torch.Generator().manual_seed(length)
    q = torch.randn(one.heads, one.head_dim, generator=draw)
    k = torch.randn(one.heads, len(keys), one.head_dim, generator=draw)
    return Scene(length, query, keys, q.to(dtype), k.to(dtype))


def value(name: str, text: str, length: int, dtype: torch.dtype, *, loaded: bool = False) -> Question:
    def measure(row: Callable[[Implementation, Scene], Tensor]) -> Measure:
        @torch.no_grad()
        def measured(one: Implementation) -> float:
            if one.every_key and length > 2**15:
                raise Absent("its row needs every key: too many numbers")
            longest = one.encoding.max_length
            if longest is not None and length > longest:
                raise Absent(f"ours serves {longest} positions and says so beyond")
            asked = scene(one, length, dtype)
            return _off(row(one, asked), one.our_row(asked.wide()))

        return measured

    theirs = measure(lambda one, asked: one.loaded_row(asked) if loaded else one.row(asked))
    ours = measure(lambda one, asked: one.our_row(asked))
    if dtype == torch.float32:
        return Question(name, text, EXACT, theirs, ours)
    return Question(
        name, text, ROUNDED, theirs, ours, measure(lambda one, asked: one.our_row(asked, rounded_bias=True))
    )


def _off(logits: Tensor, formula: Tensor) -> float:
    weights, wanted = logits.double().log_softmax(-1), formula.log_softmax(-1)
    return _largest((weights - wanted)[wanted > FADED])


def _largest(difference: Tensor) -> float:
    """The largest difference; infinite where one is no number."""
    return float(difference.abs().nan_to_num(nan=float("inf")).max())


# ---- the model --------------------------------------------------------------------------------------------------


def tokens(rows: int, length: int) -> Tensor:
    return torch.randint(VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(7))


def apart(a: Tensor, b: Tensor) -> float:
    """Largest difference of log probabilities."""
    return _largest(a.double().log_softmax(-1) - b.double().log_softmax(-1))


def whole_model(make: Callable[[Implementation], Model]) -> Measure:
    """How far from our model in float64 with the same weights, within and past the length that both are made for."""

    def measured(one: Implementation) -> float:
        one.model()
        if not one.same_model:
            raise Absent("its model is another architecture than ours: weights do not fit")
        # A fresh model for each length: what a call leaves behind is another question.
        return max(
            apart(make(one).forward(tokens(2, n)), Ours(one.decoder().double()).forward(tokens(2, n)))
            for n in (SHORT, LONG)
        )

    return measured


def runs_past(make: Callable[[Implementation], Model]) -> Measure:
    """No number: it can be done, or it raises."""

    def measured(one: Implementation) -> None:
        make(one).forward(tokens(1, LONG))

    return measured


def our_model(one: Implementation) -> Model:
    return Ours(one.decoder())


MakeMeasure = Callable[[Callable[[], Model]], float]


def of_models(name: str, text: str, measure: MakeMeasure, of_ours: MakeMeasure | None = None) -> Question:
    """A measure of models, of theirs and of ours; it gets what makes a fresh one."""
    ask_ours = of_ours or measure
    return Question(name, text, EXACT, lambda one: measure(one.model), lambda one: ask_ours(lambda: our_model(one)))


def decoding_within(make: Callable[[], Model]) -> float:
    asked = tokens(2, SHORT)
    return apart(make().decode(asked, SHORT // 2), make().forward(asked))


def decoding_past(make: Callable[[], Model]) -> float:
    """What is said at the last token, read one by one from within the trained length to past it, and read at once."""
    asked = tokens(2, LONG)
    return apart(make().decode(asked, SHORT)[:, -1], make().forward(asked)[:, -1])


def history(make: Callable[[], Model]) -> float:
    """The same input to a fresh model and to one that has read a longer input before."""
    used, found = make(), 0.0
    for length in (SHORT, BETWEEN):
        used.forward(tokens(1, LONG))
        asked = tokens(1, length)
        found = max(found, apart(used.forward(asked), make().forward(asked)))
    return found


def left_padding(make: Callable[[], Model]) -> float:
    """A short row alone, and padded on the left beside a long one."""
    short, long = tokens(1, SHORT), tokens(1, LONG)
    padding = LONG - SHORT
    rows = torch.cat([torch.cat([torch.zeros(1, padding, dtype=torch.long), short], 1), long])
    return apart(make().padded(rows, [padding, 0])[:1, padding:], make().forward(short))


def packed(make: Callable[[], Model], how: str = "packed") -> float:
    """Documents in one row, and each alone."""
    lengths = (SHORT, BETWEEN)
    documents = [tokens(1, n) for n in lengths]
    said = getattr(make(), how)(torch.cat(documents, 1), lengths).split(list(lengths), 1)
    return max(apart(part, make().forward(document)) for part, document in zip(said, documents, strict=True))


def packed_as_called(make: Callable[[], Model]) -> float:
    return packed(make, "packed_as_called")


_ROW = "A row of weights at {} tokens, made for 2048, {}"

QUESTIONS: tuple[Question, ...] = (
    *(value(f"value at {name}", _ROW.format(name, "float32"), n, torch.float32)
      for name, n in (("512", 512), ("32768", 2**15), ("10^5", 10**5), ("10^6", 10**6))),
    *(value(f"bfloat16 at {name}", _ROW.format(name, "cast with .to(bfloat16)"), n, torch.bfloat16)
      for name, n in (("512", 512), ("32768", 2**15), ("10^5", 10**5))),
    value("loaded at 32768", _ROW.format(2**15, "loaded with dtype=bfloat16"), 2**15, torch.bfloat16, loaded=True),
    Question("model", f"A whole model, the same weights in both, {SHORT} and {LONG} tokens, made for {TRAINED}", EXACT,
             whole_model(lambda one: one.model()), whole_model(our_model)),
    Question("runs past", f"A model made for {TRAINED} tokens reads {LONG}", None,
             runs_past(lambda one: one.limited()), runs_past(our_model)),
    of_models("decoding within", f"With the cache and at once, {SHORT} tokens", decoding_within),
    of_models("decoding past", f"With the cache from {SHORT} to {LONG} tokens and at once", decoding_past),
    of_models("history", f"The same {SHORT} or {BETWEEN} tokens before and after {LONG}", history),
    of_models("left padding", f"{SHORT} tokens alone, and padded beside {LONG}", left_padding),
    of_models("packed", f"Documents of {SHORT} and {BETWEEN} tokens in a row, and alone", packed),
    of_models("packed, as called", "The same documents with a plain call", packed_as_called, packed),
)  # fmt: skip
