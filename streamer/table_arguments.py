"""The command line of ``lakemark table``: what it looks at, and what it does to a table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

_VIEWS = {
    "show": "what the table is, and how far it has come",
    "timeline": "what happened to it",
    "files": "the file slices that a query reads",
}


_DELETING = "where files are deleted"


def add_table(table: argparse.ArgumentParser, debug: argparse.ArgumentParser) -> None:
    """Every command below ``table``; its module is ``streamer.commands.<module>``."""
    table.description = "Looks into a table, and does one thing to it that keeps it in shape."
    commands = table.add_subparsers(dest="view", metavar="WHAT", required=True)

    def add(name: str, text: str, module: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, parents=[debug], help=text)
        command.description = f"{text[0].upper()}{text[1:]}."
        command.set_defaults(module=module)
        add_location(command)
        command.add_argument("--json", action="store_true", help="for programs")
        return command

    def change(name: str, text: str, module: str) -> argparse.ArgumentParser:
        command = add(name, text, module)
        add_sharing(command)
        return command

    for name, text in _VIEWS.items():
        add(name, text, "table")
    _add_compact(change("compact", "rewrite logs into base files", "table_compact"))
    _add_clean(change("clean", "delete files that no query of the past needs", "table_clean"))
    _add_archive(change("archive", "move old instants to the history", "table_archive"))
    _add_rollback(change("rollback", "undo one instant, the newest commit", "table_rollback"))
    _add_savepoint(change("savepoint", "keep the files of a commit's state", "table_savepoint"))
    _add_restore(change("restore", "undo every write after a commit", "table_restore"))
    _add_version(change("upgrade", "take the table to a newer version", "table_version"), (8, 9))
    _add_version(change("downgrade", "take the table to an older version", "table_version"), (6, 8))
    _add_validate(change("validate", "compare the metadata table with the files", "table_validate"))


def add_location(command: argparse.ArgumentParser) -> None:
    """Where a table lies, and how its store is reached."""
    command.add_argument("table", metavar="TABLE", help="where the table lies: a path, or a url")
    command.add_argument(
        "--storage",
        dest="storage",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the store's client, such as aws_endpoint=…; secrets are better left to "
        "environment variables",
    )


def add_sharing(command: argparse.ArgumentParser) -> None:
    """How the table is shared with writers that run meanwhile."""
    text = "a pipeline that writes the table: its lock, clock skew, heartbeats, storage options, …"
    command.add_argument("--config", metavar="PIPELINE", help=text)
    text = "where the table's lock is kept (storage); file_system beside Apache Hudi on a disk"
    command.add_argument("--lock", choices=("storage", "file_system"), help=text)
    text = "after so many minutes a lock that Apache Hudi left in file_system is taken over (never)"
    command.add_argument("--lock-expire-minutes", type=positive, metavar="N", help=text)
    text = "zone of the instants of a table in local time, such as America/New_York"
    command.add_argument("--timeline-timezone", metavar="ZONE", help=text)
    text = "how far the clocks of the table's writers may differ (200)"
    command.add_argument("--clock-skew-ms", type=natural, metavar="N", help=text)


def _add_compact(compact: argparse.ArgumentParser) -> None:
    add_steps(compact, "do what is pending, or else all that has logs", can_schedule=True)
    _add_runner(compact)
    _add_merger(compact)


def _add_merger(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--merger",
        action="append",
        default=[],
        metavar="MODULE:CLASS",
        help="your merger, for a table in merge mode CUSTOM",
    )


def _add_clean(clean: argparse.ArgumentParser) -> None:
    add_steps(clean, "do what is pending, then all that has expired", can_schedule=True)
    _add_runner(clean, _DELETING)
    _add_retention(clean)


def _add_archive(archive: argparse.ArgumentParser) -> None:
    add_steps(archive, "do it")
    _add_runner(archive, "where files of late writers are deleted; this process does the rest")
    archive.add_argument("--min-commits", type=positive, metavar="N", help="so many stay (20)")
    text = "with more than so many it begins (30)"
    archive.add_argument("--max-commits", type=positive, metavar="N", help=text)
    _add_retention(archive)


def _add_retention(command: argparse.ArgumentParser) -> None:
    what = command.add_mutually_exclusive_group()
    text = "the table stays readable as of so many commits (10)"
    what.add_argument("--retain-commits", type=positive, metavar="N", help=text)
    text = "as of the commits of so many hours"
    what.add_argument("--retain-hours", type=positive, metavar="N", help=text)
    text = "so many versions of each file stay"
    what.add_argument("--retain-versions", type=positive, metavar="N", help=text)


def _add_rollback(rollback: argparse.ArgumentParser) -> None:
    rollback.add_argument("instant", metavar="INSTANT", help="requested time, as in the timeline")
    add_steps(rollback, "undo it")
    _add_runner(rollback, _DELETING)


def _add_savepoint(savepoint: argparse.ArgumentParser) -> None:
    what = savepoint.add_mutually_exclusive_group()
    what.add_argument("--create", metavar="INSTANT", help="keep the state as of this commit")
    what.add_argument("--delete", metavar="INSTANT", help="let its files be cleaned again")
    add_steps(savepoint, "do it")
    _add_runner(savepoint, "of one file, which this process writes all the same")
    savepoint.add_argument("--user", default="", help="who asks for it")
    savepoint.add_argument("--comment", default="", help="why")


def _add_restore(restore: argparse.ArgumentParser) -> None:
    text = "a savepoint or a commit; left out: finish the restore that is pending"
    restore.add_argument("--to", metavar="INSTANT", help=text)
    add_steps(restore, "do it; the metadata table is made anew")
    _add_runner(restore, _DELETING)


def _add_version(command: argparse.ArgumentParser, versions: Sequence[int]) -> None:
    text = "the table's version then; it is changed no other way"
    command.add_argument("--to", type=int, choices=versions, required=True, help=text)
    add_steps(command, "roll back and compact what is unfinished, then do it")
    _add_runner(command)
    _add_merger(command)


def _add_validate(validate: argparse.ArgumentParser) -> None:
    text = "make the metadata table anew, then look"
    validate.add_argument("--rebuild", action="store_true", help=text)
    text = "do not read the record keys to count those that exist in more than one partition"
    validate.add_argument("--skip-keys", action="store_true", help=text)
    _add_merger(validate)


def add_steps(command: argparse.ArgumentParser, run_help: str, can_schedule: bool = False) -> None:
    """Whether a command only prints its plan, or acts."""
    steps = command.add_mutually_exclusive_group()
    text = "print what would be done, and do nothing (the default)"
    steps.add_argument("--plan", dest="step", action="store_const", const="plan", help=text)
    if can_schedule:
        text = "write the plan to the timeline; whoever runs next executes it"
        steps.add_argument(
            "--schedule", dest="step", action="store_const", const="schedule", help=text
        )
    steps.add_argument("--run", dest="step", action="store_const", const="run", help=run_help)
    command.set_defaults(step="plan")


def _add_runner(command: argparse.ArgumentParser, what: str = "where the work is done") -> None:
    text = f"{what} (threads of this process, or a Spark session)"
    command.add_argument("--runner", choices=("local", "spark"), default="local", help=text)


def positive(text: str) -> int:
    """A number from 1 on, as a type of ``argparse``."""
    return _number(text, 1)


def natural(text: str) -> int:
    """A number from 0 on, as a type of ``argparse``."""
    return _number(text, 0)


def _number(text: str, at_least: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < at_least:
        message = f"expected a number from {at_least} on, not {text!r}"
        raise argparse.ArgumentTypeError(message)
    return int(text)
