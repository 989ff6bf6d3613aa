"""Decodes the change events of MongoDB, in which a document is a text: MongoDB's extended JSON.

The text has values that JSON lacks as objects, such as ``{"$numberLong": "1004"}``. They are
replaced by the values that ``transforms.decode.json`` reads:

``$oid``, ``$numberDecimal``                       the text
``$numberLong``, ``$numberInt``, ``$numberDouble`` the number
``$date``                                          ISO-8601 text, or milliseconds since 1970

A deletion often has no ``before``. Then its Kafka key, ``{"id": …}``, contains the document's
``_id`` in extended JSON. Source: "Data change events" in the documentation of Debezium's MongoDB
connector; "MongoDB Extended JSON (v2)" in the manual of MongoDB.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.meta_columns import IS_DELETED
from lakemark.schema.evolution import Path, Proposal
from lakemark.schema.field_path import column_at, top_column
from transforms.decode.avro import AvroDecoder
from transforms.decode.decode_result import DecodeResult, Indices
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.envelopes.debezium import AFTER, BEFORE, DebeziumEnvelope, Images
from transforms.decode.envelopes.event_decoder import IGNORING, EventDecoder, Mask
from transforms.decode.envelopes.event_fields import one_chunk
from transforms.decode.json import JsonDecoder
from transforms.reject_reason import RejectReason

#: The field of the Kafka key, and the field of the document, that identify it.
_KEY_FIELD, ID = "id", "_id"

#: What replaces the objects of extended JSON. A quotation mark inside a text has a backslash in
#: front. So the text of an object, which begins with a brace and a quotation mark, cannot be found
#: inside a text.
_NUMBER = r"[-+0-9.eE]+|NaN|-?Infinity"
_REPLACED = (
    (rf'\{{\s*"\$number(?:Long|Int|Double)"\s*:\s*"({_NUMBER})"\s*\}}', r"\1"),
    (r'\{\s*"\$(?:oid|numberDecimal)"\s*:\s*("[^"\\]*")\s*\}', r"\1"),
    (r'\{\s*"\$date"\s*:\s*("[^"\\]*"|-?[0-9]+)\s*\}', r"\1"),
)


def to_plain_json(documents: pa.Array) -> pa.Array:
    """Replace the objects of extended JSON in texts."""
    for pattern, replacement in _REPLACED:
        documents = pc.replace_substring_regex(documents, pattern, replacement)
    return documents


class _Documents(NamedTuple):
    """The documents of some events.

    Attributes:
        texts: the documents, in the extended JSON of the event.
        former: the whole documents before updates; null if an event has none.
        is_delete: whether the document is deleted.
        columns: the columns that the event adds.
        indices: for each document, the index of its event in the input.
        rejected: the reasons for events without a document, by index in the input.
    """

    texts: pa.Array
    former: pa.Array
    is_delete: pa.Array
    columns: pa.Table
    indices: Indices
    rejected: dict[int, RejectReason]


def _differ(one: pa.ChunkedArray, other: pa.ChunkedArray) -> Mask:
    """Return which values differ; a null equals only a null."""
    differs = pc.fill_null(pc.not_equal(one, other), False)
    found: Mask = pc.or_(differs, pc.xor(one.is_null(), other.is_null())).to_numpy()
    return found


@dataclass(frozen=True, slots=True)
class DocumentDecoder(EventDecoder):
    """Decodes the change events of MongoDB to the documents that they contain."""

    envelope: DebeziumEnvelope = field(kw_only=True)

    def check_type(self, path: str, data_type: pa.DataType) -> None:
        """Check that JSON can be decoded to a column type."""
        JsonDecoder(pa.schema([])).check_type(path, data_type)

    def decode_events(
        self, values: pa.Array | pa.ChunkedArray, keys: pa.Array | pa.ChunkedArray
    ) -> DecodeResult:
        """See ``EventDecoder``. A deletion without a former document needs its key."""
        found = self._documents(values, keys)
        decoded = self._decode(found)
        rows = self._with_added(decoded.rows, found, pa.array(decoded.accepted))
        before, of_rows = self._former_rows(rows, decoded.accepted, found)
        decoded = decoded.at(found.indices)
        reasons = found.rejected | dict(
            zip(decoded.rejected.tolist(), decoded.reasons, strict=True)
        )
        return DecodeResult.concat(
            [before, rows],
            [decoded.accepted[of_rows], decoded.accepted],
            reasons,
            decoded.requesting,
            decoded.refusals,
        )

    def propose_columns(self, values: pa.Array | pa.ChunkedArray) -> Proposal:
        """See ``ColumnDecoder``."""
        return self._decoder.propose_columns(self._texts(values))

    def find_wider_paths(self, values: pa.Array | pa.ChunkedArray) -> set[Path]:
        """See ``ColumnDecoder``."""
        return self._decoder.find_wider_paths(self._texts(values))

    def _decode(self, found: _Documents) -> DecodeResult:
        """Decode documents. Of a deleted one, only the columns that find it must fit."""
        texts = to_plain_json(found.texts).cast(pa.binary())
        decoded = self._decoder.decode(texts)
        is_delete = found.is_delete.to_numpy(zero_copy_only=False)
        again = decoded.rejected[is_delete[decoded.rejected]]
        if not len(again):
            return decoded
        deletes = self._decoder_of_former.decode(texts.take(pa.array(again))).at(again)
        arrays = [
            deletes.rows.column(one.name)
            if one.name in deletes.rows.column_names
            else pa.nulls(deletes.rows.num_rows, one.type)
            for one in decoded.rows.schema
        ]
        rows = pa.table(arrays, schema=decoded.rows.schema)
        return DecodeResult.merge([decoded.without(again.tolist()), replace(deletes, rows=rows)])

    @property
    def _decoder(self) -> JsonDecoder:
        """The decoder of the documents."""
        own = self.own_names
        reserved = self.policy.reserved_names | own
        policy = replace(self.policy, reserved_names=reserved, unknown_fields=self.unknown_fields)
        schema = pa.schema([one for one in self.schema if one.name not in own])
        return JsonDecoder(schema, self.rescue_column, self.epoch_unit, policy)

    def _texts(self, values: pa.Array | pa.ChunkedArray) -> pa.Array:
        found = self._documents(values, pa.nulls(len(values), pa.binary()))
        return to_plain_json(found.texts).cast(pa.binary())

    def _documents(
        self, values: pa.Array | pa.ChunkedArray, keys: pa.Array | pa.ChunkedArray
    ) -> _Documents:
        images = [pa.field(name, pa.string()) for name in (BEFORE, AFTER)]
        event = pa.schema([*images, *self.envelope.other_fields])
        decoded = self.decoder_of(event, IGNORING).decode(self.payloads(values).values)
        reasons = dict(zip(decoded.rejected.tolist(), decoded.reasons, strict=True))
        events, indices = decoded.rows, decoded.accepted
        found = Images.of(self._with_before(events, keys.take(pa.array(indices))))
        reasons |= {int(indices[one]): why for one, why in found.reasons().items()}
        valid, is_delete = found.kinds.valid, found.kinds.is_delete
        chosen = pa.array(valid)
        added = pa.table(self.envelope.values(events), schema=self.envelope.columns)
        texts = pc.if_else(is_delete, found.before, found.after)
        former = pc.if_else(is_delete, None, one_chunk(events.column(BEFORE)))
        return _Documents(
            texts.take(chosen),
            former.take(chosen),
            is_delete.take(chosen),
            added.take(chosen),
            indices[valid],
            reasons,
        )

    def _with_before(self, events: pa.Table, keys: pa.Array | pa.ChunkedArray) -> pa.Table:
        """Return events in which ``before`` has at least the id that the Kafka key contains."""
        before = events.column(BEFORE)
        lacks_before = before.is_null().combine_chunks()
        if not pc.any(lacks_before).as_py() or keys.null_count == len(keys):
            return events
        ids = pa.array([None] * len(keys), pa.string()).to_numpy(zero_copy_only=False)
        schema = pa.schema([(_KEY_FIELD, pa.string())])
        decoder = self._key_events
        decoded = decoder.decoder_of(schema, IGNORING).decode(decoder.payloads(keys).values)
        ids[decoded.accepted] = decoded.rows.column(_KEY_FIELD).to_numpy()
        documents = pc.binary_join_element_wise(f'{{"{ID}":', pa.array(ids, pa.string()), "}", "")
        index = events.schema.get_field_index(BEFORE)
        return events.set_column(index, events.field(index), pc.coalesce(before, documents))

    @property
    def _key_events(self) -> DocumentDecoder:
        """The decoder with the framing of Kafka keys."""
        if not isinstance(self.events, AvroDecoder):
            return self
        events: ColumnDecoder = replace(self.events, framing=self.events.framing.for_keys(None))
        return replace(self, events=events)

    def _former_rows(
        self, rows: pa.Table, accepted: Indices, found: _Documents
    ) -> tuple[pa.Table, Indices]:
        """Return deletes of the documents that updates store under another key or partition.

        Args:
            rows: the new documents, and the deleted ones.
            accepted: for each row, its document.
            found: the documents.

        Returns:
            The deletes; and for each of them, the row that replaces the former document.
        """
        decoder = self._decoder_of_former
        names = [
            name
            for name in self.envelope.key_columns
            if top_column(name, decoder.schema) in decoder.schema.names
        ]
        former = found.former.take(pa.array(accepted))
        known = np.flatnonzero(former.is_valid().to_numpy(zero_copy_only=False))
        if not names or not len(known):
            return rows.schema.empty_table(), known[:0]
        texts = to_plain_json(former.take(pa.array(known))).cast(pa.binary())
        decoded = decoder.decode(texts)
        known = known[decoded.accepted]
        after = rows.take(pa.array(known))
        moved = np.zeros(len(known), np.bool_)
        for name in names:
            moved |= _differ(column_at(decoded.rows, name), column_at(after, name))
        known, kept = known[moved], pa.array(moved)
        old, after = decoded.rows.filter(kept), after.filter(kept)
        columns = {name: after.column(name) for name in self.own_names if name in rows.column_names}
        columns |= {name: old.column(name) for name in decoder.schema.names}
        columns[IS_DELETED] = pa.chunked_array([pa.repeat(pa.scalar(True), len(known))])
        arrays = [
            columns.get(one.name, pa.chunked_array([pa.nulls(len(known), one.type)]))
            for one in rows.schema
        ]
        return pa.table(arrays, schema=rows.schema), known

    @property
    def _decoder_of_former(self) -> JsonDecoder:
        """The decoder of the columns that a delete of a document needs."""
        decoder = self._decoder
        needed = {*self.envelope.key_columns, *self.policy.fixed_types}
        tops = {top_column(name, decoder.schema) for name in needed}
        schema = pa.schema([one for one in decoder.schema if one.name in tops])
        policy = replace(decoder.policy, unknown_fields="ignore", wider_values="reject")
        return replace(decoder, schema=schema, rescue_column=None, policy=policy)

    def _with_added(self, rows: pa.Table, found: _Documents, chosen: pa.Array) -> pa.Table:
        """Return the columns of the rows, with those of their events."""
        columns = {name: rows.column(name) for name in rows.column_names}
        added = found.columns.take(chosen)
        columns |= {name: added.column(name) for name in added.column_names}
        columns[IS_DELETED] = found.is_delete.take(chosen)
        names = self.rows_schema.names
        return pa.table([columns[name] for name in names], schema=self.rows_schema)
