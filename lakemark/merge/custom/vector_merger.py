"""Mergers of columns: many records with one call."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import pyarrow as pa

from lakemark.merge.custom.custom_merger import CustomMerger
from lakemark.merge.custom.records import Records
from lakemark.merge.key_codes import Mask


@dataclass(frozen=True, slots=True, eq=False)
class VectorMerge:
    """The result of merging versions of records.

    Attributes:
        rows: in the columns of ``Records.rows``, row by row of the same records.
        keep: False if the result is a delete; its row keeps the known data.
    """

    rows: pa.Table
    keep: Mask


class VectorMerger(CustomMerger):
    """Merges versions of many records at once."""

    @abstractmethod
    def merge(self, older: Records, newer: Records) -> VectorMerge:
        """Merge two versions of each record.

        Row ``i`` of both is the same record, and no record occurs twice. The result of a row must
        depend on this row alone, merging must be associative, and ordering columns must keep a
        value.

        Args:
            older: the result of earlier changes, or the row of the base file.
            newer: a later change.
        """

    def partial_merge(self, older: Records, newer: Records) -> VectorMerge:
        """Merge two versions of which one or both were written without some columns.

        A column of the result counts as written if one of the two versions had it. By default each
        version takes its missing columns from the other, and ``merge`` decides.
        """
        return self.merge(older.with_open_columns_of(newer), newer.with_open_columns_of(older))
