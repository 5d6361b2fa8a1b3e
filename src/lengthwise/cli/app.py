"""The verbs of the command line, in the order of its help."""

from collections.abc import Callable

from cyclopts import App

import lengthwise
from lengthwise.cli.options import with_plugins
from lengthwise.cli.verbs_of_parts import check, inspect_, lengths, pretrained, sample
from lengthwise.cli.verbs_of_studies import compare, drop, list_, probe, report, run, show

app = App(
    name="lengthwise",
    help="Train short, test long: position encodings and the length generalization of Transformers.",
    help_format="plaintext",
    help_epilogue=(
        "First steps: lengthwise list encodings; lengthwise sample copy --length 5;\n"
        "lengthwise run studies/quickstart.py. Help on a command: lengthwise run --help"
    ),
    version=lengthwise.__version__,
    suppress_keyboard_interrupt=False,  # `main` says how to go on
)

VERBS: tuple[Callable[..., int], ...] = (
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
for place, verb in enumerate(VERBS, 1):
    app.command(with_plugins(verb), name=verb.__name__.rstrip("_"), sort_key=place, help_epilogue="")
