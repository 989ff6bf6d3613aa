"""The command line of ``lakemark dead-letters``."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from streamer.table_arguments import JSON_HELP, add_storage, positive

_WHERE = "only dead letters that match, such as: code = 'invalid_value' and column = 'amount'"


def add_dead_letters(
    command: argparse.ArgumentParser,
    debug: argparse.ArgumentParser,
    add_pipeline: Callable[[argparse.ArgumentParser], None],
    add_overrides: Callable[[argparse.ArgumentParser], None],
) -> None:
    """Add every subcommand of ``dead-letters``.

    Args:
        command: the parser of ``dead-letters``.
        debug: a parser with the option ``--debug``, which each subcommand gets.
        add_pipeline: adds the argument for a pipeline file, and the option ``--set``.
        add_overrides: adds the option ``--set``.
    """
    command.description = (
        "Shows the records that could not become rows, or replays them with the current pipeline."
    )
    commands = command.add_subparsers(dest="view", metavar="SUBCOMMAND", required=True)

    def add(name: str, text: str, module: str) -> argparse.ArgumentParser:
        parser = commands.add_parser(name, parents=[debug], help=text)
        parser.description = f"{text[0].upper()}{text[1:]}."
        parser.set_defaults(module=module)
        parser.add_argument("--where", metavar="CONDITION", help=_WHERE)
        parser.add_argument("--json", action="store_true", help=JSON_HELP)
        return parser

    text = "count the dead letters by code, step and reason"
    _add_target(add("list", text, "dead_letters"), add_overrides)
    show = add("show", "print dead letters with their raw records", "dead_letters")
    _add_target(show, add_overrides)
    text = "at most N dead letters (default: 20)"
    show.add_argument("--limit", type=positive, default=20, metavar="N", help=text)
    text = "do not cut long keys, values and reasons (--json never does)"
    show.add_argument("--full", action="store_true", help=text)
    text = "convert dead letters again, and write the rows of those that now pass"
    replay = add("replay", text, "dead_letters_replay")
    add_pipeline(replay)
    text = "print what would pass and what would fail again, and change nothing"
    replay.add_argument("--dry-run", action="store_true", help=text)
    text = (
        "let a replayed record without an ordering value overwrite or delete a row of its key that "
        "was written later"
    )
    replay.add_argument("--overwrite-newer", action="store_true", help=text)


def _add_target(
    command: argparse.ArgumentParser, add_overrides: Callable[[argparse.ArgumentParser], None]
) -> None:
    text = "the pipeline file (.yaml or .yml), or its dead-letter table: a path or a URL"
    command.add_argument("target", metavar="PIPELINE|TABLE", help=text)
    add_overrides(command)
    add_storage(command)
    text = "also the dead letters that a replay has resolved"
    command.add_argument("--all", action="store_true", help=text)
