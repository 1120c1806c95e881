"""`python -m kernelpack`: the command line."""

import sys

from kernelpack.cli import main

if __name__ == "__main__":
    sys.exit(main())
