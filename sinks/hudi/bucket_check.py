"""Whether a table's records lie in the buckets where this pipeline would put them.

A record that is looked for in another bucket than it lies in is written a second time. The bucket
count is in the commits of this project; commits of others keep it nowhere, so their records are
asked themselves.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from table.config import keys
from table.errors import InvalidConfig
from table.hudi_table import HudiTable
from table.index.bucket import BucketIndex, bucket_of
from table.model.action import COMMITS
from table.model.file_slice import FileSlice
from table.model.meta_columns import RECORD_KEY
from table.read.scan import Scan

#: File groups that are looked into; one record of many is enough to tell.
_ASKED_GROUPS = 8


def check_buckets(table: HudiTable, index: BucketIndex) -> None:
    """Pass when the table was written with this index.

    Raises:
        InvalidConfig: it was written with another bucket count, or with another index.
        HudiError: it cannot be read.
    """
    stored = _stored_count(table)
    if stored is None:
        _check_records(table, index)
    elif stored != index.bucket_count:
        has, remedy = f"{stored} buckets in a partition", f"set table.buckets to {stored}"
        raise InvalidConfig(_unfit(table, index, has, remedy))


def _stored_count(table: HudiTable) -> int | None:
    """What the newest commit that knows the bucket count says."""
    for instant in reversed(table.timeline.completed(*COMMITS)):
        count = table.store.read_commit(instant).extra_metadata.get(keys.BUCKET_COUNT)
        if count is not None:
            return int(count)
    return None


def _check_records(table: HudiTable, index: BucketIndex) -> None:
    scan = table.scan(columns=[RECORD_KEY])
    for file_slice in scan.slices[:_ASKED_GROUPS]:
        _check_slice(table, index, scan.with_slices([file_slice]), file_slice)


def _check_slice(table: HudiTable, index: BucketIndex, scan: Scan, file_slice: FileSlice) -> None:
    bucket = bucket_of(file_slice.group.file_id)
    for batch in islice(scan.batches(threads=1), 1):
        record_keys = batch.column(0)
        elsewhere = np.flatnonzero(index.bucket_ids(record_keys) != bucket)
        if len(elsewhere):
            key = record_keys[int(elsewhere[0])].as_py()
            remedy = "set table.buckets to the count that the table was written with"
            raise InvalidConfig(_unfit(table, index, f"record {key!r} in bucket {bucket}", remedy))


def _unfit(table: HudiTable, index: BucketIndex, has: str, remedy: str) -> str:
    return (
        f"table {table.location.url} has {has}, which does not fit the {index.bucket_count} "
        f"buckets of the pipeline; {remedy}"
    )
