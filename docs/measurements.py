"""Write the tables of measurements in the documentation from the stored results in benchmarks/results/.

A page marks the place of a table with two comments; this script writes what is between them:

    <!-- table: attention-ratios -->
    <!-- end of table -->

`python docs/measurements.py` writes the tables; `--check` only names the pages whose tables are out of date, and exits
with 1. A new table is one function below, with the decorator `table`. Those of comparisons/README.md are in
comparisons/tables.py.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from comparisons import tables as comparison_tables  # noqa: E402

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "comparisons" / "README.md")
MARKED = re.compile(
    r"(?P<start><!-- table: (?P<name>[\w-]+) -->\n)(?P<content>.*?)(?P<end><!-- end of table -->)", re.DOTALL
)

LABELS = {
    "NoPE": "no encoding",
    "KerpleLog": "KERPLE (logarithmic)",
    "FIRE:hidden_layers=1": "FIRE, one hidden layer",
    "FIRE": "FIRE, two hidden layers",
    "FIRE:activation=gelu": "FIRE with GELU",
    "RoPE:layout=half": "RoPE, half layout",
    "RoPE:rotary_fraction=0.25": "RoPE, a quarter of the dimensions",
    "XPos": "xPos",
    "Shaw:values=false": "Shaw, keys only, clip 16",
    "Shaw:values=false,clip=128": "Shaw, keys only, clip 128",
    "Shaw": "Shaw, keys and values, clip 16",
    "BandedBias:band=64": "banded bias, 64 distances",
    "BandedBias:band=256": "banded bias, 256 distances",
    "BandedBias": "banded bias, 1,024 distances",
    "TransformerXL": "Transformer-XL",
    "T5 + FIRE": "T5 and FIRE",
    "T5 + Shaw:values=false": "T5 and Shaw, keys only",
}
GPU_LABELS = {
    "torch flash": "PyTorch's flash attention, no encoding",
    "torch cudnn": "PyTorch's cuDNN attention, no encoding",
    "torch efficient": "PyTorch's memory-efficient attention, no encoding",
    "Sinks": "sinks",
}
GPU_KERNELS = {
    "attend": "forward",
    "query_gradients": "gradient of q",
    "key_gradients": "gradients of k and v",
    "distance_gradients": "by distance",
}
GPU_FORMS = {  # of tests/attention/fused/gpu_cases.py
    "none": "none",
    "one": "one segment",
    "table": "a table of all distances",
    "short": "a table of few distances",
    "pieces": "7 segments",
    "pieces short": "7 segments and a table of few distances",
    "many": "200 segments",
    "crooked pieces": "7 segments, of a feature that is not monotonic",
    "rows": "products with vectors of few distances",
    "wide rows shared": "products with vectors of all distances, shared by heads",
    "prefix": "running sums",
    "prefix sink": "running sums and a sink",
    "prefix table": "running sums and a table of all distances",
    "prefix shared": "running sums, shared by heads",
    "pieces table": "7 segments and a table, head dimensions 1 to 256",
}
Rows = list[list[str]]
TABLES: dict[str, Callable[[Path], str]] = {}


@cache
def stored(name: str) -> dict[str, Any]:
    """Return the content of benchmarks/results/<name>.json: {"made": where the figures come from, "figures": ...}."""
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def table(*files: str) -> Callable[[Callable[..., Rows]], Callable[..., Rows]]:
    """Register a function that takes the figures of `files` and returns rows, the header first.

    The name of the table is that of the function, with hyphens. The origin of each file follows the table; the
    project's README has little room, and names the origin in its text.
    """

    def register(function: Callable[..., Rows]) -> Callable[..., Rows]:
        def text(page: Path) -> str:
            markdown = as_markdown(function(*(stored(file)["figures"] for file in files)))
            return markdown if page == ROOT / "README.md" else markdown + "\n" + "\n\n".join(map(origin, files)) + "\n"

        TABLES[function.__name__.replace("_", "-")] = text
        return function

    return register


def as_markdown(rows: Rows) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]) + "\n"


def origin(file: str) -> str:
    """Return one line that says where the figures of a file come from."""
    made = stored(file)["made"]
    device = made.get("gpu") or made["processor"]
    processor = f"{device}, " if device else ""
    return (
        f"*Source: [{file}.json](../benchmarks/results/{file}.json); {processor}torch {made['torch']}, {made['date']}, "
        f"commit {made['commit'] or made['recorded_in']}; `{made['command']}`*"
    )


def spread(figures: dict[str, float]) -> str:
    """Return a ratio with its range."""
    return f"{figures['ratio']:.2f} ({figures['ratio_low']:.2f}-{figures['ratio_high']:.2f})"


def label(name: str) -> str:
    return LABELS.get(name, name)


def figure(value: float | None) -> str:
    """Return a ratio with about three digits."""
    if value is None:
        return ""
    return f"{value:.2f}" if abs(value) < 9.995 else f"{value:.1f}" if abs(value) < 99.95 else f"{value:.0f}"


def median(entry: dict[str, Any] | None, name: str) -> str:
    return figure(entry[name]["median"]) if entry is not None and name in entry else ""


def lengths(figures: dict[str, Any]) -> list[str]:
    return [key for key in figures if key.startswith("T ")]


def in_columns(figures: dict[str, Any], columns: Iterable[str]) -> list[str]:
    """Return the names of the rows that any column has, in their order."""
    return list(dict.fromkeys(name for column in columns for name in figures[column]))


# ---- attention on a CPU -----------------------------------------------------------------------------------------


@table("attention-ratios")
def cost_of_a_learned_bias(figures: dict[str, Any]) -> Rows:
    columns = ("T 256", "T 1024", "T 4096")
    names = ("NoPE", "ALiBi", "T5", "KerpleLog", "FIRE")
    rows = [[label(name), *(median(figures[column][name], "both of torch") for column in columns)] for name in names]
    return [["encoding", "256 tokens", "1,024 tokens", "4,096 tokens"], *rows]


@table("attention-ratios")
def attention_ratios(figures: dict[str, Any]) -> Rows:
    columns = lengths(figures)
    header = ["encoding"]
    header += [f"relative to no encoding, {column}" for column in columns]
    header += [f"relative to PyTorch, {column}" for column in columns]
    rows = [header]
    for name in in_columns(figures, columns):
        if name != "torch":
            own = [median(figures[column][name], "both of NoPE") or "1" for column in columns]
            rows.append([label(name), *own, *(median(figures[column][name], "both of torch") for column in columns)])
    return rows


@table("attention-threads")
def attention_threads(figures: dict[str, Any]) -> Rows:
    several = [title for title in figures if title != "target"]
    names = {"torch": "PyTorch", "NoPE": "no encoding", "FIRE": "FIRE, two hidden layers"}
    gains = [key for key in next(iter(figures[several[0]].values()))["torch"] if key.startswith("gain of ")]
    header = [f"{names[name]}, {gain.removeprefix('gain of ')} threads" for gain in gains for name in names]
    rows = [["machine", "tokens", *header]]
    for title in several:
        for length, of in figures[title].items():
            cells = [ratio(of[name][gain]) for gain in gains for name in names]
            rows.append([title, length.removeprefix("T "), *cells])
    return rows


def ratio(of: dict[str, float]) -> str:
    return f"{of['median']:.2f} ({of['p10']:.2f}-{of['p90']:.2f})"


@table("attention-shapes")
def attention_shapes(figures: dict[str, Any]) -> Rows:
    columns = ("T 100, D 64", "T 1023, D 64", "T 1024, D 32", "T 1024, D 128")
    names = [name for name in figures if name != "target"]
    rows = [[label(name), *(figure(figures[name][column]["median"]) for column in columns)] for name in names]
    return [["encoding", *columns], *rows]


@table("attention-memory")
def attention_memory(figures: dict[str, Any]) -> Rows:
    columns = lengths(figures)
    names = [name for name in in_columns(figures, columns) if name != "torch"]
    rows = [[label(name), *(figure(figures[column][name]["of torch"]) for column in columns)] for name in names]
    return [["encoding", *columns], *rows]


@table("attention-eager")
def attention_eager(figures: dict[str, Any]) -> Rows:
    rows = [["encoding", "tokens", "time, relative to `fused`", "peak memory, relative to `fused`"]]
    for name, entry in figures.items():
        if name != "target":
            encoding, _, tokens = name.rpartition(" ")
            time = figure(entry["eager time of fused"]["median"])
            rows.append([label(encoding), f"{int(tokens):,}", time, figure(entry["eager memory of fused"])])
    return rows


@table("attention-growth")
def attention_growth(figures: dict[str, Any]) -> Rows:
    steps = [step for step, entry in figures["NoPE"].items() if "time grows" in entry]
    header = [
        "encoding",
        *(f"time, to {int(step):,}" for step in steps),
        *(f"memory, to {int(step):,}" for step in steps),
    ]
    rows = [header]
    for name, entries in figures.items():
        if name != "target":
            grows = [[figure(entries[step][f"{what} grows"]) for step in steps] for what in ("time", "memory")]
            rows.append(["PyTorch without encoding" if name == "torch" else label(name), *grows[0], *grows[1]])
    return rows


@table("attention-decode")
def attention_decode(figures: dict[str, Any]) -> Rows:
    columns = [name for name in figures if name != "target"]
    header = ["encoding", *(f"{column}, {how}" for column in columns for how in ("cached", "recomputed"))]
    rows = [header]
    for name in in_columns(figures, columns):
        entries = [figures[column][name] for column in columns]
        kinds = ("step of torch", "made anew of torch")
        rows.append([label(name), *(median(entry, kind) for entry in entries for kind in kinds)])
    return rows


@table("attention-rotations")
def attention_rotations(figures: dict[str, Any]) -> Rows:
    columns = lengths(figures)
    header = ["encoding", *(f"inside, {column}" for column in columns), *(f"before, {column}" for column in columns)]
    rows = [[*header, "memory inside, T 1024", "memory before, T 1024"]]
    for name in in_columns(figures, columns):
        times = [median(figures[column][name], f"{how}, both") for how in ("inside", "before") for column in columns]
        memory = [figure(figures["T 1024"][name][f"{how}, memory"]) for how in ("inside", "before")]
        rows.append([label(name), *times, *memory])
    return rows


@table("attention-rows")
def attention_rows(figures: dict[str, Any]) -> Rows:
    columns, at = lengths(figures), figures["T 1024"]
    header = ["encoding", *(f"relative to no encoding, {column}" for column in columns)]
    header += ["relative to `blocked`, T 1024", "encoding, T 1024", "memory, T 1024"]
    rows = [header]
    for name in in_columns(figures, columns):
        own = [median(figures[column][name], "of NoPE") for column in columns]
        parts = [median(at[name], part) for part in ("of blocked", "table")]
        rows.append([label(name), *own, *parts, figure(at[name]["memory of NoPE"])])
    return rows


@table("attention-errors")
def attention_errors(figures: dict[str, Any]) -> Rows:
    columns = [name for name in figures if name != "target"]
    columns.sort(
        key=lambda name: (
            ["float32", "bfloat16", "float16"].index(name.partition(",")[0]),
            int(name.rpartition(" ")[2]),
        )
    )
    rows = [["encoding", *(f"{column} ({_draws(figures[column])} draws)" for column in columns)]]
    for name in in_columns(figures, columns):
        rows.append([label(name), *(_worst_error(figures[column].get(name)) for column in columns)])
    return rows


def _draws(entries: dict[str, Any]) -> str:
    counts = [entry["draws"] for entry in entries.values()]
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def _worst_error(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return ""
    worst = max(entry["of torch"].values(), key=lambda one: one["ratio"])
    return f"{worst['ratio']:.2f} ({worst['low']:.2f}-{worst['high']:.2f})"


@table("blocked_attention")
def blocked_attention(figures: dict[str, Any]) -> Rows:
    columns = lengths(figures)
    header = ["encoding"]
    for column in columns:
        header += [f"time, {column}", f"MiB, {column}", f"MiB of `reference`, {column}"]
    rows = [header]
    for name in in_columns(figures, columns):
        cells = []
        for column in columns:
            entry = figures[column][name]
            memory = [f"{entry[backend]['peak_mib']:,.0f}" for backend in ("blocked", "reference")]
            cells += [figure(entry["reference"]["time"]), *memory]
        rows.append([label(name), *cells])
    return rows


# ---- GPU kernels ------------------------------------------------------------------------------------------------


@table("gpu_attention")
def gpu_attention(figures: dict[str, Any]) -> Rows:
    dims, passes = ("64 dims", "128 dims"), {"forward": "forward", "backward": "forward and backward"}
    rows = [["encoding", *(f"{text}, {dim}" for dim in dims for text in passes.values()), "peak memory, 64 dims"]]
    rows.append([label("NoPE"), *["1.00"] * 5])
    for name, entry in figures[dims[0]].items():
        if isinstance(entry, dict):
            medians = [figures[dim][name][what]["median"] for dim in dims for what in passes]
            rows.append([GPU_LABELS.get(name, label(name)), *map(figure, medians), figure(entry["memory"])])
    return rows


@table("gpu_attention")
def gpu_lengths(figures: dict[str, Any]) -> Rows:
    rows = [["what", "time, relative", "MiB"]]
    for name, value in figures["lengths"].items():
        is_ratio = isinstance(value, dict)
        text = name.removesuffix(", MiB").removesuffix(", of ours")
        rows.append([text, figure(value["median"]) if is_ratio else "", "" if is_ratio else f"{value:,.0f}"])
    return rows


@table("gpu_attention")
def gpu_agreement(figures: dict[str, Any]) -> Rows:
    dtypes = ("float32", "bfloat16", "float16")
    forms = dict.fromkeys(name.split(" ", 1)[1] for name in figures["errors"])
    rows = [["form of the bias", *dtypes]]
    for form in forms:
        rows.append([GPU_FORMS[form], *(f"{figures['errors'][f'{dtype} {form}']:.1e}" for dtype in dtypes)])
    return rows


@table("gpu_day-block-sizes")
def gpu_kernels(figures: dict[str, Any]) -> Rows:
    rows = [["encoding", *GPU_KERNELS.values(), "all kernels", "relative to no encoding", "with the sizes before"]]
    plain: dict[str, tuple[float, float]] = {}
    for name, entry in figures.items():
        encoding, _, dims = name.split(", ")
        fastest = {k: min(t for t in entry[k].values() if isinstance(t, float)) for k in GPU_KERNELS if k in entry}
        before, change = entry["all kernels"], sum(entry[k]["as chosen"] - time for k, time in fastest.items())
        plain.setdefault(dims, (before - change, before))
        cells = [figure(fastest.get(k)) for k in GPU_KERNELS]
        cells += [f"{before - change:.1f}", figure((before - change) / plain[dims][0]), figure(before / plain[dims][1])]
        rows.append([f"{label(encoding)}, {dims}", *cells])
    return rows


@table("gpu_errors-128", "gpu_errors-1024")
def gpu_errors(short: dict[str, Any], long: dict[str, Any]) -> Rows:
    dtypes = ("float32", "bfloat16", "float16")
    files = (("T 128", short), ("T 1024", long))
    rows = [["encoding", *(f"{dtype}, {length}" for dtype in dtypes for length, _ in files)]]
    for name in short["float32"]:
        cells = [_worst_of_both_kinds(figures[dtype].get(name)) for dtype in dtypes for _, figures in files]
        rows.append([label(name), *cells])
    return rows


def _worst_of_both_kinds(errors: dict[str, float] | None) -> str:
    """Return the worst of output, q, k and v, and the worst parameter of the encoding."""
    if errors is None:
        return ""
    parameters = [value for name, value in errors.items() if name.startswith("encoding.")]
    tensors = [value for name, value in errors.items() if not name.startswith("encoding.")]
    return "; ".join(f"{max(values):.2f}" for values in (tensors, parameters) if values)


@table("gpu_code")
def gpu_code(figures: dict[str, Any]) -> Rows:
    rows = [["dtype and head dimension", "kernels", "registers", "stack bytes", "shared memory, KiB"]]
    for name, forms in figures.items():
        if isinstance(forms, dict):
            kernels = [kernel for kernels in forms.values() for kernel in kernels.values()]
            most = [max(kernel[what] for kernel in kernels) for what in ("registers", "stack bytes", "shared memory")]
            rows.append([name, str(len(kernels)), str(most[0]), str(most[1]), f"{most[2] / 1024:.0f}"])
    return rows


@table("gpu_code")
def gpu_instructions(figures: dict[str, Any]) -> Rows:
    loops = {
        ("NoPE", "none"): {"": "CLEAN"},
        ("T5", "short table"): {"": "FAR"},
        ("ALiBi", "fixed table"): {"": "FAR"},
        ("KERPLE", "table"): {"": "CLEAN"},
        ("FIRE", "pieces"): {"no knot, ": "CLEAN", "one knot, ": "ONE_KNOT", "two knots, ": "TWO_KNOTS"},
    }
    rows = [["encoding", *GPU_KERNELS.values(), "all kernels and tiles, relative to no encoding"]]
    for dims in ("64 dims", "128 dims"):
        of = f"bfloat16, {dims}"
        for (encoding, form), kinds in loops.items():
            predicted = next(
                one["ratio"]
                for one in figures["predicted instructions"]
                if (one["of"], one["encoding"]) == (of, encoding)
            )
            for words, kind in kinds.items():
                found = [figures[of][form].get(kernel, {}).get("loops", {}).get(kind) for kernel in GPU_KERNELS]
                cells = [f"{loop['instructions a pair']:.1f}" if loop else "" for loop in found]
                whole = figure(None if "KNOT" in kind else predicted)
                rows.append([f"{label(encoding)}, {words}{dims}", *cells, whole])
    return rows


# ---- models, tasks and the program ------------------------------------------------------------------------------


@table("training_step")
def training_step(figures: dict[str, Any]) -> Rows:
    rows = [["encoding", "tokens", "time", "range", "peak memory"]]
    for length in lengths(figures):
        for name, entry in figures[length].items():
            if "time" in entry:
                between = f"{figure(entry['time_low'])}-{figure(entry['time_high'])}"
                rows.append(
                    [label(name), length.removeprefix("T "), figure(entry["time"]), between, figure(entry["memory"])]
                )
    return rows


@table("training_step-threads")
def training_step_threads(figures: dict[str, Any]) -> Rows:
    first = next(iter(figures.values()))["RoPE"]
    counts = [key.split()[0] for key in first if key.endswith(" ms")]
    header = [f"{count} thread{'s' * (count != '1')}" for count in counts]
    rows = [
        ["model", "tokens", *(f"ms, {one}" for one in header), *(f"relative to transformers, {one}" for one in header)]
    ]
    for length, models in figures.items():
        for name, of in models.items():
            ratios = [ratio(of[f"{count} of transformers"]) if name in ("RoPE", "FIRE") else "1" for count in counts]
            rows.append([name, length.removeprefix("T "), *(f"{of[f'{count} ms']:.0f}" for count in counts), *ratios])
    return rows


@table("llama_step")
def llama_step(figures: dict[str, Any]) -> Rows:
    others = ("transformers, eager", "transformers, SDPA")
    rows = [["RoPE type", *(f"relative to {other} (range)" for other in others)]]
    for name, entry in figures.items():
        if isinstance(entry, dict):
            ratios = [entry[f"of {other}"] for other in others]
            rows.append([name, *(f"{one['ratio']:.2f} ({one['low']:.2f}-{one['high']:.2f})" for one in ratios)])
    return rows


@table("exact_match")
def exact_match(figures: dict[str, Any]) -> Rows:
    kinds = {
        "cached": "all at once, KV cache",
        "one_by_one": "one by one, KV cache",
        "uncached": "all at once, no cache",
    }
    rows = [["encoding", *(f"{words} (range)" for words in kinds.values())]]
    for name, entry in figures.items():
        ratios = [entry[kind] for kind in kinds]
        rows.append(
            [label(name), *(f"{one['ratio']:.1f} ({one['ratio_low']:.1f}-{one['ratio_high']:.1f})" for one in ratios)]
        )
    return rows


@table("scale_step")
def scale_step(figures: dict[str, Any]) -> Rows:
    rows = [
        [
            "model",
            "time for each token, relative to RoPE (range)",
            "times the text is processed again",
            "largest difference of a logit",
        ]
    ]
    for name, entry in figures.items():
        ratio = f"{entry['ratio']:.2f} ({entry['low']:.2f}-{entry['high']:.2f})"
        rows.append([name, ratio, str(entry["restarts"]), f"{entry['off']:.1e}"])
    return rows


@table("training_loop")
def training_loop(figures: dict[str, Any]) -> Rows:
    rows = [["task and encoding", "overhead, % (range)"]]
    for name, entry in figures.items():
        low, high = (100 * entry[end] for end in ("low", "high"))
        rows.append([name, f"{100 * entry['overhead']:.2f} ({low:.2f}-{high:.2f})"])
    return rows


@table("several_devices")
def several_devices(figures: dict[str, Any]) -> Rows:
    rows = [["encoding", "DDP (range)", "FSDP2 (range)"]]
    for name in dict.fromkeys(key.partition(", ")[0] for key in figures):
        rows.append([label(name), *(spread(figures[f"{name}, {kind}"]) for kind in ("ddp", "fsdp"))])
    return rows


@table("huggingface")
def huggingface(figures: dict[str, Any]) -> Rows:
    cases = {
        "rope": "training step, RoPE, relative to its own SDPA",
        "fire": "training step, FIRE, relative to its own SDPA with RoPE and without a bias",
        "t5": "training step, T5, relative to its own SDPA with T5's bias as a dense tensor",
        "generate": "generating 256 tokens, RoPE, relative to its own time",
    }
    rows = [["measurement", "ratio (range)"]]
    for name, text in cases.items():
        found = figures[name]
        rows.append([text, f"{found['ratio']:.2f} ({found['low']:.2f}-{found['high']:.2f})"])
    return rows


@table("scheduling")
def scheduling(figures: dict[str, Any]) -> Rows:
    local, claims, writes = figures["on_this_machine"], figures["claims"], figures["writers"]
    runs = f"{local['runs']:,} runs of {local['seconds_per_run']:.2f} s, {local['workers']} workers"
    return [
        ["measurement", "value"],
        [f"share of the workers' time without a run: {runs}", f"{100 * local['scheduling_share']:.2f} %"],
        [f"claims by {claims['workers']} simulated workers, per second", f"{claims['claims_per_second']:.0f}"],
        [
            f"scores written by {writes['processes']} processes at once, per second",
            f"{writes['scores_per_second']:.0f}",
        ],
    ]


@table("long_evaluation")
def long_evaluation(figures: dict[str, Any]) -> Rows:
    rows = [["encoding", "memory (range)", "time in parts (range)", "time with the same targets (range)"]]
    for name, found in figures.items():
        rows.append([label(name), *(spread(found[part]) for part in ("memory", "parts", "protocols"))])
    return rows


@table("reach_memory")
def reach_memory(figures: dict[str, Any]) -> Rows:
    rows = [["method, length", "weights, MiB", "KV cache, MiB", "peak, MiB", "peak / (weights + cache)"]]
    for name, found in figures.items():
        if isinstance(found, dict):
            sizes = [f"{found[size] / 2**20:,.0f}" for size in ("weights_bytes", "cache_bytes", "peak_bytes")]
            rows.append([name.replace(" at ", ", "), *sizes, f"{found['ratio']:.2f}"])
    return rows


@table("parquet")
def parquet(figures: dict[str, Any]) -> Rows:
    rows = [["measurement", "ratio (range)"]]
    for name, kind in (("ratio", "time"), ("cpu_ratio", "processor time")):
        ratios = sorted(row[name] for row in figures["rounds"])
        measured = f"{kind} to prepare {figures['text_MB']:.0f} MB of Parquet, relative to JSON lines"
        rows.append([measured, f"{ratios[len(ratios) // 2]:.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"])
    return rows


@table("corpora")
def corpora(figures: dict[str, Any]) -> Rows:
    text, memory, batch = figures["tokenizing"], figures["memory"], figures["batch"]
    small, large = memory["tenth"], memory["whole"]
    first, last = memory["reading_MB"][0], memory["reading_MB"][-1]
    rows = [["measurement", "value, MB or ms", "relative to", "ratio (range)"]]
    for workers in text["median_ratio"]:
        for name, kind in (("ratio", "time"), ("cpu_ratio", "processor time")):
            ratios = [row[name] for row in text["rounds"] if str(row["workers"]) == workers]
            middle = f"{text[f'median_{name}'][workers]:.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            measured = f"{kind} to prepare {text['text_MB']:.0f} MB, {workers} worker{'s' if workers != '1' else ''}"
            rows.append([measured, "", "`tokenizers` alone", middle])
    preparing = [
        f"memory to prepare {large['GB']:g} GB, all processes",
        f"{large['peak_MB']:.0f}",
        f"{small['GB']:g} GB",
    ]
    reading = [
        f"memory after {last['batches']:,} batches of {large['GB']:g} GB",
        f"{last['all']}",
        f"{first['batches']} batches",
    ]
    share = f"{batch['share']:.4f} ({batch['low']:.4f}-{batch['high']:.4f})"
    return [
        *rows,
        [*preparing, f"{memory['ratio_preparing']:.2f}"],
        [*reading, f"{memory['ratio_reading']:.2f}"],
        ["time to read a batch", f"{batch['batch_ms']:.2f}", "a training step", share],
    ]


@table("task_speed")
def task_speed(figures: dict[str, Any]) -> Rows:
    rows = [["task and split", "length", "batch 64, examples/s", "batch 1,024, examples/s"]]
    for name, entry in figures.items():
        speeds = [entry[f"batch {size}"]["median"] if f"batch {size}" in entry else None for size in (64, 1024)]
        shown = name.replace(", asked", ", evaluation")
        rows.append([shown, str(entry["length"]), *("" if speed is None else f"{speed:,.0f}" for speed in speeds)])
    return rows


@table("function_speed")
def function_speed(figures: dict[str, Any]) -> Rows:
    rows = [["function class", "share of the training step, %"]]
    for name, entry in figures.items():
        if "median" in entry:
            rows.append([name, f"{100 * entry['median']:.4f}"])
    return rows


@table("baselines")
def baselines(figures: dict[str, Any]) -> Rows:
    rows = [["baseline", "seconds"]]
    return rows + [[name, f"{value:.2f}"] for name, value in figures["found"].items() if isinstance(value, float)]


@table("baselines")
def interval_coverage(figures: dict[str, Any]) -> Rows:
    settings = {name: entry for name, entry in figures["found"].items() if isinstance(entry, dict)}
    methods = {"seeds and prompts": "the report's interval", "crossed": "crossed bootstrap"}
    names = list(next(iter(settings.values())))
    varying = {  # the standard deviations are those of benchmarks/baselines.py
        "seeds alone": ("1", "0", "0"),
        "prompts, and a little both": ("0", "1", "0.5"),
        "prompts and seeds": ("0.3", "1", "1"),
    }
    rows = [
        ["seeds", "sd of seeds", "sd of prompts", "sd of interaction", *(methods.get(name, name) for name in names)]
    ]
    for case, entry in settings.items():
        count, _, what = case.partition(" seeds, ")
        rows.append([count, *varying[what], *(f"{entry[name]:.3f}" for name in names)])
    return rows


@table("coverage")
def coverage(figures: dict[str, Any]) -> Rows:
    return _coverage_rows(figures["cases"])


@table("coverage")
def coverage_held_out(figures: dict[str, Any]) -> Rows:
    return _coverage_rows(figures["held out"])


@table("coverage")
def coverage_limited(figures: dict[str, Any]) -> Rows:
    return _coverage_rows(figures["limited"])


def _coverage_rows(found: dict[str, dict[str, dict[str, dict[str, float]]]]) -> Rows:
    rows = [["interval of", "case", "3 seeds", "5 seeds", "10 seeds"]]
    for statistic, cases in found.items():
        for case, shares in cases.items():
            cells = [f"{share['coverage']:.3f} ± {share['standard_error']:.3f}" for share in shares.values()]
            rows.append([statistic, case, *cells])
    return rows


@table("effective_length")
def effective_length_errors(figures: dict[str, Any]) -> Rows:
    rows = [
        [
            "mean shares at 64, 128, 256 and 512",
            "true",
            "seeds",
            "too short: first failure",
            "too short: fit",
            "mean error, octaves: first failure",
            "mean error, octaves: fit",
            "root mean square error, octaves: first failure",
            "root mean square error, octaves: fit",
        ]
    ]
    for row in figures["rows"]:
        first, fit = row["first failure"], row["fit"]
        cells = [f"{part['too short']:.2f}" for part in (first, fit)]
        cells += [
            f"{round(part[name], 2) + 0:.2f}"
            for name in ("mean error", "root mean square error")
            for part in (first, fit)
        ]
        true = "≥ 512" if row["true"] is None else str(row["true"])
        rows.append([row["case"], true, str(row["seeds"]), *cells])
    return rows


@table("large_store")
def large_store(figures: dict[str, Any]) -> Rows:
    names = {
        "list runs, s": "`lengthwise list runs`, seconds",
        "report, s": "`lengthwise report`, seconds",
        "page, MB": "size of the page, MB",
        "first paint, s": "first paint of the page in Chromium, seconds",
        "export to Parquet, s": "`lengthwise export scores` to Parquet, seconds",
    }
    return [["measurement", "value"], *([text, f"{figures[name]:.2f}"] for name, text in names.items())]


@table("serve")
def serve(figures: dict[str, Any]) -> Rows:
    rows = [["page", "median (ms)", "maximum (ms)"]]
    return rows + [[a["address"], f"{a['median, ms']:.0f}", f"{a['maximum, ms']:.0f}"] for a in figures["answers"]]


@table("startup")
def startup(figures: dict[str, Any]) -> Rows:
    rows = [["command", "seconds (range)"]]
    for name, entry in figures.items():
        if name != "added by lengthwise":
            rows.append([name, f"{entry['median']:.2f} ({entry['low']:.2f}-{entry['high']:.2f})"])
    return rows


for comparison in comparison_tables.TABLES:
    table("outside")(comparison)


def with_tables(text: str, page: Path) -> str:
    """Return the text of a page with every marked table as the stored results give it."""

    def filled(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in TABLES:
            raise SystemExit(
                f"{page.name} marks the table {name!r}, which does not exist; available: {', '.join(TABLES)}"
            )
        return f"{match['start']}\n{TABLES[name](page)}\n{match['end']}"

    return MARKED.sub(filled, text)


def main(arguments: list[str]) -> int:
    outdated = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (new := with_tables(text, page)) != text:
            outdated[page] = new
    if arguments == ["--check"]:
        for page in outdated:
            print(
                f"{page.relative_to(ROOT)} has tables that are out of date; run python docs/measurements.py",
                file=sys.stderr,
            )
        return 1 if outdated else 0
    if arguments:
        print(f"measurements.py takes --check or nothing, got {' '.join(arguments)}", file=sys.stderr)
        return 2
    for page, text in outdated.items():
        page.write_text(text, encoding="utf-8")
        print(f"wrote the tables of {page.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
