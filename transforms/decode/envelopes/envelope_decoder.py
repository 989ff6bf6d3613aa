"""Decodes events that contain the fields of their rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.model.meta_columns import IS_DELETED
from lakemark.schema.evolution import Path, Proposal
from transforms.decode.aliases import fold_aliases
from transforms.decode.decode_result import DecodeResult
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.envelopes.connect_schemas import Schema, fields_of
from transforms.decode.envelopes.connect_types import find_difference
from transforms.decode.envelopes.envelope import Unwrapped
from transforms.decode.envelopes.event_decoder import EventDecoder
from transforms.decode.envelopes.former_values import decode_without_unneeded
from transforms.decode.json import JsonDecoder
from transforms.decode.value_encoding import NotNeeded
from transforms.reject_reason import RejectCode, RejectReason


@dataclass(frozen=True, slots=True)
class EnvelopeDecoder(EventDecoder):
    """Decodes events to the rows that they contain.

    Raises:
        InvalidConfig: see ``ColumnDecoder``; or there is a rescue column.
    """

    def __post_init__(self) -> None:
        ColumnDecoder.__post_init__(self)
        if self.rescue_column is not None:
            message = "the fields of a row in an event cannot be rescued; use another policy"
            raise InvalidConfig(message)

    def check_type(self, path: str, data_type: pa.DataType) -> None:
        """Check that the events can be decoded to a column type."""
        self.events.check_type(path, self.envelope.encoding.encoded(data_type))

    def decode_events(
        self, values: pa.Array | pa.ChunkedArray, keys: pa.Array | pa.ChunkedArray
    ) -> DecodeResult:
        """See ``EventDecoder``."""
        payloads = self.payloads(values)
        refused = {
            code: reason
            for code, schema in enumerate(payloads.schemas)
            if (reason := self._find_difference(schema)) is not None
        }
        is_refused = np.isin(payloads.codes, list(refused))
        if not is_refused.any():
            return self._decode(payloads.values)
        rejected, kept = np.flatnonzero(is_refused), np.flatnonzero(~is_refused)
        reasons = [refused[code] for code in payloads.codes[rejected].tolist()]
        nothing = DecodeResult(
            rows=self.rows_schema.empty_table(),
            accepted=np.empty(0, np.int64),
            rejected=rejected,
            reasons=reasons,
        )
        decoded = self._decode(payloads.values.take(pa.array(kept))).at(kept)
        return DecodeResult.merge([nothing, decoded])

    def propose_columns(self, values: pa.Array | pa.ChunkedArray) -> Proposal:
        """See ``ColumnDecoder``."""
        found = self._decoder.propose_columns(self.payloads(values).values)
        return self.policy.to_columns(found)

    def find_wider_paths(self, values: pa.Array | pa.ChunkedArray) -> set[Path]:
        """See ``ColumnDecoder``."""
        aliases = self.policy.aliases
        paths = self._decoder.find_wider_paths(self.payloads(values).values)
        return {(aliases.get(path[0], path[0]), *path[1:]) for path in paths}

    def _find_difference(self, schema: Schema) -> RejectReason | None:
        """Return why values with a schema would be read as other values; None if they are not."""
        path = next(iter(self.envelope.row_paths))
        fields = fields_of(schema, path)
        for column in self.row_fields:
            written = fields.get(column.name, {})
            text = find_difference(written, column.type, self.envelope.encoding, self.epoch_unit)
            if text is not None:
                name = column.name
                text = f"column {name!r}: {text}"
                return RejectReason(RejectCode.INVALID_VALUE, text, name)
        return None

    def _decode(self, values: pa.ChunkedArray) -> DecodeResult:
        """Decode events without their schema."""
        decoder, former = self._decoder, self.envelope.former_path
        if not isinstance(self.events, JsonDecoder):
            return self._unwrap(decoder.decode(values), None)
        if former is None:
            decoded = decoder.decode(values)
        else:
            names = [one.name for one in self.row_fields]
            decoded = decode_without_unneeded(decoder, values, former, names, self._needed_columns)
        accepted = decoded.accepted
        is_whole = len(accepted) == len(values)
        return self._unwrap(decoded, values if is_whole else values.take(pa.array(accepted)))

    @property
    def _needed_columns(self) -> frozenset[str]:
        """The columns whose values must fit, even in a deleted row."""
        names = (*self.envelope.key_columns, *self.row_policy.fixed_types)
        return frozenset(one for name in names for one in (name, name.partition(".")[0]))

    @property
    def _decoder(self) -> ColumnDecoder:
        encoding, policy = self.envelope.encoding, self.row_policy
        fixed = {one.name for one in self.row_fields if encoding.has_fixed_type(one.type)}
        policy = replace(
            policy,
            fixed_types=policy.fixed_types | fixed,
            row_paths=self.envelope.row_paths,
        )
        row = pa.schema([encoding.encoded_field(one) for one in self.row_fields])
        return self.decoder_of(self.envelope.event_schema(row), policy)

    def _unwrap(self, decoded: DecodeResult, texts: pa.ChunkedArray | None) -> DecodeResult:
        """Return the rows of decoded events.

        Args:
            decoded: the events.
            texts: the JSON texts of the accepted events; None if they are not JSON.
        """
        accepted = decoded.accepted
        unwrapped = self.envelope.unwrap(decoded.rows, texts)
        rows, of_events = self._to_columns(unwrapped)
        is_rejected = np.zeros(len(accepted), np.bool_)
        is_rejected[list(of_events)] = True
        is_kept = ~is_rejected[unwrapped.origins]
        reasons = dict(zip(decoded.rejected.tolist(), decoded.reasons, strict=True))
        reasons |= {int(accepted[event]): reason for event, reason in of_events.items()}
        result = DecodeResult.concat(
            [rows if is_kept.all() else rows.filter(pa.array(is_kept))],
            [accepted[unwrapped.origins[is_kept]]],
            reasons,
            decoded.requesting,
            decoded.refusals,
        )
        return replace(result, filtered=accepted[unwrapped.filtered])

    def _to_columns(self, unwrapped: Unwrapped) -> tuple[pa.Table, dict[int, RejectReason]]:
        """Return the columns of the rows, and the reasons to reject events.

        An event is rejected whole if a single one of its rows does not fit. Of a deleted row, only
        the columns that find it must fit; any other value is null if it does not.
        """
        names = self.schema.names
        added = [one for one in unwrapped.rows.schema if one.name in names]
        wanted = pa.schema(
            [*self.row_fields, *(one for one in added if one.name not in self._row_names)]
        )
        found = unwrapped.rows.select(wanted.names)
        not_needed = None
        if self.envelope.marks_deletes:
            is_deleted = unwrapped.rows.column(IS_DELETED).to_numpy()
            not_needed = NotNeeded(is_deleted, self._needed_columns)
        rows, reasons = self.envelope.encoding.convert(found, wanted, self.epoch_unit, not_needed)
        conflicts: dict[int, RejectReason] = dict(reasons)
        if self.policy.aliases:
            rows, repeated = fold_aliases(rows, self.policy.aliases)
            conflicts = {**repeated, **conflicts}
        of_events = dict(unwrapped.rejected)
        for row, reason in conflicts.items():
            of_events.setdefault(int(unwrapped.origins[row]), reason)
        return rows.select(names).cast(self.rows_schema), of_events

    @property
    def _row_names(self) -> frozenset[str]:
        return frozenset(one.name for one in self.row_fields)
