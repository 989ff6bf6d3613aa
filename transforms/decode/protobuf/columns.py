"""Reads the columns of many messages of one type at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.byte_strings import byte_ranges, gather
from transforms.decode.decode_result import Indices
from transforms.decode.json_screening import find_utf8
from transforms.decode.protobuf.cells import (
    Bytes,
    Mask,
    Numbers,
    numbers_to_column,
    with_nulls,
)
from transforms.decode.protobuf.faults import Faults
from transforms.decode.protobuf.field_walk import BrokenMessage
from transforms.decode.protobuf.fields import Found, Messages, Occurrences, divide
from transforms.decode.protobuf.packed import find_broken, unpack
from transforms.decode.protobuf.sizes import item_bytes
from transforms.decode.protobuf.struct_json import to_json
from transforms.decode.protobuf.types import LENGTH, Field, Form, Kind, MessageType
from transforms.decode.protobuf.well_known_times import duration_column, timestamp_column
from transforms.reject_reason import RejectCode, RejectReason

Offsets = npt.NDArray[np.int32]

_NONE = Occurrences.concat([])


def read_rows(
    message: MessageType,
    names: Collection[str] | None,
    messages: Messages,
    limit_bytes: int,
) -> tuple[pa.Table, dict[int, RejectReason]]:
    """Read messages, each of which is a row.

    Args:
        message: the type of the messages.
        names: the fields to read; None for all. Bytes of other fields are not looked at.
        messages: the messages, in the order of the rows.
        limit_bytes: how many bytes the columns of one row may take.

    Returns:
        The rows; and the reason to reject a row, by its number. The cells of such a row have no
        meaning.
    """
    reader = _Reader(len(messages.starts), limit_bytes)
    wanted = [one for one in message.fields if names is None or one.name in names]
    columns = reader.read_fields(message.fields, wanted, messages)
    schema = pa.schema([pa.field(one.name, one.arrow) for one in wanted])
    if not wanted:  # a table without columns has no rows
        schema = pa.schema([pa.field("", pa.null())])
        columns = [pa.nulls(len(messages.starts))]
    return pa.table(columns, schema=schema), reader.faults.reasons


class _Reader:
    """Reads columns, and collects the rows that are not valid."""

    def __init__(self, row_count: int, limit_bytes: int) -> None:
        self.faults = Faults()
        self._row_count, self._limit_bytes = row_count, limit_bytes
        self._spent = np.zeros(row_count, np.int64)

    def read_fields(
        self, fields: Sequence[Field], wanted: Sequence[Field], messages: Messages
    ) -> list[pa.Array]:
        """Read some of the fields of messages."""
        oneofs = {one.oneof for one in wanted if one.oneof is not None}
        needed = [one for one in fields if one in wanted or one.oneof in oneofs or one.is_required]
        tags = {tag for one in needed for tag in _tags(one)}
        found = divide(messages, tags, self.faults)
        for one in wanted:
            self._check_texts(one, found.get(_tag(one), _NONE), messages)
        for oneof in oneofs:
            _keep_newest([one for one in needed if one.oneof == oneof], found, len(messages.starts))
        for one in needed:
            if one.is_required:
                self._require(one, found.get(_tag(one), _NONE), messages)
        return [self._read_field(one, found, messages) for one in wanted]

    def _check_texts(self, field: Field, values: Occurrences, messages: Messages) -> None:
        """Check the texts of a field that later values of the same message may replace."""
        if field.kind is not Kind.STRING or field.is_repeated or not len(values.messages):
            return
        is_single = field.oneof is None and np.bincount(values.messages).max() == 1
        if not is_single:  # the texts of the row are checked when they are read
            path = messages.inner_path(field.name)
            self._read_values(field, _at(values, messages, path), None)

    def _require(self, field: Field, found: Occurrences, messages: Messages) -> None:
        rows = np.delete(messages.rows, found.messages)
        if len(rows):
            path = messages.inner_path(field.name)
            self.faults.add_invalid(rows, "the field is required, but absent", path)

    def _read_field(self, field: Field, found: Found, messages: Messages) -> pa.Array:
        values = found.get(_tag(field), _NONE)
        if not field.is_repeated:
            return self._read_single(field, values, messages)
        if field.is_packable:
            packed = found.get(field.number << 3 | LENGTH, _NONE)
            owners, numbers = self._elements(field, values, packed, messages)
            offsets = _list_offsets(owners, len(messages.starts))
            return _to_list(field, offsets, numbers_to_column(field, numbers, None))
        items = self._within_limit(field, _by_message(values), messages)
        offsets = _list_offsets(items.messages, len(messages.starts))
        inner = _at(items, messages, f"{messages.inner_path(field.name)}[]")
        if field.is_map:
            return self._read_map(field, inner, items.messages, len(messages.starts))
        return _to_list(field, offsets, self._read_values(field, inner, None))

    def _read_single(self, field: Field, values: Occurrences, messages: Messages) -> pa.Array:
        count = len(messages.starts)
        is_null: Mask = np.ones(count, np.bool_)
        is_null[values.messages] = False
        if field.wire_type != LENGTH:
            numbers = np.full(count, _default(field), np.uint64)
            numbers[values.messages] = values.values
            return numbers_to_column(field, numbers, is_null if field.has_presence else None)
        if field.kind is Kind.MESSAGE:
            messages, values = _joined(messages, values)
        starts, lengths = np.zeros((2, count), np.int64)
        starts[values.messages] = values.values.astype(np.int64)
        lengths[values.messages] = values.lengths
        rows = messages.rows
        if field.has_presence:
            rows = np.where(is_null, -1, rows)
        path = messages.inner_path(field.name)
        inner = Messages(messages.data, starts, starts + lengths, rows, path)
        return self._read_values(field, inner, is_null if field.has_presence else None)

    def _read_values(self, field: Field, inner: Messages, is_null: Mask | None) -> pa.Array:
        """Read texts, bytes or messages.

        Args:
            field: the field.
            inner: for each cell, its bytes; no bytes for an absent one.
            is_null: which cells are null; None if none is.
        """
        if field.message is not None:
            return self._read_messages(field.message, inner, is_null)
        lengths = inner.ends - inner.starts
        column = byte_ranges(inner.data, inner.starts, lengths, is_null)
        if field.kind is Kind.BYTES:
            return column.cast(pa.binary())
        return self._to_text(column, inner)

    def _to_text(self, column: pa.Array, inner: Messages) -> pa.Array:
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            is_text = find_utf8(column.cast(pa.binary()))
        self.faults.add_invalid(inner.rows[~is_text], "the text is not UTF-8", inner.path)
        return pc.if_else(pa.array(is_text), column, None).cast(pa.string())

    def _read_messages(
        self, message: MessageType, inner: Messages, is_null: Mask | None
    ) -> pa.Array:
        form = message.form
        if form is Form.PRESENCE:
            return pa.array(np.ones(len(inner.starts), np.bool_), mask=is_null)
        if form is Form.BYTES:
            lengths = inner.ends - inner.starts
            return byte_ranges(inner.data, inner.starts, lengths, is_null).cast(pa.binary())
        if form is Form.JSON:
            return self._read_json(message, inner, is_null)
        columns = self.read_fields(message.fields, message.fields, inner)
        if form is Form.WRAPPER:
            return with_nulls(columns[0], is_null)
        if form is Form.STRUCT:
            mask = None if is_null is None else pa.array(is_null)
            return pa.StructArray.from_arrays(columns, fields=list(message.arrow), mask=mask)
        to_column = timestamp_column if form is Form.TIMESTAMP else duration_column
        column, is_valid = to_column(*columns)
        if not is_valid.all():
            self._reject_times(inner, is_valid, form)
        return with_nulls(column, is_null)

    def _reject_times(self, inner: Messages, is_valid: Mask, form: Form) -> None:
        text = f"field {inner.path!r}: the {form.value} is out of range"
        reason = RejectReason(RejectCode.INVALID_VALUE, text, inner.path)
        self.faults.add(inner.rows[~is_valid], reason)

    def _read_json(self, message: MessageType, inner: Messages, is_null: Mask | None) -> pa.Array:
        texts: list[str | None] = [None] * len(inner.starts)
        for index in range(len(texts)) if is_null is None else np.flatnonzero(~is_null).tolist():
            body = inner.data[inner.starts[index] : inner.ends[index]].tobytes()
            try:
                texts[index] = to_json(message.name, body)
            except BrokenMessage as broken:
                rows = inner.rows[index : index + 1]
                self.faults.add_invalid(rows, str(broken), inner.path)
        return pa.array(texts, pa.string())

    def _elements(
        self, field: Field, single: Occurrences, packed: Occurrences, messages: Messages
    ) -> tuple[Indices, Numbers]:
        """Return the elements of all messages in order, and the message of each element."""
        wire_type, data = field.wire_type, messages.data
        starts = packed.values.astype(np.int64)
        is_broken = find_broken(data, starts, packed.lengths, wire_type)
        if is_broken.any():
            rows = messages.rows[packed.messages[is_broken]]
            path = messages.inner_path(field.name)
            self.faults.add_invalid(rows, "the packed elements end inside an element", path)
            packed, starts = packed.take(~is_broken), starts[~is_broken]
        numbers, counts = unpack(data, starts, packed.lengths, wire_type)
        unpacked = Occurrences(
            np.repeat(packed.messages, counts),
            np.repeat(packed.order, counts),
            numbers,
            np.zeros(len(numbers), np.int64),
        )
        found = self._within_limit(
            field, _by_message(Occurrences.concat([single, unpacked])), messages
        )
        return found.messages, found.values

    def _within_limit(self, field: Field, items: Occurrences, messages: Messages) -> Occurrences:
        """Count what elements take; reject the rows that take too much, and drop their elements."""
        rows = messages.rows[items.messages]
        self._spent += np.bincount(rows, minlength=self._row_count) * item_bytes(field)
        is_over = self._spent > self._limit_bytes
        if not is_over.any():
            return items
        text = (
            f"its columns take more than the {self._limit_bytes} bytes of a record; see "
            "decode.record_limit_bytes"
        )
        self.faults.add(np.flatnonzero(is_over), RejectReason(RejectCode.TOO_LARGE, text))
        return items.take(~is_over[rows])

    def _read_map(self, field: Field, inner: Messages, owners: Indices, count: int) -> pa.Array:
        """Read entries; the last entry of a key counts."""
        assert field.message is not None, field.name
        keys, values = self.read_fields(field.message.fields, field.message.fields, inner)
        codes = pc.dictionary_encode(keys.fill_null("") if keys.null_count else keys).indices
        pairs = owners * len(keys) + codes.to_numpy(zero_copy_only=False)
        _, last = np.unique(pairs[::-1], return_index=True)
        keys = keys.cast(pa.string()).fill_null("")
        if len(last) < len(pairs):
            kept = np.sort(len(pairs) - 1 - last)
            keys, values = keys.take(pa.array(kept)), values.take(pa.array(kept))
            owners = owners[kept]
        offsets = pa.array(_list_offsets(owners, count))
        return pa.MapArray.from_arrays(offsets, keys, values, type=field.arrow)


def _tag(field: Field) -> int:
    return field.number << 3 | field.wire_type


def _tags(field: Field) -> list[int]:
    return [_tag(field), field.number << 3 | LENGTH] if field.is_packable else [_tag(field)]


def _default(field: Field) -> int:
    """Return the number of an absent field: 0, or the first value of an enum."""
    return field.symbols[0][0] & 0xFFFFFFFF if field.symbols else 0


def _keep_newest(members: Sequence[Field], found: Found, count: int) -> None:
    """Drop the values that another member of their ``oneof`` follows in the same message."""
    present = [_tag(one) for one in members if _tag(one) in found]
    if len(present) < 2:
        return
    newest = np.full((len(present), count), -1, np.int64)
    for row, tag in enumerate(present):
        newest[row, found[tag].messages] = found[tag].order  # the last of several counts
    for row, tag in enumerate(present):
        values = found[tag]
        others = np.delete(newest, row, axis=0).max(axis=0)
        found[tag] = values.take(values.order > others[values.messages])


def _by_message(values: Occurrences) -> Occurrences:
    """Sort the values by message; those of one message stay in order."""
    steps = np.diff(values.messages)
    if np.all((steps > 0) | ((steps == 0) & (np.diff(values.order) >= 0))):
        return values
    return values.take(np.lexsort((values.order, values.messages)))


def _list_offsets(owners: Indices, count: int) -> Offsets:
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(owners, minlength=count), out=offsets[1:])
    return offsets


def _to_list(field: Field, offsets: Offsets, items: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=field.arrow)


def _at(items: Occurrences, messages: Messages, path: str) -> Messages:
    """Return the values of a field as messages with a path."""
    starts = items.values.astype(np.int64)
    return Messages(
        messages.data, starts, starts + items.lengths, messages.rows[items.messages], path
    )


def _joined(messages: Messages, values: Occurrences) -> tuple[Messages, Occurrences]:
    """Join the parts of messages that occur several times; a later part adds to the one before."""
    counts = np.bincount(values.messages, minlength=1)
    if counts.max() <= 1:
        return messages, values
    values = _by_message(values)
    starts = values.values.astype(np.int64)
    extra = gather(messages.data, starts, values.lengths)
    owners, firsts = np.unique(values.messages, return_index=True)
    ends = np.cumsum(values.lengths)
    begins = len(messages.data) + (ends - values.lengths)[firsts]
    lengths = np.add.reduceat(values.lengths, firsts)
    joined = Occurrences(owners, values.order[firsts], begins.astype(np.uint64), lengths)
    data: Bytes = np.concatenate([messages.data, extra])
    return messages._replace(data=data), joined
