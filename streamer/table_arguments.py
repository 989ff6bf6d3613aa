"""The command line of ``lakemark table``: views, checks and table services."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from lakemark.errors import HudiError
from streamer.durations import parse_duration

_VIEWS = {
    "show": "show the table's properties, columns, newest commit and checkpoint",
    "timeline": "list the instants of the active timeline, and what each commit wrote",
    "files": "list the file slices that a snapshot query reads",
}


_INDEX = "create, drop or list indexes of the metadata table, such as the record index"
_STATISTICS = "choose the columns with statistics, by which queries skip files"
JSON_HELP = "print JSON for programs: one object, or one per row"
_DELETING = "what deletes the files"
_RUNNERS = ("local", "spark")


def add_table(table: argparse.ArgumentParser, debug: argparse.ArgumentParser) -> None:
    """Add every subcommand of ``table``.

    Args:
        table: the parser of ``table``.
        debug: a parser with the option ``--debug``, which each subcommand gets.
    """
    table.description = (
        "Shows or checks a table, or runs one table service on it. Commands that change the table "
        "only print their plan, unless you add --run."
    )
    commands = table.add_subparsers(dest="view", metavar="SUBCOMMAND", required=True)

    def add(name: str, text: str, module: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, parents=[debug], help=text)
        command.description = f"{text[0].upper()}{text[1:]}."
        command.set_defaults(module=module)
        add_location(command)
        command.add_argument("--json", action="store_true", help=JSON_HELP)
        return command

    def change(name: str, text: str, module: str) -> argparse.ArgumentParser:
        command = add(name, text, module)
        add_sharing(command)
        return command

    for name, text in _VIEWS.items():
        add(name, text, "table")
    _add_compact(change("compact", "merge log files into base files", "table_compact"))
    text = "split large buckets and merge small ones, in a table with consistent hashing"
    _add_resize(change("resize-buckets", text, "table_resize_buckets"))
    text = "rewrite small files into fewer files, whose rows may be sorted"
    _add_cluster(change("cluster", text, "table_cluster"))
    _add_clean(change("clean", "delete file slices that no retained commit needs", "table_clean"))
    text = "move old instants from the active to the archived timeline"
    _add_archive(change("archive", text, "table_archive"))
    text = "delete rows, or erase every stored copy of them"
    _add_delete(change("delete", text, "table_delete"))
    text = "delete all rows of some partitions"
    _add_delete_partitions(change("delete-partitions", text, "table_delete_partitions"))
    text = "delete all rows of the partitions whose lifetime has ended"
    _add_expire_partitions(change("expire-partitions", text, "table_expire_partitions"))
    text = "delete files that no instant names, such as those of failed task attempts"
    _add_remove_orphans(change("remove-orphans", text, "table_remove_orphans"))
    text = "undo one instant: the newest commit, or a pending instant"
    _add_rollback(change("rollback", text, "table_rollback"))
    text = "create, delete or list savepoints, which protect the files of a commit from cleaning"
    _add_savepoint(change("savepoint", text, "table_savepoint"))
    _add_index(commands.add_parser("index", help=_INDEX), debug)
    text = "restore the table to a savepoint or commit, or empty it, by undoing every later write"
    _add_restore(change("restore", text, "table_restore"))
    text = "change the table to a newer table version"
    _add_version(change("upgrade", text, "table_version"), (6, 8, 9))
    text = "change the table to an older table version"
    _add_version(change("downgrade", text, "table_version"), (6, 8))
    _add_sync(add("sync", "register the table in catalogs, such as a Hive metastore", "table_sync"))
    text = "compare the metadata table with storage, and count record keys in several partitions"
    _add_check(change("check", text, "table_check"))


def add_location(command: argparse.ArgumentParser) -> None:
    """Add the argument for the path of a table, and the option ``--storage``."""
    command.add_argument("table", metavar="TABLE", help="the table: a local path or a URL")
    add_storage(command)


def add_storage(command: argparse.ArgumentParser) -> None:
    """Add the option ``--storage``, for the store of a table."""
    command.add_argument(
        "--storage",
        dest="storage",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the object store's client, such as aws_endpoint=…; may be repeated; "
        "give secrets in environment variables instead",
    )


def add_sharing(command: argparse.ArgumentParser) -> None:
    """Add the options with which a command coordinates with other writers of the table."""
    text = (
        "the file of a pipeline that writes the table; the command then uses the pipeline's lock, "
        "clock skew, heartbeats, retention and storage options"
    )
    command.add_argument("--config", metavar="PIPELINE", help=text)
    text = (
        "where the table's lock is kept (default: storage); choose file_system if Apache Hudi "
        "writes the table on a local disk"
    )
    command.add_argument("--lock", choices=("storage", "file_system"), help=text)
    text = "with --lock file_system: take over Apache Hudi's lock after N minutes (default: never)"
    command.add_argument("--lock-expire-minutes", type=positive, metavar="N", help=text)
    text = "time zone of the table's timeline, if it is in local time, such as America/New_York"
    command.add_argument("--timeline-timezone", metavar="ZONE", help=text)
    text = "how far the clocks of the table's writers may differ, in milliseconds (default: 200)"
    command.add_argument("--clock-skew-ms", type=natural, metavar="N", help=text)


def _add_compact(compact: argparse.ArgumentParser) -> None:
    compact.add_argument(
        "patterns",
        nargs="*",
        metavar="PATTERN",
        help="the path of a partition to compact, in which each * stands for any text, or regex: "
        "and a regular expression (default: all partitions); quote it in a shell",
    )
    add_steps(
        compact,
        "execute pending compactions, and if there are none, compact the file slices with log "
        "files; then execute pending log compactions",
        can_schedule=True,
    )
    _add_limits_of_compaction(compact)
    text = (
        "which file groups come first if the compaction is limited: those with the most bytes of "
        "logs (the default), or those of the newest or oldest partitions"
    )
    orders = ("most_log_bytes", "newest_partitions", "oldest_partitions")
    compact.add_argument("--order", choices=orders, default=orders[0], help=text)
    text = (
        "merge the logs of each file slice into one log instead, without rewriting the base file; "
        "pending log compactions are executed first"
    )
    compact.add_argument("--logs", action="store_true", help=text)
    text = "with --logs: only file slices with logs of N commits or more (default: 5)"
    compact.add_argument("--min-logs", type=positive, metavar="N", help=text)
    text = "compact at most N partitions"
    compact.add_argument("--max-partitions", type=positive, metavar="N", help=text)
    text = "read and write at most N bytes, as estimated from the sizes of the files"
    compact.add_argument("--max-io-bytes", type=positive, metavar="N", help=text)
    _add_runner(compact)
    add_merger(compact)


def _add_limits_of_compaction(compact: argparse.ArgumentParser) -> None:
    text = "plan a compaction only if N delta commits completed since the last one was planned"
    compact.add_argument("--after-commits", type=positive, metavar="N", help=text)
    text = "plan a compaction only if the oldest log is this old, such as 1d, 12h, 45m or 90s"
    compact.add_argument("--after", type=duration, metavar="TIME", help=text)
    text = "plan a compaction only if the logs together have N bytes"
    compact.add_argument("--after-log-bytes", type=positive, metavar="N", help=text)
    text = "with several --after options: whether any (the default) or all of them are required"
    compact.add_argument("--when", choices=("any", "all"), default="any", help=text)


def _add_resize(resize: argparse.ArgumentParser) -> None:
    add_steps(resize, "execute pending resizes, then resize the buckets that need it")
    text = "split a bucket whose base file and logs are larger (default: 100663296, 96 MiB)"
    resize.add_argument("--split-above-bytes", type=positive, metavar="N", help=text)
    text = "merge adjacent buckets that are smaller (default: 25165824, 24 MiB); 0 merges none"
    resize.add_argument("--merge-below-bytes", type=natural, metavar="N", help=text)
    _add_runner(resize)
    add_merger(resize)


def _add_cluster(cluster: argparse.ArgumentParser) -> None:
    cluster.add_argument(
        "patterns",
        nargs="*",
        metavar="PATTERN",
        help="the path of a partition to cluster, in which each * stands for any text, or regex: "
        "and a regular expression (default: all partitions); quote it in a shell",
    )
    run = "execute pending clusterings; if there are none, cluster the small files"
    add_steps(cluster, run, can_schedule=True)
    text = "a column by which the rows of each group of files are sorted; may be repeated"
    cluster.add_argument(
        "--sort-by", action="append", default=[], metavar="COLUMN", dest="sort_by", help=text
    )
    cluster.add_argument(
        "--curve",
        choices=("linear", "z-order", "hilbert"),
        default="linear",
        help="how several columns are combined: by the first one and then by the next ones "
        "(linear, the default), or along a curve that orders by all of them",
    )
    text = "rewrite files that are smaller, with their logs (default: 314572800, 300 MiB)"
    cluster.add_argument("--small-file-bytes", type=positive, metavar="N", help=text)
    text = "the size that new files approximately have (default: 1073741824, 1 GiB)"
    cluster.add_argument("--target-file-bytes", type=positive, metavar="N", help=text)
    text = "the size of the files that are sorted together (default: 2147483648, 2 GiB)"
    cluster.add_argument("--max-group-bytes", type=positive, metavar="N", help=text)
    text = "rewrite at most N such groups (default: 30)"
    cluster.add_argument("--max-groups", type=positive, metavar="N", help=text)
    text = "rewrite only so many groups that at most N bytes are read and written (default: all)"
    cluster.add_argument("--max-io-bytes", type=positive, metavar="N", help=text)
    _add_runner(cluster)
    add_merger(cluster)


def add_merger(command: argparse.ArgumentParser) -> None:
    """Add the option ``--merger``, for the class of a custom merger."""
    command.add_argument(
        "--merger",
        action="append",
        default=[],
        metavar="PATH:CLASS",
        help="your merger class, as FILE.py:CLASS or package.module:CLASS, for a table in merge "
        "mode CUSTOM; may be repeated",
    )


def _add_clean(clean: argparse.ArgumentParser) -> None:
    add_steps(clean, "execute pending cleans, then delete expired files", can_schedule=True)
    _add_runner(clean, _DELETING)
    _add_retention(clean)


def _add_archive(archive: argparse.ArgumentParser) -> None:
    add_steps(archive, "archive the instants")
    _add_runner(archive, "what deletes files that writers created after they were rolled back")
    text = "archive old commits until N commits remain on the active timeline (default: 20)"
    archive.add_argument("--min-commits", type=positive, metavar="N", help=text)
    text = "archive only if the active timeline has more than N commits (default: 30)"
    archive.add_argument("--max-commits", type=positive, metavar="N", help=text)
    text = "merge N files of the archive into one (default: 10), in table version 8 and later"
    archive.add_argument("--files-to-merge", type=positive, metavar="N", help=text)
    _add_retention(archive)


def _add_retention(command: argparse.ArgumentParser) -> None:
    what = command.add_mutually_exclusive_group()
    text = "keep the files that queries of the last N commits need (default: 10)"
    what.add_argument("--retain-commits", type=positive, metavar="N", help=text)
    text = "keep the files that queries as of any time in the last N hours need"
    what.add_argument("--retain-hours", type=positive, metavar="N", help=text)
    text = "keep the newest N slices of each file group"
    what.add_argument("--retain-versions", type=positive, metavar="N", help=text)


def _add_delete(delete: argparse.ArgumentParser) -> None:
    text = "a record key to delete, as _hoodie_record_key shows it; may be repeated"
    delete.add_argument("--key", action="append", metavar="KEY", help=text)
    text = "a text file with one record key on each line, or - for standard input"
    delete.add_argument("--keys", metavar="FILE", help=text)
    text = "delete the rows that match this condition; with keys, only rows that match both"
    delete.add_argument("--where", metavar="CONDITION", help=text)
    text = (
        "remove the records from every file: delete, compact all logs, clean all older file "
        "slices, and build the metadata table again; then search every file for the keys"
    )
    delete.add_argument("--erase", action="store_true", help=text)
    text = (
        "with --erase: the dead-letter table from which the records are erased, too (default: "
        "that of --config, or TABLE_dead_letters if there is one)"
    )
    delete.add_argument("--dead-letters", metavar="TABLE", help=text)
    text = (
        "number of buckets in each partition, if a table of Apache Hudi with a bucket index "
        "does not record it"
    )
    delete.add_argument("--buckets", type=positive, metavar="N", help=text)
    add_steps(delete, "delete or erase the rows")
    _add_runner(delete)
    add_merger(delete)


def _add_delete_partitions(delete: argparse.ArgumentParser) -> None:
    delete.add_argument(
        "patterns",
        nargs="+",
        metavar="PATTERN",
        help="the path of a partition, in which each * stands for any text, or regex: and a "
        "regular expression; quote it in a shell",
    )
    _add_deletion(delete)


def _add_expire_partitions(expire: argparse.ArgumentParser) -> None:
    text = "the lifetime of a partition, such as 30d, 12h, 45m or 90s"
    expire.add_argument("--older-than", type=duration, required=True, metavar="TIME", help=text)
    expire.add_argument(
        "--by",
        choices=("commit", "creation"),
        default="commit",
        help="when the lifetime begins: at the last commit that wrote to the partition (the "
        "default), or at the commit that created it",
    )
    _add_deletion(expire)


def _add_deletion(command: argparse.ArgumentParser) -> None:
    add_steps(command, "roll back the commits of dead writers, then delete the partitions")
    _add_runner(command, "what reads the keys of deleted rows, if the table has a record index")
    add_merger(command)


def _add_remove_orphans(remove: argparse.ArgumentParser) -> None:
    add_steps(remove, "delete the orphans")
    _add_runner(remove, _DELETING)
    text = "delete only files that were written longer ago (default: 3d; at least 1d)"
    default = timedelta(days=3)
    remove.add_argument("--older-than", type=duration, default=default, metavar="TIME", help=text)
    text = "print one row for each file instead of totals"
    remove.add_argument("--files", action="store_true", help=text)


def _add_rollback(rollback: argparse.ArgumentParser) -> None:
    rollback.add_argument(
        "instant",
        metavar="INSTANT",
        help="the requested time of the instant, as lakemark table timeline shows it",
    )
    add_steps(rollback, "roll the instant back")
    _add_runner(rollback, _DELETING)


def _add_savepoint(savepoint: argparse.ArgumentParser) -> None:
    what = savepoint.add_mutually_exclusive_group()
    what.add_argument("--create", metavar="INSTANT", help="protect this commit from cleaning")
    what.add_argument("--delete", metavar="INSTANT", help="let cleaning delete the files again")
    text = "let cleaning delete the files of all savepoints that were created longer ago, as 30d"
    what.add_argument("--delete-older-than", type=duration, metavar="TIME", help=text)
    add_steps(savepoint, "create or delete the savepoint")
    text = "has no effect, because a savepoint is one file, which this process writes"
    savepoint.add_argument("--runner", choices=_RUNNERS, default="local", help=text)
    savepoint.add_argument("--user", default="", help="user name to record in the savepoint")
    savepoint.add_argument("--comment", default="", help="comment to record in the savepoint")


def _add_index(index: argparse.ArgumentParser, debug: argparse.ArgumentParser) -> None:
    index.description = f"{_INDEX[0].upper()}{_INDEX[1:]}."
    commands = index.add_subparsers(dest="change", metavar="SUBCOMMAND", required=True)
    text = "create an index while other writers of lakemark commit"
    create = _index_command(commands, debug, "create", text)
    add_sharing(create)
    text = (
        "record_index, bloom_filters, column_stats, partition_stats, or with --column or "
        "--expression any name"
    )
    create.add_argument("name", metavar="INDEX", help=text)
    text = "the column of a secondary index, which contains texts or integers"
    what = create.add_mutually_exclusive_group()
    what.add_argument("--column", metavar="COLUMN", help=text)
    text = "the expression of an expression index, such as lower(name)"
    what.add_argument("--expression", metavar="EXPRESSION", help=text)
    text = "the keys of the record index are unique only within a partition of the table"
    what.add_argument("--partitioned", action="store_true", help=text)
    text = "what an expression index has for each file (default: column_stats)"
    kinds = ("column_stats", "bloom_filters")
    create.add_argument("--kind", choices=kinds, default=kinds[0], help=text)
    add_steps(create, "create the index")
    add_merger(create)
    text = "drop an index, or what a dead process has built of it"
    drop = _index_command(commands, debug, "drop", text)
    add_sharing(drop)
    drop.add_argument(
        "name", metavar="INDEX", help="the index, as lakemark table index list shows it"
    )
    add_steps(drop, "drop the index")
    _add_statistics(_index_command(commands, debug, "statistics", _STATISTICS))
    _index_command(commands, debug, "list", "list the indexes of a table")


def _add_statistics(statistics: argparse.ArgumentParser) -> None:
    add_sharing(statistics)
    chosen = statistics.add_mutually_exclusive_group(required=True)
    text = "a column with statistics; may be repeated"
    chosen.add_argument("--column", action="append", dest="columns", metavar="COLUMN", help=text)
    text = "choose the first 32 columns that can have statistics"
    chosen.add_argument("--default", action="store_true", help=text)
    add_steps(statistics, "choose the columns, and build the metadata table again")
    add_merger(statistics)


def _index_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    debug: argparse.ArgumentParser,
    name: str,
    text: str,
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, parents=[debug], help=text)
    command.description = f"{text[0].upper()}{text[1:]}."
    command.set_defaults(module="table_index")
    add_location(command)
    command.add_argument("--json", action="store_true", help=JSON_HELP)
    return command


def _add_restore(restore: argparse.ArgumentParser) -> None:
    text = "the savepoint or commit to restore; without --to, the pending restore is finished"
    target = restore.add_mutually_exclusive_group()
    target.add_argument("--to", metavar="INSTANT", help=text)
    text = "undo all commits, also archived ones, so that the table is empty"
    target.add_argument("--to-empty", action="store_true", help=text)
    add_steps(restore, "undo the writes, and rebuild the metadata table")
    _add_runner(restore, _DELETING)


def _add_version(command: argparse.ArgumentParser, versions: Sequence[int]) -> None:
    text = "the new table version"
    command.add_argument("--to", type=int, choices=versions, required=True, help=text)
    add_steps(command, "roll back pending commits, execute compactions, then change the version")
    _add_runner(command)
    add_merger(command)


def _add_check(check: argparse.ArgumentParser) -> None:
    text = "with --run: build a new metadata table before the check"
    check.add_argument("--rebuild", action="store_true", help=text)
    add_steps(check, "with --rebuild: build a new metadata table")
    text = "do not count record keys in several partitions, because this reads all record keys"
    check.add_argument("--skip-keys", action="store_true", help=text)
    add_merger(check)


def _add_sync(sync: argparse.ArgumentParser) -> None:
    text = "the file of a pipeline that writes the table; its catalogs are used"
    sync.add_argument("--config", metavar="PIPELINE", help=text)
    text = "the kind of the catalog, such as hive; with --config: only catalogs of this kind"
    sync.add_argument("--to", metavar="KIND", help=text)
    text = "the database of the catalog (default: default)"
    sync.add_argument("--database", metavar="NAME", help=text)
    text = "the name of the table in the catalog (default: the name that the table stores)"
    sync.add_argument("--name", metavar="NAME", help=text)
    text = "the URL of the table, as the engines that read the catalog understand it"
    sync.add_argument("--location", metavar="URL", help=text)
    text = (
        "the names of a merge-on-read table: with _ro and _rt (all, the default), or one name for "
        "the current rows or the rows of base files"
    )
    kinds = ("all", "current", "read_optimized")
    sync.add_argument("--merge-on-read", choices=kinds, help=text)
    text = "an option of the catalog, such as uris=thrift://metastore:9083; may be repeated"
    sync.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help=text)
    add_steps(sync, "change the catalogs; the table is only read")


def add_steps(command: argparse.ArgumentParser, run_help: str, can_schedule: bool = False) -> None:
    """Add the options that choose whether the plan is printed, written or executed.

    Args:
        command: the parser of the command.
        run_help: what ``--run`` does.
        can_schedule: whether the plan can be written to the timeline.
    """
    steps = command.add_mutually_exclusive_group()
    text = "print the plan and change nothing (the default)"
    steps.add_argument("--plan", dest="step", action="store_const", const="plan", help=text)
    if can_schedule:
        text = "write the plan to the timeline; the next --run or the next writer executes it"
        steps.add_argument(
            "--schedule", dest="step", action="store_const", const="schedule", help=text
        )
    steps.add_argument("--run", dest="step", action="store_const", const="run", help=run_help)
    command.set_defaults(step="plan")


def _add_runner(command: argparse.ArgumentParser, what: str = "what does the work") -> None:
    text = f"{what}: threads of this process (local, the default), or a Spark session (spark)"
    command.add_argument("--runner", choices=_RUNNERS, default="local", help=text)


def positive(text: str) -> int:
    """Parse a whole number that is 1 or more; an ``argparse`` type."""
    return _number(text, 1)


def natural(text: str) -> int:
    """Parse a whole number that is 0 or more; an ``argparse`` type."""
    return _number(text, 0)


def duration(text: str) -> timedelta:
    """Parse a duration with its unit, such as ``30d``; an ``argparse`` type."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def local_path(text: str) -> Path:
    """Parse a path on the local disk; an ``argparse`` type."""
    from lakemark.storage import canonical_url

    try:
        is_local = canonical_url(text).startswith("file://") and not text.startswith("file:")
    except HudiError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not is_local:
        message = f"expected a path on the local disk, not the URL {text!r}"
        raise argparse.ArgumentTypeError(message)
    return Path(text)


def _number(text: str, at_least: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < at_least:
        message = f"expected a whole number, {at_least} or more, not {text!r}"
        raise argparse.ArgumentTypeError(message)
    return int(text)
