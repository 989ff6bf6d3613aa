"""Checks stored rows against the key generator, the partitioner and the index of a writer.

If a writer computes another key, partition path or bucket for a row than the table has, the row is
stored a second time. The table does not record all settings that determine key, path and bucket.
For example, the encoding of a single COMPLEX key, the hash fields, the bucket count and the format
of times in keys and paths are only settings of the writers. So this module reads a few rows of a
few file groups, and refuses the table if any row differs.

The sample has at most ``_GROUPS`` file groups. From each group it reads at most ``_ROWS`` rows of
the base file and of the newest log. One group is chosen for each form of partition path: for
example ``2026-01-02`` and ``2026/01/02`` have different forms, but all dates of one format have the
same form. Partitions may have different bucket counts, which their highest bucket numbers show. So
one group is chosen for each distinct highest number. The other groups are spread evenly.
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

from lakemark.config.partition_field import PartitionField
from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.index.bucket import BucketIndex, bucket_of
from lakemark.keygen.automatic_keys import are_automatic
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.keygen.partition_expressions import evaluate_expression
from lakemark.model.file_slice import FileSlice
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.schema.field_path import top_column

#: Largest number of file groups in the sample.
_GROUPS = 8

#: Largest number of rows that are read from one file.
_ROWS = 1000

#: Length of the bucket number in a file id.
_BUCKET_DIGITS = 8

_OTHER_KEYS = (
    "lakemark does not write such keys, which may come from a setting of the table's writer such "
    "as hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled; "
    "write to another path, or with Apache Hudi"
)
_OTHER_PATHS = (
    "lakemark does not write such paths, for example values with a slash, slash-separated dates "
    "that the property hoodie.datasource.write.slash.separated.date.partitioning does not show, or "
    "times in a format that the writer's settings define; write to another path, or with Apache "
    "Hudi"
)
_OTHER_VALUES = (
    "another writer stored this value, so an update would be written to another partition and "
    "become a second row; let that writer store the value of the expression, and correct the rows "
    "that it wrote"
)
_OTHER_BUCKETS = (
    "set table.buckets to the count that the table was written with; if the setting is "
    "correct, the "
    "table has other hash fields (hoodie.bucket.index.hash.field), other counts in some partitions "
    "(hoodie.bucket.index.partition.expressions) or another index, which lakemark does not write"
)


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Some rows of a file group, with the columns of key and partition path.

    Attributes:
        file_slice: slice of the file group that contains the rows.
        rows: the meta columns for key and partition path, and the columns from which a writer
            computes them.
    """

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
        properties: properties of the table.
        table_url: URL of the table, for errors.

    Raises:
        Unsupported: the rows lack a field of the record key or of the partition path.
        HudiError: a file cannot be read.
    """
    fields = (
        *properties.record_key_fields,
        *properties.partition_fields,
        *(field.column for field in properties.partition_expressions),
    )
    columns = tuple(dict.fromkeys(top_column(name, reader.schema) for name in fields))
    missing = [name for name in columns if name not in reader.schema.names]
    if missing:
        message = (
            f"rows of table {table_url} lack {', '.join(missing)}, from which their record key or "
            "partition path is computed, so lakemark cannot check the rows; write to another path"
        )
        raise Unsupported(message)
    names = tuple(dict.fromkeys((RECORD_KEY, PARTITION_PATH, *columns)))

    def read(file_slice: FileSlice) -> list[StoredRows]:
        found = reader.read_sample(file_slice, names, _ROWS)
        if reader.virtual_keys is not None:
            found = (_with_path(rows, file_slice.group.partition_path) for rows in found)
        return [StoredRows(file_slice, rows) for rows in found if rows.num_rows]

    with ThreadPoolExecutor(_GROUPS) as pool:
        return list(chain.from_iterable(pool.map(read, _choose_slices(slices))))


def detect_key_generator(
    properties: TableProperties, sample: Iterable[StoredRows], table_url: str
) -> KeyGenerator:
    """Return the key generator of a table, with the key encoding that the rows have.

    If there are no rows, the encoding is the default of Apache Hudi 1.2.

    Raises:
        Unsupported: the key generator is not implemented.
        InvalidConfig: the fields do not fit the key generator, or there are rows of both
            encodings.
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
    sample: Iterable[StoredRows], keys: KeyGenerator, index: BucketIndex | None, table_url: str
) -> None:
    """Check that every sampled row has the key, partition path and bucket of the pipeline.

    Args:
        sample: rows of the table.
        keys: computes the keys and partition paths of the pipeline's rows.
        index: bucket index of the pipeline; None if keys are looked up in the table's files.
        table_url: URL of the table, for errors.

    Raises:
        InvalidConfig: a row has another key, path or bucket, or another index created its file
            group.
    """
    for stored in sample:
        rows = stored.rows
        if keys.config.has_automatic_keys:
            _check_automatic(rows, table_url)
        else:
            made = keys.record_keys(rows)
            _check_same(rows, RECORD_KEY, "record key", made, table_url, _OTHER_KEYS)
        for field in keys.config.expressions:
            _check_expression(rows, field, table_url)
        made = keys.partition_paths(rows)
        _check_same(rows, PARTITION_PATH, "partition path", made, table_url, _OTHER_PATHS)
        if index is not None:
            _check_bucket(stored, index, table_url)


def fits_index(sample: Iterable[StoredRows], index: BucketIndex) -> bool:
    """Return whether every sampled row is in the bucket that the index computes."""
    return all(_find_misplaced(stored, index) is None for stored in sample)


def may_be_hashed(sample: Iterable[StoredRows], key_fields: tuple[str, ...]) -> bool:
    """Return whether some bucket count assigns each sampled row to the bucket of its file group.

    Args:
        sample: rows of file groups whose ids begin with a number.
        key_fields: fields of the record key.
    """
    index = BucketIndex(1, key_fields)
    highest = common = 0
    for stored in sample:
        bucket = bucket_of(stored.file_slice.group.file_id)
        distances = np.abs(index.hashes(stored.rows[RECORD_KEY]).astype(np.int64) - bucket)
        common = int(np.gcd.reduce(np.append(distances, common)))
        highest = max(highest, bucket)
    return common == 0 or common > highest  # the count divides all distances


def _choose_slices(slices: Sequence[FileSlice]) -> list[FileSlice]:
    """Return the slices to sample.

    First comes one slice for each form of partition path. Then comes one slice for each distinct
    highest bucket number of a partition, because partitions may have different bucket counts
    (``hoodie.bucket.index.partition.expressions``, which the table does not record). The other
    slices are spread evenly.
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


def _with_path(rows: pa.Table, partition_path: str) -> pa.Table:
    """Return the rows with the path of their folder, if they do not store their path."""
    at, paths = rows.schema.get_field_index(PARTITION_PATH), pa.repeat(partition_path, len(rows))
    return rows.set_column(at, rows.schema.field(at), paths)


def _path_form(partition_path: str) -> str:
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "0", partition_path))


def _check_automatic(rows: pa.Table, table_url: str) -> None:
    """Check that a table without record key fields has automatic keys.

    Releases before 0.14 had none, and may not have stored the fields.
    """
    others = rows[RECORD_KEY].filter(pc.invert(are_automatic(rows[RECORD_KEY])))
    if len(others):
        message = (
            f"table {table_url} stores no record key fields, but record key {others[0].as_py()!r} "
            "is not an automatic one (<instant>_<task>_<row>); store the fields in .hoodie/"
            "hoodie.properties as hoodie.table.recordkey.fields, or write with Apache Hudi"
        )
        raise InvalidConfig(message)


def _check_expression(rows: pa.Table, field: PartitionField, table_url: str) -> None:
    name, made = field.stored_column, evaluate_expression(rows, field)
    is_known = pc.or_(rows[name].combine_chunks().is_valid(), made.is_valid())
    known = rows.filter(is_known)
    what = f"value of {name} = {field.expression}"
    _check_same(known, name, what, made.filter(is_known), table_url, _OTHER_VALUES)


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
    key, index = stored.rows[RECORD_KEY][at], _index_of(stored, index)
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
    found = np.flatnonzero(_index_of(stored, index).bucket_ids(stored.rows[RECORD_KEY]) != bucket)
    return int(found[0]) if len(found) else None


def _index_of(stored: StoredRows, index: BucketIndex) -> BucketIndex:
    return index.in_partition(stored.file_slice.group.partition_path)


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
