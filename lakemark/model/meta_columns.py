"""The five meta columns, which precede the user's columns (specification, "Meta fields")."""

from __future__ import annotations

import pyarrow as pa

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"

META_COLUMNS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)

#: Prefix of the names of Hudi's columns. It is compared without case, as in Spark.
RESERVED_PREFIX = "_hoodie_"

#: A boolean column that users may add. If it is true, the row deletes its record.
IS_DELETED = "_hoodie_is_deleted"

#: A string column that users may add. It contains the kind of change, such as ``D`` for a delete.
OPERATION = "_hoodie_operation"

#: The values of ``OPERATION`` that delete the record: a delete, and the row before an update.
DELETE_OPERATIONS = ("D", "-U")


def is_reserved(name: str) -> bool:
    """Return whether Hudi reserves this column name for its present or future columns."""
    return name.lower().startswith(RESERVED_PREFIX)


def with_meta_columns(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the five meta columns first, whether it already has them or not."""
    user = without_meta_columns(schema)
    meta = [pa.field(name, pa.string(), nullable=True) for name in META_COLUMNS]
    return pa.schema([*meta, *user], metadata=schema.metadata)


def without_meta_columns(schema: pa.Schema) -> pa.Schema:
    """Return the schema without meta columns."""
    own = [field for field in schema if field.name not in META_COLUMNS]
    return pa.schema(own, metadata=schema.metadata)
