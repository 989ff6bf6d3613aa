"""``lakemark table rejects``: counts the records of a dead-letter table by reason."""

from __future__ import annotations

import argparse
import re

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from lakemark.errors import InvalidConfig
from lakemark.operations.open_table import OpenTable
from streamer.commands.location import open_named_table
from streamer.commands.table import Facts, show_rows

#: The values and numbers in a reason. They are masked, so that similar reasons count as one. Names
#: of columns and fields are kept, and words that contain digits, such as ISO-8601.
_VALUE = re.compile(r"(?P<name>(?:column|field) '[^']*')|'[^']*'|(?<![\w-])\d[\d.,:-]*")


def execute(arguments: argparse.Namespace) -> int:
    """Print one row for each reason, the most frequent first.

    Raises:
        InvalidConfig: the table is not a dead-letter table.
        HudiError: the table cannot be read.
    """
    table = open_named_table(arguments.table, arguments.storage)
    show_rows(reject_rows(table), Console(), arguments.json, "no rejected records")
    return 0


def reject_rows(table: OpenTable) -> list[Facts]:
    """Count the rejected records by reason; each row also has the origin of one record.

    Raises:
        InvalidConfig: the table is not a dead-letter table.
    """
    if table.schema is None:
        return []
    if not {"topic", "partition", "offset", "reason"} <= set(table.schema.names):
        message = (
            f"table {table.location.url} is not a dead-letter table; name the dead-letter table "
            "of a pipeline (by default, the path of its table followed by _dead_letters)"
        )
        raise InvalidConfig(message)
    rejects = table.scan(columns=["topic", "partition", "offset", "reason"]).to_reader().read_all()
    reasons = rejects.column("reason").combine_chunks().dictionary_encode()
    masked = [mask_values(reason) for reason in reasons.dictionary.to_pylist()]
    general = pa.array(masked, pa.string()).take(reasons.indices)
    origin = pc.binary_join_element_wise(
        rejects.column("topic"),
        pc.cast(rejects.column("partition"), pa.string()),
        pc.cast(rejects.column("offset"), pa.string()),
        ":",
    )
    grouped = pa.table({"reason": general, "origin": origin}).group_by("reason")
    counted = grouped.aggregate([("origin", "count"), ("origin", "min")])
    ordered = counted.sort_by([("origin_count", "descending"), ("reason", "ascending")])
    return [
        {"records": row["origin_count"], "reason": row["reason"], "such as": row["origin_min"]}
        for row in ordered.to_pylist()
    ]


def mask_values(reason: str) -> str:
    """Return a reason without the values and numbers of one record."""
    return _VALUE.sub(lambda found: found["name"] or "…", reason)
