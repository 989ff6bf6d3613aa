"""The columns in which a CDC query returns changes: as Apache Hudi returns them, or typed.

Apache Hudi returns the images of a record as JSON texts (``image_text``), in which decimals and
bytes are hard to read or lost. ``TypedChanges`` returns them as structs with the columns of the
table, so that no value is lost, and adds the record key and the partition path.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.file_slice import FileGroupId
from lakemark.model.meta_columns import without_meta_columns
from lakemark.read.cdc.image_text import AVRO, JACKSON
from lakemark.read.projection import conform

#: The columns that Apache Hudi returns: the operation (i, u or d), the requested time of the commit
#: and the images.
TEXT_SCHEMA = pa.schema([(name, pa.string()) for name in ("op", "ts_ms", "before", "after")])

_IMAGE = "image"


@dataclass(frozen=True, slots=True)
class Changes:
    """Some changes of one commit in one file group.

    Attributes:
        group: the file group.
        instant: requested time of the commit.
        op: the operation of each change, or one operation of all changes.
        keys: the record key of each change; None if the writer did not log it.
        before: the images before the commit, in the form of a ``ChangeFormat``; None if all are
            null.
        after: the images after the commit, like ``before``.
    """

    group: FileGroupId
    instant: str
    op: pa.Array | str
    keys: pa.Array | None
    before: pa.Array | None = None
    after: pa.Array | None = None

    @property
    def count(self) -> int:
        """The number of changes."""
        images = self.before if self.before is not None else self.after
        assert images is not None, self.group
        return len(images)

    def images(self, name: str, data_type: pa.DataType) -> pa.Array:
        """Return the images ``before`` or ``after``; null where there is none."""
        found: pa.Array | None = self.before if name == "before" else self.after
        return pa.nulls(self.count, data_type) if found is None else found

    def constant(self, text: str) -> pa.Array:
        """Return a column with the same text for each change."""
        return pa.repeat(pa.scalar(text), self.count)

    @property
    def ops(self) -> pa.Array:
        """The operation of each change."""
        return self.constant(self.op) if isinstance(self.op, str) else self.op


class ChangeFormat(ABC):
    """The columns of changes, and the form of the images in them; can be pickled."""

    #: Whether logged images are read with the logical types of their columns.
    keeps_types: bool

    #: Whether the changes of a log are those that a snapshot shows, instead of Apache Hudi's.
    compares_states: bool

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the changes."""

    @abstractmethod
    def images_of_rows(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Return the images of rows of the table, meta columns first."""

    @abstractmethod
    def images_of_log(self, images: pa.Array, path: str) -> pa.Array:
        """Return images that a writer logged.

        Args:
            images: structs with the columns of the table when it was written.
            path: path of the ``.cdc`` file, for errors.
        """

    @abstractmethod
    def batch(self, changes: Changes) -> pa.RecordBatch:
        """Return changes with the columns of ``schema``."""


class TextChanges(ChangeFormat):
    """Changes as Apache Hudi 1.2.0 on Spark returns them: ``op``, ``ts_ms``, ``before``, ``after``.

    An image that was not logged, although its record exists, is the text ``null`` in Apache Hudi.
    """

    keeps_types = False
    compares_states = False

    @property
    def schema(self) -> pa.Schema:
        """The columns of the changes."""
        return TEXT_SCHEMA

    def images_of_rows(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Return the rows as Jackson prints them."""
        return JACKSON.text(_structs(rows))

    def images_of_log(self, images: pa.Array, path: str) -> pa.Array:
        """Return records as Avro prints them; a missing record becomes the text ``null``."""
        return pc.fill_null(AVRO.text(images), "null")

    def batch(self, changes: Changes) -> pa.RecordBatch:
        """Return changes with the columns of ``schema``."""
        columns = [
            changes.ops,
            changes.constant(changes.instant),
            changes.images("before", pa.string()),
            changes.images("after", pa.string()),
        ]
        return pa.record_batch(columns, schema=TEXT_SCHEMA)


@dataclass(frozen=True)
class TypedChanges(ChangeFormat):
    """Changes with their record key, their partition path, and images as structs.

    Attributes:
        columns: the current columns of the table; meta columns are not part of an image.
        compute_keys: computes record keys from rows without meta columns, for changes whose writer
            did not log the record key.
    """

    columns: pa.Schema
    compute_keys: Callable[[pa.Table], pa.Array]

    keeps_types = True
    compares_states = True

    @cached_property
    def image_type(self) -> pa.StructType:
        """The type of an image."""
        return pa.struct(list(without_meta_columns(self.columns)))

    @property
    def schema(self) -> pa.Schema:
        """The columns of the changes."""
        return change_schema(self.columns)

    def images_of_rows(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Return the rows as structs."""
        names = [field.name for field in self.image_type]
        return _structs(rows.select(names)).cast(self.image_type)

    def images_of_log(self, images: pa.Array, path: str) -> pa.Array:
        """Return the images with the current columns of the table.

        Raises:
            CorruptData: an image does not fit the columns.
        """
        wanted = pa.schema([pa.field(_IMAGE, self.image_type)])
        return conform(pa.table({_IMAGE: images}), wanted, path).column(0).combine_chunks()

    def batch(self, changes: Changes) -> pa.RecordBatch:
        """Return changes with the columns of ``schema``."""
        before, after = (changes.images(name, self.image_type) for name in ("before", "after"))
        keys = self._computed_keys(before, after) if changes.keys is None else changes.keys
        path = changes.constant(changes.group.partition_path)
        columns = [changes.ops, path, keys.cast(pa.string()), before, after]
        return pa.record_batch(columns, schema=self.schema)

    def _computed_keys(self, before: pa.Array, after: pa.Array) -> pa.Array:
        rows = pa.chunked_array([pc.if_else(after.is_valid(), after, before)], self.image_type)
        keys = self.compute_keys(pa.Table.from_struct_array(rows))
        return keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys


def change_schema(columns: pa.Schema) -> pa.Schema:
    """Return the columns of typed changes of a table with these columns."""
    image = pa.struct(list(without_meta_columns(columns)))
    texts = [(name, pa.string()) for name in ("op", "partition", "key")]
    return pa.schema([*texts, ("before", image), ("after", image)])


def _structs(rows: pa.Table | pa.RecordBatch) -> pa.StructArray:
    whole = rows.combine_chunks().to_batches() if isinstance(rows, pa.Table) else [rows]
    structs = [batch.to_struct_array() for batch in whole]
    return pa.concat_arrays(structs or [pa.array([], pa.struct(list(rows.schema)))])
