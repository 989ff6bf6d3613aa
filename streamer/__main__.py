"""The command line as a file: for ``python -m streamer``, and for ``spark-submit``."""

import sys

from streamer.cli import main

if __name__ == "__main__":
    sys.exit(main())
