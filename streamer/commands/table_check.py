"""``lakemark table check``: compares the metadata table with storage, and counts repeated keys."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from rich.console import Console

from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.index.repeated_keys import RepeatedKeys
from lakemark.metadata.difference import Difference
from lakemark.operations.metadata_table import metadata_differences, rebuild_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.operations.stored_rows import repeated_keys
from streamer.commands.service_table import open_as_writer
from streamer.commands.table import Facts, show_rows
from streamer.wording import counted

#: The exit code if the metadata table differs from storage.
DIFFERS = 1


def execute(arguments: argparse.Namespace) -> int:
    """Print the differences; with ``--rebuild --run``, first build a new metadata table.

    Record keys that exist in several partitions do not count as differences, because Hudi allows
    them.

    Raises:
        InvalidConfig: ``--run`` was given without ``--rebuild``.
        HudiError: the table cannot be read or written.
    """
    if arguments.step == "run" and not arguments.rebuild:
        message = "table check changes nothing without --rebuild; remove --run or add --rebuild"
        raise InvalidConfig(message)
    table = open_as_writer(arguments, arguments.merger)
    if arguments.rebuild and arguments.step == "run":
        bare = table.properties.without_metadata_table()
        check_allows(bare, Purpose.MAINTAIN, table.location.url)
        rebuild_metadata_table(table)
    found = metadata_differences(table)
    if found:
        show_rows([_row(one) for one in found], Console(), arguments.json)
    if not arguments.json:
        print(_summary(table, found))
    if not arguments.skip_keys:
        _show_keys(table, arguments.json)
    if arguments.rebuild and arguments.step == "plan":
        text = "nothing was changed; add --run to replace the metadata table with a new one"
        print(text, file=sys.stderr)
    return DIFFERS if found else 0


def _row(difference: Difference) -> Facts:
    return asdict(difference)


def _summary(table: OpenTable, found: list[Difference]) -> str:
    partitions = ", ".join(table.properties.metadata_partitions)
    if not partitions:
        return "the table has no metadata table; readers list storage"
    if found:
        text = f"{counted(len(found), 'difference')} in {partitions}"
        return f"{text}; --rebuild --run builds a new metadata table"
    return f"{partitions} agree with the files"


def _show_keys(table: OpenTable, as_json: bool) -> None:
    try:
        repeated = repeated_keys(table)
    except (InvalidConfig, Unsupported) as reason:
        if not as_json:
            print(f"record keys are not compared across partitions: {reason}")
        return
    if not as_json:
        print(_sentence(repeated))
    elif repeated.keys:
        examples = [
            {"key": one.record_key, "partitions": one.partitions} for one in repeated.examples
        ]
        what = "record keys in several partitions"
        show_rows([{"what": what, **asdict(repeated), "examples": examples}], Console(), True)


def _sentence(repeated: RepeatedKeys) -> str:
    rule = "record keys are unique within a partition"
    if not repeated.keys:
        return f"{rule}; no record key of this table exists in more than one partition"
    keys, first = repeated.keys, repeated.examples[0]
    exist = "record key exists" if keys == 1 else "record keys exist"
    return (
        f"{rule}; {keys} {exist} in more than one partition, with {repeated.rows} rows, such as "
        f"{first.record_key!r} in {', '.join(map(repr, first.partitions))}"
    )
