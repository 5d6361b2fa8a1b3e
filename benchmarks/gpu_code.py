"""Compile the GPU kernels for sm_90 (Hopper) and examine their machine code, without a GPU. Nothing is measured.

    python benchmarks/gpu_code.py [--dims 64,128] [--dtypes bfloat16,float32] [--forms none,table,rows values]

Without options, the counts are kept in benchmarks/results/gpu_code.json; with fewer kernels they are only printed.

For each kernel and form, and each loop over tiles: instructions per pair of query and key, those in a loop over the
knots of a tile (which are counted once), tensor-core instructions (HGMMA, HMMA), accesses to local memory (spilled
registers), and barriers. For the whole kernel: registers and shared memory. ptxas and nvdisasm come with Triton. The
kernels are called as on a GPU, with memory on the CPU, and are compiled instead of executed.

From the instructions of each loop, and from the share of tiles that go through it, it predicts how many instructions a
forward and a backward pass takes with some encodings, relative to none. That is not a time.

The script fails, with one line for each problem, if a kernel takes more shared memory than a block has, if a loop in
half precision uses no tensor cores, if a loop that most tiles go through (CLEAN, FAR) spills more than SPILLED_HALF and
SPILLED_SINGLE allow, or if a loop with branches is pipelined (see `_stages` in visits.py).
"""

import argparse
import collections
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import triton
from gpu_instructions import SEGMENTED, predicted
from record import save
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from lengthwise.attention.fused import gpu
from lengthwise.attention.fused.arguments import LEARNED, SEGMENTS, Arguments
from lengthwise.attention.fused.gpu import distances, tiles
from lengthwise.encodings import FIRE
from lengthwise.native import gpu_segments

TARGET = GPUTarget("cuda", 90, 32)
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
FORMS = (
    "none",
    "short table",
    "table",
    "fixed table",
    "pieces",
    "table pieces",
    "many",
    "rows",
    "rows values",
    "sink",
    "prefix",
)
EXTRA = ("table pieces", "many")  # compiled only if they are asked for
KINDS = {
    "none": ["CLEAN", "GENERAL"],
    "sink": ["CLEAN", "GENERAL"],
    "prefix": ["CLEAN", "GENERAL"],
    "short table": ["CLEAN", "FAR", "GENERAL"],
    "table": ["CLEAN", "FAR", "GENERAL"],
    "fixed table": ["CLEAN", "FAR", "GENERAL"],
    "rows": ["CLEAN", "FAR", "GENERAL"],
    "rows values": ["CLEAN", "FAR", "GENERAL"],
}
MAIN = ("CLEAN", "FAR")
SHARED = (
    227 * 1024
)  # bytes a block can have on sm_90: CUDA C++ Programming Guide, technical specifications by compute capability
# In half precision, by head dim, of some 500 instructions: what the present block sizes spill, so that a change for the
# worse is seen. Those with 64 and 128 dims were the fastest on an H200 nevertheless (gpu_block_sizes.py), before the
# kernel of keys summed the gradients of segments. Its blocks for segments with 128 dims, and all with 256, were not
# timed. Tables that end before the keys do have the block sizes of none, and were not timed with others.
SPILLED_HALF = {64: 27, 128: 53, 256: 8}
SPILLED_SINGLE = {256: 67}  # running sums (FoX), gradients of keys
NAMES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
}
# Kernels without products of matrices.
NO_PRODUCTS = ("inner_products", "classify_tiles", "sort_tiles", "sum_columns", "find_steps")


class Compiled:
    """One kernel as it was called."""

    def __init__(self, function: Any, values: dict[str, Any], options: dict[str, int]):
        self.name, self.values, self.options = function.fn.__name__, values, options
        constants: dict[tuple[int, ...], Any] = {}
        attributes: dict[tuple[int, ...], Any] = {}

        def kind(x: Any, path: tuple[int, ...], constant: bool) -> Any:
            if isinstance(x, tuple) and not constant:
                types = [kind(y, (*path, n), constant) for n, y in enumerate(x)]
                return type(x)(*types) if hasattr(x, "_fields") else tuple(types)
            if x is None or constant or (type(x) is int and x == 1):  # what Triton itself makes constants of
                constants[path] = x
                return "constexpr"
            if isinstance(x, torch.Tensor):
                attributes[path] = [["tt.divisibility", 16]]
                return "*" + NAMES[x.dtype]
            if type(x) is int and x % 16 == 0:
                attributes[path] = [["tt.divisibility", 16]]
            return "i32" if type(x) is int else "fp32"

        signature = {p.name: kind(values[p.name], (p.num,), p.is_constexpr) for p in function.params}
        source = ASTSource(function, signature, constants, attributes)
        self.code = triton.compile(source, target=TARGET, options=options)
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(self.code.asm["cubin"])
            file.flush()
            self.sass = _run("nvdisasm", "-c", file.name)
            usage = _run("cuobjdump", "-res-usage", file.name)
        self.registers, self.stack = map(
            int,
            re.search(r"REG:(\d+) STACK:(\d+)", usage).groups(),  # type: ignore[union-attr]
        )

    @property
    def pairs(self) -> int:
        """Pairs of query and key in a tile."""
        v = self.values
        return v["B"] ** 2 if "B" in v else v["BM"] * v["BN"]

    def loops(self) -> list[tuple[collections.Counter[str], int]]:
        """The instructions of every innermost loop with products of matrices in it, in order; and how many of them are
        in loops inside of it.
        """
        lines, labels = [], {}
        for line in self.sass.splitlines():
            if label := re.match(r"\s*(\.L_x_\d+):", line):
                labels[label[1]] = len(lines)
            elif found := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_.]*)(.*)", line):
                lines.append((found[1].split(".")[0], found[2]))
        end_of: dict[int, int] = {}
        for n, (operation, rest) in enumerate(lines):
            to = re.search(r"`\((\.L_x_\d+)\)", rest)
            if operation == "BRA" and to and labels.get(to[1], n + 1) <= n:
                end_of[labels[to[1]]] = n
        spans = sorted(end_of.items())

        def inside(span: tuple[int, int]) -> list[tuple[int, int]]:
            return [s for s in spans if s != span and span[0] <= s[0] and s[1] <= span[1]]

        def count(span: tuple[int, int]) -> collections.Counter[str]:
            return collections.Counter(operation for operation, _ in lines[span[0] : span[1] + 1])

        def has_products(span: tuple[int, int]) -> bool:
            c = count(span)
            return bool(c["HGMMA"] or c["HMMA"]) or c["FFMA"] > self.pairs // 8

        chosen = [s for s in spans if has_products(s) and not any(map(has_products, inside(s)))]
        return [(count(s), len({n for a, b in inside(s) for n in range(a, b + 1)})) for s in chosen]

    def report(self, form: str) -> dict[str, Any]:
        loops = self.loops()
        kinds = KINDS.get(form, list(SEGMENTED))
        if self.name == "distance_gradients" and form in ("short table", "table"):
            kinds = ["CLEAN", "GENERAL"]  # the gradient of the last entry is what the others leave
        if self.name == "weights_by_distance":
            kinds = ["CLEAN", "GENERAL"]  # with a causal mask
        if len(loops) != len(kinds):
            kinds = [f"loop {n}" for n in range(len(loops))]
        threads = 32 * self.options["num_warps"]
        return {
            "pipelined loops with branches": pipelined_branches(self.code.asm["ttgir"]),
            "registers": self.registers,
            "stack bytes": self.stack,
            "shared memory": self.code.metadata.shared,
            "options": self.options,
            "tile": [self.values.get("BM", self.values.get("B")), self.values.get("BN", self.values.get("B"))],
            "loops": {
                kind: {
                    "instructions a pair": round(c.total() * threads / self.pairs, 1),
                    "of these a knot": round(nested * threads / self.pairs, 1),
                    "tensor cores": c["HGMMA"] + c["HMMA"],
                    "spills": c["LDL"] + c["STL"],
                    "barriers": c["BAR"],
                }
                for kind, (c, nested) in zip(kinds, loops, strict=True)
            },
        }


def pipelined_branches(ttgir: str) -> int:
    """Count the loops that load tiles ahead and have a branch: there Triton overwrites a tile that the branch still
    reads.
    """
    count, open_loops = 0, []
    for line in ttgir.splitlines():
        indent = len(line) - len(line.lstrip())
        while open_loops and line.strip() and indent <= open_loops[-1]["indent"]:
            loop = open_loops.pop()
            count += loop["loads"] and loop["branches"]
        if "scf.for" in line:
            open_loops.append({"indent": indent, "loads": False, "branches": False})
        elif open_loops:
            open_loops[-1]["loads"] |= "async_copy" in line
            open_loops[-1]["branches"] |= "scf.if" in line
    return count


def problems(found: dict[str, Any], kernel: str, form: str, dim: int, dtype: torch.dtype) -> list[str]:
    """What a report must not say: one line each. Loops with rows for every query may spill."""
    half, said = dtype != torch.float32, []
    if found["shared memory"] > SHARED:
        said.append(
            f"takes {found['shared memory']} bytes of shared memory; a block on sm_90 has {SHARED}: smaller blocks"
        )
    most = (SPILLED_HALF if half else SPILLED_SINGLE).get(dim, 0)
    main = {kind: loop for kind, loop in found["loops"].items() if kind in MAIN}
    if not main:
        said.append(f"has loops {', '.join(found['loops']) or 'of no kind'}, none of {MAIN}: is KINDS still right?")
    if found["pipelined loops with branches"]:
        said.append(
            "loads tiles ahead in a loop with branches, where they may be overwritten too early: one stage there"
        )
    for kind, loop in found["loops"].items():
        if half and not loop["tensor cores"]:
            said.append(f"uses no tensor cores in {kind}")
    for kind, loop in main.items():
        if loop["spills"] > most and "rows" not in form:
            said.append(
                f"spills {loop['spills']} registers in {kind}; at most {most}: other blocks, or fewer values kept"
            )
    return [f"{str(dtype).removeprefix('torch.')}, {dim} dims, {form}: {kernel} {x}" for x in said]


def _run(tool: str, *arguments: str) -> str:
    return subprocess.run([TOOLS / tool, *arguments], check=True, capture_output=True, text=True).stdout


def recorded(action: Callable[[], object]) -> Iterator[Compiled]:
    """Compile the kernels that are launched by an action, instead of launching them."""
    calls: list[tuple[Any, dict[str, Any], dict[str, int]]] = []

    def record(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        names = [p.name for p in self.params]
        values = dict(zip(names, args, strict=False)) | {k: v for k, v in kwargs.items() if k in names}
        calls.append((self, values, {k: v for k, v in kwargs.items() if k not in names}))

    original = JITFunction.run
    JITFunction.run = record  # type: ignore[method-assign]
    try:
        action()
    finally:
        JITFunction.run = original  # type: ignore[method-assign]
    for call in calls:
        yield Compiled(*call)


def compiled(form: str, dim: int, dtype: torch.dtype, tokens: int = 128) -> Iterator[Compiled]:
    """The kernels of one forward and backward pass."""
    q, k, v, grad = (torch.zeros(1, tokens, 2, dim, dtype=dtype).transpose(1, 2) for _ in range(4))
    tensors: dict[str, Any] = {}
    if "table" in form:
        tensors["table"] = torch.zeros(2, 32 if "short" in form else tokens)
    if "pieces" in form or "many" in form:
        s = 4096 if "many" in form else 32
        lines = torch.zeros(2, s), torch.zeros(2, s)
        segments = (*lines, torch.linspace(0, 1, s - 1), torch.zeros(tokens), torch.ones(1, tokens))
        tensors |= zip(SEGMENTS, segments, strict=True)
        tensors |= {"feature_parameter": torch.zeros(1), "feature_derivative": torch.zeros(tokens)}
    if "rows" in form:
        tensors["rows"] = torch.zeros(1, 2, tokens, 32)
    if "values" in form:
        tensors["value_vectors"] = torch.zeros(1, 32, dim)
    if "sink" in form:
        tensors["sink"] = torch.zeros(2)
    if "prefix" in form:
        tensors["prefix_sum"] = torch.zeros(1, 2, tokens, dtype=torch.float64)
    arguments = Arguments(**tensors, rows_first=-16, value_vectors_first=-16, scale=dim**-0.5)
    needs = frozenset() if "fixed" in form else frozenset(LEARNED).intersection(tensors)

    def action() -> None:
        out, lse = gpu.forward(q, k, v, arguments)
        gpu.backward(grad, q, k, v, out, lse, arguments, needs)

    yield from recorded(action)


def small_kernels(batch: int, tokens: int = 128) -> Iterator[Compiled]:
    """The kernels without products of matrices, with all that Triton compiles differently: positions, documents, one
    query.
    """
    cpu, position = torch.device("cpu"), torch.arange(tokens).expand(batch, -1).contiguous()

    def arguments(queries: int, segments: int, positions: bool, **more: Any) -> Arguments:
        if positions:
            more |= {"position_q": position[:, tokens - queries :].contiguous(), "position_k": position}
        if not segments:
            return Arguments(table=torch.zeros(2, 32), rows=torch.zeros(1, 2, queries, 32), **more)
        lines, knots = torch.zeros(2, segments), torch.zeros(segments - 1)
        more |= zip(SEGMENTS, (lines, lines, knots, torch.zeros(tokens), torch.ones(batch, queries)), strict=True)
        return Arguments(**more)

    def action() -> None:
        for queries, case in (
            (tokens, arguments(tokens, 0, positions=False)),
            (1, arguments(1, 0, positions=True, window=1)),
            (tokens, arguments(tokens, 8, positions=True, documents=position, window=40, causal=False)),
            (1, arguments(1, 1, positions=False)),
            (tokens, arguments(tokens, 100, positions=False, documents=position)),
        ):
            tiles.by_keys(tiles.Case(case, queries, tokens, cpu), 64, 32)
            tiles.by_distance(tiles.Case(case, queries, tokens, cpu), 32)
        for first, columns in ((0, 128), (-127, 255)):
            tiles.steps(torch.zeros(2, columns), first, 2)
        for columns in (1, 40):
            distances._sum_columns(
                torch.zeros(batch * 2, 5, 2, 32, dtype=torch.float64), -3, torch.zeros(2, columns), 2
            )
        for settings in ({}, {"hidden_layers": 0}, {"width": 64, "final_activation": True}):
            fire = FIRE(num_heads=2, **settings)  # type: ignore[arg-type]
            parameters, final = list(fire.layers.parameters()), fire.final_activation
            edges, _ = gpu_segments._edges(parameters[0], parameters, final)
            slope, intercept, _, gates = gpu_segments._lines(edges, 20, parameters, final)
            gpu_segments.relu_segments_backward(slope, intercept, parameters, gates, final)
        numbers = fire.c, fire.L_multiplier, position[0], position
        feature, scale, _ = gpu_segments.fire_tables(*numbers, 512.0, 1e-6)
        gpu_segments.fire_tables_backward(*numbers, feature, scale, 512.0, 1e-6)

    yield from recorded(action)


def list_of(known: Sequence[Any]) -> Callable[[str], list[Any]]:
    """Return what parses names that are separated by commas."""
    names = {str(one): one for one in known}

    def parse(text: str) -> list[Any]:
        if unknown := [name for name in text.split(",") if name not in names]:
            raise argparse.ArgumentTypeError(f"there is no {unknown[0]!r}; available: {', '.join(names)}")
        return [names[name] for name in text.split(",")]

    return parse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kept = {
        "dims": [32, 64, 128, 256],
        "dtypes": ["bfloat16", "float32"],
        "forms": [f for f in FORMS if f not in EXTRA],
    }
    for name, known in {
        "dims": [32, 64, 128, 256],
        "dtypes": ["bfloat16", "float16", "float32"],
        "forms": FORMS,
    }.items():
        default = ",".join(map(str, kept[name]))
        parser.add_argument(f"--{name}", type=list_of(known), default=default, help=f"of {', '.join(map(str, known))}")
    args = parser.parse_args()
    if reason := gpu.unsupported_reason():
        raise SystemExit(reason)
    results: dict[str, Any] = {"target": "sm_90", "triton": triton.__version__, "measured on a GPU": False}
    wrong: list[str] = []
    print(f"{len(list(small_kernels(1)))} calls of kernels without products of matrices compile", flush=True)
    for dtype in args.dtypes:
        for dim in args.dims:
            for form in args.forms:
                for one in compiled(form, dim, getattr(torch, dtype)):
                    if one.name in NO_PRODUCTS:
                        continue
                    found = one.report(form)
                    wrong += problems(found, one.name, form, dim, getattr(torch, dtype))
                    kernels = results.setdefault(f"{dtype}, {dim} dims", {}).setdefault(form, {})
                    kernels[f"{one.name}, backward" if one.name in kernels else one.name] = found
                    loops = "  ".join(
                        f"{kind} {c['instructions a pair']}"
                        + (f" ({c['of these a knot']} a knot)" if c["of these a knot"] else "")
                        + (f" ({c['spills']} spilled)" if c["spills"] else "")
                        for kind, c in found["loops"].items()
                    )
                    print(
                        f"{dtype:9}{dim:4}  {form:13}{one.name:22}{found['registers']:4} registers"
                        f"{found['shared memory'] / 1024:6.0f} KiB  {loops}",
                        flush=True,
                    )
    if vars(args) == kept:
        save("gpu_code", results | {"problems": wrong, "predicted instructions": predicted(results)})
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
