"""The merged results of all workers for one batch, before the batch is published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakemark.model.commit_metadata import WriteStat
from lakemark.model.instant import Instant
from lakemark.schema.evolution import Proposal
from sinks.audit import Audit, ChangeCounts, RecordsRead, Spans, audit
from sinks.batch import BatchResult
from sinks.hudi.batch_columns import SchemaRefused
from sinks.hudi.exchange import BucketWritten, PortionKind, PortionResult
from sinks.hudi.partition_rule import ChangedRows
from sinks.reject_counts import merge_counts
from transforms.batch_checks import NOT_CHECKED, BatchCheck, CheckResults
from transforms.expectations import Rule
from transforms.schema_request import SchemaRequest
from transforms.violations import NO_VIOLATIONS, Violations


@dataclass(frozen=True, kw_only=True)
class WrittenBatch:
    """The records that the workers read, and the files that they wrote.

    Attributes:
        rows: the written buckets of the table.
        rejects: the written buckets of the dead-letter table.
        read: the records, counted when they were read.
        request: the schema change that the records request.
        partition_changes: rows whose key exists in another partition.
        counts: the changes that were looked up together; None with a bucket index.
        violations: the rows that violated rules.
        checked: the results of the checks; ``NOT_CHECKED`` if there are no rows or no checks.
    """

    rows: Sequence[BucketWritten]
    rejects: Sequence[BucketWritten]
    read: RecordsRead
    request: SchemaRequest
    partition_changes: ChangedRows
    counts: ChangeCounts | None = None
    violations: Violations = NO_VIOLATIONS
    checked: CheckResults = NOT_CHECKED

    @classmethod
    def merge(cls, results: Sequence[PortionResult]) -> WrittenBatch:
        """Merge the results of the workers, in any order."""
        written = [one for one in results if isinstance(one, BucketWritten)]
        return cls(
            rows=[one for one in written if one.kind is PortionKind.ROWS],
            rejects=[one for one in written if one.kind is PortionKind.REJECTS],
            read=RecordsRead.merged(one for one in results if isinstance(one, RecordsRead)),
            request=SchemaRequest.merge(one for one in results if isinstance(one, SchemaRequest)),
            partition_changes=ChangedRows.merged(
                one.rows for one in results if isinstance(one, ChangedRows)
            ),
            counts=next((one for one in results if isinstance(one, ChangeCounts)), None),
            violations=Violations.merged(one for one in results if isinstance(one, Violations)),
            checked=next((one for one in results if isinstance(one, CheckResults)), NOT_CHECKED),
        )

    @property
    def row_stats(self) -> list[WriteStat]:
        """The statistics of the table's files."""
        return _stats(self.rows)

    @property
    def reject_stats(self) -> list[WriteStat]:
        """The statistics of the dead-letter table's files."""
        return _stats(self.rejects)

    @property
    def rejected(self) -> int:
        """The number of rejects."""
        return _arrived(self.rejects)

    @property
    def records(self) -> int:
        """The number of records that were read, without ignored tombstones."""
        return self.read.count - self.read.ignored

    @property
    def moved(self) -> int:
        """The number of rows that moved to another partition."""
        return self.counts.moved if self.counts else 0

    @property
    def first_reject(self) -> str | None:
        """The origin of a reject, and the reason; None if there is no reject."""
        return next((one.first_reject for one in self.rejects if one.first_reject), None)

    def proposal(self) -> Proposal:
        """Return the schema change that the records request; empty if there is none.

        Raises:
            SchemaRefused: a record does not fit the schema, and the policy is to stop.
        """
        if self.request.refused is not None:
            raise SchemaRefused(str(self.request.refused))
        return self.request.proposal

    def audit(self, batch: str, spans: Spans) -> Audit:
        """Compare the records that were read with the changes that were written.

        Args:
            batch: a description of the batch, for the error.
            spans: the offsets of the batch.

        Raises:
            AuditFailed: the numbers contradict each other.
        """
        stats = self.row_stats
        return audit(
            batch,
            spans,
            self.read,
            arrived=_arrived(self.rows),
            written=sum(stat.changed_rows + stat.num_deletes for stat in stats),
            rejected=self.rejected,
            counts=self.counts,
        )

    def to_result(
        self,
        instant: Instant,
        seconds: Mapping[str, float],
        skipped: int,
        rules: Sequence[Rule],
        checks: Sequence[BatchCheck],
    ) -> BatchResult:
        """Return the result of the published batch.

        Args:
            instant: the commit of the batch.
            seconds: the duration of each stage.
            skipped: the number of offsets at which the topic has no record.
            rules: the rules that judged the rows.
            checks: the checks that judged the batch.
        """
        stats = self.row_stats
        return BatchResult(
            instant=instant.requested_at,
            records=self.read.count,
            rows=sum(stat.changed_rows for stat in stats),
            deletes=max(sum(stat.num_deletes for stat in stats) - self.moved, 0),
            rejected=self.rejected,
            written_bytes=sum(stat.total_write_bytes for stat in stats),
            files=len(stats),
            first_reject=self.first_reject,
            reject_counts=merge_counts(n for one in self.rejects for n in one.reject_counts),
            seconds=dict(seconds),
            ignored=self.read.ignored,
            partition_changes=self.partition_changes.count,
            first_partition_change=self.partition_changes.first,
            skipped=skipped,
            moved=self.moved,
            duplicates=self.counts.stored if self.counts else 0,
            filtered=self.read.filtered,
            violations=self.violations.report(rules),
            check_violations=self.checked.report(checks),
        )


def _stats(written: Iterable[BucketWritten]) -> list[WriteStat]:
    return [stat for one in written for stat in one.stats]


def _arrived(written: Iterable[BucketWritten]) -> int:
    return sum(one.arrived for one in written)
