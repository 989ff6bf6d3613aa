"""Converts records as a run would, and describes the commit that a run would make; writes nothing.

The records are decoded and transformed by the functions that a run uses. What depends on the rows
that the table already has is not computed: which rows are new, and which changes lose against a
newer row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import HudiError
from lakemark.merge.merge_stream import split_batches
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY, without_meta_columns
from lakemark.schema.evolution import changes_between
from sinks.dead_letters import first_reject
from sinks.hudi.batch_columns import SchemaRefused, evolved_columns
from sinks.hudi.exchange import CHUNK_BYTES
from sinks.letter_layout import WITHOUT_DAYS
from sinks.reject_limit import NO_REJECTS, RejectLimit, TooManyRejects
from streamer.config.pipeline import PipelineConfig
from streamer.prepared_sink import PreparedSink
from transforms.converted_batch import ConvertedBatch
from transforms.record_converter import RecordConverter
from transforms.rejects import Rejects
from transforms.schema_request import SchemaRequest
from transforms.violations import ExpectationFailed, RuleViolations, Violations

#: The second attempt has all columns that the first one requested; see ``sinks.hudi.sink``.
_MAX_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Preview:
    """The commit that a run would make from a batch of records.

    Attributes:
        records: the number of records.
        changes: the changes of the table, in the layout of ``lakemark.model.changes``.
        rejects: the rejected records, with the columns of ``REJECTS_SCHEMA``.
        columns: the columns of the table after the commit, without meta columns.
        new_columns: descriptions of the columns that the commit would add or widen.
        ignored: the number of tombstones that are ignored, as configured.
        filtered: the number of records that the transforms drop on purpose.
        violations: the rules of ``expect`` that rows violate.
        refusal: why a run would stop instead of making the commit; None if it would not.
    """

    records: int
    changes: pa.Table
    rejects: pa.Table
    columns: pa.Schema
    new_columns: Sequence[str]
    ignored: int
    filtered: int
    violations: Sequence[RuleViolations]
    refusal: HudiError | None

    @property
    def deletes(self) -> int:
        """The number of changes that delete a row."""
        kinds = self.changes.column(CHANGE_KIND)
        return int(pc.sum(pc.not_equal(kinds, int(ChangeKind.UPSERT))).as_py() or 0)

    @property
    def keys(self) -> int:
        """The number of different record keys; automatic keys are all different."""
        keys = self.changes.column(RECORD_KEY)
        if keys.null_count:
            return int(self.changes.num_rows)
        names = [RECORD_KEY, PARTITION_PATH]
        return int(self.changes.select(names).group_by(names).aggregate([]).num_rows)

    @property
    def partitions(self) -> Sequence[str]:
        """The partition paths that the commit would write to, in order."""
        return sorted(pc.unique(self.changes.column(PARTITION_PATH)).to_pylist())

    def rows(self) -> pa.Table:
        """Return the rows of the changes that are not deletes, without meta columns."""
        is_row = pc.equal(self.changes.column(CHANGE_KIND), int(ChangeKind.UPSERT))
        return self.changes.filter(is_row).select(self.columns.names)


def preview_records(config: PipelineConfig, prepared: PreparedSink, records: pa.Table) -> Preview:
    """Convert records, with the columns that they request, and describe the commit.

    Args:
        config: the settings of the pipeline.
        prepared: the checked tables and the converter.
        records: raw Kafka records, in order of arrival.

    Raises:
        InvalidRecords: the table cannot have the columns that the records request.
        TooManyColumns: the records request more columns than a table should have.
    """
    found, columns = prepared.rows.found, prepared.converter.table_schema
    stored = None if found is None else found.schema
    converter, batches, request = _convert(prepared.converter, records)
    rejects = Rejects.concat(one.rejects for one in batches)
    ignored = _total(one.ignored for one in batches)
    violations = Violations.merged(one.violations for one in batches)
    refusal = _refusal(config, request, violations, rejects, records.num_rows - ignored)
    before = columns if stored is None else without_meta_columns(stored)
    return Preview(
        records=records.num_rows,
        changes=pa.concat_tables([one.changes for one in batches]),
        rejects=rejects.rows,
        columns=converter.table_schema,
        new_columns=[str(one) for one in changes_between(before, converter.table_schema)],
        ignored=ignored,
        filtered=_total(one.filtered for one in batches),
        violations=violations.report(converter.rules),
        refusal=refusal,
    )


def _convert(
    converter: RecordConverter, records: pa.Table
) -> tuple[RecordConverter, list[ConvertedBatch], SchemaRequest]:
    """Convert records; convert them again with the columns that they request.

    Returns:
        The converter with these columns, the converted chunks, and the last request.
    """
    chunks = [*split_batches(records, CHUNK_BYTES)] or [records]
    for _ in range(_MAX_ATTEMPTS):
        batches = [converter(chunk) for chunk in chunks]
        request = SchemaRequest.merge(one.request for one in batches)
        if request.refused is not None or not request.proposal:
            break
        converter = converter.for_table(evolved_columns(converter.table_schema, request.proposal))
    return converter, batches, request


def _refusal(
    config: PipelineConfig,
    request: SchemaRequest,
    violations: Violations,
    rejects: Rejects,
    records: int,
) -> HudiError | None:
    """Return the error with which a run would stop; None if it would not.

    Args:
        config: the settings of the pipeline.
        request: the schema change that the records request.
        violations: the rows that violate rules.
        rejects: the rejected records.
        records: the number of records, without ignored tombstones.
    """
    if request.refused is not None:
        return SchemaRefused(str(request.refused))
    try:
        violations.check(config.rules())
    except ExpectationFailed as failed:
        return failed
    letters = config.dead_letters
    limit = RejectLimit(letters.max_share, letters.tolerated) if letters.enabled else NO_REJECTS
    if not limit.is_exceeded(len(rejects), records):
        return None
    first = first_reject(WITHOUT_DAYS.to_changes(rejects)) or ""
    return TooManyRejects(len(rejects), records, limit.max_share, first)


def _total(counts: Iterable[Mapping[int, int]]) -> int:
    """Add up counts by partition of the topic."""
    return sum(sum(one.values()) for one in counts)
