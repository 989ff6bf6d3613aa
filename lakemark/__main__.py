"""Entry point of the command ``lakemark``, of ``python -m lakemark``, and of ``spark-submit``.

The entry point is in this package because the user's own modules are unlikely to be called
``lakemark``.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from lakemark.own_packages import ROOT, prefer_own_packages


def main() -> int:
    """Run the command line of this process, and return its exit code."""
    gc.disable()  # ``streamer.fast_start`` enables it again after the command's imports.
    try:
        _take_own_folder_off_path()
        prefer_own_packages()
        from streamer.cli import main as run_command

        return run_command()
    except KeyboardInterrupt:  # before the command began
        return 130


def _take_own_folder_off_path() -> None:
    """Remove this package's folder from ``sys.path``, where Python puts it for a program.

    Otherwise the modules in this folder would shadow the user's modules.
    """
    if Path(sys.path[0]).absolute() == Path(ROOT, "lakemark").absolute():
        del sys.path[0]


if __name__ == "__main__":
    sys.exit(main())
