"""Checks stored rows against the key generator, the partitioner and the index of a writer.

If a writer computes another key, partition path or bucket for a row than the table has, it stores
the row a second time. The properties and commits of a table do not describe all of this. The
encoding of a single COMPLEX key, hash fields, the bucket count and the format of times in keys and
paths are settings of its writers. So a few rows of a few file groups are read, and any difference
is refused.

The sample is bounded: at most ``_GROUPS`` file groups, and of each at most ``_ROWS`` rows of the
base file and of the newest log. It has one group for each form of partition path (``2026-01-02``
and ``2026/01/02`` have two forms, all dates of one layout have the same). It has one group for each
highest bucket number of a partition. The other groups are spread evenly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.index.bucket import BucketIndex, bucket_of
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.file_slice import FileSlice
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.schema.field_path import top_column

#: File groups that are sampled.
_GROUPS = 8

#: Rows that are read from one file.
_ROWS = 1000

#: Length of the bucket number in a file id.
_BUCKET_DIGITS = 8

_OTHER_KEYS = (
    "lakemark does not write such keys (a setting of the table's writer such as "
    "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled produces them); "
    "write to another path, or with Apache Hudi"
)
_OTHER_PATHS = (
    "lakemark does not write such paths (slash-separated dates, values with a slash and times in a "
    "format of a writer's settings are among them); write to another path, or with Apache Hudi"
)
_OTHER_BUCKETS = (
    "set table.buckets to the count that the table was written with; if that is the count, the "
    "table has other hash fields (hoodie.bucket.index.hash.field), other counts in some partitions "
    "(hoodie.bucket.index.partition.expressions) or another index, which lakemark does not write"
)


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Some rows of a file group, with meta columns and the fields of key and partition."""

    file_slice: FileSlice
    rows: pa.Table


def sample_rows(
    reader: FileGroupReader,
    slices: Sequence[FileSlice],
    properties: TableProperties,
    table_url: str,
) -> list[StoredRows]:
    """Read rows of a few file groups.

    Args:
        reader: reader of the table; its rows have meta columns.
        slices: the latest slice of each file group.
        properties: the table's.
        table_url: the table's URL, for errors.

    Raises:
        Unsupported: the rows lack a field of the record key or the partition.
        HudiError: a file cannot be read.
    """
    fields = (*properties.record_key_fields, *properties.partition_fields)
    columns = tuple(dict.fromkeys(top_column(name, reader.schema) for name in fields))
    missing = [name for name in columns if name not in reader.schema.names]
    if missing:
        message = (
            f"rows of table {table_url} lack {', '.join(missing)}, from which their record key or "
            "partition path is computed, so lakemark cannot check it; write to another path"
        )
        raise Unsupported(message)
    names = tuple(dict.fromkeys((RECORD_KEY, PARTITION_PATH, *columns)))

    def read(file_slice: FileSlice) -> list[StoredRows]:
        found = reader.read_sample(file_slice, names, _ROWS)
        return [StoredRows(file_slice, rows) for rows in found if rows.num_rows]

    with ThreadPoolExecutor(_GROUPS) as pool:
        return list(chain.from_iterable(pool.map(read, _choose_slices(slices))))


def detect_key_generator(
    properties: TableProperties, sample: Iterable[StoredRows], table_url: str
) -> KeyGenerator:
    """Return the key generator of a table, with the key encoding of its rows.

    Without rows the encoding is the default of Apache Hudi 1.2.

    Raises:
        Unsupported: the key generator is not implemented.
        InvalidConfig: the fields do not fit the key generator; or rows have both encodings.
    """
    config = KeyGeneratorConfig.of(properties, table_url)
    if not config.has_lone_complex_key:
        return KeyGenerator(config)
    named, bare = KeyGenerator(config), KeyGenerator(replace(config, bare_lone_key=True))
    fitting = [each for each in (named, bare) if _find_other_key(each, sample) is None]
    if fitting or not any(_has_key_of(bare, stored) for stored in sample):
        return (*fitting, named)[0]
    field = config.record_key_fields[0]
    found = _find_other_key(bare, sample)
    message = (
        f"table {table_url} has record keys in two encodings of {field!r}: the value alone, and "
        f"{found!r}; Apache Hudi 1.1 and later write the second, and earlier releases wrote the "
        "first, so updated rows exist twice; rewrite the table with Apache Hudi "
        "(hoodie.write.complex.keygen.new.encoding), or write to another path"
    )
    raise InvalidConfig(message)


def check_rows(
    sample: Iterable[StoredRows], keys: KeyGenerator, index: BucketIndex, table_url: str
) -> None:
    """Check that every sampled row has the key, partition path and bucket of the pipeline.

    Args:
        sample: rows of the table.
        keys: creates keys and partition paths of the pipeline's rows.
        index: of the pipeline.
        table_url: the table's URL, for errors.

    Raises:
        InvalidConfig: a row differs; or another index created its file group.
    """
    for stored in sample:
        rows = stored.rows
        made = keys.record_keys(rows)
        _check_same(rows, RECORD_KEY, "record key", made, table_url, _OTHER_KEYS)
        made = keys.partition_paths(rows)
        _check_same(rows, PARTITION_PATH, "partition path", made, table_url, _OTHER_PATHS)
        _check_bucket(stored, index, table_url)


def fits_index(sample: Iterable[StoredRows], index: BucketIndex) -> bool:
    """Return whether every sampled row is in the bucket that the index computes."""
    return all(_find_misplaced(stored, index) is None for stored in sample)


def _choose_slices(slices: Sequence[FileSlice]) -> list[FileSlice]:
    """One slice for each form of partition path, one for each highest bucket, then evenly spread.

    The highest bucket of a partition differs if partitions have bucket counts of their own
    (``hoodie.bucket.index.partition.expressions``, which the table does not record).
    """
    ordered = sorted(slices, key=lambda one: one.group)
    highest = {one.group.partition_path: one.group.file_id[:_BUCKET_DIGITS] for one in ordered}
    form_of = {path: _path_form(path) for path in highest}
    forms: dict[str, FileSlice] = {}
    counts: dict[tuple[str, str], FileSlice] = {}
    for one in ordered:
        path = one.group.partition_path
        forms.setdefault(form_of[path], one)
        counts.setdefault((form_of[path], highest[path]), one)
    spread = ordered[:: -max(1, len(ordered) // _GROUPS)]
    groups = {one.group: one for one in (*forms.values(), *counts.values(), *spread)}
    return list(groups.values())[:_GROUPS]


def _path_form(partition_path: str) -> str:
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "0", partition_path))


def _check_same(
    rows: pa.Table, column: str, what: str, made: pa.Array, table_url: str, remedy: str
) -> None:
    at = _find_difference(rows[column], made)
    if at is None:
        return
    key, stored, ours = rows[RECORD_KEY][at].as_py(), rows[column][at].as_py(), made[at].as_py()
    difference = "reject it" if ours is None else f"give it {ours!r}"
    message = (
        f"record {key!r} of table {table_url} has the {what} {stored!r}, and this writer would "
        f"{difference}; {remedy}"
    )
    raise InvalidConfig(message)


def _check_bucket(stored: StoredRows, index: BucketIndex, table_url: str) -> None:
    at = _find_misplaced(stored, index)
    if at is None:
        return
    key = stored.rows[RECORD_KEY][at]
    ours = int(index.bucket_ids(pa.array([key.as_py()], pa.string()))[0])
    bucket = bucket_of(stored.file_slice.group.file_id)
    message = (
        f"table {table_url} has record {key.as_py()!r} in bucket {bucket}, which does not fit the "
        f"{index.bucket_count} buckets of the pipeline: it would use bucket {ours}; "
        f"{_OTHER_BUCKETS}"
    )
    raise InvalidConfig(message)


def _find_misplaced(stored: StoredRows, index: BucketIndex) -> int | None:
    bucket = bucket_of(stored.file_slice.group.file_id)
    found = np.flatnonzero(index.bucket_ids(stored.rows[RECORD_KEY]) != bucket)
    return int(found[0]) if len(found) else None


def _find_difference(stored: pa.ChunkedArray, made: pa.Array) -> int | None:
    same = pc.fill_null(pc.equal(stored, made), fill_value=False)
    at = pc.index(same, pa.scalar(value=False)).as_py()
    return None if at < 0 else int(at)


def _find_other_key(keys: KeyGenerator, sample: Iterable[StoredRows]) -> str | None:
    for stored in sample:
        at = _find_difference(stored.rows[RECORD_KEY], keys.record_keys(stored.rows))
        if at is not None:
            return str(stored.rows[RECORD_KEY][at].as_py())
    return None


def _has_key_of(keys: KeyGenerator, stored: StoredRows) -> bool:
    same = pc.equal(stored.rows[RECORD_KEY], keys.record_keys(stored.rows))
    return bool(pc.any(pc.fill_null(same, fill_value=False)).as_py())
