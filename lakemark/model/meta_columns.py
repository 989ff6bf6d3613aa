"""The five columns that Hudi adds before the user's columns (specification, "Meta fields")."""

from __future__ import annotations

import pyarrow as pa

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"

META_COLUMNS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)

#: Prefix of the names of Hudi's columns; Spark ignores upper and lower case.
RESERVED_PREFIX = "_hoodie_"

#: A boolean column of the user: true marks the record as deleted.
IS_DELETED = "_hoodie_is_deleted"

#: A text column of the user: the kind of the change, such as ``D`` for a delete.
OPERATION = "_hoodie_operation"

#: The values of ``OPERATION`` that delete: a delete, and the row before an update.
DELETE_OPERATIONS = ("D", "-U")


def is_reserved(name: str) -> bool:
    """Whether a column of this name has a meaning for Hudi, now or maybe in a later release."""
    return name.lower().startswith(RESERVED_PREFIX)


def with_meta_columns(schema: pa.Schema) -> pa.Schema:
    """Return the user's schema with the five meta columns in front; it may already contain them."""
    user = without_meta_columns(schema)
    meta = [pa.field(name, pa.string(), nullable=True) for name in META_COLUMNS]
    return pa.schema([*meta, *user], metadata=schema.metadata)


def without_meta_columns(schema: pa.Schema) -> pa.Schema:
    """Return the user's schema without meta columns."""
    own = [field for field in schema if field.name not in META_COLUMNS]
    return pa.schema(own, metadata=schema.metadata)
