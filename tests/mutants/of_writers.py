"""Mutants of writers: locks on servers, early conflicts, numbers of rows, batches of streams."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ZOOKEEPER = "lakemark/timeline/locks/zookeeper_lock.py"
_DYNAMODB = "lakemark/timeline/locks/dynamodb_lock.py"
_EARLY = "lakemark/write/early_conflicts.py"

_OF_SERVERS = ("tests/contract/test_lock_servers.py",)
_OF_LOSSES = ("tests/contract/test_lock_losses.py",)
_BATCHES = "tests/unit/operations/test_stream_batches.py"
_SHARES = "tests/unit/operations/test_shares.py"
_OF_EARLY = ("tests/recovery/test_early_conflicts.py",)

_LOCKS = (
    Mutant(
        "lakemark/timeline/locks/table_lock.py",
        "            self._provider.cancel(owner)\n",
        "            pass\n",
        "a writer that gave up waiting in ZooKeeper blocks all others",
        _OF_SERVERS,
    ),
    Mutant(
        _ZOOKEEPER,
        "_LEASE_SHARE * self._session.granted_ms()",
        "_LEASE_SHARE * 10**9",
        "a lease outlives its session, so two writers hold the lock",
        _OF_SERVERS,
    ),
    Mutant(
        _ZOOKEEPER,
        "previous is not None and not previous.shows_release(self._url)",
        "False and bool(previous)",
        "a lock in ZooKeeper is taken over without a withdrawal",
        _OF_SERVERS,
    ),
    Mutant(
        _ZOOKEEPER,
        "lambda request: request.check(claim.version, _ANY_VERSION)",
        "lambda request: request.check(self._path, _ANY_VERSION)",
        "a writer whose session has expired believes that it holds the lock",
        _OF_SERVERS,
    ),
    Mutant(
        _DYNAMODB,
        " - self._seen_for_ms(version)",
        " + 0 * self._seen_for_ms(version)",
        "the lock of a dead Apache Hudi writer is never taken over",
        _OF_SERVERS,
    ),
    Mutant(
        _DYNAMODB,
        "        if seen_version != version:\n",
        "        if not seen_version:\n",
        "a lock that Apache Hudi renews is taken from it",
        _OF_SERVERS,
    ),
    Mutant(
        _DYNAMODB,
        "return None if stored.record.expired else self._write(record, stored.version)",
        "return None",
        "a renewal whose answer was lost loses the lock in DynamoDB",
        _OF_LOSSES,
    ),
    Mutant(
        _DYNAMODB,
        "            if stored.version == written:\n                return stored\n",
        "            if stored.version == written:\n                return None\n",
        "a lost answer of DynamoDB loses the lock",
        _OF_SERVERS,
    ),
    Mutant(
        _DYNAMODB,
        "        self.longer_wait_s = duration_ms / 1000\n",
        "",
        "the lock of an Apache Hudi writer with a long lease is never taken over",
        _OF_LOSSES,
    ),
    Mutant(
        "lakemark/timeline/locks/lock_provider.py",
        'return self.expired and self.table in ("", table)',
        "return self.expired",
        "a paused writer publishes after the holder of another table used the same lock",
        _OF_LOSSES,
    ),
    Mutant(
        _ZOOKEEPER,
        "            if self._session.change(partial(_set_data, node, data)):\n",
        "            if data:\n",
        "a writer that waits for long is removed from the queue",
        _OF_LOSSES,
    ),
    Mutant(
        _ZOOKEEPER,
        "self._delete(queue[0], version)",
        "self._delete(queue[0])",
        "a writer that has just acquired the lock is removed from the queue",
        _OF_LOSSES,
    ),
    Mutant(
        _ZOOKEEPER,
        "        self._session.call_later(partial(self._delete_nodes_of, owner), after_s)\n",
        "",
        "a lock whose release failed blocks Apache Hudi as long as the process lives",
        _OF_LOSSES,
    ),
    Mutant(
        "lakemark/timeline/locks/table_lock.py",
        "                self._provider.cancel(self._owner)\n",
        "",
        "a lock whose release failed blocks Apache Hudi as long as the process lives",
        _OF_LOSSES,
    ),
    Mutant(
        "lakemark/timeline/locks/open_lock.py",
        "# model: take over\n    lease.check()\n",
        "# model: take over\n    lease.check_time()\n",
        "a writer that lost the lock deletes what the next holder has prepared",
        _OF_LOSSES,
    ),
)

_CONFLICTS = (
    Mutant(
        _EARLY,
        "        if ours in theirs and rival.is_alive(storage):\n",
        "        if ours in theirs:\n",
        "the markers of a dead writer block all others",
        _OF_EARLY,
    ),
    Mutant(
        "lakemark/write/markers.py",
        "    names = [name for path, _, name in of_server if path == partition_path]\n",
        "    names: list[str] = [] and list(of_server)\n",
        "a batch that conflicts with one of Apache Hudi is written in vain",
        _OF_EARLY,
    ),
)

_OF_LARGE_LOGS = ("tests/unit/write/test_log_rollover.py",)

_NUMBERS = (
    Mutant(
        "lakemark/write/new_base_file.py",
        "self._series = series_number(group)",
        "self._series = task_number(group)",
        "two rows of a commit have the same sequence number",
        ("tests/spec/test_table_format.py",),
    ),
    Mutant(
        "lakemark/write/new_log_file.py",
        "import series_number\n",
        "import task_number as series_number\n",
        "two rows of a delta commit have the same sequence number",
        ("tests/spec/test_table_format.py",),
    ),
    Mutant(
        "lakemark/write/new_log_file.py",
        "            if self._file.is_full:\n",
        "            if False:\n",
        "a log grows without limit",
        _OF_LARGE_LOGS,
    ),
    Mutant(
        "lakemark/write/new_log_file.py",
        ", first_row=full.next_row",
        "",
        "two rows of a delta commit with several logs have the same sequence number",
        _OF_LARGE_LOGS,
    ),
    Mutant(
        "lakemark/write/file_group_write.py",
        "key_changes=_removed_by(context, task, logs, may_remove.record_keys()),",
        "key_changes=_removed_by(context, task, logs[:1], may_remove.record_keys()),",
        "the record index keeps keys that a later log of the commit deletes",
        _OF_LARGE_LOGS,
    ),
)

_STREAMS = (
    Mutant(
        "lakemark/operations/commit_attempts.py",
        "self._batch.find_active_commit(self._writer.table.store, timeline)",
        "None",
        "two runs of a stream write the same batch at the same time",
        (f"{_BATCHES}::test_two_writers_of_one_stream_write_a_batch_once",),
    ),
    Mutant(
        "lakemark/operations/stream_batch.py",
        "        if last is None and timeline.has_history:\n",
        "        if last is None and False:\n",
        "a batch whose commit is archived is written again",
        (f"{_BATCHES}::test_the_record_of_a_batch_outlives_archival",),
    ),
    Mutant(
        "lakemark/operations/share_plan.py",
        "        if self.num_rows is not None and found != self.num_rows:\n",
        "        if False:\n",
        "rows of a cluster that differ from the keys that were assigned are lost",
        (f"{_SHARES}::test_shares_with_other_rows_than_their_keys_are_not_published",),
    ),
)

OF_WRITERS = (*_LOCKS, *_CONFLICTS, *_NUMBERS, *_STREAMS)
