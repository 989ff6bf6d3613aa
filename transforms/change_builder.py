"""Builds the changes of one batch of Kafka records, for ``transforms.record_converter``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.ordering_wrappers import find_too_wide_for_deletes
from lakemark.keygen.key_generator import EMPTY_PART, NULL_PART
from lakemark.metadata.partition_shards import is_too_long
from lakemark.model.changes import ChangeKind
from lakemark.model.meta_columns import IS_DELETED, META_COLUMNS, OPERATION
from lakemark.model.written_columns import Written, all_written, pack
from lakemark.schema.evolution import ValueKind, evolve
from lakemark.schema.field_path import column_at, top_column
from lakemark.write.change_table import change_table
from lakemark.write.delete_marks import OPERATIONS
from transforms.conversion_config import ConversionConfig
from transforms.converted_batch import ConvertedBatch
from transforms.decode.decode_result import DecodeResult, Indices
from transforms.decode.timestamps import find_out_of_range
from transforms.decoded_rows import decode_values
from transforms.expectations import Outcome
from transforms.raw_records import kafka_columns, parts_of
from transforms.reject_reason import RejectCode, RejectReason
from transforms.rejects import Rejects, Stage
from transforms.schema_request import NO_REQUEST, RefusedRecord, SchemaRequest
from transforms.steps.chain import TransformChain
from transforms.tombstone_keys import TombstoneKeyDecoder
from transforms.violations import Origin, ViolationCount, Violations
from transforms.written_fields import SourceRecords

Mask = npt.NDArray[np.bool_]

_AMBIGUOUS_KEY = RejectReason(
    RejectCode.AMBIGUOUS_KEY,
    f"the record key is ambiguous: a part of it is the text {NULL_PART} or {EMPTY_PART}, or "
    "contains ',field:' of the next part, so Apache Hudi would generate the same key for other "
    "values",
)
_NO_DELETES = "is a delete, but table.operation is insert, which only adds rows; use upsert"
_NO_KEYS = (
    "is a delete, but the table has automatic record keys, so lakemark cannot find the row to "
    "delete; delete rows by a condition (Table.delete)"
)
_ENCODING_REMEDY = (
    "; a new table with table.url_encode: true encodes slashes and other special characters"
)
_UNKNOWN_OPERATION = RejectReason(
    RejectCode.INVALID_VALUE,
    f"column {OPERATION!r}: not one of {', '.join(OPERATIONS)}",
    OPERATION,
)


@dataclass(frozen=True, slots=True)
class _Fault:
    """A reason to reject some rows."""

    rows: Mask
    reason: RejectReason
    stage: Stage


class ChangeBuilder:
    """Builds the changes and the rejects of one batch.

    Args:
        config: how records become changes.
        records: the batch, in order of arrival.
    """

    def __init__(self, config: ConversionConfig, records: pa.Table) -> None:
        self._config, self._records = config, records
        self._table_schema = config.table_schema
        self._is_tombstone = _to_mask(records.column("value").is_null())
        self._changes: list[pa.Table] = []
        self._arrivals: list[Indices] = []
        self._rejects: list[Rejects] = []
        self._request = NO_REQUEST
        self._ignored: dict[int, int] = {}
        self._filtered: dict[int, int] = {}
        self._violations: dict[int, ViolationCount] = {}
        #: The arrivals of the records that became upserts.
        self._upserts: Indices = np.empty(0, np.int64)

    def read_values(self) -> None:
        """Convert the records that have a value."""
        arrivals = np.flatnonzero(~self._is_tombstone)
        records = self._records
        if len(arrivals) < records.num_rows:
            records = records.filter(pa.array(~self._is_tombstone))
        values = records.column("value")
        decoded = decode_values(self._config.value_decoder, records)
        if len(decoded.filtered):
            self._filtered = self._count_by_part(arrivals[decoded.filtered])
        self._build_changes(decoded, values, arrivals)
        self._request = self._build_request(decoded, arrivals)

    def _build_changes(
        self, decoded: DecodeResult, values: pa.ChunkedArray, arrivals: Indices
    ) -> None:
        self._reject(arrivals[decoded.rejected], decoded.reasons, Stage.DECODE)
        arrivals = arrivals[decoded.accepted]
        config = self._config
        columns, arrivals = self._reject_deletes_of_keys(decoded.rows, arrivals)
        if config.chain is not None:
            columns, arrivals = self._transform(config.chain, columns, arrivals)
        rows = self._to_rows(columns, arrivals)
        marks = config.delete_marks
        is_deleted = marks.find(columns)
        lacks_ordering = self._find_missing_ordering(rows)
        kinds = np.full(len(arrivals), ChangeKind.UPSERT, np.int8)
        kinds[is_deleted] = ChangeKind.FLAGGED_DELETE
        kinds[is_deleted & lacks_ordering] = ChangeKind.COMMIT_TIME_DELETE
        faults = [
            _Fault(marks.find_unknown_operations(columns), _UNKNOWN_OPERATION, Stage.DECODE),
            _Fault(is_deleted & config.inserts_only, self._no_delete("the row"), Stage.DECODE),
            self._missing_ordering_fault(
                lacks_ordering & (config.event_rules.needs_ordering | ~is_deleted)
            ),
            self._unstorable_deletes_fault(rows, kinds),
            *self._unavailable_faults(rows, arrivals, is_deleted),
            *self._time_faults(rows),
            *self._header_faults(arrivals, {one.name for one in self._config.header_columns}),
        ]
        if not config.keeps_absent_fields:
            self._upserts = self._add(rows, arrivals, kinds, faults)
            return
        origin = SourceRecords(values, decoded.accepted)
        written = config.written_fields.find(rows, origin)
        written[is_deleted] = True
        faults += self._partition_faults_of_records(rows, origin)
        self._upserts = self._add(rows, arrivals, kinds, faults, written)

    def _reject_deletes_of_keys(
        self, columns: pa.Table, arrivals: Indices
    ) -> tuple[pa.Table, Indices]:
        """Reject the deletes whose partition is unknown; return the other rows.

        The former row of an update is no such delete, because the event says that it moved.
        """
        rules = self._config.event_rules
        if not rules.partition_columns:
            return columns, arrivals
        is_deleted = _to_mask(pc.fill_null(columns.column(IS_DELETED), False))
        is_deleted &= ~np.isin(arrivals, arrivals[~is_deleted])
        found = rules.find_deletes_of_keys(columns, is_deleted)
        if not found.any():
            return columns, arrivals
        rejected = np.unique(arrivals[found])
        reasons = [rules.unknown_partition] * len(rejected)
        self._reject(rejected, reasons, Stage.PARTITION)
        is_kept = ~np.isin(arrivals, rejected)
        return columns.filter(pa.array(is_kept)), arrivals[is_kept]

    def _unavailable_faults(
        self, rows: pa.Table, arrivals: Indices, is_deleted: Mask
    ) -> list[_Fault]:
        """Find upserts with a value that the database did not send, and that nothing fills in."""
        config = self._config
        rules = config.event_rules
        moved = ~is_deleted & np.isin(arrivals, arrivals[is_deleted])
        found = rules.find_unavailable(rows, config.required_columns, moved)
        return [
            _Fault(mask & ~is_deleted, rules.unfilled(name), Stage.DECODE)
            for name, mask in found.items()
        ]

    def _time_faults(self, rows: pa.Table) -> list[_Fault]:
        """Find the records whose Kafka time fills a column, but cannot be stored in it."""
        config = self._config
        if "timestamp" not in config.kafka_columns:
            return []
        name = f"{config.kafka_prefix}timestamp"
        found = find_out_of_range(rows.column(name).combine_chunks())
        if found is None:
            return []
        text = f"column {name!r}: the time of the record lies outside the years 1 to 9999"
        reason = RejectReason(RejectCode.INVALID_VALUE, text, name)
        return [_Fault(_to_mask(pc.fill_null(found, False)), reason, Stage.DECODE)]

    def _header_faults(self, arrivals: Indices, names: Set[str]) -> list[_Fault]:
        """Find the records whose headers cannot fill the columns with these names."""
        faults = []
        for column in self._config.header_columns:
            if column.name not in names:
                continue
            _, is_broken = column.texts(self._records, arrivals)
            text = f"column {column.name!r}: the header {column.header!r} is not UTF-8"
            reason = RejectReason(RejectCode.INVALID_VALUE, text, column.name)
            faults.append(_Fault(is_broken, reason, Stage.DECODE))
        return faults

    def _transform(
        self, chain: TransformChain, decoded: pa.Table, arrivals: Indices
    ) -> tuple[pa.Table, Indices]:
        """Run the transforms; return the rows, and the arrival of each row's record.

        If the transforms return no column for Hudi's own mark of deletes, the mark of the record
        counts. So a step that removes the column does not lose deletes.
        """
        result = chain.apply(decoded.select(chain.input_schema.names))
        rejected = np.array([*result.rejected], np.int64)
        self._reject(arrivals[rejected], [*result.rejected.values()], Stage.TRANSFORM)
        if len(result.filtered):
            counts = self._count_by_part(arrivals[result.filtered])
            self._filtered = dict(Counter(self._filtered) + Counter(counts))
        rows = result.rows
        if IS_DELETED not in rows.column_names:
            marks = decoded.column(IS_DELETED).take(pa.array(result.origins))
            rows = rows.append_column(IS_DELETED, marks)
        return rows, arrivals[result.origins]

    def _count_by_part(self, arrivals: Indices) -> dict[int, int]:
        parts = parts_of(self._records).take(pa.array(arrivals))
        return dict(Counter(parts.to_pylist()))

    def read_tombstones(self) -> None:
        """Convert the records without a value to deletes; if they are ignored, only count them."""
        arrivals = np.flatnonzero(self._is_tombstone)
        config = self._config
        keys, order = config.tombstone_keys, config.tombstone_order
        if not len(arrivals):
            return
        if config.ignores_tombstones:
            self._ignored = self._count_by_part(arrivals)
            return
        if keys is None:
            text = "the value is null, but no tombstone key is configured to find the row to delete"
            reason = RejectReason(RejectCode.NULL_VALUE, text)
            if config.inserts_only:
                reason = self._no_delete("the value is null, so the record")
            self._reject(arrivals, [reason] * len(arrivals), Stage.KEY)
            return
        texts = self._records.column("key").take(pa.array(arrivals))
        decoded = keys.decode(texts)
        self._reject(arrivals[decoded.rejected], decoded.reasons, Stage.KEY)
        key_rows, accepted = decoded.rows, decoded.accepted
        columns = key_rows
        if config.chain is not None:
            done = config.chain.apply_to_keys(key_rows)
            rejected = accepted[[*done.rejected]]
            self._reject(arrivals[rejected], [*done.rejected.values()], Stage.TRANSFORM)
            columns, accepted = done.rows, accepted[done.origins]
            key_rows = key_rows.take(pa.array(done.origins))
        arrivals = arrivals[accepted]
        rows = self._to_rows(columns, arrivals)
        kinds = np.full(len(arrivals), ChangeKind.COMMIT_TIME_DELETE, np.int8)
        identity = set(config.key_generator.config.record_key_fields)
        if not config.deletes_by_key:
            identity |= set(config.key_generator.config.partition_columns)
        # A header that does not identify the row does not prevent its deletion.
        faults = self._header_faults(arrivals, identity)
        if not config.deletes_by_key:
            texts = texts.take(pa.array(accepted))
            faults += self._partition_faults_of_keys(rows, keys, texts)
        if order is not None:
            times = self._records.column("timestamp").take(pa.array(arrivals))
            rows = _with_column(rows, order.column.name, order.values(key_rows, times))
            kinds[:] = ChangeKind.DELETE
            text = f"no ordering value of {order.column.type} in {order.source}"
            missing = RejectReason(RejectCode.MISSING_ORDERING, text, order.column.name)
            faults.append(_Fault(self._find_missing_ordering(rows), missing, Stage.ORDERING))
            faults.append(self._unstorable_deletes_fault(rows, kinds))
        self._add(rows, arrivals, kinds, faults)

    def finish(self) -> ConvertedBatch:
        """Return the changes and the rejects, each in order of arrival."""
        changes, arrivals = pa.concat_tables(self._changes), np.concatenate(self._arrivals)
        if len(self._changes) > 1:
            order = np.argsort(arrivals, kind="stable")
            changes, arrivals = changes.take(pa.array(order)), arrivals[order]
        rejects = Rejects.concat(self._rejects)
        return ConvertedBatch(
            changes=changes,
            rejects=rejects,
            arrivals=arrivals,
            request=self._request,
            ignored=self._ignored,
            filtered=self._filtered,
            violations=Violations(self._violations),
        )

    def _no_delete(self, subject: str) -> RejectReason:
        """Return why a delete is rejected in a pipeline that only inserts rows."""
        why = _NO_KEYS if self._config.has_automatic_keys else _NO_DELETES
        return RejectReason(RejectCode.DELETE_REFUSED, f"{subject} {why}")

    def _build_request(self, decoded: DecodeResult, arrivals: Indices) -> SchemaRequest:
        """Return the schema change that the records request.

        Only records that become rows, either now or after the change, can change the schema.
        """
        refusals = {int(arrivals[index]): why for index, why in decoded.refusals.items()}
        requesting = arrivals[decoded.requesting]
        affected = np.union1d(requesting, np.array(sorted(refusals), np.int64))
        if not len(affected):
            return NO_REQUEST
        is_rejected = np.isin(affected, arrivals[decoded.rejected])
        wider_rows = self._find_rows_if_wider(affected[is_rejected])
        rows = np.union1d(np.intersect1d(affected, self._upserts), wider_rows)
        values = self._records.column("value").take(pa.array(np.intersect1d(requesting, rows)))
        proposal = self._config.value_decoder.propose_columns(values)
        refused = next((n for n in rows.tolist() if n in refusals), None)
        if refused is None:
            return SchemaRequest(proposal)
        return SchemaRequest(proposal, self._refused_record(refused, refusals[refused]))

    def _find_rows_if_wider(self, arrivals: Indices) -> Indices:
        """Return the rejected records that would become rows if the columns were wide enough."""
        if not len(arrivals) or self._config.chain is not None:
            return arrivals[:0]  # with transforms, wider values are never a reason to stop
        records = self._records.take(pa.array(arrivals))
        wider = self._config.value_decoder.find_wider_paths(records.column("value"))
        proposal = frozenset((path, ValueKind.DOUBLE) for path in wider)
        columns = evolve(self._table_schema, proposal)
        rebuilt = ChangeBuilder(self._config.for_fixed_columns(columns), records)
        rebuilt.read_values()
        return arrivals[rebuilt._upserts]

    def _refused_record(self, arrival: int, reason: str) -> RefusedRecord:
        origin = self._origin(arrival)
        return RefusedRecord(origin.topic, origin.partition, origin.offset, reason)

    def _to_rows(self, decoded: pa.Table, arrivals: Indices) -> pa.Table:
        """Return the table's columns.

        They are filled with decoded values, Kafka metadata and partition expressions, or else null.
        """
        config = self._config
        columns = {name: decoded.column(name) for name in decoded.column_names}
        names = [config.kafka_prefix + name for name in config.kafka_columns]
        is_every = np.array_equal(arrivals, np.arange(self._records.num_rows))
        values = kafka_columns(
            self._records, None if is_every else arrivals, config.kafka_columns, config.topic
        )
        columns |= dict(zip(names, values, strict=True))
        columns |= {
            one.name: one.texts(self._records, arrivals)[0] for one in config.header_columns
        }
        if config.chain is not None:  # another writer may have widened columns of the table
            columns = {
                name: _widen(values, self._table_schema, name) for name, values in columns.items()
            }
        arrays = [
            columns[field.name] if field.name in columns else pa.nulls(len(arrivals), field.type)
            for field in self._table_schema
        ]
        rows = pa.table(arrays, schema=self._table_schema)
        return config.key_generator.compute_expressions(rows)

    def _find_missing_ordering(self, rows: pa.Table) -> Mask:
        """Find rows without an ordering value: all rows if the table has no ordering fields."""
        fields = self._config.ordering_fields
        missing = np.full(rows.num_rows, not fields, np.bool_)
        for name in fields:
            missing |= _to_mask(pc.is_null(column_at(rows, name), nan_is_null=True))
        return missing

    def _missing_ordering_fault(self, rows: Mask) -> _Fault:
        fields = ", ".join(self._config.ordering_fields)
        is_fault = rows if fields else np.zeros_like(rows)
        text = f"the ordering value ({fields}) is null"
        reason = RejectReason(RejectCode.MISSING_ORDERING, text, fields)
        return _Fault(is_fault, reason, Stage.ORDERING)

    def _unordered_deletes_fault(self, kinds: npt.NDArray[np.int8]) -> _Fault:
        """Find deletes that win against newer rows, if such deletes must be rejected."""
        refuses = self._config.refuses_unordered_deletes
        named = ", ".join(self._config.ordering_fields)
        text = (
            f"the delete has no ordering value ({named}), so it would also delete a newer row of "
            "its key; replay it with --overwrite-newer, or give tombstones an ordering value with "
            "decode.tombstone_ordering"
        )
        reason = RejectReason(RejectCode.UNORDERED_DELETE, text, named)
        return _Fault((kinds == ChangeKind.COMMIT_TIME_DELETE) & refuses, reason, Stage.ORDERING)

    def _unstorable_deletes_fault(self, rows: pa.Table, kinds: npt.NDArray[np.int8]) -> _Fault:
        """Find deletes that no log can store.

        Without this check, a batch with such a delete would fail at every attempt to write it.
        """
        ordered = np.isin(kinds, (ChangeKind.DELETE, ChangeKind.FLAGGED_DELETE))
        found = np.zeros_like(ordered)
        fields = self._config.ordering_fields
        if self._config.logs_deletes and ordered.any():
            deletes = rows.filter(pa.array(ordered))
            for name in fields:
                found[ordered] |= find_too_wide_for_deletes(column_at(deletes, name))
        named = ", ".join(fields)
        text = (
            f"the ordering value ({named}) of a delete has more than 15 digits before or after the "
            "point, which Hudi's logs cannot store"
        )
        reason = RejectReason(RejectCode.ORDERING_TOO_LONG, text, named)
        return _Fault(found, reason, Stage.ORDERING)

    def _partition_faults_of_keys(
        self, rows: pa.Table, keys: TombstoneKeyDecoder, texts: pa.ChunkedArray
    ) -> list[_Fault]:
        """Find tombstones whose key or headers lack a partition field.

        A field that is explicitly null in the key means the default partition.
        """
        faults = []
        headers = {one.name: one.header for one in self._config.header_columns}
        for name in self._config.key_generator.config.partition_columns:
            is_missing = _to_mask(column_at(rows, name).is_null())
            nulls = np.flatnonzero(is_missing)
            if name not in headers and len(nulls):
                some = texts.take(pa.array(nulls))
                absent = [keys.find_absent(some, one) for one in self._config.key_sources(name)]
                is_missing[nulls] = np.any(absent, axis=0)
            text = f"Kafka key: partition field {name!r} is missing"
            if name in headers:
                text = f"partition field {name!r}: the header {headers[name]!r} is missing or null"
            reason = RejectReason(RejectCode.MISSING_PARTITION, text, name)
            faults.append(_Fault(is_missing, reason, Stage.PARTITION))
        return faults

    def _partition_faults_of_records(self, rows: pa.Table, origin: SourceRecords) -> list[_Fault]:
        """Find partial records that lack a partition field.

        Without the partition, the row to update cannot be found.
        """
        config = self._config
        return [
            _Fault(
                config.written_fields.find_absent(rows, origin, top_column(name, rows.schema)),
                RejectReason(
                    RejectCode.MISSING_PARTITION, f"partition field {name!r} is missing", name
                ),
                Stage.PARTITION,
            )
            for name in config.key_generator.config.partition_columns
        ]

    def _add(
        self,
        rows: pa.Table,
        arrivals: Indices,
        kinds: npt.NDArray[np.int8],
        faults: list[_Fault],
        written: Written | None = None,
    ) -> Indices:
        """Add the rows that have a key, a partition and none of the faults; reject the others.

        The rules judge the upserts among these rows, and may also reject some of them.

        Returns:
            The arrivals of the added upserts.
        """
        generator = self._config.key_generator
        keys, paths = self._record_keys(rows), generator.partition_paths(rows)
        fields = generator.config
        key_fields = ", ".join(fields.record_key_fields)
        no_key = RejectReason(
            RejectCode.MISSING_KEY, f"the record key ({key_fields}) is null or empty", key_fields
        )
        partition_fields = ", ".join(fields.partition_fields)
        no_path = RejectReason(
            RejectCode.INVALID_PARTITION,
            fields.no_path_reason + ("" if fields.slash_separated_dates else _ENCODING_REMEDY),
            partition_fields,
        )
        is_valid, lacks_path = np.ones(len(arrivals), np.bool_), _to_mask(paths.is_null())
        lacks_key = _to_mask(keys.is_null()) & (not self._config.has_automatic_keys)
        if self._config.deletes_by_key:
            lacks_path = lacks_path & (kinds == ChangeKind.UPSERT)
            paths = pc.fill_null(paths, "")
        for fault in (
            _Fault(lacks_key, no_key, Stage.KEY),
            _Fault(_to_mask(generator.find_ambiguous_keys(rows)), _AMBIGUOUS_KEY, Stage.KEY),
            *faults,
            self._unordered_deletes_fault(kinds),
            _Fault(lacks_path, no_path, Stage.PARTITION),
            *self._find_unindexable(paths),
        ):
            self._reject_rows(fault, arrivals, is_valid)
        if self._config.rules:
            rows = self._judge(rows, arrivals, is_valid, kinds == ChangeKind.UPSERT)
        changes = self._to_changes(rows, keys, paths, kinds, written)
        self._changes.append(changes if is_valid.all() else changes.filter(pa.array(is_valid)))
        self._arrivals.append(arrivals[is_valid])
        upserts: Indices = arrivals[is_valid & (kinds == ChangeKind.UPSERT)]
        return upserts

    def _find_unindexable(self, paths: pa.Array | pa.ChunkedArray) -> list[_Fault]:
        """Find the rows whose partition cannot have files in a partitioned record index."""
        if not self._config.rejects_unindexable_paths:
            return []
        too_long = [path for path in pc.unique(paths).to_pylist() if path and is_too_long(path)]
        has_dot = pc.fill_null(pc.match_substring(paths, "."), False)
        is_long = pc.is_in(paths, value_set=pa.array(too_long, pa.string()))
        return [
            _Fault(_to_mask(has_dot), self._unindexable("has a dot"), Stage.PARTITION),
            _Fault(_to_mask(is_long), self._unindexable("is too long"), Stage.PARTITION),
        ]

    def _unindexable(self, what: str) -> RejectReason:
        fields = ", ".join(self._config.key_generator.config.partition_fields)
        return RejectReason(
            RejectCode.INVALID_PARTITION,
            f"the value of {fields} {what}, but the table has a partitioned record index, whose "
            "files cannot be named after such a partition; a record index of the whole table "
            "allows it",
            fields,
        )

    def _reject_rows(self, fault: _Fault, arrivals: Indices, is_valid: Mask) -> None:
        """Reject the records of the valid rows that have a fault; their rows are no longer valid.

        A record with a faulty row is rejected whole. It has several rows if a step explodes it, if
        an event changes several rows, or if an update moves a row.
        """
        found = np.flatnonzero(fault.rows & is_valid)
        if not len(found):
            return
        rejected = np.unique(arrivals[found])
        found = np.flatnonzero(np.isin(arrivals, rejected))
        self._reject(rejected, [fault.reason] * len(rejected), fault.stage)
        is_valid[found] = False

    def _judge(
        self, rows: pa.Table, arrivals: Indices, is_valid: Mask, is_upsert: Mask
    ) -> pa.Table:
        """Judge the valid upserts by each rule; return the rows with the values that rules change.

        A rule judges the rows as the rules before it left them, without those that they rejected.
        """
        for position, rule in enumerate(self._config.rules):
            judged = is_valid & is_upsert
            if not judged.any():
                break
            violating = rule.find_violations(rows) & judged
            if not violating.any():
                continue
            origin = self._origin(int(arrivals[violating][0]))
            self._violations[position] = ViolationCount(int(violating.sum()), origin)
            if rule.outcome is Outcome.DEAD_LETTER:
                fault = _Fault(violating, rule.reason, Stage.EXPECT)
                self._reject_rows(fault, arrivals, is_valid)
            elif rule.outcome is Outcome.SET_NULL:
                rows = rule.repair(rows, violating)
        return rows

    def _origin(self, arrival: int) -> Origin:
        return Origin.of(self._records, arrival, self._config.topic)

    def _record_keys(self, rows: pa.Table) -> pa.Array:
        if self._config.has_automatic_keys:
            return pa.nulls(rows.num_rows, pa.string())
        return self._config.key_generator.record_keys(rows)

    def _to_changes(
        self,
        rows: pa.Table,
        keys: pa.Array,
        paths: pa.Array,
        kinds: npt.NDArray[np.int8],
        written: Written | None,
    ) -> pa.Table:
        bits = None
        if self._config.keeps_absent_fields:
            column_count = len(META_COLUMNS) + len(self._table_schema)
            everything = all_written(len(kinds), column_count)
            bits = everything if written is None else pack(written)
        return change_table(rows, keys, paths, kinds, self._config.ordering_fields, bits)

    def _reject(self, indices: Indices, reasons: Sequence[RejectReason], stage: Stage) -> None:
        if len(indices):
            values = self._records.column("value").take(pa.array(indices))
            schema_ids = self._config.value_decoder.schema_ids(values)
            rejects = Rejects.from_records(
                self._records, indices, reasons, stage, self._config.topic, schema_ids
            )
            self._rejects.append(rejects)


def _widen(values: pa.ChunkedArray, columns: pa.Schema, name: str) -> pa.ChunkedArray:
    index = columns.get_field_index(name)
    if index < 0 or columns.field(index).type == values.type:
        return values
    return values.cast(columns.field(index).type)


def _with_column(rows: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    index = rows.schema.get_field_index(name)
    return rows.set_column(index, rows.schema.field(index), values)


def _to_mask(booleans: pa.Array | pa.ChunkedArray) -> Mask:
    if isinstance(booleans, pa.ChunkedArray):
        booleans = booleans.combine_chunks()
    mask: Mask = booleans.to_numpy(zero_copy_only=False)
    return mask
