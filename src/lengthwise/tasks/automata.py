"""Probabilistic finite automata: the language of a sequence is learned from the sequence itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lengthwise.baselines.ngrams import NGRAMS, WITHOUT_ORDER, Say
from lengthwise.config import ConfigError
from lengthwise.tasks.base import Baseline, Batch, PrefixTask, require_length, require_split
from lengthwise.tasks.sequences import symbol_names
from lengthwise.values import require_most, require_whole

FEWEST = 4  # states and letters of an automaton, where the settings allow so many
LARGEST = 10_000  # states, and letters: every sequence has tables of both
SEPARATOR = "|"
COUNTED = 64  # sequences whose symbols are counted between two looks at whether to stop


@dataclass(frozen=True)
class Automata:
    """One automaton for each row of a batch. The last of the r states is the one before a string: the first, which cannot end.

    State s has `edges[b, s]` ways to go on, all equally probable: way k says `symbols[b, s, k]` and leads to `targets[b, s, k]`.
    """

    symbols: Int[Tensor, "b r e"]
    targets: Int[Tensor, "b r e"]
    edges: Int[Tensor, "b r"]

    def walk(self, draws: Float[Tensor, "b n"], ends: Bool[Tensor, "b n"]) -> tuple[Tensor, Tensor]:
        """The symbols [b, n] that are said, and the state [b, n] in which each is; -1 for the end of a string.

        `draws` in [0, 1) choose the ways; a string ends where `ends` says so, unless nothing of it has been said yet.
        """
        count, rows, width = self.symbols.shape
        edges, targets = self.edges.flatten().numpy(), self.targets.flatten().numpy()
        chosen, stopped = draws.double().T.contiguous().numpy(), ends.T.contiguous().numpy()
        begin, offset = rows - 1, np.arange(count) * rows
        states, ways = (np.empty(chosen.shape, np.int64) for _ in range(2))
        state = np.full(count, begin)
        for t in range(len(chosen)):  # a step depends on the one before: numpy's calls are the shorter ones
            states[t] = state
            at = offset + state
            ways[t] = at * width + (chosen[t] * edges.take(at)).astype(np.int64)
            following = targets.take(ways[t])
            following[stopped[t] & (state != begin)] = begin
            state = following
        said = self.symbols.flatten().numpy().take(ways)
        said[stopped & (states != begin)] = -1
        return torch.from_numpy(said.T.copy()), torch.from_numpy(states.T.copy())

    def says(self, ends: float, vocab: int) -> Float[Tensor, "b r v"]:
        """The probabilities of what each state says next, float64; the last of the symbols ends a string."""
        share = torch.arange(self.symbols.shape[2]) < self.edges[..., None]
        found = torch.zeros(*self.edges.shape, vocab, dtype=torch.float64)
        found.scatter_(2, self.symbols, share / self.edges[..., None].double())  # a way that is none says nothing
        found[:, :-1] *= 1 - ends
        found[:, :-1, -1] = ends
        return found


@dataclass(frozen=True)
class GeneratedAnswers(Batch):
    """Sequences, the state in which each target was said, and what each state says: the truth that a model is compared with."""

    states: Int[Tensor, "b t"]
    says: Float[Tensor, "b r v"]

    def __getitem__(self, part: slice) -> "GeneratedAnswers":
        return GeneratedAnswers(
            self.inputs[part], self.targets[part], self.scored[part], self.states[part], self.says[part]
        )

    def to(self, device: torch.device | str) -> "GeneratedAnswers":
        parts = (self.inputs, self.targets, self.scored, self.states, self.says)
        return GeneratedAnswers(*(part.to(device, non_blocking=True) for part in parts))

    def truth(self) -> Float[Tensor, "b t v"]:
        """The distribution that each target was drawn from."""
        return self.says.gather(1, self.states[..., None].expand(-1, -1, self.says.shape[2]))


class PFA(PrefixTask):
    """Say what comes next in strings of a language that the sequence itself shows. `length` n counts the symbols, the one that
    is asked for included; a separator ends each string and is a symbol, too. Length 6, all places scored:

        inputs   | a b | a c
        targets  a b | a c c

    Every sequence has an automaton of its own, drawn anew: 4 ... `states` states and an alphabet of 4 ... `symbols` letters
    (fewer where the settings are smaller); each state has 1 ... `edges` ways to go on, all equally probable, each with a letter
    of its own and with any state behind it. All strings begin in the same state. After each symbol a string ends with
    probability `ends`, so it has 1 / `ends` symbols in the mean, and at least one.

    The loss is the cross-entropy of the next symbol. The score is the total variation distance of what the model says to what
    the automaton says, ½ Σ |p - q| over all symbols, from 0 to 1, at the n-th symbol: a prefix of any number of symbols is a
    sequence of that length, where strings would be of different widths. The letter says which way was taken, so the state is
    known to who knows the automaton, and a distance of 0 is what perfect learning reaches.

    Expected of who knows nothing about automata (means over 1,280 sequences, settings as usual, n = 1, 10, 50, 100, 400):

        every symbol alike     0.87  0.83  0.83  0.83  0.83
        counts of symbols      0.87  0.56  0.50  0.49  0.49
        counts of pairs        0.87  0.54  0.33  0.28  0.23
        counts of triples      0.87  0.55  0.37  0.29  0.18

    Source: Akyürek et al. 2024, "In-Context Language Learning: Architectures and Algorithms"; its code, berlino/seq_icl.
    Differs: a string ends with the same probability after each symbol; the published lengths are uniform up to 50, so that what
    comes next depends on what no automaton knows. Training and test automata are all drawn anew, the published ones are 5,000.
    The ranges of states and letters are our choice; that code draws 2 ... 9 states, and as many letters as states.
    """

    metric = "total variation"
    better = "lower"
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
        require_whole("PFA", 1, states=settings["states"], symbols=symbols, edges=edges)
        require_most("PFA", LARGEST, states=settings["states"], symbols=symbols)
        if edges > symbols:
            raise ConfigError(
                f"PFA.edges is {edges}; of {symbols} symbols each can leave a state once, so at most {symbols}"
            )
        if not 0 <= ends < 1:
            raise ConfigError(
                f"PFA.ends is {ends}; the probability that a string ends has to lie in 0 ... 1, 1 left out"
            )
        return settings

    def tokens(self, length: int) -> int:
        return length

    def check_length(self, length: int, split: str = "test") -> None:
        require_split(split)
        require_length(length, self.unit)

    def sample(self, generator: torch.Generator, batch: int, length: int, split: str = "train") -> GeneratedAnswers:
        self.check_length(length, split)
        automata = self.draw(generator, batch)
        draws = torch.rand(batch, length, generator=generator)
        said, states = automata.walk(draws, torch.rand(batch, length, generator=generator) < self.ends)
        targets = said.masked_fill(said < 0, self.symbols)
        inputs = torch.cat([torch.full((batch, 1), self.symbols), targets[:, :-1]], 1)
        scored = torch.ones_like(targets, dtype=torch.bool)
        return GeneratedAnswers(inputs, targets, scored, states, automata.says(self.ends, self.output_size))

    def draw(self, generator: torch.Generator, count: int) -> Automata:
        """So many automata."""

        def between(low: int, high: int, *shape: int) -> Tensor:
            return torch.randint(min(low, high), high + 1, shape, generator=generator)

        states = between(FEWEST, self.states, count, 1, 1)
        letters = between(max(FEWEST, self.edges), self.symbols, count, 1, 1)
        edges = between(1, self.edges, count, self.states)
        alphabet = torch.rand(count, 1, self.symbols, generator=generator).argsort(2).expand(-1, self.states, -1)
        order = torch.rand(count, self.states, self.symbols, generator=generator)
        order = order.masked_fill(torch.arange(self.symbols) >= letters, 2.0)
        symbols = alphabet.gather(2, order.topk(self.edges, largest=False).indices)
        targets = (torch.rand(symbols.shape, generator=generator, dtype=torch.float64) * states).long()
        return Automata(*(torch.cat([part, part[:, :1]], 1) for part in (symbols, targets, edges)))

    def curve(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, "b n"]:
        return self.distance(logits.double().softmax(-1), batch)

    def baselines(self) -> list[Baseline]:
        return [
            Baseline(name=name, scores=partial(self._ngram, say), floor=name in WITHOUT_ORDER, at_once=COUNTED)
            for name, say in NGRAMS.items()
        ]

    def _ngram(self, say: Say, batch: Batch, lengths: Sequence[int]) -> Float[Tensor, "b n"]:
        said = torch.from_numpy(say(batch.inputs.numpy(), self.output_size))
        return self.distance(said, batch)[:, [n - 1 for n in lengths]]

    @staticmethod
    def distance(said: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, "b t"]:
        """The total variation distance of distributions over the next symbol to the true ones, at every place."""
        if not isinstance(batch, GeneratedAnswers):
            raise TypeError("a batch of PFA holds its automata; take it from `sample` or `examples`, or a part of it")
        return (said.double() - batch.truth()).abs().sum(-1) / 2

    def render(self, batch: Batch) -> list[dict[str, Any]]:
        rows = []
        for asked, answers in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
            words = " ".join(self.names[n] for n in asked)
            rows.append({"input": words, "target": self.names[answers[-1]], "length": len(answers)})
        return rows
