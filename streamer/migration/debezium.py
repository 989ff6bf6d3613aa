"""Translates the Debezium sources, which make rows of the change events of a database.

Source: ``PostgresDebeziumSource``, ``MysqlDebeziumSource`` and ``DebeziumConstants`` of Apache Hudi
1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from streamer.migration.job import SOURCE_CLASS, Job
from streamer.migration.outcome import Missing
from transforms.decode.envelopes.debezium import AFTER
from transforms.decode.envelopes.debezium_positions import POSITION, Database
from transforms.decode.envelopes.event_fields import column_name

#: A step of ``transform``, as the pipeline file writes it.
Step = dict[str, object]

#: For each column of the rows: the field of the event that it contains.
_COMMON = {
    "_change_operation_type": "op",
    "_upstream_event_processed_ts_ms": "ts_ms",
    "db_shard_source_partition": "source.name",
    "_event_origin_ts_ms": "source.ts_ms",
}
_POSTGRES = {
    "db_schema_source_partition": "source.schema",
    "_event_tx_id": "source.txId",
    "_event_lsn": "source.lsn",
    "_event_xmin": "source.xmin",
}
_MYSQL = {
    "_event_bin_file": "source.file",
    "_event_pos": "source.pos",
    "_event_row": "source.row",
}
#: The number of the binlog file, a point, and the position in it.
_MYSQL_SEQUENCE = (
    "select *, regexp_extract(_event_bin_file, '[^.]*$') || '.' || cast(_event_pos as varchar) "
    "as _event_seq from records"
)

#: The type with which a converter of Debezium marks texts that the sources convert to dates.
_DATE_TEXT = "custom.debezium.DateString"


def debezium_database(job: Job) -> Database:
    """Return the database of a Debezium source."""
    return "mysql" if "mysql" in job.get(SOURCE_CLASS).lower() else "postgres"


def debezium_fields(job: Job) -> list[str]:
    """Return the fields of the events that become columns."""
    return list(_columns(job).values())


def debezium_steps(job: Job) -> list[Step]:
    """Return the steps that give the rows of a Debezium source their columns."""
    names = {column_name(field): new for new, field in _columns(job).items()}
    steps: list[Step] = [
        {"step": "drop", "columns": [POSITION]},
        {"step": "rename", "columns": names},
    ]
    if debezium_database(job) == "mysql":
        steps.append({"step": "sql", "query": _MYSQL_SEQUENCE})
    return steps


def debezium_losses(job: Job, event: pa.Schema, text: str) -> Iterator[Missing]:
    """Yield the conversions of a Debezium source that the pipeline does not make.

    Args:
        job: the job.
        event: the columns of the events' schema.
        text: the schema.
    """
    after = event.field(AFTER).type if AFTER in event.names else pa.struct([])
    arrays = [field.name for field in after if pa.types.is_list(field.type)]
    if arrays:
        remedy = f"HoodieStreamer stores the arrays {', '.join(arrays)} as texts; add a step python"
        yield Missing(job.named(SOURCE_CLASS), remedy, True)
    if _DATE_TEXT in text:
        remedy = f"HoodieStreamer stores columns of {_DATE_TEXT} as dates; add a step cast"
        yield Missing(job.named(SOURCE_CLASS), remedy, True)


def _columns(job: Job) -> Mapping[str, str]:
    return {**_COMMON, **(_MYSQL if debezium_database(job) == "mysql" else _POSTGRES)}
