"""Checks the documentation: links lead to a file or a heading, tables are complete, and the commands it names exist.

Run it with `python3 dev.py docs`. Pages are the Markdown files in the repository's folder, in docs/ and in
comparisons/.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCED = r"^(`{3,}|~{3,}).*?^\1"


def pages(root: Path) -> list[Path]:
    """The Markdown pages that belong to the project."""
    return [
        *sorted(root.glob("*.md")),
        *sorted((root / "docs").rglob("*.md")),
        *sorted((root / "comparisons").glob("*.md")),
    ]


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings get."""
    titles = re.findall(r"^#+ +(.+?) *#*$", re.sub(FENCED, "", text, flags=re.M | re.S), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(root: Path) -> list[str]:
    """One line for each link that leads to no file or no heading of the repository; other sites are not asked."""
    broken = []
    for page in pages(root):
        prose = re.sub(rf"{FENCED}|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for link in re.findall(r"\]\(<?([^)\s>]+)|(?:src|href)=\"([^\"]+)\"", prose):
            target = link[0] or link[1]
            if re.match(r"[a-z][a-z+.-]*:", target):
                continue
            name, _, anchor = target.partition("#")
            file = page.parent / name if name else page
            if not file.exists():
                broken.append(f"{page.relative_to(root)}: {target}: no such file")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
                broken.append(f"{page.relative_to(root)}: {target}: no such heading")
    return broken


def uneven_tables(root: Path) -> list[str]:
    """One line for each row of a table that has more or fewer cells than the row above it."""
    uneven = []
    for page in pages(root):
        cells = 0  # of the row above; 0 outside of tables
        for line in re.sub(FENCED, "", page.read_text(encoding="utf-8"), flags=re.M | re.S).splitlines():
            above, cells = cells, len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
            if above and cells and cells != above:
                uneven.append(f"{page.relative_to(root)}: not as many cells as in the row above: {line[:60]}")
    return uneven


def named_commands(root: Path, program: str) -> dict[str, str]:
    """The words that follow `program` in the pages' code, each with a page that has it."""
    found: dict[str, str] = {}
    for page in pages(root):
        for verb in re.findall(rf"(?:`|^ *(?:\$ )?){program} ([a-z][a-z-]*)", page.read_text(encoding="utf-8"), re.M):
            found.setdefault(verb, str(page.relative_to(root)))
    return found


def missing_commands(root: Path) -> list[str]:
    """One line for each command that the pages name and that does not exist."""
    sys.path.insert(0, str(ROOT))
    import dev

    ours = named_commands(root, r"python3? dev\.py")
    wrong = [f"{page}: dev.py has no command {name!r}" for name, page in ours.items() if name not in dev.COMMANDS]
    command = [sys.executable, "-m", "lengthwise", "--help"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    verbs = re.findall(r"^│ ([a-z][a-z-]*) ", text, flags=re.M)
    theirs = named_commands(root, "lengthwise")
    return wrong + [f"{page}: lengthwise has no command {name!r}" for name, page in theirs.items() if name not in verbs]


def main() -> int:
    wrong = broken_links(ROOT) + uneven_tables(ROOT) + missing_commands(ROOT)
    print("\n".join(wrong) or "every link leads somewhere, every table is complete, and every named command exists")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
