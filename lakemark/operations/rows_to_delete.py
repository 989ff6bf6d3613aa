"""Finds the stored rows that a deletion chooses, by their keys or by a condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.execution.runner import LocalRunner
from lakemark.keygen.key_generator import KeyGenerator
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.duplicate_keys import check_no_other_rows
from lakemark.operations.given_keys import Keys, record_keys_of
from lakemark.operations.open_table import OpenTable
from lakemark.read.scan import Scan
from lakemark.schema.field_path import top_column

#: The columns with the partition path and the id of the file group of a row.
FOLDER, FILE_ID = "#folder", "#file_id"


@dataclass(frozen=True, slots=True)
class RowsToDelete:
    """Finds rows of one table, as of its cached timeline.

    Attributes:
        table: the open table.
        generator: generates the record keys of the table.
        schema: the columns of the table, without meta columns.
    """

    table: OpenTable
    generator: KeyGenerator
    schema: pa.Schema

    def stored_form(self, record_keys: Keys | None) -> list[str] | None:
        """Return the given record keys in the form that the table stores; None if none are given.

        Raises:
            InvalidConfig, InvalidRecords: see ``record_keys_of``.
        """
        if record_keys is None:
            return None
        url = self.table.location.url
        return record_keys_of(record_keys, self.generator, self.schema, url)

    def find(
        self,
        columns: Sequence[str],
        where: pc.Expression | str | None,
        record_keys: Sequence[str] | None,
    ) -> pa.Table:
        """Return record key, partition path, some columns and file id of the rows to delete.

        Args:
            columns: the columns that the deletion needs.
            where: a condition on the rows.
            record_keys: keys in the form that the table stores; None for all keys.
        """
        if self.table.properties.populates_meta_columns:
            columns = [RECORD_KEY, PARTITION_PATH, *columns]
            scan = self.table.scan(columns=columns, where=where, record_keys=record_keys)
            return _with_groups(scan)
        schema, fields = self.schema, self.generator.config.record_key_fields
        needed = dict.fromkeys([*(top_column(name, schema) for name in fields), *columns])
        rows = _with_groups(self.table.scan(columns=list(needed), where=where))
        stored = rows.append_column(RECORD_KEY, self.generator.record_keys(rows))
        stored = stored.append_column(PARTITION_PATH, rows[FOLDER])
        if record_keys is None:
            return stored
        is_wanted = pc.is_in(stored[RECORD_KEY], value_set=pa.array(record_keys, pa.string()))
        return stored.filter(is_wanted).combine_chunks()

    def check_whole_keys(self, chosen: pa.Table) -> None:
        """Check that no file group keeps a row with the key of a row that is deleted.

        Raises:
            Refused: a file group has such a row.
        """
        keys = pc.unique(chosen[RECORD_KEY]).to_pylist()
        check_no_other_rows(chosen, self.find((), None, keys), [FOLDER, FILE_ID])

    def keys(self, record_keys: Keys | None, where: pc.Expression | str | None) -> list[str]:
        """Return the given record keys; with a condition, the keys of the rows that match it.

        Raises:
            InvalidConfig, InvalidRecords: see ``record_keys_of``.
        """
        wanted = self.stored_form(record_keys)
        if where is None:
            return list(dict.fromkeys(wanted or ()))
        stored = self.find((), where, wanted)
        keys: list[str] = pc.unique(stored.column(RECORD_KEY)).to_pylist()
        return keys

    def count_by_partition(
        self, record_keys: Keys | None, where: pc.Expression | str | None
    ) -> dict[str, int]:
        """Return the number of rows that a deletion would delete, by partition path."""
        stored = self.find((), where, self.stored_form(record_keys))
        paths = stored.column(PARTITION_PATH)
        counted = pc.value_counts(paths.combine_chunks()).to_pylist()
        return {one["values"]: one["counts"] for one in counted}


def _with_groups(scan: Scan) -> pa.Table:
    """Return the rows of a scan, each with the partition path and the id of its file group."""

    def read(file_slice: FileSlice) -> pa.Table:
        return _in_group(scan.with_slices([file_slice]).to_table(threads=1), file_slice.group)

    nothing = _in_group(scan.schema.empty_table(), FileGroupId("", ""))
    return pa.concat_tables([nothing, *LocalRunner().map(read, scan.slices)]).combine_chunks()


def _in_group(rows: pa.Table, group: FileGroupId) -> pa.Table:
    rows = rows.append_column(FOLDER, pa.repeat(group.partition_path, rows.num_rows))
    return rows.append_column(FILE_ID, pa.repeat(group.file_id, rows.num_rows))
