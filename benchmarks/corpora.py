"""Measure the preparation of corpora and the reading of batches, as ratios within one run.

    python benchmarks/corpora.py [--folder DIR] [--gigabytes 5] [--rounds 3] [--workers 2]
    python benchmarks/corpora.py --parquet [--folder DIR] [--rounds 3]

- `tokenizing`: the time of `lengthwise tokenize` (its start, reading JSON lines, removing duplicates, writing and
  hashing shards), relative to the time in which the package `tokenizers` alone encodes the same texts, which are in
  memory already, with as many threads, and returns the IDs. Both are processes of their own and alternate. `ratio` is
  that of the elapsed times; `cpu_ratio`, that of the processor times, depends less on what else the machine does. The
  text is Python's standard library, several times, with a number in front of each document; the tokenizer is a
  byte-level BPE with 8,192 tokens.
- `memory`: the largest resident memory of `lengthwise tokenize` with all its workers, for a tenth of the generated
  corpus and for all of it, and the resident memory of a process that reads batches from it, after the first and after
  the last part of 30,000 batches. Tokens are bytes.
- `batch`: the time for a batch, relative to that of a whole training step (d_model 128, 4 layers, 32 x 128 tokens, one
  thread), on that corpus. Steps alternate between batches of random places, so that pages are not read already.
- With `--parquet`, only the time of `lengthwise tokenize` with one worker for a Parquet file, relative to that for JSON
  lines with the same texts. Both alternate, and tokens are bytes.

DIR needs three times as much space as the generated corpus.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from record import save

from lengthwise.config import ModelConfig, Run, TrainingConfig, choose
from lengthwise.corpora import stdlib
from lengthwise.encodings import NoPE
from lengthwise.tasks import Text, generator
from lengthwise.training.setup import build
from lengthwise.training.trainer import Trainer

COPIES = 4  # of the standard library's text
DOCUMENT = 5000  # bytes of a generated document
BATCHES = 30_000


def own_memory() -> dict[str, int]:
    """The resident memory of this process in MB: all of it, and the part that is not in files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    sizes = {
        line.split(":")[0]: int(line.split()[1]) // 1000 for line in lines if line.startswith("Rss") or "VmRSS" in line
    }
    return {"all": sizes["VmRSS"], "anonymous": sizes["RssAnon"]}


def tree_memory(root: int) -> int:
    """The resident memory of a process and those it has started, in bytes. Shared pages count once for each of them."""
    parents, sizes = {}, {}
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit():
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)], sizes[int(folder.name)] = int(fields[1]), int(fields[21])
        except OSError:  # it has ended
            continue
    members = {root}
    while more := {process for process, parent in parents.items() if parent in members} - members:
        members |= more
    return sum(sizes.get(process, 0) for process in members) * os.sysconf("SC_PAGE_SIZE")


def watched(command: list[str]) -> tuple[float, float]:
    """Run a command. Return its seconds and the largest resident memory of its processes in MB."""
    start, largest = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        largest = max(largest, tree_memory(process.pid))
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(process.returncode)
    return time.perf_counter() - start, largest / 1e6


def texts() -> list[str]:
    documents = [document.data.decode("utf-8", "replace") for document in stdlib.read(stdlib.DOMAINS)[1]]
    return [f"{copy} {n}\n{text}" for copy in range(COPIES) for n, text in enumerate(documents)]


def alone(path: str, tokenizer: str, threads: int) -> None:
    """Encode all texts with the package `tokenizers` alone, and print the seconds that this takes."""
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    from tokenizers import Tokenizer

    with open(path, encoding="utf-8") as file:
        documents = [json.loads(line)["text"] for line in file]
    encoder = Tokenizer.from_file(f"{tokenizer}/tokenizer.json")
    start, used = time.perf_counter(), processor_time()
    for first in range(0, len(documents), 1000):
        encodings = encoder.encode_batch_fast(documents[first : first + 1000], add_special_tokens=False)
        _ = [encoding.ids for encoding in encodings]
    print(json.dumps([time.perf_counter() - start, processor_time() - used]))


def prepare(path: Path, tokenizer: Path, output: Path, workers: int) -> list[float]:
    """Run `lengthwise tokenize`, and return its elapsed time and its processor time, with those of starting its
    processes.
    """
    words = ["tokenize", path, "--tokenizer", tokenizer, "--output", output, "--workers", workers]
    start, used = time.perf_counter(), processor_time()
    subprocess.run([sys.executable, "-m", "lengthwise", *map(str, words)], check=True, stdout=subprocess.DEVNULL)
    return [time.perf_counter() - start, processor_time() - used]


def processor_time() -> float:
    """The seconds of processor time of this process and of those that it has started and that have ended."""
    return sum(os.times()[:4])


def apart(*words: object) -> list[float]:
    """Call `alone` in a process of its own, and return the elapsed time and the processor time that it prints."""
    command = [sys.executable, __file__, "--alone", *map(str, words)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def tokenizing(folder: Path, rounds: int, workers: int) -> dict[str, Any]:
    path = folder / "text.jsonl"
    documents = texts()
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in documents)
    size = sum(len(text.encode()) for text in documents)
    del documents
    tokenizer = folder / "tokenizer"
    command = [sys.executable, "-m", "lengthwise", "tokenize", str(path), "--tokenizer", "bpe:8192"]
    subprocess.run([*command, "--output", str(tokenizer)], check=True, stdout=subprocess.DEVNULL)
    rows = []
    for round_ in range(rounds):
        for count in (1, workers):
            output = folder / f"tokens-{round_}-{count}"
            without = apart(path, tokenizer, count)
            whole = prepare(path, tokenizer, output, count)
            shutil.rmtree(output)
            row = {
                "workers": count,
                "tokenizers_s": without[0],
                "lengthwise_s": whole[0],
                "ratio": whole[0] / without[0],
            }
            rows.append(row | {"cpu_ratio": whole[1] / without[1]})
            print(rows[-1], flush=True)
    medians = {
        f"median_{name}": {str(n): statistics.median(r[name] for r in rows if r["workers"] == n) for n in (1, workers)}
        for name in ("ratio", "cpu_ratio")
    }
    return {"text_MB": size / 1e6, **medians, "rounds": rows}


def parquet(folder: Path, rounds: int) -> dict[str, Any]:
    import pyarrow
    import pyarrow.parquet

    documents, lines, columns = texts(), folder / "text.jsonl", folder / "text.parquet"
    with open(lines, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in documents)
    pyarrow.parquet.write_table(pyarrow.table({"text": documents}), columns, row_group_size=1000)
    rows = []
    for round_ in range(rounds):
        found = [prepare(path, Path("bytes"), folder / f"{round_}{path.suffix}", 1) for path in (lines, columns)]
        rows.append({"ratio": found[1][0] / found[0][0], "cpu_ratio": found[1][1] / found[0][1]})
        print(rows[-1], flush=True)
    return {"text_MB": sum(len(text.encode()) for text in documents) / 1e6, "rounds": rows}


def generate(path: Path, size: float) -> None:
    """Write JSON lines with about `size` bytes of text: pieces of the standard library, all different."""
    text = b"".join(document.data for document in stdlib.read(stdlib.DOMAINS)[1]).decode("utf-8", "replace")
    step = 9973  # characters; coprime to most lengths, so that pieces begin everywhere
    with open(path, "w", encoding="utf-8", buffering=1 << 22) as file:
        for number in range(int(size / DOCUMENT)):
            start = number * step % (len(text) - DOCUMENT)
            file.write(json.dumps({"text": f"{number}\n{text[start : start + DOCUMENT]}"}, ensure_ascii=False) + "\n")


def read_batches(folder: str, connection: Any) -> None:
    task = Text(path=folder)
    draws, sizes = generator(0), []
    for number in range(BATCHES + 1):
        task.sample(draws, 32, 128)
        if number in (BATCHES // 100, BATCHES // 10, BATCHES):
            sizes.append({"batches": number, **own_memory()})
    connection.send(sizes)


def memory(folder: Path, gigabytes: float, workers: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, size in (("tenth", gigabytes / 10), ("whole", gigabytes)):
        path = folder / f"{name}.jsonl"
        generate(path, size * 1e9)
        words = ["lengthwise", "tokenize", str(path), "--output", str(folder / name), "--workers", str(workers)]
        seconds, largest = watched([sys.executable, "-m", *words])
        found[name] = {"GB": size, "seconds": seconds, "peak_MB": largest}
        print(name, found[name], flush=True)
        path.unlink()
    parent, child = multiprocessing.Pipe()
    reader = multiprocessing.get_context("spawn").Process(target=read_batches, args=(str(folder / "whole"), child))
    reader.start()
    found["reading_MB"] = parent.recv()
    reader.join()
    for row in found["reading_MB"]:
        print(row)
    found["ratio_preparing"] = found["whole"]["peak_MB"] / found["tenth"]["peak_MB"]
    found["ratio_reading"] = found["reading_MB"][-1]["all"] / found["reading_MB"][0]["all"]
    return found


def batch(folder: Path, steps: int = 60) -> dict[str, Any]:
    torch.set_num_threads(1)
    run = Run(
        encoding=choose(NoPE),
        task=choose(Text, path=str(folder / "whole")),
        model=ModelConfig(d_model=128, num_layers=4, num_heads=4),
        training=TrainingConfig(train_length=128, steps=steps, batch_size=32),
    )
    model, task = build(run)
    trainer = Trainer(run, model, task, torch.device("cpu"))
    reading, whole = [], []
    for number in range(steps):
        start = time.perf_counter()
        trainer.step()
        whole.append(time.perf_counter() - start)
        start = time.perf_counter()
        task.training_batch(generator("other", number), 32, 128, 128)
        reading.append(time.perf_counter() - start)
    shares = [r / w for r, w in zip(reading[5:], whole[5:], strict=True)]
    row = {"batch_ms": 1e3 * statistics.median(reading[5:]), "step_ms": 1e3 * statistics.median(whole[5:])}
    row |= {"share": statistics.median(shares), "low": min(shares), "high": max(shares)}
    print(row)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--parquet", action="store_true", help="measure only Parquet relative to JSON lines")
    args = parser.parse_args()
    if args.parquet:
        with tempfile.TemporaryDirectory(dir=args.folder) as name:
            save("parquet", parquet(Path(name), args.rounds))
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        figures = {"tokenizing": tokenizing(folder, args.rounds, args.workers)}
        figures["memory"] = memory(folder, args.gigabytes, args.workers)
        figures["batch"] = batch(folder)
    save("corpora", figures)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        alone(*sys.argv[2:4], int(sys.argv[4]))
    else:
        main()
