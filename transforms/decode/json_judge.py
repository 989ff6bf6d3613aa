"""What becomes of records that their schema does not hold, as the policy says."""

from __future__ import annotations

import pyarrow as pa

from table.schema.evolution import NOTHING_PROPOSED, Path, Proposal, ValueKind, evolved
from transforms.decode.decoded import Refusal
from transforms.decode.json_misfits import MisfitFinder, Misfits, dotted
from transforms.decode.json_record import RecordInspector
from transforms.decode.schema_policy import SchemaPolicy, UnknownFields


class Judge:
    """Judges single records, and gathers what they ask of the schema.

    Attributes:
        asked: what the schema would need to hold those that may change it.
        refusal: the first record that nothing but a stop is to follow.

    Args:
        schema: columns of the records, aliases among them.
        unknown_fields: as in the policy, with its default resolved.
        policy: all else.
    """

    def __init__(
        self, schema: pa.Schema, unknown_fields: UnknownFields, policy: SchemaPolicy
    ) -> None:
        self._schema, self._unknown, self._policy = schema, unknown_fields, policy
        self._finder = MisfitFinder(schema, policy)
        self._inspectors: dict[Proposal, RecordInspector] = {}
        self.asked: Proposal = NOTHING_PROPOSED
        self.refusal: Refusal | None = None

    @property
    def allows_wider(self) -> bool:
        """Whether a value that does not fit its column may have another fate than a reject's."""
        return self._policy.wider_values != "reject"

    def reason_against(self, value: bytes, index: int) -> str | None:
        """Why a record with unknown fields is none; None when it is one, or its fields are asked.

        Args:
            value: the record.
            index: of the record in the input.
        """
        return self._reason_against_unknown(self._finder.find(value), index)

    def narrowed(self, value: bytes, index: int, reason: str) -> pa.Schema | str:
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
        if self._policy.wider_values == "fail":
            self._refuse(index, f"{reason}, and decode.wider_values is fail")
            return reason
        against = self._reason_against_unknown(found, index)
        if against is not None:
            return against
        if self._policy.wider_values == "rescue":
            return without(self._schema, {path for path, _ in found.wider})
        self.asked |= self._finder.as_columns(found.wider)
        return reason

    def _reason_against_unknown(self, found: Misfits, index: int) -> str | None:
        if self._unknown == "evolve":
            if found.fault is None:
                self.asked |= self._finder.as_columns(self._roomy(found.unknown))
            return found.fault
        if self._unknown not in ("reject", "fail") or found.first_unknown is None:
            return None
        reason = (
            f"field {found.first_unknown!r} is not declared, and decode.unknown_fields is "
            f"{self._unknown}"
        )
        if self._unknown == "fail":
            self._refuse(index, reason)
        return reason

    def _roomy(self, found: set[tuple[Path, ValueKind]]) -> set[tuple[Path, ValueKind]]:
        """Findings by which a new column holds long integers at once, if it cannot widen later."""
        if self._policy.wider_values == "evolve":
            return found
        roomy = {ValueKind.INT: ValueKind.SHORT_LONG}
        return {(path, roomy.get(kind, kind)) for path, kind in found}

    def _fits_wider(self, value: bytes, found: Misfits) -> bool:
        """Whether wider columns are all that the record lacks."""
        proposal = frozenset(found.wider)
        inspector = self._inspectors.get(proposal)
        if inspector is None:
            inspector = RecordInspector(evolved(self._schema, proposal))
            self._inspectors[proposal] = inspector
        return inspector.inspect(value).reason is None

    def _refuse(self, index: int, reason: str) -> None:
        if self.refusal is None or index < self.refusal.index:
            self.refusal = Refusal(index, reason)


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
