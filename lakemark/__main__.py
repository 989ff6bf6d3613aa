"""The command ``lakemark``, ``python -m lakemark``, and the program for ``spark-submit``.

It is here because this package has the one name that no module of a user is likely to have.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from lakemark.own_packages import ROOT, prefer_own_packages


def main() -> int:
    """Run the command line of this process, and return its exit code."""
    gc.disable()  # until the command's modules are imported (``streamer.fast_start``)
    _take_own_folder_off_path()
    prefer_own_packages()
    from streamer.cli import main as run_command

    return run_command()


def _take_own_folder_off_path() -> None:
    """Undo that Python puts the folder of a program first: its modules would shadow the user's."""
    if Path(sys.path[0]).absolute() == Path(ROOT, "lakemark").absolute():
        del sys.path[0]


if __name__ == "__main__":
    sys.exit(main())
