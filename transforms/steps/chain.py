"""Runs the steps of a pipeline one after the other, and accounts for every record.

A record is written whole or not at all: if one of its rows is rejected, the record becomes one
dead letter, and its other rows are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from lakemark.errors import InvalidConfig, Permanent
from lakemark.schema.field_path import top_column
from lakemark.schema.table_columns import check_columns
from transforms.decode.decode_result import Indices
from transforms.reject_reason import RejectReason
from transforms.steps.time_range import find_rows_out_of_range
from transforms.steps.transform import Transform, Transformed


class InvalidStep(InvalidConfig):
    """A step that cannot run on the columns before it.

    Attributes:
        step: the path of the step in the pipeline file, and its kind: ``transform.1.cast``.
        reason: what is wrong, and the remedy.
    """

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(f"{step}: {reason}")
        self.step, self.reason = step, reason


class TransformFault(Permanent):
    """A step broke the contract of ``Transform``. Nothing of the batch was published."""

    def __init__(self, step: str, fault: str) -> None:
        super().__init__(f"{step}: {fault}; correct the step, the next start reads the batch again")
        self.step, self.fault = step, fault


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a chain.

    Attributes:
        name: the path of the step in the pipeline file, and its kind: ``transform.1.cast``.
        transform: the step itself.
        input_schema: the columns of its input.
        schema: the columns of its output.
    """

    name: str
    transform: Transform
    input_schema: pa.Schema
    schema: pa.Schema

    def run(self, rows: pa.Table) -> Transformed:
        """Transform rows.

        Raises:
            TransformFault: the result contradicts itself or the promised schema.
        """
        return self._check(self.transform.apply(rows), rows.num_rows)

    def run_on_keys(self, rows: pa.Table) -> Transformed:
        """Transform the rows of tombstones.

        Raises:
            TransformFault: as for ``run``; or a row was filtered or repeated.
        """
        done = self._check(self.transform.apply_to_keys(rows), rows.num_rows)
        if done.rows.num_rows + len(done.rejected) != rows.num_rows:
            raise TransformFault(self.name, "rows of tombstones were filtered or repeated")
        return done

    def _check(self, done: Transformed, count: int) -> Transformed:
        rows = self._with_schema(done.rows)
        origins = np.arange(count) if done.origins is None else done.origins
        if len(origins) != rows.num_rows:
            raise TransformFault(
                self.name, f"{rows.num_rows} rows were returned, but {len(origins)} origins"
            )
        if done.origins is not None or done.rejected or len(done.filtered):
            self._check_origins(done, origins, count)
        late = find_rows_out_of_range(rows)
        if not late:
            return Transformed(
                rows=rows, origins=done.origins, rejected=done.rejected, filtered=done.filtered
            )
        rejected = {int(origins[row]): reason for row, reason in late.items()}
        rows, origins = _without(rows, origins, rejected)
        return Transformed(
            rows=rows,
            origins=origins,
            rejected={**done.rejected, **rejected},
            filtered=done.filtered,
        )

    def _check_origins(self, done: Transformed, origins: Indices, count: int) -> None:
        """Check that each input row has output rows, or is rejected, or is filtered: one of them.

        So a step cannot lose a record unnoticed.
        """
        rejected = np.fromiter(done.rejected, np.int64, len(done.rejected))
        known = np.concatenate([origins, rejected, done.filtered])
        if len(known) and not 0 <= known.min() <= known.max() < count:
            raise TransformFault(self.name, f"an origin is not one of the {count} input rows")
        if np.any(np.diff(origins) < 0):
            raise TransformFault(self.name, "the output rows are not in the order of the input")
        fates = np.bincount(origins, minlength=count).clip(max=1)
        for some in (rejected, done.filtered):
            fates += np.bincount(some, minlength=count)
        if not np.all(fates == 1):
            row = int(np.flatnonzero(fates != 1)[0])
            fault = "has neither output rows nor a reason" if not fates[row] else "has two results"
            raise TransformFault(self.name, f"row {row} of {count} {fault}")

    def _with_schema(self, rows: pa.Table) -> pa.Table:
        if rows.schema.equals(self.schema):
            return rows
        try:
            return rows.cast(self.schema)
        except (ValueError, pa.ArrowException):
            fault = (
                f"columns {', '.join(rows.schema.names)} were returned, which do not fit the "
                f"promised columns {', '.join(self.schema.names)}"
            )
            raise TransformFault(self.name, fault) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainResult:
    """The rows of some records after all steps. Each record is written, rejected or filtered.

    Attributes:
        rows: the output rows.
        origins: for each row, the index of its record, ascending.
        rejected: the reason for each rejected record, by its index, ascending.
        filtered: the indices of the records that have no rows and no reason, ascending.
    """

    rows: pa.Table
    origins: Indices
    rejected: Mapping[int, RejectReason]
    filtered: Indices


@dataclass(frozen=True, slots=True)
class TransformChain:
    """The steps of a pipeline. Can be pickled.

    Attributes:
        input_schema: the columns of the decoded records.
        steps: the steps, in order; at least one.
        fingerprint: a hash of the configuration of the steps, which commits record.
    """

    input_schema: pa.Schema
    steps: tuple[Step, ...]
    fingerprint: str = ""

    @classmethod
    def build(
        cls,
        transforms: Iterable[tuple[str, Transform]],
        input_schema: pa.Schema,
        fingerprint: str = "",
    ) -> Self:
        """Compute the columns of each step.

        Args:
            transforms: the steps, with the path of each in the pipeline file, and its kind.
            input_schema: the columns of the decoded records.
            fingerprint: see the attribute.

        Raises:
            InvalidStep: a step cannot run on the columns before it.
        """
        steps, schema = [], input_schema
        for name, transform in transforms:
            try:
                output = _storable(transform.output_schema(schema))
            except InvalidConfig as error:
                raise InvalidStep(name, str(error)) from error
            steps.append(Step(name, transform, schema, output))
            schema = output
        assert steps, "a pipeline without steps has no chain"
        return cls(input_schema, tuple(steps), fingerprint)

    @property
    def schema(self) -> pa.Schema:
        """The columns after the last step."""
        return self.steps[-1].schema

    def apply(self, rows: pa.Table) -> ChainResult:
        """Run all steps on the rows of records, one row for each record.

        Raises:
            TransformFault: a step broke its contract.
        """
        return self._run(rows, Step.run)

    def key_sources(self, column: str) -> tuple[str, ...]:
        """Return the columns of the decoded record that alone determine an output column.

        Args:
            column: an output column; a dotted name for a field of a struct. A column that is not
                in the output, such as metadata of Kafka, is returned unchanged.

        Raises:
            InvalidStep: the column depends on the whole record.
        """
        if top_column(column, self.schema) not in self.schema.names:
            return (column,)
        columns = {column: None}
        for step in reversed(self.steps):
            found: dict[str, None] = {}
            for name in columns:
                sources = step.transform.key_sources(name, step.input_schema)
                if sources is None:
                    message = (
                        f"column {column!r} is in the record key or the partition, but cannot be "
                        "computed from the key of a tombstone; set decode.tombstones: ignore, or "
                        "compute the column in another way"
                    )
                    raise InvalidStep(step.name, message)
                found |= dict.fromkeys(sources)
            columns = found
        return tuple(columns)

    def apply_to_keys(self, keys: pa.Table) -> ChainResult:
        """Run the steps on the decoded keys of tombstones. No key is filtered.

        Args:
            keys: columns of the decoded record; all other columns are null. A column of another
                type is not one of them: it is the ordering value of the tombstones.

        Raises:
            TransformFault: a step broke its contract.
        """
        columns = [
            keys.column(field.name)
            if keys.schema.get_field_index(field.name) >= 0
            and keys.schema.field(field.name).type == field.type
            else pa.nulls(keys.num_rows, field.type)
            for field in self.input_schema
        ]
        return self._run(pa.table(columns, schema=self.input_schema), Step.run_on_keys)

    def _run(self, rows: pa.Table, run: Callable[[Step, pa.Table], Transformed]) -> ChainResult:
        count = rows.num_rows
        origins = np.arange(count)
        reasons: dict[int, RejectReason] = {}
        for step in self.steps:
            done = run(step, rows)
            for row, reason in done.rejected.items():
                reasons.setdefault(int(origins[row]), RejectReason.of_step(step.name, reason))
            rows = done.rows
            if done.origins is not None:
                origins = origins[done.origins]
            if done.rejected:
                rows, origins = _without(rows, origins, reasons)
        rejected = dict(sorted(reasons.items()))
        has_fate = np.zeros(count, np.bool_)
        has_fate[origins] = True
        has_fate[list(rejected)] = True
        filtered = np.flatnonzero(~has_fate)
        return ChainResult(rows=rows, origins=origins, rejected=rejected, filtered=filtered)


def _without(rows: pa.Table, origins: Indices, records: Iterable[int]) -> tuple[pa.Table, Indices]:
    """Drop the other rows of rejected records."""
    is_kept = ~np.isin(origins, list(records))
    if is_kept.all():
        return rows, origins
    return rows.filter(pa.array(is_kept)), origins[is_kept]


def _storable(schema: pa.Schema) -> pa.Schema:
    """Return the columns with the types that a table stores; every column may be null."""
    columns = check_columns(schema.remove_metadata())
    return pa.schema([field.with_nullable(True).remove_metadata() for field in columns])
