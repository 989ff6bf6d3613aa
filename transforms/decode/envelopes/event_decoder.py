"""Decodes values that are events, with or without the schema that Kafka Connect adds to them.

The values of a topic may have both forms.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.meta_columns import IS_DELETED
from transforms.decode.decode_result import DecodeResult
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.envelopes.connect_schemas import Payloads, without_schemas
from transforms.decode.envelopes.envelope import Envelope
from transforms.decode.envelopes.event_fields import event_fields, value_of
from transforms.decode.json import JsonDecoder
from transforms.decode.schema_policy import SchemaPolicy

Mask = npt.NDArray[np.bool_]

#: The policy for fields of the event.
IGNORING = SchemaPolicy(unknown_fields="ignore")


@dataclass(frozen=True, slots=True)
class EventDecoder(ColumnDecoder):
    """Decodes the rows of events.

    Its schema has the columns of the rows and those of the envelope, in any order. It may have
    ``IS_DELETED``, which the event decides, and not a field of the row.

    Attributes:
        events: decodes JSON or Avro events. Only its configuration is used, and not its columns.
        envelope: the fields of the event.
        only: the fields of the event that must have certain texts, with these texts. Events that
            have another text in one of them are filtered, whatever their rows are.
    """

    events: ColumnDecoder = field(kw_only=True)
    envelope: Envelope = field(kw_only=True)
    only: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)

    def decode(self, values: pa.Array | pa.ChunkedArray) -> DecodeResult:
        """See ``ColumnDecoder``. No record has a key."""
        return self.decode_records(values, pa.nulls(len(values), pa.binary()))

    def decode_records(
        self, values: pa.Array | pa.ChunkedArray, keys: pa.Array | pa.ChunkedArray
    ) -> DecodeResult:
        """See ``ColumnDecoder``."""
        others = self._find_others(values)
        if not others.any():
            return self.decode_events(values, keys)
        chosen, kept = np.flatnonzero(~others), pa.array(~others)
        result = self.decode_events(values.filter(kept), keys.filter(kept)).at(chosen)
        return replace(result, filtered=np.union1d(result.filtered, np.flatnonzero(others)))

    @abstractmethod
    def decode_events(
        self, values: pa.Array | pa.ChunkedArray, keys: pa.Array | pa.ChunkedArray
    ) -> DecodeResult:
        """Decode the events that ``only`` does not exclude."""

    def schema_ids(self, values: pa.ChunkedArray) -> pa.Array | None:
        """See ``ColumnDecoder``."""
        return self.events.schema_ids(values)

    @property
    def own_names(self) -> frozenset[str]:
        """The columns that the event fills, and not a field of the row."""
        deleted = (IS_DELETED,) if self.envelope.marks_deletes else ()
        return frozenset((*self.envelope.columns.names, *deleted))

    @property
    def row_fields(self) -> list[pa.Field]:
        """The columns that the fields of a row fill, and their aliases."""
        own = self.own_names
        return [one for one in self.policy.with_aliases(self.schema) if one.name not in own]

    @property
    def row_policy(self) -> SchemaPolicy:
        """The policy for the fields of a row. Renamed fields count as columns of their own."""
        fixed = self.policy.fixed_types
        renamed = {alias for alias, column in self.policy.aliases.items() if column in fixed}
        return replace(
            self.policy,
            unknown_fields=self.unknown_fields,
            aliases={},
            fixed_types=fixed | renamed,
            reserved_names=self.policy.reserved_names | self.own_names,
        )

    def decoder_of(self, event: pa.Schema, policy: SchemaPolicy) -> ColumnDecoder:
        """Return the decoder of values without their schema.

        Args:
            event: the fields of the events.
            policy: the policy, with paths within the event.
        """
        return replace(self.events, schema=event, epoch_unit=self.epoch_unit, policy=policy)

    def payloads(self, values: pa.Array | pa.ChunkedArray) -> Payloads:
        """Return the events in values, and the schemas that Kafka Connect added to them."""
        values = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
        if isinstance(self.events, JsonDecoder):
            return without_schemas(values)
        return Payloads(values, np.full(len(values), -1, np.int64), ())

    def _find_others(self, values: pa.Array | pa.ChunkedArray) -> Mask:
        """Return which events ``only`` excludes. An event that lacks a field is not excluded."""
        others = np.zeros(len(values), np.bool_)
        if not self.only:
            return others
        schema = pa.schema(event_fields([name for name, _ in self.only], self.envelope.field_types))
        decoded = self.decoder_of(schema, IGNORING).decode(self.payloads(values).values)
        for name, text in self.only:
            differs = pc.fill_null(pc.not_equal(value_of(decoded.rows, name), text), False)
            others[decoded.accepted] |= differs.to_numpy(zero_copy_only=False)
        return others
