"""The command line `lengthwise`, also `python -m lengthwise`.

`app.py` lists the commands. Each command is a module or a folder of that name, which defines the function `command`. It
imports PyTorch, the database and the analysis only where it needs them, so that help appears at once, and commands that
only read results never import torch. `options.py` has the options that commands share.
"""

from lengthwise.cli.process import main

__all__ = ["main"]
