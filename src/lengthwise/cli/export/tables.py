"""What the commands share that write a table of a study as one file."""

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from lengthwise import cache_folder
from lengthwise.cli.collection import without_collection
from lengthwise.cli.options import Place, require_no_option
from lengthwise.cli.output_file import new_file
from lengthwise.cli.printing import one_line

if TYPE_CHECKING:
    from lengthwise.exchange.tables import Table

Out = Annotated[str, Parameter(allow_leading_hyphen=True, validator=require_no_option)]  # - is the standard output
Force = Annotated[bool, Parameter(negative="")]
STDOUT = "-"


def write_table(study: str, table: "Table", out: str, force: bool, place: Place, measurement: str = "") -> int:
    """Write a table of a study into a file, whose ending decides the format, or as CSV to the standard output.

    `measurement`: the name of the one whose answers are written.
    """
    from lengthwise.exchange.tables import ending_of, table_file

    path = None if out == STDOUT else new_file(out, force)
    ending = ending_of("-.csv" if path is None else out, table)
    with place.open() as store, without_collection():
        content = table_file(store, study, table, ending, measurement)
    if path is None:
        sys.stdout.write(content.decode())
        return 0
    cache_folder.write(path, content)
    print(f"{one_line(path)}: the {table} of {one_line(study)}")
    return 0
