"""The five columns that Hudi puts before a record's own (specification, "Meta fields")."""

from __future__ import annotations

import pyarrow as pa

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"

META_COLUMNS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)

#: Columns whose names begin so are Hudi's; Spark does not look at the case.
RESERVED_PREFIX = "_hoodie_"

#: A boolean column of the user's own: true marks the record's key as deleted.
IS_DELETED = "_hoodie_is_deleted"


def is_reserved(name: str) -> bool:
    """Whether a column of this name means something to Hudi, or may in a later release."""
    return name.lower().startswith(RESERVED_PREFIX)


def with_meta_columns(schema: pa.Schema) -> pa.Schema:
    """The user's schema with the five nullable string columns in front, present or not before."""
    user = without_meta_columns(schema)
    meta = [pa.field(name, pa.string(), nullable=True) for name in META_COLUMNS]
    return pa.schema([*meta, *user], metadata=schema.metadata)


def without_meta_columns(schema: pa.Schema) -> pa.Schema:
    """The user's own columns."""
    own = [field for field in schema if field.name not in META_COLUMNS]
    return pa.schema(own, metadata=schema.metadata)
