"""The commands of the command line, in the order of its help."""

from collections.abc import Callable

from cyclopts import App

import lengthwise
from lengthwise.cli.method_commands import check, inspect_, lengths, pretrained, sample
from lengthwise.cli.options import with_plugins
from lengthwise.cli.study_commands import compare, drop, list_, probe, report, run, show

app = App(
    name="lengthwise",
    help="Train short, test long: position encodings and the length generalization of Transformers.",
    help_format="plaintext",
    help_epilogue=(
        "First steps: lengthwise list encodings; lengthwise sample copy --length 5;\n"
        "lengthwise run studies/quickstart.py. Help for a command: lengthwise run --help"
    ),
    version=lengthwise.__version__,
    suppress_keyboard_interrupt=False,  # `main` prints how to continue
)

COMMANDS: tuple[Callable[..., int], ...] = (
    run,
    compare,
    report,
    list_,
    show,
    sample,
    check,
    inspect_,
    lengths,
    probe,
    drop,
    pretrained,
)
for number, command in enumerate(COMMANDS, 1):
    app.command(with_plugins(command), name=command.__name__.rstrip("_"), sort_key=number, help_epilogue="")
