"""The rows of a base file, streamed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from table.errors import CorruptData, HudiError, SnapshotChanged, Unsupported
from table.model.file_slice import BaseFile
from table.read.projection import conform
from table.storage.storage import NotFound, Storage

#: Rows decoded at a time; a few dozen megabytes for ordinary records.
_BATCH_ROWS = 1 << 17


def read_base_file(storage: Storage, base: BaseFile, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows in stored order, in the columns of ``schema``; only these are read.

    Raises:
        SnapshotChanged: the file is gone.
        CorruptData: it is not Parquet, or its columns do not fit.
        Unsupported: a base file of another format.
    """
    if base.name.extension != "parquet":
        message = f"{base.path} is not a Parquet file, the only base file format that is read here"
        raise Unsupported(message)
    with open_data_file(storage, base.path) as stream, _corrupt_if_not_parquet(base.path):
        file = pq.ParquetFile(stream)
        stored = set(file.schema_arrow.names)
        present = [name for name in schema.names if name in stored]
        # Without any column a batch would not know how many rows it has.
        read = present or file.schema_arrow.names[:1]
        for batch in file.iter_batches(_BATCH_ROWS, columns=read):
            yield conform(pa.Table.from_batches([batch]), schema, base.path)


@contextmanager
def open_data_file(storage: Storage, path: str) -> Iterator[BinaryIO]:
    """The open file.

    Raises:
        SnapshotChanged: it is gone.
    """
    try:
        with storage.open(path) as stream:
            yield stream
    except NotFound as error:
        message = f"{path} was removed while the snapshot was being read; list the table again"
        raise SnapshotChanged(message) from error


@contextmanager
def _corrupt_if_not_parquet(path: str) -> Iterator[None]:
    try:
        yield
    except HudiError:
        raise
    except (pa.ArrowException, ValueError, KeyError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the store failed, not the bytes
        raise CorruptData(path, None, "a Parquet file", str(error)) from error
