"""``lakemark completion``: prints a script that lets a shell complete lakemark's command line."""

from __future__ import annotations

import argparse
import sys

from streamer.cli import parser
from streamer.completion import completion_script


def execute(arguments: argparse.Namespace) -> int:
    """Print the completion script for the named shell."""
    sys.stdout.write(completion_script(parser(), arguments.shell))
    return 0
