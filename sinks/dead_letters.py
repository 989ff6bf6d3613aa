"""The dead-letter table: it contains each rejected record, its origin, and the reason.

This is an ordinary Hudi table. Its record key is topic, partition and offset. So a batch that is
written again after a crash does not add a record twice.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakemark.config.table_properties import MergeMode
from lakemark.config.table_spec import TableSpec
from lakemark.index.bucket import BucketIndex
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.changes import CHANGE_KIND_FIELD, ChangeKind
from lakemark.model.meta_columns import META_COLUMNS, PARTITION_PATH, RECORD_KEY, with_meta_columns
from transforms.rejects import REJECTS_SCHEMA, Rejects

KEY_FIELDS = ("topic", "partition", "offset")

#: One file group, because rejects are few and readers usually read all of them.
INDEX = BucketIndex(1, KEY_FIELDS)

_KEYS = KeyGenerator(KeyGeneratorConfig(KEY_FIELDS))


def dead_letter_spec(name: str) -> TableSpec:
    """Return the specification of a pipeline's dead-letter table."""
    return TableSpec(name=name, record_key=KEY_FIELDS, merge_mode=MergeMode.COMMIT_TIME)


def to_changes(rejects: Rejects) -> pa.Table:
    """Return rejects as upserts of the dead-letter table, in the layout of ``model.changes``."""
    rows = rejects.rows
    keys = {RECORD_KEY: _KEYS.record_keys(rows), PARTITION_PATH: _KEYS.partition_paths(rows)}
    schema = with_meta_columns(REJECTS_SCHEMA).append(CHANGE_KIND_FIELD)
    kinds = pa.array(np.full(rows.num_rows, ChangeKind.UPSERT, np.int8))
    columns = {**{name: rows.column(name) for name in rows.column_names}, **keys}
    columns[CHANGE_KIND_FIELD.name] = kinds
    nulls = pa.nulls(rows.num_rows, pa.string())
    return pa.table([columns.get(field.name, nulls) for field in schema], schema=schema)


def first_reject(changes: pa.Table) -> str | None:
    """Return origin and reason of the first dead letter; None if no change is a dead letter."""
    if changes.schema.names[len(META_COLUMNS) : -1] != REJECTS_SCHEMA.names or not changes.num_rows:
        return None
    first = changes.slice(0, 1).to_pylist()[0]
    return f"{first['topic']} {first['partition']}:{first['offset']}: {first['reason']}"
