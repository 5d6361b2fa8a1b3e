"""Marks for runs of classes from outside lengthwise whose code has changed: `earlier code 1f3a9c02`."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.gather import last_use

if TYPE_CHECKING:
    from lengthwise.store import RunRow


def code_marks(
    rows: Sequence["RunRow"], names: Sequence[Hashable], runs: Iterable["RunRow"], listed: Mapping[str, float]
) -> list[str]:
    """Return a mark for each row, such as `earlier code 1f3a9c02`, or "".

    A row has an earlier code if another code of that class was used last, over all `runs` of the store (see
    `last_use`). The last used code is marked only beside a row of another code with an equal name. `listed`: see
    `listing_times`.
    """
    latest: dict[Hashable, str | None] = {}
    for run in sorted(runs, key=lambda run: last_use(run, listed)):
        latest |= dict(_codes(run.config))
    codes = [dict(_codes(row.config)) for row in rows]
    codes_by_name: dict[tuple[Hashable, Hashable], set[str | None]] = {}  # the codes of a class in the rows with a name
    for name, own in zip(names, codes, strict=True):
        for made, code in own.items():
            codes_by_name.setdefault((name, made), set()).add(code)
    return [
        ", ".join(
            f"{'last used' if code == latest[made] else 'earlier'} code {code[:8]}"
            for made, code in own.items()
            if code is not None and (code != latest[made] or len(codes_by_name[name, made]) > 1)
        )
        for name, own in zip(names, codes, strict=True)
    ]


def _codes(config: Mapping[str, Any]) -> Iterator[tuple[Hashable, str | None]]:
    """Yield the kind and the name of each class of a run, with the hash of its code or None."""
    scheme = (config.get("training") or {}).get("positions")
    for kind, data in (("encoding", config.get("encoding")), ("task", config.get("task")), ("positions", scheme)):
        for choice in choices_of(data):
            code = version.get("code") if isinstance(version := choice.get("class"), dict) else None
            yield (kind, choice["is"]), None if code is None else str(code)


def choices_of(data: Any) -> Iterator[dict[str, Any]]:
    """Yield every choice in the description of a run, in a fixed order."""
    if isinstance(data, dict):
        if isinstance(data.get("is"), str):
            yield data
        for name in sorted(data):
            yield from choices_of(data[name])
    elif isinstance(data, list):
        for item in data:
            yield from choices_of(item)
