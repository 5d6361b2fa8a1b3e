"""`lengthwise claims`: verdicts on claims of the literature, from stored scores. Imports no torch."""

from typing import TYPE_CHECKING, Any

from lengthwise.cli.options import Place
from lengthwise.cli.printing import counted, one_line, plain_table, print_json, stdout
from lengthwise.values import ConfigError, near_miss

if TYPE_CHECKING:
    from lengthwise.analysis.claims import Judgement


def command(name: str | None = None, /, *, place: Place = Place(), json: bool = False) -> int:
    """Judge claims of the literature about position encodings by the scores in a results folder.

    A claim holds here, is contradicted at this scale, cannot be told, or is not tested. docs/claims.md explains the
    verdicts, and has those on the scores that come with Lengthwise.

    Example: lengthwise claims; lengthwise claims fire; lengthwise claims fire-1

    Args:
        name: A claim to show with its source, its tests and what they found, or the source of several claims, such as
            fire for fire-1 and the others. [default: all claims, one line each]
        json: Print JSON with all details.
    """
    from lengthwise.analysis.claims import CLAIMS, judge, stored_evidence

    names = [claim.name for claim in CLAIMS]
    chosen = [n for n in names if name is None or n == name or n.startswith(f"{name}-")]
    if name is not None and not chosen:
        raise ConfigError(f"there is no claim {name!r}{near_miss(name, names)}; docs/claims.md lists them")
    with place.open() as store:
        judgements = judge(CLAIMS, stored_evidence(store))
    judgements = tuple(judgement for judgement in judgements if judgement.claim.name in chosen)
    if json:
        print_json([data_of(judgement) for judgement in judgements])
    elif name in names:
        print_claim(judgements[0])
    else:
        print_claims(judgements)
    return 0


def data_of(judgement: "Judgement") -> dict[str, Any]:
    """Return a claim and its verdict as plain data."""
    claim = judgement.claim
    return {
        "name": claim.name,
        "claim": claim.text,
        "source": claim.source,
        "commands": claim.commands,
        "tests": [test.text for test in claim.tests],
        "verdict": judgement.verdict,
        "reasons": judgement.reasons,
        "p": judgement.p,
    }


def print_claims(judgements: "tuple[Judgement, ...]") -> None:
    """Print a table with one line for each claim, and the number of claims with each verdict."""
    from lengthwise.analysis.claims import UNTESTED, VERDICTS

    rows = [(judgement.claim.name, judgement.verdict, one_line(judgement.reasons[0])) for judgement in judgements]
    console = stdout()
    width = console.width - sum(max(map(len, cells)) + 2 for cells in list(zip(*rows, strict=True))[:2])
    table = plain_table("claim", "verdict", "what was found")
    for claim, verdict, reason in rows:
        table.add_row(claim, verdict, reason if len(reason) <= width else f"{reason[: width - 1]}…")
    console.print(table)
    verdicts = [judgement.verdict for judgement in judgements]
    counts = ", ".join(f"{verdict} {verdicts.count(verdict)}" for verdict in VERDICTS)
    print(f"\n{counted(len(verdicts), 'claim')}: {counts}. `lengthwise claims NAME` shows one with its source.")
    if set(verdicts) == {UNTESTED}:
        print("None has scores in this results folder; `lengthwise run nope/small` produces the first ones.")


def print_claim(judgement: "Judgement") -> None:
    """Print one claim with its source, its tests and what they found."""
    claim = judgement.claim
    console = stdout()
    console.print(f"{claim.name}: {judgement.verdict}", style="bold")
    print(f"{claim.text} ({claim.source})")
    for heading, lines in (
        ("Tests", [test.text for test in claim.tests]),
        ("Found", judgement.reasons),
        ("Commands", claim.commands),
    ):
        if lines:
            print(f"\n{heading}:")
            for line in lines:
                print(f"  {line}")
    if judgement.p is not None:
        print(f"\np = {judgement.p:.2g} after Holm's correction for all claims that the same study decides")
