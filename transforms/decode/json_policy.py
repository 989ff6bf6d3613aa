"""Applies the schema policy to JSON records that do not match the schema."""

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
from transforms.decode.schema_policy import SchemaPolicy, UnknownFields, undeclared_reason
from transforms.reject_reason import RejectCode, RejectReason

#: How many inspectors are cached: one for each set of columns that is too narrow for a record.
_MAX_INSPECTORS = 256


class RecordPolicy:
    """Decides about single records, and collects the schema changes that they request.

    Attributes:
        requesting: the indices of the records that request a schema change.
        refusals: why a record must stop the run, by its index. This counts only if nothing else
            prevents the record from becoming a row.

    Args:
        schema: the columns of the records, including aliases.
        unknown_fields: how the policy handles unknown fields, with the default resolved.
        policy: the policy.
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
        """Whether the policy allows wider values, instead of rejecting their records."""
        return self._policy.wider_values != "reject"

    def find_reject_reason(self, value: bytes, index: int) -> RejectReason | None:
        """Return why a record is rejected for its unknown fields; None if it is not.

        Args:
            value: the record.
            index: the index of the record in the input.
        """
        return self._check_unknown_fields(self._finder.find(value), index)

    def find_unknown_field_fault(self, value: bytes) -> RejectReason | None:
        """Return why an unknown field that the policy would add cannot become a column, or None."""
        return _fault_reason(self._finder.find(value).fault) if self._unknown == "evolve" else None

    def narrow_columns(
        self, value: bytes, index: int, reason: RejectReason
    ) -> pa.Schema | RejectReason:
        """Return the columns to read if a record does not fit, or why the record is rejected.

        Args:
            value: the record.
            index: the index of the record in the input.
            reason: why the record does not fit the schema.

        Returns:
            The columns, without those whose values are rescued; or the reason.
        """
        found = self._finder.find(value)
        if not found.wider or not self._fits_wider_columns(value, found):
            return reason
        unknown_reason = self._check_unknown_fields(found, index)
        if unknown_reason is not None:
            return unknown_reason
        if self._policy.wider_values == "rescue":
            return remove_fields(self._schema, {path for path, _ in found.wider})
        if self._policy.wider_values == "fail":
            self.refusals.setdefault(index, f"{reason}, and decode.wider_values is fail")
        else:
            self.requesting.add(index)
        return reason

    def propose_columns(self, values: Iterable[bytes]) -> Proposal:
        """Return the schema changes that the records request.

        If there would be more than ``MAX_EVOLVED_COLUMNS``, the result may be incomplete, but still
        exceeds this number.
        """
        requested: set[Sighting] = set()
        checked = maximum = max(MAX_EVOLVED_COLUMNS, column_count(self._schema))
        for value in values:
            found = self._finder.find(value)
            if self._unknown == "evolve":
                requested |= self._policy.to_columns(self._widen_integers(found.unknown))
            if self._policy.wider_values == "evolve":
                requested |= self._policy.to_columns(found.wider)
            if len(requested) > checked:
                if column_count(evolve(self._schema, frozenset(requested))) > maximum:
                    break
                checked = 2 * len(requested)
        return frozenset(requested)

    def find_wider_paths(self, values: Iterable[bytes]) -> set[Path]:
        """Return the paths of the columns that are too narrow for a value.

        The path of a nested column consists of column names, not of the field names in the JSON.
        """
        found = [self._policy.to_columns(self._finder.find(value).wider) for value in values]
        return {path for sightings in found for path, _ in sightings}

    def _check_unknown_fields(self, found: Mismatches, index: int) -> RejectReason | None:
        if self._unknown == "evolve":
            fault = found.fault or self._limit.fault(found.unknown)
            if fault is None and found.unknown:
                self.requesting.add(index)
            return _fault_reason(fault)
        if self._unknown not in ("reject", "fail"):
            return None
        reason = _fault_reason(found.fault)
        if found.first_unknown is not None:
            reason = undeclared_reason(found.first_unknown, self._unknown)
        if self._unknown == "fail" and reason is not None:
            self.refusals[index] = reason
            return None
        return reason

    def _widen_integers(self, found: set[tuple[Path, ValueKind]]) -> set[tuple[Path, ValueKind]]:
        """Make new integer columns ``bigint``, unless the policy can widen them later."""
        if self._policy.wider_values == "evolve":
            return found
        widened = {ValueKind.INT: ValueKind.SHORT_LONG}
        return {(path, widened.get(kind, kind)) for path, kind in found}

    def _fits_wider_columns(self, value: bytes, found: Mismatches) -> bool:
        """Return whether the record would be valid if its columns were wider."""
        proposal = frozenset(found.wider)
        inspector = self._inspectors.get(proposal)
        if inspector is None:
            if len(self._inspectors) == _MAX_INSPECTORS:
                self._inspectors.clear()
            inspector = RecordInspector(evolve(self._schema, proposal))
            self._inspectors[proposal] = inspector
        return inspector.inspect(value).reason is None


def _fault_reason(fault: str | None) -> RejectReason | None:
    if fault is None or isinstance(fault, RejectReason):
        return fault
    return RejectReason(RejectCode.UNKNOWN_FIELD, fault)


def remove_fields(schema: pa.Schema, paths: set[Path]) -> pa.Schema:
    """Remove fields from a schema. If a field is inside an array, remove the whole array."""
    return pa.schema(_remove_fields(list(schema), (), {dotted(path) for path in paths}))


def _remove_fields(fields: list[pa.Field], path: Path, paths: set[str]) -> list[pa.Field]:
    kept = []
    for field in fields:
        path_of_field = dotted((*path, field.name))
        if path_of_field in paths or any(
            removed.startswith(f"{path_of_field}[]") for removed in paths
        ):
            continue
        if pa.types.is_struct(field.type):
            inside = _remove_fields(list(field.type), (*path, field.name), paths)
            if not inside:
                continue
            field = field.with_type(pa.struct(inside))
        kept.append(field)
    return kept
