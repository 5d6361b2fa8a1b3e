"""`python -m lengthwise`: the command line."""

import sys

if __name__ == "__main__":
    # `python -m` searches the current folder first, where a user's grp.py would replace Python's own.
    if not sys.flags.safe_path:
        del sys.path[0]
    from lengthwise.cli import main

    sys.exit(main())
