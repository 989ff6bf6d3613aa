"""A pending commit whose completed file was lost is recognised by proofs of its completion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from lakemark.codec import avro_container
from lakemark.config import keys
from lakemark.errors import Refused
from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.compaction_plan import CompactionOperation, CompactionPlan
from lakemark.model.file_slice import FileGroupId
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.timeline.content import encode_commit, encode_compaction_plan
from lakemark.timeline.locks.open_lock import open_lock
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.completion_loss import check_never_completed
from lakemark.transaction.metadata_updater import NoMetadataUpdater
from lakemark.transaction.table_context import TableContext
from lakemark.write.markers import create_marker
from tests.table_services import make_plain
from tests.unit.transaction.timelines import TimelineInMaking, written

V6, V9 = FormatVersion.V6, FormatVersion.V9
GROUP = "00000001-0000-4000-8000-000000000000-0"


class KnowsAll(NoMetadataUpdater):
    """A metadata table that has recorded every commit."""

    def has_commit(self, requested_at: str) -> bool:
        return True


class Case:
    """A pending commit of lakemark with one base file."""

    def __init__(self, version: FormatVersion = V9, writer: str | None = "ours") -> None:
        self.at = TimelineInMaking(version)
        make_plain(self.at.storage, version=version)
        self.requested = self.at.request(Action.COMMIT)
        extra = {keys.WRITER_ID: writer} if writer else {}
        content = encode_commit(Action.COMMIT, CommitMetadata(extra_metadata=extra), version)
        self.pending = self.requested.inflight()
        self.at.store.create(self.pending, content)
        self.base = f"{GROUP}_0-0-0_{self.pending.requested_at}.parquet"
        self.path = f"north/{self.base}"

    def write_file(self) -> None:
        self.at.storage.put(self.path, b"rows")

    def write_over(self, instant: Instant) -> None:
        """Complete an instant that rewrites the base file."""
        stat = WriteStat(file_id=GROUP, partition_path="north", prev_base_file=self.base)
        self.at.complete(instant, CommitMetadata(write_stats=(stat,)))

    def plan_over_logs(self) -> None:
        """Plan a compaction that reads a log of the commit."""
        slice_start = "20250101000000000" if self.at.version is V6 else self.pending.requested_at
        log = f".{GROUP}_{slice_start}.log.1_0-0-0"
        operation = CompactionOperation(
            group=FileGroupId("north", GROUP),
            base_instant=slice_start,
            data_file=None,
            log_files=(log,),
        )
        content = encode_compaction_plan(CompactionPlan((operation,)))
        self.at.request(Action.COMPACTION, content)

    def keep(self, savepoint_of: str) -> None:
        empty: Mapping[str, Sequence[object]] = {}
        record = {"savepointedBy": "", "savepointedAt": 0, "comments": "", "version": 1}
        content = avro_container.encode(
            "HoodieSavepointMetadata", {**record, "partitionMetadata": empty}
        )
        savepoint = Instant(savepoint_of, Action.SAVEPOINT, State.INFLIGHT)
        self.at.store.create(savepoint)
        self.at.publish(savepoint, content)

    def check(self, *, is_told: bool = False) -> Timeline:
        context = TableContext(
            storage=self.at.storage,
            timeline=self.at.store,
            lock=open_lock(self.at.storage),
            metadata_updater=KnowsAll() if is_told else NoMetadataUpdater(),
        )
        timeline = self.at.load()
        check_never_completed(context, self.pending, timeline)
        return timeline


def refused(case: Case, match: str, *, is_told: bool = False) -> None:
    with pytest.raises(Refused, match=match) as refusal:
        case.check(is_told=is_told)
    assert f"lakemark table rollback {case.at.storage.location.url}" in str(refusal.value)


@pytest.mark.parametrize("version", [V6, V9])
def test_a_pending_commit_that_nobody_has_seen_never_completed(version: FormatVersion) -> None:
    case = Case(version)
    case.write_file()
    assert case.check().pending() == (case.pending,)


def test_a_savepoint_of_its_name_proves_it_and_another_does_not() -> None:
    other = Case()
    done = other.at.commit(Action.COMMIT, written())
    other.keep(done.requested_at)
    other.check()
    case = Case()
    create_marker(case.at.storage, case.pending.requested_at, case.path)
    case.keep(case.pending.requested_at)
    refused(case, "savepoint .* keeps it")


def test_files_without_markers_that_the_metadata_table_was_told_of_prove_it() -> None:
    case = Case()
    case.write_file()
    refused(case, f"the metadata table lists {case.path}", is_told=True)


@pytest.mark.parametrize("trace", ["marker", "prepared content", "no file", "another's commit"])
def test_what_the_metadata_table_was_told_of_is_no_proof_while_its_writer_may_have_died_before(
    trace: str,
) -> None:
    case = Case(writer=None if trace == "another's commit" else "ours")
    if trace != "no file":
        case.write_file()
    if trace == "marker":
        create_marker(case.at.storage, case.pending.requested_at, case.path)
    if trace == "prepared content":
        case.at.store.prepare(case.pending, b"content")
    case.check(is_told=True)


def test_a_damaged_inflight_file_does_not_say_that_the_commit_is_ours() -> None:
    case = Case()
    case.write_file()
    case.at.storage.put(case.at.store.path_of(case.pending), b"{")
    case.check(is_told=True)


@pytest.mark.parametrize("version", [V6, V9])
def test_a_later_commit_over_its_base_file_proves_it(version: FormatVersion) -> None:
    case = Case(version)
    case.write_over(case.at.begin(Action.COMMIT))
    refused(case, "replaced one of its base files")


def test_a_later_commit_over_other_files_or_one_that_has_not_completed_proves_nothing() -> None:
    case = Case()
    case.at.commit(Action.COMMIT, written(("north", GROUP)))
    case.at.begin(Action.COMMIT)
    case.check()


@pytest.mark.parametrize("trace", ["marker", "prepared content"])
def test_a_commit_whose_writer_has_not_tidied_up_is_taken_for_a_dead_ones(trace: str) -> None:
    case = Case()
    if trace == "marker":
        create_marker(case.at.storage, case.pending.requested_at, case.path)
    else:
        case.at.store.prepare(case.pending, b"content")
    case.write_over(case.at.begin(Action.COMMIT))
    case.check()


@pytest.mark.parametrize("version", [V6, V9])
def test_a_compaction_planned_over_its_logs_proves_it_where_logs_name_their_commit(
    version: FormatVersion,
) -> None:
    case = Case(version)
    case.plan_over_logs()
    if version is V6:
        case.check()
    else:
        refused(case, "contains some of its logs")
