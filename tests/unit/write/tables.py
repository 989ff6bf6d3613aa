"""Small tables for the tests of writers."""

from __future__ import annotations

from uuid import uuid4

import pyarrow as pa
from hypothesis import strategies as st

from lakemark.model.meta_columns import with_meta_columns
from lakemark.schema.avro import to_avro
from lakemark.storage import Storage, StorageLocation, open_storage

SCHEMA = with_meta_columns(
    pa.schema(
        [
            pa.field("ts", pa.int64()),
            pa.field("note", pa.string()),
            pa.field("tags", pa.list_(pa.field("element", pa.string()))),
            pa.field("attrs", pa.map_(pa.string(), pa.binary())),
            pa.field("pos", pa.struct([pa.field("lat", pa.float64()), pa.field("at", pa.int64())])),
        ]
    )
)
AVRO_SCHEMA = to_avro(SCHEMA, "trips")
INSTANT = "20260101000000000"
FILE_ID = "00000000-1cd2-4bad-9f65-85c035589ca9-0"


def memory() -> Storage:
    """Create an empty storage."""
    return open_storage(StorageLocation(f"memory://{uuid4()}"))


def rows_of(records: list[dict[str, object]]) -> pa.Table:
    """Create rows with ``SCHEMA``."""
    return pa.Table.from_pylist(records, SCHEMA)


def records(min_size: int = 0) -> st.SearchStrategy[list[dict[str, object]]]:
    """Draw records with distinct keys."""
    text = st.text(max_size=9)
    record: st.SearchStrategy[dict[str, object]] = st.fixed_dictionaries(
        {
            "_hoodie_record_key": st.text(st.characters(codec="utf-8"), min_size=1, max_size=5),
            "_hoodie_partition_path": st.sampled_from(["", "r0"]),
            "ts": st.none() | st.integers(1, 9),
            "note": st.none() | text,
            "tags": st.none() | st.lists(st.none() | text, max_size=3),
            "attrs": st.none() | st.lists(st.tuples(text, st.binary(max_size=9)), max_size=2),
            "pos": st.none() | st.fixed_dictionaries({"lat": st.none(), "at": st.integers(1, 9)}),
        }
    )
    return st.lists(
        record, min_size=min_size, max_size=12, unique_by=lambda r: r["_hoodie_record_key"]
    )
