"""Measure the fused CPU attention with each form of bias: time, memory and error, relative to no encoding.

    python benchmarks/attention.py [--parts ratios,threads,memory,eager,decode,shapes,growth,errors,rows,rotations]
                                   [--lengths 256,1024,2048,4096] [--rounds 10]
                                   [--draws 60] [--dtypes float32,bfloat16,float16] [--forms FIRE,T5]

Batch 4, 8 heads of 64 dimensions, causal, float32, forward and backward pass unless a part says otherwise. All
parameters of the encoding have gradients, and the time of the encoding itself is included. Each part is stored as
results/attention-<part>.json.

    ratios   time of the forward pass, and of forward and backward, relative to our kernel without encoding ("NoPE") and
             to torch's scaled_dot_product_attention without encoding ("torch"); one thread, CPU time
    threads  time of forward and backward on several threads relative to one, of our kernel without encoding and with
             FIRE, and of torch's attention; wall time, on this machine as it is and beside a process that keeps one
             core busy. Before each call torch multiplies matrices, which is not timed, as in a model: its threads wait
             for more work after that. Calls with the same number of threads follow each other, because torch starts its
             threads anew when the number changes. The row "one sequence of 32" is a call with little work
    memory   peak resident memory of a new process, minus its memory before the first forward and backward pass
    eager    FIRE, relative to its network evaluated for all pairs with attention in plain PyTorch, from T 1024 on: time
             and memory
    decode   one query and a cache of 4,096 keys, without gradients: the kernel alone ("kernel"); a whole step of a
             decoder that keeps what the encoding computed ("step"), and of one that does not ("made anew"); and
             computing the encoding once for 8,192 keys, when a text grows beyond 4,096 ("table"). All are relative to
             torch's step without encoding
    shapes   time per element (pair of tokens and dimension) at other dimensions and lengths, relative to D 64, T 1024
    growth   time and memory of batch 1 up to T 16384, and the factors by which they grow when T doubles
    errors   error of the output and of every gradient (distance from the float64 reference) of our kernel, relative to
             that of torch's attention with the bias as a mask, up to T 1024. Only this part uses --draws and --dtypes
    rows     encodings with a vector for each distance that is multiplied by each query or added to values, and FoX:
             time relative to our kernel without encoding and to `blocked`; the share of the encoding itself ("table");
             peak memory. --forms as in errors
    rotations  rotating q and k inside the kernel ("inside") and before it ("before"), with the time of the encoding:
             time and peak memory relative to our kernel without encoding

Times are measured in the order A, X, A, as CPU time of one thread, which other processes disturb little. A ratio is the
median over the rounds (10th to 90th percentile).
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from record import RESULTS, processor, save
from torch import Tensor

from lengthwise import native
from lengthwise.attention import BACKENDS, EncodingCache, Mask
from lengthwise.encodings import ENCODINGS, PositionEncoding
from lengthwise.encodings.fire import FIRE
from lengthwise.forms import AttentionModifiers
from lengthwise.span import Span

NAMES = ("Sinks", "ALiBi", "Sandwich", "T5", "KerpleLog", "FIRE:hidden_layers=1", "FIRE", "FIRE:activation=gelu")
ERROR_FORMS = ("NoPE", *NAMES, "RoPE", "Shaw:values=false", "TransformerXL", "BandedBias")
ROWS = (
    "FoX", "Shaw", "Shaw:values=false", "Shaw:values=false,clip=128", "BandedBias:band=256", "BandedBias",
    "TransformerXL",
)  # fmt: skip
FEW = ("ALiBi", "T5", "FIRE")
ROTATIONS = ("RoPE", "RoPE:layout=half", "RoPE:rotary_fraction=0.25", "XPos")
TORCH, OURS = "torch", "NoPE"  # the two denominators
HEADS, DIM = 8, 64
TRAINED = 1024
Figures = dict[str, Any]


class Attention:
    """Attention of one encoding on random numbers. "eager FIRE": the network over all pairs, every matrix written out;
    "before RoPE": q and k are rotated before the kernel."""

    def __init__(
        self, name: str, length: int, *, batch: int = 4, dim: int = DIM, queries: int | None = None,
        groups: int = HEADS, window: int | None = None, backend: str = "fused",
    ):  # fmt: skip
        torch.manual_seed(0)
        queries = queries or length
        self.name, self.scale, self.backend = name, dim**-0.5, BACKENDS[backend]
        self.q, self.weight = (torch.randn(batch, HEADS, queries, dim) for _ in range(2))
        self.k, self.v = (torch.randn(batch, groups, length, dim) for _ in range(2))
        for x in (self.q, self.k, self.v):
            x.requires_grad_()
        self.span = Span.of(length, queries)
        self.mask = Mask(queries, length, window=window) if window else Mask(queries, length)
        self.encoding = None
        if name != TORCH:
            made_for = {"num_heads": HEADS, "head_dim": dim, "d_model": HEADS * dim, "train_length": length}
            self.encoding = ENCODINGS.parse(name.split()[-1]).build(**made_for)
            self.tokens = torch.randn(batch, length, HEADS * dim) if reads(self.encoding) else None
        self.parameters = [] if self.encoding is None else list(self.encoding.parameters())

    def modifiers(self) -> AttentionModifiers:
        assert self.encoding is not None
        return effect_of(self.encoding, self.tokens, self.span)

    def out(self) -> Tensor:
        if self.encoding is None:
            grouped, causal = self.k.shape[1] < HEADS, self.mask.causal_only and self.q.shape[2] > 1
            return F.scaled_dot_product_attention(self.q, self.k, self.v, is_causal=causal, enable_gqa=grouped)
        if self.name.startswith("eager "):
            return self._eager()
        modifiers, q, k = self.modifiers(), self.q, self.k
        if self.name.startswith("before ") and modifiers.rotation:
            q, k = modifiers.rotation.rotate_query(q), modifiers.rotation.rotate_key(k)
            modifiers = dataclasses.replace(modifiers, rotation=None)
        return self.backend.prepare(modifiers, self.span, self.mask)(q, k, self.v, scale=self.scale)

    def _eager(self) -> Tensor:
        """As copies of FIRE are written: the network for every pair, hidden pairs too."""
        assert isinstance(self.encoding, FIRE)
        i, j = self.span.q[0, :, None], self.span.k[0, None, :]
        x = self.encoding.coordinate(i, torch.minimum(i, j)).float()
        logits = self.q @ self.k.mT * self.scale + self.encoding.f(x[..., None]).permute(2, 0, 1)
        return logits.masked_fill(j > i, -math.inf).softmax(-1) @ self.v

    def forward(self) -> None:
        with torch.no_grad():
            self.out()

    def both(self) -> None:
        torch.autograd.grad(self.out(), [self.q, self.k, self.v, *self.parameters], self.weight)


def reads(encoding: Any) -> bool:
    """Whether its bias is made of the layer's input."""
    return type(encoding).features is not PositionEncoding.features


def effect_of(encoding: Any, x: Tensor | None, span: Span) -> AttentionModifiers:
    """What an encoding does to attention of tokens x [b, t, heads dim]."""
    modifiers: AttentionModifiers = encoding.modifiers(span)
    if not reads(encoding):
        return modifiers
    return dataclasses.replace(modifiers, terms=(*modifiers.terms, *encoding.content(encoding.features(x), span, None)))


# ---- measuring


def seconds(action: Callable[[], object], times: int = 1, clock: Callable[[], float] = time.process_time) -> float:
    start = clock()
    for _ in range(times):
        action()
    return (clock() - start) / times


def spread(ratios: Sequence[float]) -> dict[str, float]:
    ordered = sorted(ratios)
    low, high = (ordered[round(p * (len(ordered) - 1))] for p in (0.1, 0.9))
    return {"median": statistics.median(ratios), "p10": low, "p90": high}


def paired(
    a: Callable[[], object], x: Callable[[], object], rounds: int, times: int = 1
) -> tuple[dict[str, float], float]:
    """Time of x over that of a, and the median seconds of a."""
    a()
    x()
    ratios, plain = [], []
    for _ in range(rounds):
        before, own, after = (seconds(one, times) for one in (a, x, a))
        ratios.append(2 * own / (before + after))
        plain += [before, after]
    return spread(ratios), statistics.median(plain)


def resident(field: str) -> int:
    """KiB from /proc (Linux): VmRSS now, VmHWM at most so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field)))


def peak_here(name: str, length: int, settings: dict[str, Any]) -> float:
    """Peak MiB above the state before the first pass, in this process."""
    Attention(name, 64, **settings).both()  # what is loaded once is not counted
    attention = Attention(name, length, **settings)
    before = resident("VmRSS")
    attention.both()
    attention.both()
    return (resident("VmHWM") - before) / 1024


def peak(name: str, length: int, **settings: Any) -> float:
    """The same in a fresh process."""
    asked = json.dumps([name, length, settings])
    command = [sys.executable, __file__, "--peak-of", asked]
    return float(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def table(title: str, rows: Figures, width: int = 24) -> None:
    """Rows of figures: a ratio with its spread, or a number."""
    print(f"\n{title}")
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    print(f"{'':<22}" + "".join(f"{column:>{width}}" for column in columns))
    for name, row in rows.items():
        print(f"{name:<22}" + "".join(f"{_cell(row.get(column)):>{width}}" for column in columns), flush=True)


def _cell(x: Any) -> str:
    if isinstance(x, dict):
        return f"{x['median']:.2f} ({x['p10']:.2f}-{x['p90']:.2f})"
    return "" if x is None else f"{x:.3g}" if isinstance(x, float) and abs(x) < 100 else f"{x:,.0f}"


# ---- parts


def ratios(args: argparse.Namespace) -> Figures:
    found: Figures = {}
    for length in args.lengths:
        kinds = {name: Attention(name, length) for name in (TORCH, OURS, *NAMES)}
        rows: Figures = {name: {} for name in kinds}
        found[f"T {length}"] = rows
        for what in ("forward", "both"):
            timed = in_turn({name: getattr(one, what) for name, one in kinds.items()}, args.rounds)
            for name, of in timed.items():
                for base, figure in of.items():
                    rows[name][f"{what} of {base}" if base != "ms" else f"{what} ms"] = figure
        table(f"T {length}, CPU time of one thread; both: forward and backward", rows)
    return found


def in_turn(actions: dict[str, Callable[[], None]], rounds: int) -> dict[str, dict[str, Any]]:
    """Each action's time over those of our own kernel right before and after it, and of torch's nearest to it."""
    order = [TORCH]
    for n, name in enumerate(NAMES):
        order += [OURS, name] if n % 2 == 0 else [OURS, name, OURS, TORCH]
    if order[-1] != TORCH:
        order += [OURS, TORCH]
    for action in actions.values():
        action()
    found: dict[str, dict[str, list[float]]] = {name: {} for name in actions}
    for _ in range(rounds):
        times = [seconds(actions[name]) for name in order]
        last_torch = 0
        for at, name in enumerate(order):
            found[name].setdefault("ms", []).append(times[at] * 1e3)
            if name == TORCH:
                last_torch = at
                continue
            next_torch = order.index(TORCH, at)
            found[name].setdefault(TORCH, []).append(2 * times[at] / (times[last_torch] + times[next_torch]))
            if name != OURS:
                found[name].setdefault(OURS, []).append(2 * times[at] / (times[at - 1] + times[at + 1]))
    return {
        name: {of: statistics.median(x) if of == "ms" else spread(x) for of, x in row.items()}
        for name, row in found.items()
    }


def threads(args: argparse.Namespace) -> Figures:
    counts = thread_counts()
    found: Figures = {}
    for title, busy in (("alone", 0), ("beside a busy process", 1)):
        with busy_processes(busy):
            found[title] = {f"T {length}": on_threads({}, length, counts, args.rounds) for length in args.lengths}
            found[title]["one sequence of 32"] = on_threads({"batch": 1}, 32, counts, args.rounds)
        for length, rows in found[title].items():
            table(f"{title}, {length}: wall time, forward and backward", rows)
    torch.set_num_threads(1)
    return found


def thread_counts() -> list[int]:
    """Return 1, 2, 4 and so on, up to the machine's cores."""
    cores = os.cpu_count() or 1
    return sorted({1, 2, cores, *(2**n for n in range(10) if 2**n <= cores)})


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    command = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def on_threads(settings: dict[str, Any], length: int, counts: list[int], rounds: int) -> Figures:
    """Milliseconds of a call on each number of threads; the time on one relative to it; and, for ours, relative to
    torch's.
    """
    kinds = {name: Attention(name, length, **settings) for name in (TORCH, OURS, "FIRE")}
    x, weight = torch.randn(max(1024, len(kinds[OURS].q) * length), HEADS * DIM), torch.randn(HEADS * DIM, HEADS * DIM)
    times: dict[str, dict[int, list[float]]] = {name: {count: [] for count in counts} for name in kinds}
    for turn in range(rounds + 1):
        for count in counts:
            torch.set_num_threads(count)
            for name, one in kinds.items():
                calls = []
                for _ in range(max(2, 4096 // length) + 1):
                    torch.mm(x, weight)
                    calls.append(seconds(one.both, clock=time.perf_counter))
                if turn:  # the first round starts threads and allocates memory, as does the first call of a block
                    times[name][count].append(statistics.median(calls[1:]))
    rows: Figures = {}
    for name, of in times.items():
        rows[name] = row = {f"{count} ms": statistics.median(of[count]) * 1e3 for count in counts}
        row |= {f"gain of {n}": spread([a / b for a, b in zip(of[1], of[n], strict=True)]) for n in counts[1:]}
        if name != TORCH:
            its = times[TORCH]
            row |= {f"{n} of torch": spread([a / b for a, b in zip(of[n], its[n], strict=True)]) for n in counts}
    return rows


def memory(args: argparse.Namespace) -> Figures:
    found = {}
    for length in args.lengths:
        theirs = peak(TORCH, length)
        rows: Figures = {TORCH: {"MiB": theirs}}
        for name in (OURS, *NAMES):
            own = peak(name, length)
            rows[name] = {"MiB": own, "of torch": own / theirs}
        table(f"T {length}, peak memory, forward and backward", rows, 12)
        found[f"T {length}"] = rows
    return found


def eager(args: argparse.Namespace) -> Figures:
    rows: Figures = {}
    for length in args.lengths:
        if not 1024 <= length <= 2048:  # at 4,096 the eager one needs 11 GB
            continue
        for name in ("FIRE:hidden_layers=1", "FIRE"):
            ours, theirs = Attention(name, length), Attention(f"eager {name}", length)
            ratio, own = paired(ours.both, theirs.both, max(3, args.rounds // 3))
            del theirs
            mine, its = peak(name, length), peak(f"eager {name}", length)
            rows[f"{name} {length}"] = {
                "fused ms": own * 1e3, "eager time of fused": ratio, "fused MiB": mine, "eager MiB": its,
                "eager memory of fused": its / mine,
            }  # fmt: skip
    table("FIRE over all pairs with eager attention, forward and backward", rows)
    return rows


def decode(args: argparse.Namespace) -> Figures:
    found = {}
    keys, rounds = 4096, 5 * args.rounds
    cases: dict[str, dict[str, Any]] = {
        "batch 4": {"batch": 4}, "batch 1": {"batch": 1}, "batch 1, one key head": {"batch": 1, "groups": 1},
    }  # fmt: skip
    for title, settings in cases.items():
        torchs = Attention(TORCH, keys, queries=1, **settings)
        rows: Figures = {}
        for name in (OURS, *NAMES, "TransformerXL"):
            one = Attention(name, keys, queries=1, **settings)
            assert one.encoding is not None
            kept, longer = EncodingCache(), Span.of(2 * keys)

            def step(one: Attention, modifiers: Callable[[Span], AttentionModifiers]) -> None:
                BACKENDS["fused"].prepare(modifiers(one.span), one.span, one.mask)(one.q, one.k, one.v, scale=one.scale)

            with torch.no_grad():
                attend = BACKENDS["fused"].prepare(one.encoding.modifiers(one.span), one.span, one.mask)
                actions: dict[str, Callable[[], object]] = {
                    "kernel": functools.partial(attend, one.q, one.k, one.v, scale=one.scale),
                    "step": functools.partial(step, one, functools.partial(kept.modifiers, one.encoding)),
                    "made anew": functools.partial(step, one, one.encoding.modifiers),
                    "table": functools.partial(one.encoding.modifiers, longer),
                }
                for _ in range(2):  # what is kept is there from the second step on
                    actions["step"]()
                timed = {what: paired(torchs.forward, action, rounds, 4) for what, action in actions.items()}
            rows[name] = {f"{what} of torch": ratio for what, (ratio, _) in timed.items()}
            rows[name]["torch ms"] = statistics.median(plain for _, plain in timed.values()) * 1e3
        table(f"one step with {keys:,} keys, {title}", rows)
        found[title] = rows
    return found


def shapes(args: argparse.Namespace) -> Figures:
    rows: Figures = {}
    for name in (OURS, *FEW):
        base = Attention(name, 1024)
        rows[name] = {}
        for length, dim in ((1024, 32), (1024, 128), (100, 64), (1023, 64)):
            other = Attention(name, length, dim=dim)
            elements = length * (length + 1) * dim / (1024 * 1025 * DIM)
            times = max(1, round(1 / elements / 4))  # so that what is timed is long enough
            base.both()
            other.both()
            found = []
            for _ in range(args.rounds):
                before, own, after = seconds(base.both), seconds(other.both, times), seconds(base.both)
                found.append(2 * own / (before + after) / elements)
            rows[name][f"T {length}, D {dim}"] = spread(found)
    table("time of an element over that of T 1024, D 64; forward and backward", rows)
    return rows


def growth(args: argparse.Namespace) -> Figures:
    """Memory: of q, k, v and their gradients too, so that what is proportional to T is seen as such."""
    found = {}
    lengths = (1024, 2048, 4096, 8192, 16384)
    for name, window in ((TORCH, None), (OURS, None), ("ALiBi", None), ("FIRE", None), (OURS, 512)):
        rows: Figures = {}
        for length in lengths:
            one = Attention(name, length, batch=1, window=window)
            one.both()
            best = min(seconds(one.both) for _ in range(3 if length < 8192 else 1)) * 1e3
            size = peak(name, length, batch=1, window=window)
            row: Figures = {"ms": best, "MiB": size}
            if f"{length // 2}" in rows:
                before = rows[f"{length // 2}"]
                row |= {"time grows": best / before["ms"], "memory grows": size / before["MiB"]}
            rows[f"{length}"] = row
        title = name if window is None else f"{name}, window {window}"
        table(f"{title}: growth with T, batch 1, forward and backward", rows, 14)
        found[title] = rows
    return found


def rows(args: argparse.Namespace) -> Figures:
    """What earlier runs found with the same versions is kept, so that lengths can be run one by one."""
    found = kept("rows")
    for length in args.lengths:
        plain, plain_mib, rows = Attention(OURS, length), peak(OURS, length), {}
        for name in args.forms or ROWS:
            one = Attention(name, length)
            ratio, own = paired(plain.both, one.both, args.rounds)
            rows[name] = {
                "of NoPE": ratio, "NoPE ms": own * 1e3,
                "of blocked": paired(Attention(name, length, backend="blocked").both, one.both, args.rounds)[0],
                "table": paired(plain.both, functools.partial(table_alone, one), args.rounds)[0],
                "memory of NoPE": peak(name, length) / plain_mib,
            }  # fmt: skip
        table(f"T {length}, forms with vectors or sums of tokens; forward and backward", rows)
        found[f"T {length}"] = rows
        keep("rows", found)  # so that one that is cut off loses nothing
    return found


def table_alone(one: Attention) -> None:
    """What the kernel reads besides q, k and v (vectors of distances, contents, running sums), and back to the
    parameters.
    """
    assert one.encoding is not None
    modifiers, parameters = one.modifiers(), list(one.encoding.parameters())
    forms = [*modifiers.terms, *modifiers.values]
    made = [x for form in forms for x in vars(form).values() if isinstance(x, Tensor) and x.requires_grad]
    torch.autograd.grad(made, parameters, [torch.ones_like(x) for x in made], allow_unused=True)


def errors(args: argparse.Namespace) -> Figures:
    """Root of the mean square of the difference from the reference over the draws, ours over torch's, with its 95 %
    interval (draws chosen anew, 2,000 times).

    Half precision is stored after every step of torch's, and computed in float32 here. A gradient that is one number,
    as that of FIRE's c, is by chance close or far off in single draws, for torch as for us: a few of them say nothing.

    What earlier runs found with the same versions is kept, so that forms, dtypes and lengths can be run one by one.
    """
    found = kept("errors")
    for dtype in args.dtypes:
        for length in args.lengths:
            if length > 1024:  # the reference has several matrices in float64
                continue
            title = f"{dtype}, T {length}"
            rows: Figures = found.setdefault(title, {})
            shown: Figures = {}
            for name in args.forms or ERROR_FORMS:
                squares: dict[str, list[tuple[float, float]]] = {}
                for seed in range(args.draws):
                    for answer, pair in distances(name, length, getattr(torch, dtype), seed).items():
                        squares.setdefault(answer, []).append(pair)
                of = {answer: off(torch.tensor(pairs)) for answer, pairs in squares.items()}
                rows[name] = {"draws": args.draws, "of torch": of}
                keep("errors", found)  # so that one that is cut off loses nothing
                shown[name] = {a: as_spread(of[a]) for a in ("out", "q", "k", "v")}
                if others := [a for a in of if a not in shown[name]]:
                    worst = max(others, key=lambda a: of[a]["ratio"])
                    shown[name]["worst parameter"] = as_spread(of[worst])
            table(f"{title}: error against float64, ours over torch's, {args.draws} draws", shown)
    return found


def kept(part: str) -> Figures:
    path = RESULTS / f"attention-{part}.json"
    if not path.exists():
        return {}
    stored = json.loads(path.read_text())
    figures: Figures = stored["figures"]
    earlier = stored["made"]["torch"], stored["made"]["processor"], figures.pop("target")
    return figures if earlier == (torch.__version__, processor(), native.best_target()) else {}


def off(squares: Tensor) -> dict[str, float]:
    """Of squared distances [draws, 2]: the ratio of the roots of their means, and its 95 % interval."""
    if not squares[:, 1].sum():
        return {"ratio": 1.0 if not squares.any() else math.inf}
    generator = torch.Generator().manual_seed(0)
    again = squares[torch.randint(len(squares), (2000, len(squares)), generator=generator)].sum(1)
    ratios = (again[:, 0] / again[:, 1]).sqrt().nan_to_num(1.0, posinf=math.inf).sort().values
    own, its = squares.sum(0).tolist()
    return {"ratio": math.sqrt(own / its), "low": ratios[50].item(), "high": ratios[-51].item()}


def as_spread(of: dict[str, float]) -> dict[str, float]:
    return {"median": of["ratio"], "p10": of.get("low", of["ratio"]), "p90": of.get("high", of["ratio"])}


class Sum(torch.nn.Module):
    """Encodings side by side in one attention: the first, with the terms of the others added."""

    def __init__(self, each: Sequence[torch.nn.Module]):
        super().__init__()
        self.each = torch.nn.ModuleList(each)

    def modifiers(self, x: Tensor, span: Span) -> AttentionModifiers:
        """What they do to attention of tokens x [1, t, heads dim]."""
        effects = [effect_of(one, x, span) for one in self.each]
        return dataclasses.replace(effects[0], terms=tuple(term for modifiers in effects for term in modifiers.terms))


def distances(
    name: str, length: int, dtype: torch.dtype, seed: int, heads: int = 4, dim: int = DIM
) -> dict[str, tuple[float, float]]:
    """Of the output and every gradient: squared distance from the reference, ours and torch's. name: encodings' names
    with " + " between them."""
    span, mask, scale = Span.of(length), Mask(length, length), dim**-0.5
    torch.manual_seed(seed)
    given = [torch.randn(1, heads, length, dim).to(dtype) for _ in range(4)]
    tokens = torch.randn(1, length, heads * dim).to(dtype)  # what a bias that reads content is made of
    made_for = {"num_heads": heads, "head_dim": dim, "d_model": heads * dim, "train_length": length}
    answers = {}
    for who in ("reference", "ours", "torch"):
        torch.manual_seed(100 + seed)
        encoding = Sum([ENCODINGS.parse(one).build(**made_for) for one in name.split(" + ")])
        in_use = torch.float64 if who == "reference" else dtype
        if who == "reference":
            encoding = encoding.double()  # or what gradients of its parameters are sums of would be rounded
        q, k, v, weight = (x.to(in_use) for x in given)
        for x in (q, k, v):
            x.requires_grad_()
        modifiers = encoding.modifiers(tokens.to(in_use), span)
        if who == "torch":
            bias = torch.zeros(1, 1, 1, 1)
            for term in modifiers.terms:
                bias = bias + term.dense(q, k, span, scale)
            hidden = ~mask.visible(q.device)[:, None]
            bias = bias.expand(1, heads, length, length).masked_fill(hidden, -math.inf).to(dtype)
            turn = modifiers.rotation
            turned = (turn.rotate_query(q), turn.rotate_key(k)) if turn else (q, k)
            out = F.scaled_dot_product_attention(*turned, v, attn_mask=bias, scale=scale)
        else:
            backend = BACKENDS["reference" if who == "reference" else "fused"]
            out = backend.prepare(modifiers, span, mask)(q, k, v, scale=scale)
        parameters = {f"encoding.{n.removeprefix('each.0.')}": x for n, x in encoding.named_parameters()}
        leaves = {"q": q, "k": k, "v": v, **parameters}
        gradients = torch.autograd.grad(out, list(leaves.values()), weight)
        answers[who] = {"out": out.detach(), **dict(zip(leaves, gradients, strict=True))}
    squares = {}
    for answer, exact in answers["reference"].items():
        own, its = (float((answers[who][answer].double() - exact).square().sum()) for who in ("ours", "torch"))
        squares[answer] = (own, its)
    return squares


def rotations(args: argparse.Namespace) -> Figures:
    found: Figures = {}
    for length in args.lengths:
        rows: Figures = {}
        plain, without = Attention(OURS, length), peak(OURS, length)
        for name in ROTATIONS:
            rows[name] = row = {}
            for where, who in (("inside", name), ("before", f"before {name}")):
                own = Attention(who, length)
                row[f"{where}, both"], _ = paired(plain.both, own.both, args.rounds)
                row[f"{where}, forward"], _ = paired(plain.forward, own.forward, args.rounds)
                row[f"{where}, memory"] = peak(who, length) / without
        found[f"T {length}"] = rows
        table(f"T {length}, of our kernel without encoding", rows)
    return found


PARTS: dict[str, Callable[[argparse.Namespace], Figures]] = {
    "ratios": ratios, "threads": threads, "memory": memory, "eager": eager, "decode": decode, "shapes": shapes,
    "growth": growth, "errors": errors, "rows": rows, "rotations": rotations,
}  # fmt: skip


def keep(part: str, figures: Figures) -> None:
    save(f"attention-{part}", {"target": native.best_target(), **figures})


def whole_numbers(text: str) -> list[int]:
    return [int(x) for x in text.split(",")]


def names(text: str) -> list[str]:
    return text.split(",")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--lengths", type=whole_numbers, default=[256, 1024, 2048, 4096])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--dtypes", type=names, default=["float32", "bfloat16", "float16"])
    parser.add_argument("--forms", type=names)
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if reason := native.unsupported_reason():
        raise SystemExit(reason)
    if args.peak_of:
        name, length, settings = json.loads(args.peak_of)
        print(json.dumps(peak_here(name, length, settings)))
        return
    parts = args.parts.split(",")
    for part in parts:
        if part not in PARTS:
            parser.error(f"there is no part {part}; there are {', '.join(PARTS)}")
    for part in parts:
        keep(part, PARTS[part](args))


if __name__ == "__main__":
    main()
