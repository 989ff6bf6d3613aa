"""Checks the settings of a pipeline with ``concurrency.mode: non_blocking``.

``lakemark.operations.non_blocking`` gives the reasons, and checks the properties of the table.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakemark.config.merge_settings import has_rules
from lakemark.config.table_properties import MergeMode
from lakemark.model.format_version import FormatVersion
from streamer.config.concurrency import ConcurrencyConfig
from streamer.config.errors import Problem
from streamer.config.partition_lifetime import PartitionLifetimeConfig
from streamer.config.table import TableConfig

_MODE = "concurrency.mode: non_blocking"


def non_blocking_problems(
    concurrency: ConcurrencyConfig, table: TableConfig, lifetime: PartitionLifetimeConfig
) -> Iterator[Problem]:
    """Yield a problem for each setting that contradicts ``concurrency.mode: non_blocking``.

    Args:
        concurrency: decides whether the pipeline is non-blocking.
        table: the settings of the table.
        lifetime: when partitions expire.
    """
    if concurrency.mode != "non_blocking":
        return
    yield from _table_problems(table)
    yield from _merge_problems(table)
    if lifetime.days is not None:
        text = (
            f"cannot be combined with {_MODE}; remove one of them, or delete expired partitions "
            "with lakemark table expire-partitions"
        )
        yield Problem("partition_lifetime.days", text)


def _table_problems(table: TableConfig) -> Iterator[Problem]:
    if table.type == "copy_on_write":
        yield _contradiction("type", table.type, "its commits rewrite base files")
    if table.version == 6:
        yield _contradiction("version", table.version, "it needs version 8 or later")
    if table.inserts:
        yield _contradiction("operation", table.operation, "it needs upsert")
    if table.moves_rows:
        yield _contradiction("partition_change", table.partition_change, "it needs buckets")
    if table.index not in (None, "bucket"):
        yield _contradiction("index", table.index, "it needs a fixed number of buckets")
    if table.cdc != "none":
        yield _contradiction("cdc", table.cdc, "change data depends on the stored rows")


def _merge_problems(table: TableConfig) -> Iterator[Problem]:
    request = table.merge_request()
    if [*request.find_problems()]:
        return  # these problems are reported, and the merge settings are not known
    settings = request.resolve()
    if settings.mode is MergeMode.COMMIT_TIME and table.ordering:
        yield _contradiction("merge_mode", "commit_time", "its commits have no certain order")
    elif settings.mode is MergeMode.COMMIT_TIME:
        text = (
            f"is needed with {_MODE}, because its commits have no certain order; name the columns"
        )
        yield Problem("table.ordering", text)
    if settings.mode is MergeMode.CUSTOM:
        reason = "your merger may depend on the order of the commits"
        yield _contradiction("merge_mode", "custom", reason)
    if settings.partial_update is not None or table.partial_update == "absent_fields":
        reason = "the values of the losing version depend on the order of the commits"
        yield _contradiction("partial_update", table.partial_update, reason)
    elif FormatVersion(table.version) is not FormatVersion.V9 and has_rules(request.payload_class):
        reason = "its deletes win over all rows that were committed before them"
        yield _contradiction("payload", table.payload, reason)


def _contradiction(setting: str, value: object, reason: str) -> Problem:
    text = f"{value} cannot be combined with {_MODE}, because {reason}; change one of them"
    return Problem(f"table.{setting}", text)
