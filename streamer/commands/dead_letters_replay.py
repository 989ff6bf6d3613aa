"""``lakemark dead-letters replay``: converts dead letters again, with the current pipeline."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial

import pyarrow as pa
from rich.console import Console

from sinks.hudi.replay import LetterReplay
from sinks.replay_result import ReplayResult
from streamer.commands.dead_letters import group_letters
from streamer.commands.table import Facts, show_rows
from streamer.config.load import load
from streamer.config.secrets import build_redactor
from streamer.event_text import describe, describe_rule
from streamer.events import Event, HookDropped, HookFailed
from streamer.pipeline_hooks import pipeline_hooks
from streamer.replay import open_replay
from streamer.wording import counted
from transforms.rejects import REJECTS_SCHEMA


def execute(arguments: argparse.Namespace) -> int:
    """Print how many records pass, and why the others fail again.

    After an error, what was done before is printed, too.

    Raises:
        ConfigError: the pipeline file is not valid.
        HudiError: the letters cannot be replayed; see ``open_replay`` and ``LetterReplay``.
    """
    config = load(arguments.pipeline, arguments.overrides)
    arguments.redacted = build_redactor(config)
    if arguments.dry_run:
        replay = open_replay(config, overwrites_newer=arguments.overwrite_newer)
        _run(replay, replay.preview, arguments)
        return 0
    hooks = pipeline_hooks(config, partial(_print_failure, arguments.redacted))
    with hooks.until_end():
        replay = open_replay(config, overwrites_newer=arguments.overwrite_newer, hooks=hooks)
        try:
            _run(replay, replay.run, arguments)
        finally:
            hooks.announce_replay(replay.result.instants)
    return 0


def _run(
    replay: LetterReplay, run: Callable[[str | None], object], arguments: argparse.Namespace
) -> None:
    try:
        run(arguments.where)
    except BaseException:
        if not replay.result.is_empty:
            _show(replay.result, arguments)
            print("the replay has stopped early, because of an error", file=sys.stderr)
        raise
    _show(replay.result, arguments)


def _print_failure(redacted: Callable[[str], str], event: Event, /) -> None:
    """Print that a hook does not have a commit; a ``Listener``."""
    if isinstance(event, HookFailed | HookDropped):
        print(redacted(describe(event)), file=sys.stderr)


def _show(done: ReplayResult, arguments: argparse.Namespace) -> None:
    show_rows(_rows(done), Console(), arguments.json, "no dead letter to replay")
    sys.stdout.flush()
    for note in _notes(done, is_preview=arguments.dry_run):
        print(note, file=sys.stderr)


def _rows(done: ReplayResult) -> list[Facts]:
    """Return one row for the records that pass, and one for each reason of the others."""
    everything = [REJECTS_SCHEMA.empty_table(), *done.failed]
    groups = group_letters(pa.concat_tables(everything, promote_options="default"))
    passed: list[Facts] = []
    if done.passed:
        nothing = dict.fromkeys(("code", "step", "reason", "first", "last", "such as"))
        passed = [{"result": "passes", "records": done.passed, **nothing}]
    return [*passed, *({"result": "fails", **group} for group in groups)]


def _notes(done: ReplayResult, *, is_preview: bool) -> list[str]:
    """Return sentences about letters that the rows do not contain."""
    notes = []
    if done.marked:
        verb = "would be" if is_preview else "were"
        notes.append(
            f"{counted(done.marked, 'dead letter')} of an interrupted replay {verb} marked as "
            "resolved, because their rows are already committed"
        )
    if done.unread:
        notes.append(
            f"{counted(done.unread, 'dead letter')} kept, because the checkpoint of the pipeline "
            "is not beyond them, so that the pipeline reads the records again"
        )
    if done.of_other_topics:
        notes.append(f"{counted(done.of_other_topics, 'dead letter')} of other topics kept")
    for rule in done.written_violations:
        verb = "would be" if is_preview else "were"
        notes.append(f"rows that violate a rule {verb} written: {describe_rule(rule)}")
    if done.instants:
        notes.append(f"the rows were committed in {', '.join(done.instants)}")
    if is_preview:
        notes.append("nothing was changed; without --dry-run, the records that pass are written")
    return notes
