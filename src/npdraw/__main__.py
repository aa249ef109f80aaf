"""`npdraw`, and `python -m npdraw`: the command line. An interrupt while its modules are imported is no traceback."""

import sys


def main() -> int:
    try:
        from npdraw.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        print("npdraw: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
