"""The commands of the command line, in the order of its help."""

from collections.abc import Sequence
from importlib import import_module

from cyclopts import App

import lengthwise
from lengthwise.cli.options import with_plugins

app = App(
    name="lengthwise",
    help="Train short, test long: position encodings and the length generalization of Transformers.",
    help_format="plaintext",
    help_epilogue=(
        "First steps: lengthwise list encodings; lengthwise sample copy --length 5;\n"
        "lengthwise run quickstart. Help for a command: lengthwise run --help"
    ),
    version=lengthwise.__version__,
    suppress_keyboard_interrupt=False,  # `main` prints how to continue
)

COMMANDS = (  # also the names of modules, each of which defines the function `command`, or such a list of its own modules
    "run",
    "work",
    "copy-study",
    "compare",
    "tokenize",
    "report",
    "serve",
    "statistics",
    "claims",
    "list",
    "show",
    "sample",
    "check",
    "inspect",
    "lengths",
    "probe",
    "bench",
    "retry",
    "cancel",
    "drop",
    "export",
    "import",
    "harness",
    "model",
    "reach",
    "extend",
    "pretrained",
)


def add(parent: App, package: str, names: Sequence[str]) -> None:
    """Add the commands of a package. One that lists commands of its own becomes a group, such as `lengthwise export scores`."""
    for number, name in enumerate(names, 1):
        module = import_module(f"{package}.{name.replace('-', '_')}")
        if hasattr(module, "command"):
            parent.command(with_plugins(module.command), name=name, sort_key=number, help_epilogue="")
            continue
        group = App(
            name=name, help=module.HELP, help_format="plaintext", help_epilogue="", version_flags=[], sort_key=number
        )
        add(group, module.__name__, module.COMMANDS)
        parent.command(group)


add(app, "lengthwise.cli", COMMANDS)
