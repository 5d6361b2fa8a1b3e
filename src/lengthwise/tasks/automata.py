"""Probabilistic finite automata: a model learns the language of a sequence from the sequence itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lengthwise.baselines.ngrams import NGRAMS, WITHOUT_ORDER, Predictor
from lengthwise.config import ConfigError
from lengthwise.metrics import TOTAL_VARIATION
from lengthwise.tasks.base import Baseline, Batch, PrefixTask
from lengthwise.tasks.sequences import symbol_names
from lengthwise.values import require_at_most, require_integer

MIN_SIZE = 4  # states and letters of an automaton, if the settings allow as many
MAX_SIZE = 10_000  # states and letters: every sequence has tables of both
SEPARATOR = "|"
BASELINE_SEQUENCES = 64  # sequences per call of a baseline; evaluation can stop between two calls


@dataclass(frozen=True)
class Automata:
    """One automaton for each row of a batch.

    State s has `edges[b, s]` equally probable transitions: transition k emits `symbols[b, s, k]` and leads to
    `targets[b, s, k]`. The last of the r states is the start of a string. It has the transitions of state 0, but a
    string cannot end in it.
    """

    symbols: Int[Tensor, "b r e"]
    targets: Int[Tensor, "b r e"]
    edges: Int[Tensor, "b r"]

    def walk(self, draws: Float[Tensor, "b n"], ends: Bool[Tensor, "b n"]) -> tuple[Tensor, Tensor]:
        """Return the emitted symbols [b, n], and the state [b, n] that emits each; -1 marks the end of a string.

        `draws` in [0, 1) choose the transitions. A string ends where `ends` is true, unless it is still empty.
        """
        count, rows, width = self.symbols.shape
        edges, targets = self.edges.flatten().numpy(), self.targets.flatten().numpy()
        uniform, string_ends = draws.double().T.contiguous().numpy(), ends.T.contiguous().numpy()
        start, offset = rows - 1, np.arange(count) * rows
        states, transitions = (np.empty(uniform.shape, np.int64) for _ in range(2))
        state = np.full(count, start)
        for t in range(len(uniform)):  # a numpy call has less overhead than torch's
            states[t] = state
            index = offset + state
            transitions[t] = index * width + (uniform[t] * edges.take(index)).astype(np.int64)
            following = targets.take(transitions[t])
            following[string_ends[t] & (state != start)] = start
            state = following
        emitted = self.symbols.flatten().numpy().take(transitions)
        emitted[string_ends & (states != start)] = -1
        return torch.from_numpy(emitted.T.copy()), torch.from_numpy(states.T.copy())

    def next_symbol(self, ends: float, vocab: int) -> Float[Tensor, "b r v"]:
        """Return the probabilities of the next symbol in each state, float64. The last symbol ends a string."""
        is_edge = torch.arange(self.symbols.shape[2]) < self.edges[..., None]
        probabilities = torch.zeros(*self.edges.shape, vocab, dtype=torch.float64)
        probabilities.scatter_(2, self.symbols, is_edge / self.edges[..., None].double())  # 0 for unused transitions
        probabilities[:, :-1] *= 1 - ends
        probabilities[:, :-1, -1] = ends
        return probabilities


@dataclass(frozen=True)
class AutomatonBatch(Batch):
    """Sequences with the state that emitted each target, and the probabilities of each state."""

    states: Int[Tensor, "b t"]
    probabilities: Float[Tensor, "b r v"]

    def target_probabilities(self) -> Float[Tensor, "b t v"]:
        """Return the distribution that each target was drawn from."""
        return self.probabilities.gather(1, self.states[..., None].expand(-1, -1, self.probabilities.shape[2]))


class PFA(PrefixTask):
    """Predict the next symbol of strings in a language that has to be learned from the sequence itself. `length` n
    counts the symbols, including the predicted one; a separator ends each string and counts as a symbol. Length 6, all
    slots scored:

        inputs   | a b | a c
        targets  a b | a c c

    Every sequence has a new random automaton: 4 ... `states` states and an alphabet of 4 ... `symbols` letters (fewer
    if the settings are smaller). Each state has 1 ... `edges` equally probable transitions, each with a letter that the
    state uses only once and with any state as its target. All strings start in the same state. After each symbol a
    string ends with probability `ends`, so it has 1 / `ends` symbols on average, and at least one.

    The loss is the cross-entropy of the next symbol. The score is the total variation distance between the model's and
    the automaton's distributions, ½ Σ |p - q| over all symbols, from 0 to 1, at the n-th symbol. Length counts symbols
    because any prefix of n symbols is a sequence of length n, whereas strings have different lengths. The letter
    identifies the transition, so whoever knows the automaton knows the state, and perfect learning reaches a distance
    of 0.

    Scores of baselines that know nothing about automata (means over 1,280 sequences, default settings, n = 1, 10, 50,
    100, 400):

        every symbol alike     0.87  0.83  0.83  0.83  0.83
        counts of symbols      0.87  0.56  0.50  0.49  0.49
        counts of pairs        0.87  0.54  0.33  0.28  0.23
        counts of triples      0.87  0.55  0.37  0.29  0.18

    Source: Akyürek et al. 2024, "In-Context Language Learning: Architectures and Algorithms"; its code,
    berlino/seq_icl.
    Differs: a string ends with the same probability after each symbol. The published string lengths are uniform up to
    50, so there the next symbol also depends on the length so far, which no automaton knows. Training and test automata
    are all new; the published data has 5,000. The ranges of states and letters are our choice; that code draws 2 ... 9
    states, and as many letters as states.
    """

    metric = TOTAL_VARIATION
    unit = "symbols"
    per_token = False

    def __init__(self, *, states: int = 12, symbols: int = 18, edges: int = 4, ends: float = 0.05):
        self.check({"states": states, "symbols": symbols, "edges": edges, "ends": ends})
        self.states, self.symbols, self.edges, self.ends = states, symbols, edges, ends
        self.names = [*symbol_names(symbols), SEPARATOR]
        self.vocab_size = self.output_size = symbols + 1

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        symbols, edges, ends = settings["symbols"], settings["edges"], settings["ends"]
        require_integer("PFA", 1, states=settings["states"], symbols=symbols, edges=edges)
        require_at_most("PFA", MAX_SIZE, states=settings["states"], symbols=symbols)
        if edges > symbols:
            raise ConfigError(
                f"PFA.edges must be at most symbols={symbols}, got {edges}: the transitions of a state have different "
                "symbols"
            )
        if not 0 <= ends < 1:
            raise ConfigError(
                f"PFA.ends, the probability that a string ends, must be at least 0 and below 1, got {ends}"
            )
        return settings

    def tokens(self, length: int) -> int:
        return length

    def sample(self, generator: torch.Generator, batch: int, length: int, split: str = "train") -> AutomatonBatch:
        self.check_length(length, split)
        automata = self.draw(generator, batch)
        draws = torch.rand(batch, length, generator=generator)
        emitted, states = automata.walk(draws, torch.rand(batch, length, generator=generator) < self.ends)
        targets = emitted.masked_fill(emitted < 0, self.symbols)
        inputs = torch.cat([torch.full((batch, 1), self.symbols), targets[:, :-1]], 1)
        scored = torch.ones_like(targets, dtype=torch.bool)
        return AutomatonBatch(inputs, targets, scored, states, automata.next_symbol(self.ends, self.output_size))

    def draw(self, generator: torch.Generator, count: int) -> Automata:
        """Draw `count` automata."""

        def between(low: int, high: int, *shape: int) -> Tensor:
            return torch.randint(min(low, high), high + 1, shape, generator=generator)

        states = between(MIN_SIZE, self.states, count, 1, 1)
        letters = between(max(MIN_SIZE, self.edges), self.symbols, count, 1, 1)
        edges = between(1, self.edges, count, self.states)
        alphabet = torch.rand(count, 1, self.symbols, generator=generator).argsort(2).expand(-1, self.states, -1)
        order = torch.rand(count, self.states, self.symbols, generator=generator)
        order = order.masked_fill(torch.arange(self.symbols) >= letters, 2.0)
        symbols = alphabet.gather(2, order.topk(self.edges, largest=False).indices)
        targets = (torch.rand(symbols.shape, generator=generator, dtype=torch.float64) * states).long()
        return Automata(*(torch.cat([tensor, tensor[:, :1]], 1) for tensor in (symbols, targets, edges)))

    def curve(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, "b n"]:
        return self.distance(logits.double().softmax(-1), batch)

    def baselines(self) -> list[Baseline]:
        return [
            Baseline(
                name=name,
                scores=partial(self._ngram, predict),
                floor=name in WITHOUT_ORDER,
                examples_per_call=BASELINE_SEQUENCES,
            )
            for name, predict in NGRAMS.items()
        ]

    def _ngram(self, predict: Predictor, batch: Batch, lengths: Sequence[int]) -> Float[Tensor, "b n"]:
        probabilities = torch.from_numpy(predict(batch.inputs.numpy(), self.output_size))
        return self.distance(probabilities, batch)[:, [n - 1 for n in lengths]]

    @staticmethod
    def distance(probabilities: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, "b t"]:
        """Return the total variation distance between predicted and true distributions, for every slot."""
        if not isinstance(batch, AutomatonBatch):
            raise TypeError(
                f"batch must come from PFA.sample or PFA.examples, which keep the automata, got {type(batch).__name__}"
            )
        return (probabilities.double() - batch.target_probabilities()).abs().sum(-1) / 2

    def render(self, batch: Batch) -> list[dict[str, Any]]:
        rows = []
        for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
            words = " ".join(self.names[n] for n in inputs)
            rows.append({"input": words, "target": self.names[targets[-1]], "length": len(targets)})
        return rows
