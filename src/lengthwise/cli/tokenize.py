"""`lengthwise tokenize`: prepare a corpus of any size for language modelling."""

import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from lengthwise.cli.options import EVERY_FILE, FLATTENED, Integer
from lengthwise.cli.printing import one_line, plain_table, stdout
from lengthwise.cli.progress import progress
from lengthwise.config import ConfigError
from lengthwise.values import require_no_address

if TYPE_CHECKING:
    from lengthwise.corpora.manifest import Manifest
    from lengthwise.corpora.sources import Source

SHOWN = 3  # documents of --dry-run
SHOWN_CHARACTERS = 300  # of each


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class TokenizeOptions:
    """The options of the command."""

    output: str | None = None
    """Folder to create for the corpus. Until it is complete, the work is in a folder of this name with .unfinished."""
    tokenizer: str = "bytes"
    """bytes, a file tokenizer.json or a folder that contains one, or bpe:SIZE to train a byte-level BPE on the corpus.
    """
    validation: float = 0.01
    """Share of documents for validation, which a hash of their origin (see --origin) selects. Documents are never
    divided.
    """
    field: str = "text"
    """Field or column that contains the text of a record; meta.text is a field of the object meta."""
    origin: Annotated[str, Parameter(show_default=False)] = ""
    """Field that groups records, such as repo_name: a group is never in both splits. [default: every record by itself]
    """
    glob: str = EVERY_FILE
    """Pattern of the files to read if SOURCE is a folder. Hidden files are skipped."""
    split: str = "train"
    """Split of a Hugging Face dataset."""
    skip_invalid: bool = False
    """Leave out and count documents that are not text or lack the field, instead of stopping at the first one."""
    workers: Integer | None = None
    """Number of processes. The result does not depend on it. [default: the number of CPU cores]"""
    dry_run: bool = False
    """Show the first documents and write nothing."""
    verify: bool = False
    """Verify the checksums of a prepared corpus, which SOURCE names, and write nothing."""


def command(source: str, /, *, options: TokenizeOptions = TokenizeOptions()) -> int:
    """Prepare a corpus of any size: tokenize it once, in parallel, for training in constant memory.

    The same command continues after an interruption. Then train on it with --text FOLDER.

    Example: lengthwise tokenize books/ --output books-8k --tokenizer bpe:8192; lengthwise tokenize data.jsonl.zst
    --dry-run; lengthwise tokenize hf:allenai/c4:en --output c4; lengthwise tokenize books-8k --verify

    Args:
        source: A file or folder (text, .jsonl and .json with an object per line, .parquet; text and .jsonl also as .gz,
            .bz2, .xz or .zst), hf:NAME[:CONFIGURATION] for a Hugging Face dataset, hf:FOLDER for one on this machine,
            python for Python's manual, docstrings and source, or a published corpus: c4, pg19, arxiv, github.
    """
    if not source.startswith("hf:"):
        require_no_address("The source", source)
    if options.verify:
        return _verify(Path(source).expanduser())

    from lengthwise.corpora.manifest import is_prepared
    from lengthwise.corpora.sources import SourceOptions, open_source

    if is_prepared(Path(source).expanduser()):
        raise ConfigError(f"{source} is a prepared corpus; train on it with --text {source}, or check it with --verify")
    fields = SourceOptions(field=options.field, origin=options.origin, glob=options.glob, split=options.split)
    opened = open_source(source, fields)
    if options.dry_run:
        return _show(opened, options)
    if options.output is None or not options.output.strip():
        raise ConfigError("tokenize needs a folder for the corpus: --output FOLDER; --dry-run writes nothing")
    require_no_address("--output", options.output)

    from lengthwise.corpora.prepare import Preparation

    preparation = Preparation(
        source=opened,
        tokenizer=options.tokenizer,
        output=Path(options.output).expanduser().resolve(),
        validation=options.validation,
        skip_invalid=options.skip_invalid,
        workers=os.cpu_count() or 1 if options.workers is None else options.workers,
    )
    with progress() as show:
        manifest = preparation.run(show)
    _print(manifest, options.output)
    return 0


def _print(manifest: "Manifest", output: str) -> None:
    table = plain_table("split", "documents", manifest.unit, "bytes of text", "shards")
    for column in table.columns[1:]:
        column.justify = "right"
    for name in ("train", "validation"):
        split = manifest.split(name)
        counts = [split.documents, split.tokens, split.bytes, len(split.shards)]
        table.add_row(name, *(f"{count:,}" for count in counts))
    stdout().print(table)
    print(f"\ntokenizer {one_line(manifest.tokenizer)}: {manifest.vocab_size:,} token IDs")
    if manifest.left_out:
        print(f"left out: {', '.join(f'{count:,} {reason}' for reason, count in manifest.left_out.items())}")
    print(f"train on it with: lengthwise compare rope alibi --text {one_line(output)} --train-length 256")


def _show(source: "Source", options: TokenizeOptions) -> int:
    """Print the first documents, and how many tokens they have if the tokenizer exists already."""
    from lengthwise.corpora.parts import valid_records
    from lengthwise.corpora.sources import Invalid
    from lengthwise.corpora.tokenizers import open_tokenizer, trained_size

    size = trained_size(options.tokenizer)
    tokenizer = open_tokenizer(options.tokenizer) if size is None else None
    any_bytes = tokenizer is not None and tokenizer.any_bytes
    records = (
        record
        for part in source.parts()
        for record in valid_records(source, part, any_bytes=any_bytes, leave_out_invalid=options.skip_invalid)
    )
    documents = list(islice((r for r in records if not isinstance(r, Invalid) and r.data), SHOWN))
    if not documents:
        raise ConfigError(f"{source.name} has no document with text; give another source, or another --field")
    for document in documents:
        tokens = ""
        if tokenizer is not None and tokenizer.unit != "bytes":
            tokens = f", {len(tokenizer.encode([document.data])[0]):,} {tokenizer.unit}"
        print(f"{one_line(document.name)}: {len(document.data):,} bytes{tokens}")
        text = document.data[: 4 * SHOWN_CHARACTERS].decode("utf-8", "backslashreplace")
        print(f"  {one_line(text[:SHOWN_CHARACTERS])}{' ...' if len(text) > SHOWN_CHARACTERS else ''}")
    print("nothing was written")
    return 0


def _verify(folder: Path) -> int:
    from lengthwise.corpora.prepared import ADVICE, damages

    with progress() as show:
        problems = damages(folder, show)
    if problems:
        raise ConfigError(f"the corpus {folder} is damaged: {'; '.join(problems[:10])}; {ADVICE}")
    print(f"{one_line(folder)}: every file has its size and its SHA-256")
    return 0
