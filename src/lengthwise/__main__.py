"""`python -m lengthwise`: the command line."""

import sys

from lengthwise.cli import main

if __name__ == "__main__":
    sys.exit(main())
