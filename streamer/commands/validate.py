"""``lakemark validate``: is this pipeline file right, and what does it come to?"""

from __future__ import annotations

import argparse
import sys

from streamer.config.errors import ConfigError
from streamer.config.load import load
from streamer.config.printed import resolved_yaml


def execute(arguments: argparse.Namespace) -> int:
    """Print the resolved pipeline, secrets masked.

    Raises:
        ConfigError: the file is wrong, or a secret that it names cannot be found here.
    """
    config = load(arguments.pipeline, arguments.overrides)
    problems = config.unresolved()
    if problems:
        raise ConfigError(problems)
    sys.stdout.write(resolved_yaml(config))
    return 0
