"""Reads the changes that a writer logged in ``.cdc`` files.

A ``.cdc`` file is a log file with CDC_DATA blocks. A record contains ``op`` and the fields of the
logging mode (``HoodieCDCUtils`` of Apache Hudi 1.2.0)::

    OP_KEY_ONLY        record_key
    DATA_BEFORE        record_key, before
    DATA_BEFORE_AFTER  ts_ms, before, after
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakemark.config.table_properties import LoggingMode
from lakemark.log.data_block import read_rows
from lakemark.log.log_block import BlockType, HeaderKey, LogBlock
from lakemark.log.log_reader import read_blocks
from lakemark.model.file_slice import LogFile
from lakemark.read.base_file import open_data_file
from lakemark.storage.storage import Storage

_COLUMNS = {
    LoggingMode.OP_KEY_ONLY: ["op", "record_key"],
    LoggingMode.DATA_BEFORE: ["op", "record_key", "before"],
    LoggingMode.DATA_BEFORE_AFTER: ["op", "before", "after"],
}


def read_logged_changes(
    storage: Storage, logs: Iterable[LogFile], mode: LoggingMode, *, keeps_types: bool = False
) -> pa.Table:
    """Return the changes in stored order.

    Args:
        storage: storage at the table's root.
        logs: ``.cdc`` files of one commit in one file group.
        mode: the table's logging mode.
        keeps_types: whether values have their logical types. Otherwise they are returned as Avro
            stores them: for example, a decimal as bytes, and a time as a number.

    Raises:
        SnapshotChanged: a file no longer exists.
        CorruptData: bytes violate the format, or do not fit the logging mode.
    """
    names = _COLUMNS[mode]
    tables = [rows for log in logs for rows in _read_file(storage, log, names, keeps_types)]
    return pa.concat_tables(tables) if tables else pa.table({name: [] for name in names})


def _read_file(
    storage: Storage, log: LogFile, columns: list[str], keeps_types: bool
) -> Iterator[pa.Table]:
    with open_data_file(storage, log.path) as stream:
        for block in read_blocks(stream, log.size_bytes, log.path):
            if block.type is BlockType.CDC_DATA:
                rows = read_rows(block if keeps_types else _with_plain_types(block))
                if not set(columns) <= set(rows.column_names):
                    raise block.corrupt(
                        expected=f"columns {columns}", actual=str(rows.column_names)
                    )
                yield rows.select(columns)


def _with_plain_types(block: LogBlock) -> LogBlock:
    schema = json.dumps(_plain(block.avro_schema))
    return replace(block, header={**block.header, HeaderKey.SCHEMA: schema})


def _plain(schema: Any) -> Any:
    """Return a part of an Avro schema, without logical types."""
    if isinstance(schema, dict):
        return {key: _plain(part) for key, part in schema.items() if key != "logicalType"}
    return [_plain(part) for part in schema] if isinstance(schema, list) else schema
