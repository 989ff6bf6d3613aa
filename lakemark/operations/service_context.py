"""Builds the context that workers need to execute the plan of a table service.

The rows that a table service writes depend only on its plan and on the commits before the plan. It
does not matter which writer executes the plan, or when. So columns that are added to the table
meanwhile are not written.
"""

from __future__ import annotations

from functools import reduce

import pyarrow as pa

from lakemark.config import keys
from lakemark.errors import Refused
from lakemark.model.action import COMMITS
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import with_meta_columns, without_meta_columns
from lakemark.operations.open_table import OpenTable
from lakemark.operations.write_context import avro_schema_text, write_context
from lakemark.schema import avro
from lakemark.schema.evolution import unite_schemas
from lakemark.write.write_context import WriteContext


def service_context(table: OpenTable, requested_at: str, merger_class: str | None) -> WriteContext:
    """Return the context that workers need to execute a plan, without the name of the attempt.

    Args:
        table: the open table.
        requested_at: the requested time of the table service.
        merger_class: the class of the user's merger, for a table in merge mode ``CUSTOM``.

    Raises:
        Refused: no commit contains the table's columns.
    """
    schema = _columns_as_of(table, requested_at)
    text = avro_schema_text(table, with_meta_columns(schema))
    return write_context(table, requested_at, schema, text, merger_class=merger_class)


def _columns_as_of(table: OpenTable, requested_at: str) -> pa.Schema:
    """Return all columns that the table had when a table service was planned.

    The columns of the newest commit come first, then columns that only older commits contain. The
    writer of the newest commit may not have known these columns, but the files contain them.

    Raises:
        Refused: no commit contains the table's columns.
    """
    completed = table.timeline.completed(*COMMITS)[::-1]
    before = [i for i in completed if _was_known(i, requested_at, table.version)]
    known = before or completed  # the commits before the plan may have been archived
    texts = (table.store.read_commit(i).extra_metadata.get(keys.SCHEMA) for i in known)
    schemas = [without_meta_columns(avro.to_arrow(t)) for t in dict.fromkeys(texts) if t]
    if not schemas:
        message = (
            f"{requested_at} of {table.location.url} cannot be executed: no commit on "
            "the active timeline contains the table's columns; write to the table, then try again"
        )
        raise Refused(message)
    return reduce(lambda newer, older: unite_schemas(newer, older, table.location.url), schemas)


def _was_known(commit: Instant, requested_at: str, version: FormatVersion) -> bool:
    """Return whether a commit had completed when a table service was planned.

    In table version 6, the requested time is compared, because this version does not record when a
    commit completed.
    """
    when = commit.requested_at if version.logs_name_their_slice else commit.completed_at
    return (when or "") < requested_at
