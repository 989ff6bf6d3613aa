"""Converts the rows that a caller passes to the columns of a table, and to changes of the table.

Columns are matched by name. A column that the caller omits becomes null. A value is converted only
if its type is of the same kind as the column's type, for example one integer type to another. A
conversion that would lose information is refused with an error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.ordering_wrappers import find_too_wide_for_deletes
from lakemark.config.merge_settings import merge_settings
from lakemark.config.table_properties import MergeMode, TableProperties
from lakemark.errors import InvalidConfig, InvalidRecords
from lakemark.keygen.automatic_keys import AutomaticKeys
from lakemark.keygen.key_generator import KeyGenerator
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from lakemark.model.meta_columns import (
    META_COLUMNS,
    OPERATION,
    PARTITION_PATH,
    RECORD_KEY,
    is_reserved,
)
from lakemark.operations.open_table import OpenTable
from lakemark.schema.evolution import unite_schemas
from lakemark.schema.field_path import column_at
from lakemark.schema.table_columns import check_columns
from lakemark.write.change_table import change_table
from lakemark.write.delete_marks import DeleteMarks

Mask = npt.NDArray[np.bool_]

#: Arrow's checks of types, one for each kind. Values are converted between types of the same kind.
_KINDS = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    lambda kind: (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    ),
    lambda kind: (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    ),
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    lambda kind: (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    ),  # without list views: pyarrow 26.0.1 casts list views with nulls to invalid lists
    pa.types.is_struct,
    pa.types.is_map,
)


def with_new_columns(table: pa.Schema, rows: pa.Schema, table_url: str) -> pa.Schema:
    """Return the columns of a table, followed by the new columns of the rows.

    If a column's type differs between the table and the rows, a type that can hold both is used.

    Args:
        table: the columns of the table, without meta columns.
        rows: the columns of the caller's rows.
        table_url: the table's URL, for errors.

    Raises:
        InvalidConfig: a table cannot have one of the columns, or no type can hold both types.
    """
    given = [f for f in rows if not (pa.types.is_null(f.type) and f.name in table.names)]
    plain = _plain_schema(pa.schema(given))  # a column of nulls does not change the table's type
    for name in plain.names:
        if name not in table.names and is_reserved(name):
            message = f"column {name!r} cannot be added: names that begin with _hoodie_ are Hudi's"
            raise InvalidConfig(message)
    columns = [
        field if field.name in table.names else field.with_type(_with_nullable_parts(field.type))
        for field in plain
    ]
    return check_columns(unite_schemas(table, pa.schema(columns), table_url))


def check_fixed_types(
    before: pa.Schema, after: pa.Schema, properties: TableProperties, table_url: str
) -> None:
    """Check that the columns that identify and order records keep their types.

    Stored deletes contain ordering values of the old type. A reader that compares them with values
    of another type treats the deletes as unconditional.

    Args:
        before: the columns of the table.
        after: the columns of the table once the new rows are written.
        properties: the table's properties.
        table_url: the table's URL, for errors.

    Raises:
        InvalidConfig: the type of such a column changes.
    """
    nothing, changed = before.empty_table(), after.empty_table()
    roles = {
        "the record key": properties.record_key_fields,
        "the partition path": (
            *properties.partition_fields,
            *(field.column for field in properties.partition_expressions),
        ),
        "the ordering": properties.ordering_fields,
    }
    for role, names in roles.items():
        for name in (one for one in names if one.partition(".")[0] in before.names):
            old, new = (column_at(table, name).type for table in (nothing, changed))
            if not old.equals(new):
                message = (
                    f"column {name!r} of table {table_url} is {old} and would become {new}, but it "
                    f"belongs to {role}, whose types never change; cast the rows to {old}"
                )
                raise InvalidConfig(message)


def in_table_columns(rows: pa.Table, columns: pa.Schema, table_url: str) -> pa.Table:
    """Return the rows of a caller with the columns and types of a table.

    Args:
        rows: the caller's rows. Hudi's meta columns are ignored, so the rows of a scan can be
            written.
        columns: the columns of the table, without meta columns.
        table_url: the table's URL, for errors.

    Raises:
        InvalidConfig: the table lacks a column of the rows, or a column has another kind of type.
        InvalidRecords: a value does not fit the column.
    """
    names = [name for name in rows.column_names if name not in META_COLUMNS]
    unknown = [name for name in names if name not in columns.names]
    if unknown:
        message = (
            f"table {table_url} has no column {unknown[0]!r}; its columns are "
            f"{', '.join(columns.names)}; pass add_columns=True to add columns, or leave it out"
        )
        raise InvalidConfig(message)
    if len(set(names)) < len(names):
        message = f"the rows have two columns with the same name: {', '.join(names)}"
        raise InvalidConfig(message)
    arrays = [
        _converted(rows.column(field.name), field, table_url)
        if field.name in names
        else pa.nulls(rows.num_rows, field.type)
        for field in columns
    ]
    return pa.table(arrays, schema=pa.schema([field.with_nullable(True) for field in columns]))


def check_key_columns(
    rows: pa.Schema, properties: TableProperties, table_url: str, *, only_paths: bool = False
) -> None:
    """Check that rows have the columns that identify and order records.

    Args:
        rows: the columns of the rows.
        properties: the table's properties.
        table_url: the table's URL, for errors.
        only_paths: whether only the columns of the partition path are needed.

    Raises:
        InvalidConfig: a column is missing.
    """
    computed = {field.stored_column for field in properties.partition_expressions}
    roles = {
        "partition path": [
            *(name for name in properties.partition_fields if name not in computed),
            *(field.column for field in properties.partition_expressions),
        ]
    }
    if not only_paths:
        roles["record key"] = [*properties.record_key_fields]
        roles["ordering"] = [*properties.ordering_fields]
    for role, names in roles.items():
        for name in names:
            if name.partition(".")[0] not in rows.names:
                message = (
                    f"the rows lack column {name!r}, which belongs to the {role} of table "
                    f"{table_url}; they have {', '.join(rows.names)}"
                )
                raise InvalidConfig(message)


@dataclass(frozen=True)
class RowChanges:
    """Converts rows to changes, with the keys and the merge settings of one table.

    Attributes:
        generator: the generator of record keys and partition paths.
        ordering_fields: the columns that order changes to a record.
        orders_deletes: whether a delete of a stored row has the ordering values of the row.
        marks: decides which rows are deletes.
        logs_deletes: whether deletes are stored in logs, as in merge-on-read tables.
    """

    generator: KeyGenerator
    ordering_fields: tuple[str, ...]
    orders_deletes: bool
    marks: DeleteMarks
    logs_deletes: bool

    @classmethod
    def of(cls, table: OpenTable, generator: KeyGenerator, columns: pa.Schema) -> RowChanges:
        """Create the converter for an open table.

        Args:
            table: the open table.
            generator: the key generator of the table.
            columns: the columns of the rows.
        """
        settings = merge_settings(table.properties)
        marks = DeleteMarks(columns, settings.delete_marker)
        is_merge_on_read = table.properties.is_merge_on_read
        by_event_time = settings.mode is MergeMode.EVENT_TIME
        return cls(generator, settings.ordering_fields, by_event_time, marks, is_merge_on_read)

    def upserts(self, rows: pa.Table, new_keys: AutomaticKeys | None = None) -> pa.Table:
        """Return changes that write the rows. A row with a delete mark deletes its record.

        The columns that store partition expressions are computed.

        Args:
            rows: the rows.
            new_keys: generates the record keys, if the table has automatic keys.

        Raises:
            InvalidRecords: a row has no record key, ordering value or partition path; or it has
                another value of a partition expression.
        """
        rows = self._with_expressions(rows)
        paths = self.generator.partition_paths(rows)
        if new_keys is None:
            keys = self.generator.record_keys(rows)
        else:
            keys = new_keys.take(rows.num_rows)
        is_deleted = self.marks.find(self._with_undeclared(rows))
        unordered = self._lacks_ordering(rows)
        kinds = np.full(rows.num_rows, ChangeKind.UPSERT, np.int8)
        kinds[is_deleted] = ChangeKind.FLAGGED_DELETE
        kinds[is_deleted & unordered] = ChangeKind.COMMIT_TIME_DELETE
        config, ordering = self.generator.config, ", ".join(self.ordering_fields)
        key_fields = ", ".join(config.record_key_fields)
        _check(_mask(keys.is_null()), rows, f"the record key ({key_fields}) is null or empty")
        ambiguous = _mask(self.generator.find_ambiguous_keys(rows))
        _check(ambiguous, rows, f"the record key ({key_fields}) has the same text as other keys")
        self._check_paths(paths, rows)
        unknown = self.marks.find_unknown_operations(rows)
        _check(unknown, rows, f"column {OPERATION!r} names an unknown operation")
        if self.ordering_fields:
            _check(unordered & ~is_deleted, rows, f"the ordering value ({ordering}) is null")
        unstorable = self._unstorable_deletes(rows, kinds)
        _check(unstorable, rows, f"logs cannot store the ordering value ({ordering}) of a delete")
        return change_table(rows, keys, paths, kinds, self.ordering_fields)

    def inserts(self, rows: pa.Table, new_keys: AutomaticKeys | None = None) -> pa.Table:
        """Return changes that insert the rows.

        Args:
            rows: the rows.
            new_keys: as for ``upserts``.

        Raises:
            InvalidRecords: as for ``upserts``; or a row is marked as deleted.
        """
        changes = self.upserts(rows, new_keys)
        is_deleted = changes.column(CHANGE_KIND).to_numpy() != ChangeKind.UPSERT
        _check(is_deleted, rows, "it is marked as deleted; delete records with upsert or delete")
        return changes

    def partition_paths(self, rows: pa.Table) -> pa.Array:
        """Return the partition paths of rows, which need no other columns.

        Raises:
            InvalidRecords: a row has no partition path.
        """
        rows = self._with_expressions(rows)
        paths = self.generator.partition_paths(rows)
        self._check_paths(paths, rows)
        return paths

    def _check_paths(self, paths: pa.Array, rows: pa.Table) -> None:
        config = self.generator.config
        is_remedied = not (config.url_encode or config.slash_separated_dates)
        remedy = "; a new table with url_encode=True encodes slashes" if is_remedied else ""
        _check(_mask(paths.is_null()), rows, config.no_path_reason + remedy)

    def new_keys(self, instant: str, task: int = 0) -> AutomaticKeys | None:
        """Return the generator of automatic keys; None if keys are computed from columns.

        Args:
            instant: requested time of the commit; "" if it is not known yet.
            task: the number of the task that inserts the rows.
        """
        return AutomaticKeys(instant, task) if self.generator.config.has_automatic_keys else None

    @property
    def columns_of_deletes(self) -> list[str]:
        """Return the columns of stored rows that ``deletes`` needs, besides the meta columns."""
        if not self.orders_deletes:
            return []
        return list(dict.fromkeys(name.partition(".")[0] for name in self.ordering_fields))

    def deletes(self, stored: pa.Table, columns: pa.Schema) -> pa.Table:
        """Return changes that delete stored rows.

        In event-time mode, a delete has the ordering value of its row. So an older event that
        arrives later loses to the delete, as long as a log contains the delete. The delete is
        unconditional if the row has no ordering value, or if logs cannot store the value.

        Args:
            stored: the rows, with their record keys, partition paths and ``columns_of_deletes``.
            columns: the columns of the table, without meta columns.
        """
        known = self.columns_of_deletes
        values = [
            stored.column(field.name).cast(field.type)
            if field.name in known
            else pa.nulls(stored.num_rows, field.type)
            for field in columns
        ]
        rows = pa.table(values, schema=columns)
        kinds = np.full(stored.num_rows, ChangeKind.DELETE, np.int8)
        is_unconditional = self._lacks_ordering(rows) | self._unstorable_deletes(rows, kinds)
        kinds[is_unconditional] = ChangeKind.COMMIT_TIME_DELETE
        rows = _without_values(rows, is_unconditional)
        keys, paths = _text(stored, RECORD_KEY), _text(stored, PARTITION_PATH)
        return change_table(rows, keys, paths, kinds, self.ordering_fields)

    def _with_expressions(self, rows: pa.Table) -> pa.Table:
        computed = self.generator.compute_expressions(rows)
        for field in self.generator.config.expressions:
            name = field.stored_column
            given, wanted = rows.column(name), computed.column(name)
            # A given null is like a missing column; a computed null is no match for a given value.
            differs = pc.and_kleene(given.is_valid(), pc.invert(pc.equal(given, wanted)))
            reason = f"{name!r} is not {field.expression}; omit the column, which is computed"
            _check(_mask(differs.combine_chunks().fill_null(True)), rows, reason)
        return computed

    def _with_undeclared(self, rows: pa.Table) -> pa.Table:
        for field in self.marks.undeclared_fields:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        return rows

    def _lacks_ordering(self, rows: pa.Table) -> Mask:
        lacks = np.full(rows.num_rows, not self.ordering_fields, np.bool_)
        for name in self.ordering_fields:
            lacks |= _mask(pc.is_null(column_at(rows, name), nan_is_null=True))
        return lacks

    def _unstorable_deletes(self, rows: pa.Table, kinds: npt.NDArray[np.int8]) -> Mask:
        ordered = (kinds == ChangeKind.FLAGGED_DELETE) | (kinds == ChangeKind.DELETE)
        found: Mask = np.zeros(len(kinds), np.bool_)
        if self.logs_deletes and ordered.any():
            deletes = rows.filter(pa.array(ordered))
            for name in self.ordering_fields:
                found[ordered] |= find_too_wide_for_deletes(column_at(deletes, name))
        return found


def _converted(column: pa.ChunkedArray, field: pa.Field, table_url: str) -> pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    column = _decoded(column)
    if not _may_convert(column.type, field.type):
        message = (
            f"column {field.name!r} is {column.type} in the rows and {field.type} in table "
            f"{table_url}; convert it first"
        )
        raise InvalidConfig(message)
    try:
        return column.cast(field.type, safe=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        message = (
            f"column {field.name!r}: a value of type {column.type} does not fit {field.type} of "
            f"table {table_url}: {error}"
        )
        raise InvalidRecords(message) from error


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the plain values of a dictionary, run-end encoded or extension column."""
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    if pa.types.is_run_end_encoded(column.type):
        plain = [pc.run_end_decode(chunk) for chunk in column.chunks]
        return pa.chunked_array(plain, column.type.value_type)
    if isinstance(column.type, pa.BaseExtensionType):
        return pa.chunked_array([c.storage for c in column.chunks], column.type.storage_type)
    return column


def _may_convert(given: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_null(given):
        return True
    if pa.types.is_integer(given) and (pa.types.is_floating(wanted) or pa.types.is_decimal(wanted)):
        return True
    return any(is_kind(given) and is_kind(wanted) for is_kind in _KINDS)


def _plain_schema(rows: pa.Schema) -> pa.Schema:
    """Return the columns without meta columns, in the types that tables store."""
    own = [field for field in rows if field.name not in META_COLUMNS]
    return pa.schema([field.with_type(_plain_type(field.type)) for field in own])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _plain_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    return kind


def _with_nullable_parts(kind: pa.DataType) -> pa.DataType:
    """Return a type whose fields and elements may be null.

    The stored rows and later rows without the column have null in it, and so in its parts, which
    may be declared not null in the rows at hand. Spark writes columns in the same way
    (``asNullable``).
    """

    def relaxed(field: pa.Field) -> pa.Field:
        return field.with_type(_with_nullable_parts(field.type)).with_nullable(True)

    if pa.types.is_struct(kind):
        return pa.struct([relaxed(field) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(relaxed(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, relaxed(kind.item_field))
    return kind


def _without_values(rows: pa.Table, where: Mask) -> pa.Table:
    """Return the rows with null in all columns of some rows."""
    if not where.any():
        return rows
    columns = [
        pc.if_else(pa.array(where), pa.scalar(None, field.type), rows.column(field.name))
        for field in rows.schema
    ]
    return pa.table(columns, schema=rows.schema)


def _text(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name).cast(pa.string()).combine_chunks()
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _check(faults: Mask, rows: pa.Table, reason: str) -> None:
    found = np.flatnonzero(faults)
    if len(found):
        first = _shown(rows.slice(int(found[0]), 1))
        message = (
            f"{len(found)} of {rows.num_rows} rows cannot be written: {reason}; first: {first}"
        )
        raise InvalidRecords(message)


def _shown(row: pa.Table) -> str:
    try:
        return str(row.to_pylist()[0])
    except (OverflowError, ValueError):  # Python has no time after the year 9999
        return " ".join(row.to_string(preview_cols=len(row.column_names)).split())


def _mask(booleans: pa.Array | pa.ChunkedArray) -> Mask:
    if isinstance(booleans, pa.ChunkedArray):
        booleans = booleans.combine_chunks()
    mask: Mask = booleans.to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask
