"""The gallery: one page and one picture for every encoding, and their list, made from the code.

    .venv/bin/python docs/gallery.py           writes docs/encodings/ anew
    .venv/bin/python docs/gallery.py --check   says what is stale, and exits with 1 if anything is

Words come from docstrings, numbers from `lengthwise.inspection`. Pages are compared letter by letter; of pictures only
their presence, for fonts and the last digits differ between machines. `names.md` in the same folder is written by hand.
"""

import argparse
import inspect as python
import re
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drawing import picture

from lengthwise.attention import BACKENDS
from lengthwise.choices import annotation, choose, context_of, settings_of
from lengthwise.cli.inspecting import summary
from lengthwise.encodings import ENCODINGS, PositionEncoding, RotaryEncoding
from lengthwise.inspection import inspect

FOLDER = Path(__file__).resolve().parent / "encodings"
BY_HAND = {"names.md"}
SIZES = {"num_heads": 8, "head_dim": 64, "d_model": 512, "train_length": 512}
NOTE = "<!-- Made by docs/gallery.py from the code: change the docstring, not this page. -->"
AS_IT_IS = "<!-- fmt: off -->"  # examples stay as their docstrings have them, whoever formats Markdown

# What each form of `lengthwise.forms` costs beside attention itself: n tokens, h heads, d dims a head, c = width of the model.
COSTS = {
    "Rotation": ("a cosine and a sine for each position and pair: O(n d)", "O(n h d)"),
    "ToeplitzBias": ("a table over distances: O(h n)", "O(h n²) additions"),
    "PiecewiseLinearBias": (
        "pieces of a line, a number for each distance and query: O(n)",
        "O(h n²)",
    ),
    "RelativeKeyBias": ("a vector for each distance: O(n d), or h times that", "O(h n² d)"),
    "ContentBias": ("r numbers for each distance and query: O(n r), or h times that", "O(h n² r)"),
    "KeyBias": ("a vector for each head: O(h d)", "O(n h d)"),
    "CumulativeBias": ("a number for every key: O(h n)", "O(h n)"),
    "DenseBias": ("a number for every pair: O(h n²)", "O(h n²)"),
    "RelativeValues": ("a vector for each distance: O(n d)", "O(h n² d)"),
    "LogitTransform": ("whole rows of logits at once: O(h n) for each query", "O(h n²) or more"),
    "QueryGain": ("a number for each query: O(n)", "O(n h d)"),
}
GROUPS = (
    "Rotate queries and keys",
    "Add a bias to the logits",
    "Depend on content, or add vectors",
    "Act on embeddings",
    "Nothing",
)


# ---- docstrings ---------------------------------------------------------------------------------------------------


@dataclass
class Words:
    """The parts of an encoding's docstring."""

    formula: list[str] = field(default_factory=list)  # paragraphs; a block of code begins with four spaces
    past: str = ""  # the paragraph that begins with "Past the trained length:", without that
    source: str = ""
    code: str = ""
    differs: str = ""
    example: str = ""


def words_of(make: type) -> Words:
    """The parts of a class' docstring: what stands under its labels, what it says of long texts, and the rest."""
    found = Words()
    text = python.getdoc(make) or ""
    if ">>>" in text:
        text, example = text[: text.index(">>>")], text[text.index(">>>") :]
        found.example = example.strip()
    prose, label = [], ""
    for line in text.splitlines():
        labelled = re.match(r"(Source|Code|Differs): +(.*)", line)
        if labelled:
            label, line = labelled[1].lower(), labelled[2]
        elif not line.strip():
            label = ""
        if label:
            setattr(found, label, f"{getattr(found, label)} {line.strip()}".strip())
        else:
            prose.append(line)
    for paragraph in re.split(r"\n\s*\n", "\n".join(prose).strip()):
        if not paragraph.startswith("    "):
            paragraph = " ".join(paragraph.split())
            if begins := re.match(r"Past the trained length(?: L)?[:,] ", paragraph):
                found.past, paragraph = f"{found.past} {paragraph[begins.end() :]}".strip(), ""
        found.formula += [paragraph] * bool(paragraph)
    return found


def past_of(make: type) -> str:
    """What a class says of lengths past the trained one; if nothing, what the method says that it is derived from."""
    for base in make.__mro__:
        if base in (PositionEncoding, RotaryEncoding) or not issubclass(base, PositionEncoding):
            continue
        if past := words_of(base).past:
            return past if base is make else f"As {base.__name__}: {past}"
    return ""


def escaped(text: str) -> str:
    """Prose of a docstring as Markdown: code stays code, and no sign means anything else."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if n % 2 else re.sub(r"([*<\[\]~|\\])", r"\\\1", p) for n, p in enumerate(parts))


# ---- pages --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """One encoding, and all that its page says."""

    make: type[PositionEncoding]
    data: dict[str, Any]

    @property
    def name(self) -> str:
        return self.make.__name__

    @property
    def file(self) -> str:
        return self.make.__module__.rpartition(".")[2]

    @property
    def group(self) -> str:
        forms = set(self.data["forms"])
        if self.make.acts_on_embedding():
            return GROUPS[3]
        if not forms:
            return GROUPS[4]
        if forms <= {"Rotation", "QueryGain"}:
            return GROUPS[0]
        tables = forms <= {"ToeplitzBias", "PiecewiseLinearBias"}
        return GROUPS[1] if tables and not self.data["reads_content"] else GROUPS[2]


def entries() -> list[Entry]:
    """What this package itself lists; encodings of other packages have their pages there."""
    ours = [make for make in ENCODINGS if make.__module__.startswith("lengthwise.")]
    return [Entry(make, inspect(choose(make), **SIZES, length=2)) for make in ours]


def example(entry: Entry) -> str:
    """Five lines that run."""
    arguments = ", ".join(f"{name}={SIZES[name]}" for name in context_of(entry.make))
    make = f"encodings.{entry.name}({arguments})"
    head = "import torch\nimport lengthwise\nfrom lengthwise import encodings\n"
    if entry.make.acts_on_embedding():
        head = head.replace("import lengthwise\n", "")
        last = f"x = {make}.embed(torch.randn(1, 256, 512), torch.arange(256)[None])"
        return f"{head}\n{last}"
    more = ", x=torch.randn(1, 256, 512)" if entry.data["reads_content"] else ""
    return f"{head}\nq, k, v = torch.randn(3, 1, 8, 256, 64)\nout = lengthwise.attend(q, k, v, {make}{more})"


def page(entry: Entry, pictured: str | None) -> str:
    """The Markdown page of one encoding."""
    words = words_of(entry.make)
    parts = [f"{NOTE}\n{AS_IT_IS}", f"# {entry.name}", summary(entry.make)]
    if pictured:
        parts += [f"![{entry.name}: {pictured}](pictures/{entry.file}.svg)", f"*{pictured}*"]
    elif entry.data["learned"]:
        parts += ["*There is no picture: as its parameters begin, it does nothing yet.*"]
    parts += ["## Formula", *(_block(p) for p in words.formula)]
    parts += ["## What is learned", *_learned(entry), "## Settings", *_settings(entry.make), "## Cost", *_cost(entry)]
    past = past_of(entry.make)
    parts += ["## Past the trained length", _capital(escaped(past)) if past else "Its source says nothing of it."]
    parts += _declared(entry)
    parts += ["## Source", escaped(words.source)]
    if words.code:
        parts += [f"Code: {escaped(words.code)}"]
    if words.differs:
        parts += ["## Where it differs", _capital(escaped(words.differs))]
    parts += ["## In five lines", f"```python\n{example(entry)}\n```"]
    if words.example:
        parts += ["Numbers to check by hand:", f"```pycon\n{words.example}\n```"]
    word = entry.file.replace("_", "-")
    parts += [f"`lengthwise inspect {word}` draws it in the terminal, at any length and with any setting."]
    parts += ["[All encodings](README.md) · [names that collide](names.md)"]
    return "\n\n".join(parts) + "\n"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _block(paragraph: str) -> str:
    if paragraph.startswith("    "):
        return f"```text\n{textwrap.dedent(paragraph)}\n```"
    return escaped(paragraph)


def _learned(entry: Entry) -> list[str]:
    shapes = entry.data["parameters"]
    if not shapes:
        return ["Nothing."]
    rows = ["| parameter | shape | numbers |", "|---|---|---|"]
    for name, shape in shapes.items():
        count = 1
        for size in shape:
            count *= size
        rows.append(f"| `{name}` | {' × '.join(map(str, shape)) or 'one number'} | {count:,} |")
    layers = "all layers" if entry.data["shared_across_layers"] else "each layer"
    return ["\n".join(rows), f"{entry.data['learned']:,} numbers with {_sizes()}. One module for {layers} by default."]


def _sizes() -> str:
    heads = f"{SIZES['num_heads']} heads of {SIZES['head_dim']} dims"
    return f"{heads}, d_model {SIZES['d_model']} and trained length {SIZES['train_length']}"


def _settings(make: type) -> list[str]:
    known = settings_of(make)
    if not known:
        return ["None."]
    rows = ["| setting | default | type |", "|---|---|---|"]
    for name, parameter in known.items():
        kind = annotation(make, parameter)
        kind = getattr(kind, "__name__", None) if isinstance(kind, type) else str(kind).replace("typing.", "")
        rows.append(f"| `{name}` | `{parameter.default!r}` | {escaped(str(kind))} |")
    return ["\n".join(rows)]


def _cost(entry: Entry) -> list[str]:
    data = entry.data
    if not data["forms"]:
        if entry.make.acts_on_embedding():
            return ["One addition to the embeddings, before the first layer: O(n d_model). Attention is left alone."]
        return ["None: attention is left alone."]
    rows = ["| form | memory of the encoding | time in each layer |", "|---|---|---|"]
    rows += [f"| `{form}` | {COSTS[form][0]} | {COSTS[form][1]} |" for form in data["forms"]]
    served = [f"`{name}`" for name, reason in data["backends"].items() if reason is None]
    said = [f"For n tokens, h heads, d dims a head. Served by {_listed(served)}."]
    said += [f"`{name}` refuses: {reason}." for name, reason in data["backends"].items() if reason is not None]
    if set(data["forms"]) - {"Rotation", "QueryGain"}:  # what a backend says of the memory that biases take there
        for name in data["backends"]:
            of_biases = re.search(r"^Memory: (.+?\.)(?=\s|$)", python.getdoc(BACKENDS[name]) or "", flags=re.M | re.S)
            if of_biases and data["backends"][name] is None:
                said.append(f"`{name}`: {escaped(' '.join(of_biases[1].split()))}")
    return ["\n".join(rows), " ".join(said)]


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _declared(entry: Entry) -> list[str]:
    data, said = entry.data, []
    if data["shift_invariant"]:
        said.append("Moving every position by the same amount changes nothing.")
    else:
        said.append("Moving every position by the same amount changes what it does.")
    if data["depends_on_length"]:
        said.append(
            "What a pair of positions gets depends on the current length, so a KV cache is made anew when that changes it."
        )
    if data["max_length"] is not None:
        said.append(f"It serves at most {data['max_length']:,} positions at its defaults.")
    return [" ".join(said)]


def listing(listed: list[Entry]) -> str:
    """The list of all pages, by what they do."""
    parts = [
        NOTE,
        "# Encodings",
        f"Every encoding of Lengthwise. Learned numbers are those of {_sizes()}, in one layer.",
    ]
    for group in GROUPS:
        members = [entry for entry in listed if entry.group == group]
        if not members:
            continue
        rows = ["| | what it is | learned | fused attention |", "|---|---|---|---|"]
        for entry in members:
            fused = any(reason is None for name, reason in entry.data["backends"].items() if name != "reference")
            learned = f"{entry.data['learned']:,}" if entry.data["learned"] else "nothing"
            said = escaped(summary(entry.make))
            rows.append(f"| [{entry.name}]({entry.file}.md) | {said} | {learned} | {'yes' if fused else 'no'} |")
        parts += [f"## {group}", "\n".join(rows)]
    parts += ["[Names that collide in the literature](names.md) · [adding an encoding](../adding-an-encoding.md)"]
    return "\n\n".join(parts) + "\n"


# ---- writing and checking -----------------------------------------------------------------------------------------


def made(draw: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Every page by its name, and every picture (empty strings unless `draw`)."""
    listed = entries()
    pages, pictures = {"README.md": listing(listed)}, {}
    for entry in listed:
        svg, caption = picture(entry.make, draw)
        pages[f"{entry.file}.md"] = page(entry, caption)
        if caption:
            pictures[f"{entry.file}.svg"] = svg
    return pages, pictures


def stale() -> list[str]:
    """One line for each page or picture that is missing, not what the code says, or of no encoding."""
    pages, pictures = made(draw=False)
    found = []
    for name, text in pages.items():
        file = FOLDER / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            found.append(f"docs/encodings/{name} is {'stale' if file.exists() else 'missing'}")
    found += [
        f"docs/encodings/pictures/{name} is missing" for name in pictures if not (FOLDER / "pictures" / name).exists()
    ]
    for path in sorted([*FOLDER.glob("*.md"), *FOLDER.glob("pictures/*")]):
        if path.name not in {*pages, *pictures, *BY_HAND}:
            found.append(f"{path.relative_to(FOLDER.parent.parent).as_posix()} is of no encoding")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="The gallery of encodings in docs/encodings/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a page is stale")
    if parser.parse_args().check:
        found = stale()
        print(
            "\n".join([*found, "`.venv/bin/python docs/gallery.py` writes them anew"])
            if found
            else "the gallery is up to date"
        )
        return 1 if found else 0
    pages, pictures = made(draw=True)
    (FOLDER / "pictures").mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    for name, svg in pictures.items():
        (FOLDER / "pictures" / name).write_text(svg, encoding="utf-8")
    print(f"{len(pages)} pages and {len(pictures)} pictures in {FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
