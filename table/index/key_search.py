"""Which of some record keys have a live row in a file slice.

What rules keys out, cheapest first: the key range in the base file's footer, its Bloom filter, and
the keys in the logs. Rows are read only for keys that are left, and of them the record key alone
(with the columns that a merge needs if the slice has logs).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from table.codec.bloom import (
    BLOOM_FILTER,
    MAX_RECORD_KEY,
    MIN_RECORD_KEY,
    SIMPLE,
    TYPE_CODE,
    BloomFilter,
)
from table.model.file_slice import BaseFile, FileSlice
from table.model.meta_columns import RECORD_KEY
from table.read.base_file import read_footer
from table.read.file_group_reader import FileGroupReader
from table.storage.storage import Storage


def live_keys(reader: FileGroupReader, file_slice: FileSlice, record_keys: pa.Array) -> pa.Array:
    """Those of the keys that have a live row in the slice, each once.

    Args:
        reader: of the table, whose rows carry their keys.
        file_slice: where to look.
        record_keys: distinct strings, none of them null or empty.

    Raises:
        SnapshotChanged: a file of the slice is gone.
        CorruptData, Unsupported: a file cannot be read.
    """
    wanted = _may_hold(reader, file_slice, record_keys)
    if not len(wanted):
        return wanted
    condition = pc.field(RECORD_KEY).isin(wanted)
    found = [rows.column(RECORD_KEY) for rows in reader.read(file_slice, [RECORD_KEY], condition)]
    chunks = [chunk for column in found for chunk in column.chunks]
    return pc.unique(pa.chunked_array(chunks, pa.string()))


def _may_hold(reader: FileGroupReader, file_slice: FileSlice, keys: pa.Array) -> pa.Array:
    base = file_slice.base
    in_base = keys.slice(0, 0) if base is None else _may_be_in_base(reader.storage, base, keys)
    if not file_slice.logs or len(in_base) == len(keys):
        return in_base
    changed = [rows.column(RECORD_KEY) for rows in reader.changed_keys(file_slice)]
    logged = pa.chunked_array([c for column in changed for c in column.chunks], pa.string())
    either = pa.chunked_array([*logged.chunks, in_base], pa.string())
    return keys.filter(pc.is_in(keys, value_set=either.combine_chunks()))


def _may_be_in_base(storage: Storage, base: BaseFile, keys: pa.Array) -> pa.Array:
    if base.name.extension != "parquet":
        return keys
    stored = read_footer(storage, base).metadata or {}
    footer = {name.decode(): value.decode() for name, value in stored.items()}
    keys = _in_range(keys, footer.get(MIN_RECORD_KEY), footer.get(MAX_RECORD_KEY))
    if BLOOM_FILTER not in footer or not len(keys):
        return keys
    type_code = footer.get(TYPE_CODE, SIMPLE)
    bloom = BloomFilter.parse(footer[BLOOM_FILTER], type_code, base.path)
    return keys.filter(pa.array(bloom.might_contain(keys)))


def _in_range(keys: pa.Array, low: str | None, high: str | None) -> pa.Array:
    """Keys within bounds that are in Java's order, which is the order of bytes for ASCII alone."""
    if low is None or high is None or not (low.isascii() and high.isascii()):
        return keys
    is_within = pc.and_(pc.greater_equal(keys, low), pc.less_equal(keys, high))
    return keys.filter(pc.or_(is_within, pc.invert(pc.string_is_ascii(keys))))
