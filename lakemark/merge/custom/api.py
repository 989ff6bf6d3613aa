"""Base classes of custom mergers.

A ``VectorMerger`` gets columns and merges many records with one call. A ``BufferedRecordMerger``
merges single records, like the specification's ``HoodieRecordMerger``. A merger at
``package.module:Class`` is pickled by the path of its class. A merger at ``FILE.py:Class`` is
pickled with the text of its file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, SupportsIndex

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.execution.source_file import SourceFile, class_in_file, file_of
from lakemark.merge.custom.buffered_record import BufferedRecord, RecordContext
from lakemark.merge.custom.class_path import class_path_of, import_object
from lakemark.merge.custom.records import Records
from lakemark.merge.key_codes import Mask


class CustomMerger(ABC):
    """Base class of ``VectorMerger`` and ``BufferedRecordMerger``.

    A merger must not keep state between calls. It is pickled by the path of its class, so that a
    worker that cannot import the class reports the path. If the class was loaded from ``FILE.py``,
    the text of the file is pickled with it.

    Attributes:
        merging_strategy: a UUID that tables of this merger store as
            ``hoodie.record.merge.strategy.id`` (``getMergingStrategy`` of the specification).
            Generate it once, with ``uuid.uuid4()``. If you change how the merger merges records,
            generate a new UUID.
    """

    merging_strategy: str

    @property
    def name(self) -> str:
        """The path of the class, for error messages."""
        return class_path_of(type(self))

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Pickle the merger by the path of its class.

        A class of ``__main__`` or a nested class is pickled in the default way, because other
        processes cannot import it by its path.
        """
        reduced: Any = super().__reduce_ex__(max(2, protocol.__index__()))
        file = file_of(type(self))
        if file is not None:
            _, (_, *arguments), *state = reduced
            return (_new_from_file, (file, type(self).__qualname__, *arguments), *state)
        if type(self).__module__ == "__main__" or "." in type(self).__qualname__:
            return reduced
        _, (_, *arguments), *state = reduced
        return (_new, (self.name, *arguments), *state)


@dataclass(frozen=True, slots=True, eq=False)
class VectorMerge:
    """The result of merging versions of records.

    Attributes:
        rows: one merged row for each record, in the order of the input and with the columns of
            ``Records.rows``.
        keep: for each record, False if the result is a delete. The row of a delete keeps the data
            that is known.
    """

    rows: pa.Table
    keep: Mask


class VectorMerger(CustomMerger):
    """Merges versions of many records at once."""

    @abstractmethod
    def merge(self, older: Records, newer: Records) -> VectorMerge:
        """Merge two versions of each record.

        Row ``i`` of ``older`` and row ``i`` of ``newer`` are the same record, and no record occurs
        twice. The result of a row must not depend on other rows, and merging must be associative.
        Ordering columns of the result must not lose their values.

        Args:
            older: the result of earlier changes, or the row of the base file.
            newer: a later change.
        """

    def partial_merge(self, older: Records, newer: Records) -> VectorMerge:
        """Merge two versions of each record, at least one of which lacks some columns.

        A column of the result counts as written if at least one of the two versions has it. By
        default, the missing columns of each version are filled from the other version, and then
        ``merge`` is called.
        """
        return self.merge(older.fill_missing_from(newer), newer.fill_missing_from(older))


class BufferedRecordMerger(CustomMerger):
    """Merges two versions of one record at a time.

    The merger is called for each pair of versions, so it is slower than a ``VectorMerger``, which
    merges all records with a few calls. A record with only one version is not merged.
    """

    @abstractmethod
    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """Merge two versions of a record; merging must be associative.

        Never return None. To delete the record, return a result with operation ``DELETE`` and the
        data that is known, because later merges may need the data. The ordering value of the result
        must equal the values of the ordering fields in its data.

        Args:
            older: the result of earlier changes, or the row of the base file.
            newer: a later change.
            context: the table's columns and ordering fields.
        """

    def partial_merge(
        self,
        older: BufferedRecord,
        newer: BufferedRecord,
        reader_schema: pa.Schema,
        context: RecordContext,
    ) -> BufferedRecord:
        """Merge two versions of a record, at least one of which was written without some columns.

        The result must not have data in columns that both versions lack. By default, the missing
        columns of each version are filled from the other version, and then ``merge`` is called. A
        delete is not filled. If the other version is a delete, missing columns become null.

        Args:
            older: as for ``merge``, but its data has only the columns that were written.
            newer: as for ``merge``, but its data has only the columns that were written.
            reader_schema: the table's columns.
            context: the table's columns and ordering fields.
        """
        nothing = dict.fromkeys(reader_schema.names)
        before = _fill_missing(older, newer, nothing, context)
        return self.merge(before, _fill_missing(newer, older, nothing, context), context)


def _fill_missing(
    record: BufferedRecord,
    other: BufferedRecord,
    nothing: Mapping[str, object],
    context: RecordContext,
) -> BufferedRecord:
    if record.is_delete or record.data is None:
        return record
    given = nothing if other.is_delete or other.data is None else other.data
    whole = replace(record, data={**given, **record.data})
    return replace(whole, ordering_value=context.ordering_value(whole))


def _new(path: str, *arguments: object) -> object:
    kind = import_object(path)
    if not isinstance(kind, type):
        message = f"merger {path} is not a class in this process; install the same code here"
        raise InvalidConfig(message)
    make: Callable[..., object] = kind.__new__
    return make(kind, *arguments)


def _new_from_file(file: SourceFile, qualified_name: str, *arguments: object) -> object:
    kind = class_in_file(file, qualified_name)
    make: Callable[..., object] = kind.__new__
    return make(kind, *arguments)
