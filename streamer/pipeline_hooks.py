"""Announces the commits and runs of a pipeline to its hooks.

Each commit of a pipeline with hooks records which commit each hook has announced last
(``lakemark.hooks``). So after a crash, the next start finds the commits that may not have been
announced: it announces every batch of the pipeline after the recorded ones. The last commits of a
run may so be announced twice, and no commit is missed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from uuid import uuid4

from checkpoints.lookup import find_progress
from checkpoints.position import Position
from checkpoints.snapshot_position import SnapshotPosition
from checkpoints.table_position import TablePosition
from lakemark.errors import Permanent, SnapshotChanged
from lakemark.model.action import COMMITS
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable
from lakemark.storage import canonical_url
from streamer.config.hooks import HookConfig, HookNames
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.config.pipeline import PipelineConfig
from streamer.config.secrets import build_redactor
from streamer.events import BatchWritten, Event, Listener, Retrying
from streamer.hook_worker import MAX_PENDING, HookWorker
from streamer.hooks.notices import (
    Announced,
    BatchFailed,
    BatchMeasured,
    CommitCompleted,
    Notice,
    Outcome,
    PipelineFacts,
    RunBegan,
    RunEnded,
    is_batch_of,
)
from streamer.hooks.open_hook import check_installed, notices_of, open_hook

_LOG = logging.getLogger(__name__)

#: Seconds for which the end of a run waits for the hooks, all together.
_END_WITHIN_S = 3.0

#: Seconds between two looks at whether the hooks have the commits of a replay.
_POLL_S = 0.05

#: How many of the newest commits are read to find what the pipeline has recorded, if its newest
#: checkpoint was recorded by a command.
_SEARCHED_COMMITS = 20


class PipelineHooks:
    """Passes what happens in one run to the hooks of its pipeline.

    Args:
        facts: the pipeline, with the source that this run reads.
        commit_facts: the pipeline, with the source of its commits that contain no rows of a
            snapshot. It differs from ``facts`` in a run that reads the snapshot.
        workers: deliver the notices, one for each hook.
        next_listener: receives all events of the run.
        redacted: removes secrets from a text.
    """

    def __init__(
        self,
        facts: PipelineFacts,
        commit_facts: PipelineFacts,
        workers: Sequence[HookWorker],
        next_listener: Listener,
        redacted: Callable[[str], str],
    ) -> None:
        self._facts, self._commit_facts = facts, commit_facts
        self._workers = tuple(workers)
        self._takers = [one for one in self._workers if one.takes_commits]
        self._next_listener, self._redacted = next_listener, redacted
        self._run_id = uuid4()
        self._table: OpenTable | None = None
        self._has_begun, self._may_lack_commits = False, True

    @property
    def is_progressing(self) -> bool:
        """Whether a notice waits for a hook whose last attempt did not fail."""
        return any(one.is_progressing for one in self._workers)

    def listen(self, event: Event, /) -> None:
        """Pass an event on, and announce what it reports; a ``Listener``."""
        self._next_listener(event)
        if self._workers and self._table is not None:
            try:
                self._announce_event(event)
            except Exception as error:  # the batch is committed, whatever happens here
                self._may_lack_commits = True
                _LOG.warning("a commit is announced to the hooks later: %s", error)

    def begin(self, table: OpenTable) -> None:
        """Announce that the run has opened its table."""
        self._table = table
        self._add(RunBegan(self._facts, self._run_id, _now()))

    def begin_replay(self, table: OpenTable) -> Mapping[str, str]:
        """Announce the begin of a replay of dead letters; return the metadata of its commits.

        They repeat what the pipeline has recorded, so that its next start also announces them if
        the replay dies before it has.
        """
        self.begin(table)
        self._begin_after_recorded(table)
        return self.record()

    def announce_replay(self, requested_at: Iterable[str]) -> None:
        """Announce commits of a replay, and wait until the hooks have them.

        The wait ends when the last attempt of each waiting hook has failed, or hangs.
        """
        try:
            for instant in requested_at:
                self._announce_commit(instant)
        except Exception as error:  # the rows are committed, whatever happens here
            _LOG.warning("a commit of the replay is not announced to the hooks: %s", error)
        while self.is_progressing:
            time.sleep(_POLL_S)

    def catch_up(self) -> None:
        """Announce the commits of the pipeline that were not announced.

        These are commits of an earlier run that has crashed or could not reach a receiver, and
        commits whose outcome was unknown to this run. The timeline must be loaded.

        Raises:
            Retriable: the table cannot be read.
        """
        if not self._takers or not self._may_lack_commits or self._table is None:
            return
        if not self._has_begun:
            self._begin_after_recorded(self._table)
            self._has_begun = True
        since = min(one.newest for one in self._takers)
        newest = list(islice(self._batches_after(self._table, since), MAX_PENDING + 1))
        if len(newest) > MAX_PENDING:
            oldest, _ = newest.pop()
            _LOG.warning(
                "the commits up to %s are not announced to the hooks, because more than %d wait",
                oldest.requested_at,
                MAX_PENDING,
            )
        for instant, metadata in reversed(newest):
            self._add(self._commit_notice(instant, metadata))
        self._may_lack_commits = False

    def record(self) -> Mapping[str, str]:
        """Return the extra metadata of the next commit: which commits were announced."""
        if not self._takers:
            return {}
        by_hook = {one.name: one.announced for one in self._takers}
        return Announced(self._facts.identity, by_hook).encode()

    @contextmanager
    def until_end(self) -> Iterator[None]:
        """Announce the end of the run when the block ends, and end the threads."""
        outcome, error_type, error, within_s = Outcome.COMPLETED, "", "", _END_WITHIN_S
        try:
            yield
        except Exception as failure:
            outcome, error_type, error = Outcome.FAILED, type(failure).__name__, str(failure)
            raise
        except BaseException:
            outcome, within_s = Outcome.ABORTED, 0.0
            raise
        finally:
            self._end(outcome, error_type, error, within_s)

    def _end(self, outcome: Outcome, error_type: str, error: str, within_s: float) -> None:
        if self._table is not None:
            text = self._redacted(error)
            self._add(RunEnded(self._facts, self._run_id, _now(), outcome, error_type, text))
        ends_at = time.monotonic() + within_s
        for one in self._workers:
            one.end(max(0.0, ends_at - time.monotonic()))

    def _announce_event(self, event: Event) -> None:
        match event:
            case BatchWritten(instant=str(requested_at)):
                self._add(self._measured(event, requested_at))
                self._announce_commit(requested_at)
            case Retrying():
                self._may_lack_commits = True  # the outcome of a commit may have been unknown
                error = self._redacted(event.error)
                kind, attempt = event.error_type, event.attempt
                self._add(BatchFailed(self._facts, self._run_id, _now(), kind, error, attempt))

    def _announce_commit(self, requested_at: str) -> None:
        """Announce a commit of this run, whose content is still in memory."""
        assert self._table is not None
        instant = self._table.timeline.find(requested_at)
        if instant is None or not instant.is_completed:
            self._may_lack_commits = True
            return
        self._add(self._commit_notice(instant, self._table.store.read_commit(instant)))

    def _measured(self, event: BatchWritten, instant: str) -> BatchMeasured:
        counts = {
            "records_read": event.records_read,
            "rows_written": event.rows_written,
            "rows_deleted": event.rows_deleted,
            "records_rejected": event.rejects,
            "bytes_written": event.bytes_written,
        }
        return BatchMeasured(
            self._facts,
            self._run_id,
            _now(),
            instant,
            event.seconds,
            dict(event.stage_s),
            counts,
        )

    def _commit_notice(self, instant: Instant, metadata: CommitMetadata) -> CommitCompleted:
        assert self._table is not None
        completed_at = self._table.store.clock.parse(instant.completed_at or instant.requested_at)
        notice = CommitCompleted(
            facts=self._commit_facts,
            run_id=self._run_id,
            instant=instant,
            completed_at=completed_at,
            metadata=metadata,
        )
        return replace(notice, facts=_with_source_of(notice.end, notice.facts))

    def _add(self, notice: Notice) -> None:
        for one in self._workers:
            one.add(notice)

    def _begin_after_recorded(self, table: OpenTable) -> None:
        """Let each hook begin after the commit that it has announced last.

        A hook that the pipeline did not have before begins after the newest commit.
        """
        found = self._find_recorded(table)
        newest = max((i.requested_at for i in table.timeline.completed(*COMMITS)), default="")
        for one in self._takers:
            one.begin_after(newest if found is None else found.by_hook.get(one.name, newest))

    def _find_recorded(self, table: OpenTable) -> Announced | None:
        """Return what the newest batch of the pipeline records; None if no commit is found."""
        progress = find_progress(table, table.timeline, self._facts.identity)
        named = None if progress is None else _find_commit(table, progress.commit)
        newest = reversed(table.timeline.completed(*COMMITS)[-_SEARCHED_COMMITS:])
        for instant in ([named] if named is not None and named.is_completed else []) + [*newest]:
            metadata = self._read(instant)
            found = None if metadata is None else Announced.in_commit(metadata)
            if found is not None and found.identity == self._facts.identity:
                return found
        return None

    def _batches_after(
        self, table: OpenTable, since: str
    ) -> Iterator[tuple[Instant, CommitMetadata]]:
        """Yield the batches of the pipeline that were requested after a time, newest first."""
        listed = {i.requested_at: i for i in table.timeline.completed(*COMMITS)}
        for requested_at in sorted((one for one in listed if one > since), reverse=True):
            metadata = self._read(listed[requested_at])
            if metadata is not None and is_batch_of(self._facts.identity, metadata):
                yield listed[requested_at], metadata
        if not table.timeline.is_archived(since):
            return
        try:
            yield from self._archived_after(table, since, listed)
        except Permanent as error:  # is no reason to end the run, because the batches are complete
            _LOG.warning("archived commits are not announced to the hooks: %s", error)

    def _archived_after(
        self, table: OpenTable, since: str, active: Container[str]
    ) -> Iterator[tuple[Instant, CommitMetadata]]:
        """Yield the archived ones among these batches; each file of the archive is read once."""
        archive = table.store.load_archived()
        instants = [
            i
            for i in archive.instants(since)
            if i.action in COMMITS and i.requested_at > since and i.requested_at not in active
        ]
        for until in range(len(instants), 0, -MAX_PENDING):
            part = instants[max(0, until - MAX_PENDING) : until]
            own = {
                i.requested_at: (i, metadata)
                for i, metadata in archive.read_commits(part)
                if is_batch_of(self._facts.identity, metadata)
            }
            yield from (own[time] for time in sorted(own, reverse=True))

    def _read(self, instant: Instant) -> CommitMetadata | None:
        """Return the content of a commit; None if it was rolled back, or cannot be read at all."""
        assert self._table is not None
        try:
            return self._table.store.read_commit(instant)
        except (SnapshotChanged, Permanent) as error:
            _LOG.warning("commit %s is not announced: %s", instant.requested_at, error)
            return None


def pipeline_hooks(
    config: PipelineConfig, listener: Listener, *, reads_snapshot: bool = False
) -> PipelineHooks:
    """Return what announces the commits of a pipeline.

    Args:
        config: the configuration of the pipeline.
        listener: receives all events of the run, and those of the hooks.
        reads_snapshot: whether the run reads the snapshot of the pipeline.

    Raises:
        ConfigError: a value cannot be found.
        InvalidConfig: a library of a hook is not installed.
    """
    for one in config.hooks:
        check_installed(one.kind)
    workers = [_worker(one, config.hook_names, listener) for one in config.hooks]
    facts = _facts(config.of_snapshot() if reads_snapshot else config)
    return PipelineHooks(facts, _facts(config), workers, listener, build_redactor(config))


def _find_commit(table: OpenTable, requested_at: str) -> Instant | None:
    """Find a commit that may have been archived, because other writers may archive it."""
    if table.timeline.is_archived(requested_at):
        return table.store.load_archived().find(requested_at)
    return table.timeline.find(requested_at)


def _worker(config: HookConfig, names: HookNames, listener: Listener) -> HookWorker:
    opened = partial(open_hook, config.kind, config.resolved(names))
    notices = notices_of(config.kind)
    return HookWorker(config.shown_name, notices, opened, listener, config.give_up_after_s)


def _facts(config: PipelineConfig) -> PipelineFacts:
    source = config.source
    if isinstance(source, KafkaSourceConfig):
        origin, brokers = source.topic, source.bootstrap_servers
    else:
        origin, brokers = canonical_url(source.path), ""
    return PipelineFacts(
        pipeline=config.name,
        identity=source.checkpoint_id,
        source_kind=source.kind,
        source=origin,
        brokers=brokers,
        table=config.table.name,
        path=canonical_url(config.table.path),
    )


def _with_source_of(end: Position | None, facts: PipelineFacts) -> PipelineFacts:
    """Return the pipeline with the source of a commit, which may contain rows of a snapshot.

    Another run may announce the commit, so the run does not tell the source.
    """
    if not isinstance(end, SnapshotPosition):
        return facts
    kind = "table" if isinstance(end.read, TablePosition) else "files"
    return replace(facts, source_kind=kind, source=end.read.origin, brokers="")


def _now() -> datetime:
    return datetime.now(UTC)
