"""What becomes of records that their schema does not hold, as the policy says."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from lakemark.schema.evolution import (
    MAX_EVOLVED_COLUMNS,
    Path,
    Proposal,
    Sighting,
    ValueKind,
    column_count,
    dotted,
    evolve,
)
from transforms.decode.column_limit import MAX_ADDED_COLUMNS, ColumnLimit
from transforms.decode.json_inspection import RecordInspector
from transforms.decode.json_mismatches import Mismatches, MismatchFinder
from transforms.decode.schema_policy import SchemaPolicy, UnknownFields

#: One for each set of columns that are too narrow for a record; records may have any of them.
_KEPT_INSPECTORS = 256


class RecordPolicy:
    """Judges single records, and tells what they ask of the schema.

    Attributes:
        requesting: indices of the records that need another schema.
        refusals: by index, why records must stop the run if nothing else keeps them from being
            rows.

    Args:
        schema: columns of the records, aliases among them.
        unknown_fields: as in the policy, with its default resolved.
        policy: all else.
    """

    def __init__(
        self, schema: pa.Schema, unknown_fields: UnknownFields, policy: SchemaPolicy
    ) -> None:
        self._schema, self._unknown, self._policy = schema, unknown_fields, policy
        self._finder = MismatchFinder(schema, policy)
        self._limit = ColumnLimit(schema, policy, MAX_ADDED_COLUMNS)
        self._inspectors: dict[Proposal, RecordInspector] = {}
        self.requesting: set[int] = set()
        self.refusals: dict[int, str] = {}

    @property
    def allows_wider(self) -> bool:
        """Whether a value that does not fit its column may have another fate than a reject's."""
        return self._policy.wider_values != "reject"

    def find_reject_reason(self, value: bytes, index: int) -> str | None:
        """Why a record with unknown fields is none; None when it is one for all that they say.

        Args:
            value: the record.
            index: of the record in the input.
        """
        return self._reason_against_unknown(self._finder.find(value), index)

    def find_unknown_field_fault(self, value: bytes) -> str | None:
        """Why some unknown field of a record can be no column, where it would become one."""
        return self._finder.find(value).fault if self._unknown == "evolve" else None

    def narrow_columns(self, value: bytes, index: int, reason: str) -> pa.Schema | str:
        """How to read a record that does not fit, or why it is none.

        Args:
            value: the record.
            index: of the record in the input.
            reason: what a reader of the schema says.

        Returns:
            Columns without those whose values are to be rescued; or the reason.
        """
        found = self._finder.find(value)
        if not found.wider or not self._fits_wider(value, found):
            return reason
        against = self._reason_against_unknown(found, index)
        if against is not None:
            return against
        if self._policy.wider_values == "rescue":
            return without(self._schema, {path for path, _ in found.wider})
        if self._policy.wider_values == "fail":
            self.refusals.setdefault(index, f"{reason}, and decode.wider_values is fail")
        else:
            self.requesting.add(index)
        return reason

    def propose_columns(self, values: Iterable[bytes]) -> Proposal:
        """What the schema would need to hold records that ask.

        Of records that ask for more than ``MAX_EVOLVED_COLUMNS``, enough to see that.
        """
        asked: set[Sighting] = set()
        checked = most = max(MAX_EVOLVED_COLUMNS, column_count(self._schema))
        for value in values:
            found = self._finder.find(value)
            if self._unknown == "evolve":
                asked |= self._policy.to_columns(self._roomy(found.unknown))
            if self._policy.wider_values == "evolve":
                asked |= self._policy.to_columns(found.wider)
            if len(asked) > checked:
                if column_count(evolve(self._schema, frozenset(asked))) > most:
                    break
                checked = 2 * len(asked)
        return frozenset(asked)

    def find_wider_paths(self, values: Iterable[bytes]) -> set[Path]:
        """Places, by their columns' names, where records hold values wider than their column."""
        found = [self._policy.to_columns(self._finder.find(value).wider) for value in values]
        return {path for sightings in found for path, _ in sightings}

    def _reason_against_unknown(self, found: Mismatches, index: int) -> str | None:
        if self._unknown == "evolve":
            fault = found.fault or self._limit.fault(found.unknown)
            if fault is None and found.unknown:
                self.requesting.add(index)
            return fault
        if self._unknown not in ("reject", "fail"):
            return None
        reason = found.fault
        if found.first_unknown is not None:
            reason = (
                f"field {found.first_unknown!r} is not declared, and decode.unknown_fields is "
                f"{self._unknown}"
            )
        if self._unknown == "fail" and reason is not None:
            self.refusals[index] = reason
            return None
        return reason

    def _roomy(self, found: set[tuple[Path, ValueKind]]) -> set[tuple[Path, ValueKind]]:
        """Findings by which a new column holds long integers at once, if it cannot widen later."""
        if self._policy.wider_values == "evolve":
            return found
        roomy = {ValueKind.INT: ValueKind.SHORT_LONG}
        return {(path, roomy.get(kind, kind)) for path, kind in found}

    def _fits_wider(self, value: bytes, found: Mismatches) -> bool:
        """Whether wider columns are all that the record lacks."""
        proposal = frozenset(found.wider)
        inspector = self._inspectors.get(proposal)
        if inspector is None:
            if len(self._inspectors) == _KEPT_INSPECTORS:
                self._inspectors.clear()
            inspector = RecordInspector(evolve(self._schema, proposal))
            self._inspectors[proposal] = inspector
        return inspector.inspect(value).reason is None


def without(schema: pa.Schema, places: set[Path]) -> pa.Schema:
    """The schema without some fields; of an array nothing is left if something in it must go."""
    return pa.schema(_without(list(schema), (), {dotted(path) for path in places}))


def _without(fields: list[pa.Field], path: Path, places: set[str]) -> list[pa.Field]:
    kept = []
    for field in fields:
        place = dotted((*path, field.name))
        if place in places or any(gone.startswith(f"{place}[]") for gone in places):
            continue
        if pa.types.is_struct(field.type):
            inside = _without(list(field.type), (*path, field.name), places)
            if not inside:
                continue
            field = field.with_type(pa.struct(inside))
        kept.append(field)
    return kept
