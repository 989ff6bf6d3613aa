"""``lakemark completion``: prints the script with which a shell completes the command line."""

from __future__ import annotations

import argparse
import sys

from streamer.cli import parser
from streamer.completion import completion_script


def execute(arguments: argparse.Namespace) -> int:
    """Print the script of the shell."""
    sys.stdout.write(completion_script(parser(), arguments.shell))
    return 0
