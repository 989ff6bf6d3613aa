"""``lakemark table validate``: whether a table's metadata table tells the truth."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from rich.console import Console

from streamer.commands.service_table import open_beside_writers
from streamer.commands.table import Facts, show_rows
from table.config.property_rules import Purpose, check_allows
from table.hudi_table import HudiTable
from table.metadata.validation import Difference

#: The exit code when something differs.
DIFFERS = 1


def execute(arguments: argparse.Namespace) -> int:
    """Print what differs; or make the metadata table anew.

    Raises:
        HudiError: the table cannot be read, or not be written.
    """
    table = open_beside_writers(arguments)
    if arguments.rebuild:
        bare = table.properties.without_metadata_table()
        check_allows(bare, Purpose.MAINTAIN, table.location.url)
        table.rebuild_metadata_table()
    found = table.metadata_differences()
    show_rows([_row(one) for one in found], Console(), arguments.json)
    if not arguments.json:
        print(_verdict(table, found))
    return DIFFERS if found else 0


def _row(difference: Difference) -> Facts:
    return asdict(difference)


def _verdict(table: HudiTable, found: list[Difference]) -> str:
    partitions = ", ".join(table.properties.metadata_partitions)
    if not partitions:
        return "the table has no metadata table; readers list storage"
    if found:
        return f"{len(found)} differences in {partitions}; --rebuild makes the metadata table anew"
    return f"{partitions} agree with the files"
