"""Mergers of single records, like the specification's ``HoodieRecordMerger``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from lakemark.merge.custom.buffered_record import BufferedRecord
from lakemark.merge.custom.custom_merger import CustomMerger
from lakemark.merge.custom.record_context import RecordContext


class BufferedRecordMerger(CustomMerger):
    """Merges two versions of one record at a time; called only for records that have two.

    It runs Python for each such pair; a ``VectorMerger`` needs a few calls for all of them.
    """

    @abstractmethod
    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """Merge two versions of a record; merging must be associative.

        Never return None. To delete the record, return a result with operation ``DELETE`` and the
        data that is known, for later merges. Always set the ordering value that the data has.

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
        """Merge two versions of which one or both were written without some columns.

        Data of the result may have only columns that one of the two was written with. By default
        each version takes its missing columns from the other, and ``merge`` decides. A delete is
        not filled, and provides null.

        Args:
            older: as for ``merge``; its data has only the columns that were written.
            newer: likewise.
            reader_schema: the table's columns.
            context: the table's columns and ordering fields.
        """
        nothing = dict.fromkeys(reader_schema.names)
        before = _filled(older, newer, nothing, context)
        return self.merge(before, _filled(newer, older, nothing, context), context)


def _filled(
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
