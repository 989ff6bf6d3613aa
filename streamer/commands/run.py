"""``lakemark run``: a pipeline file becomes a running stream."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from streamer import pipeline, progress
from streamer.config.load import load
from streamer.event_log import event_log
from streamer.stopping import end_at_once, ends_on_signals


def execute(arguments: argparse.Namespace) -> int:
    """Run until caught up or stopped; Ctrl-C and SIGTERM end it in order, as a success.

    Raises:
        ConfigError: the pipeline file is wrong.
        HudiError: the run failed for good.
    """
    config = load(arguments.pipeline, [*arguments.overrides, *_overrides(arguments)])
    with ends_on_signals() as signals:
        with (
            progress.display() as display,
            event_log(arguments.events, display) as listener,
            pipeline.build(config, listener) as built,
        ):
            signals.watch(built.loop.stop)
            built.loop.run()
        if built.loop.left_batch:
            end_at_once()
    return 0


def _overrides(arguments: argparse.Namespace) -> Sequence[str]:
    chosen = {
        "run.mode=once": arguments.once,
        "run.mode=continuous": arguments.continuous,
        "table.drop_metadata_table=true": arguments.drop_metadata_table,
    }
    return [override for override, wanted in chosen.items() if wanted]
