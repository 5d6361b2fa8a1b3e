"""`lengthwise export charts`: every chart of a study's page as a file."""

from pathlib import Path
from typing import TYPE_CHECKING

from lengthwise import cache_folder
from lengthwise.cli.collection import without_collection
from lengthwise.cli.export.tables import Force
from lengthwise.cli.options import DEFAULT_PLACE, Place
from lengthwise.cli.printing import one_line

if TYPE_CHECKING:
    from lengthwise.report.pictures import Picture


def command(study: str, /, *, out: str, format: str = "svg", force: Force = False, place: Place = DEFAULT_PLACE) -> int:
    """Write every chart of a study's report as a picture of its own, with its title, the names of its axes and a legend.

    Pictures have light colours on white. The name of a file consists of the task and of what the chart shows.

    Example: lengthwise export charts quickstart --out charts --format pdf

    Args:
        study: The study's name; `lengthwise list studies` lists them.
        out: The folder to create.
        format: Format of the pictures: png, svg or pdf.
        force: Write into an existing folder. Pictures of the same name are overwritten, and other files stay.
    """
    from lengthwise.analysis import findings
    from lengthwise.exchange.columns import no_results
    from lengthwise.new_folder import new_folder, require_new
    from lengthwise.report.pictures import pictures, require_format

    require_format(format)
    overwrite = force and Path(out).is_dir()
    if not overwrite:
        require_new(out, fix="name another folder, or add --force" if Path(out).is_dir() else "")
    with place.open() as store, without_collection():
        found = pictures(findings(store, study))
        if not found:
            raise no_results("score", study, store)
    if overwrite:
        _write(found, Path(out), format)
    else:
        with new_folder(out) as draft:
            _write(found, draft, format)
    print(f"{one_line(out)}: {len(found)} {'chart' if len(found) == 1 else 'charts'} of {one_line(study)}")
    return 0


def _write(found: "list[Picture]", folder: Path, form: str) -> None:
    for picture in found:
        cache_folder.write(folder / f"{picture.name}.{form}", picture.content(form))
