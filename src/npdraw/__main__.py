"""`python -m npdraw`: the same command line as `npdraw`."""

import sys

from npdraw.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
