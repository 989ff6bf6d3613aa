"""Mutants of checkpoints, of the commits that carry them, and of the audit of a batch."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PROGRESS = ("tests/unit/checkpoints/test_progress.py",)
_LOOKUP = ("tests/unit/checkpoints/test_lookup.py", *_PROGRESS)
_CHECKPOINT = ("tests/unit/checkpoints/test_checkpoint.py", "tests/property/test_checkpoints.py")
_LOOKUP_IN_TABLE = ("tests/unit/checkpoints/test_lookup_in_table.py", *_PROGRESS)
_PLAN = ("tests/unit/checkpoints/test_plan.py",)
_EDIT = (
    "tests/unit/checkpoints/test_lookup_in_table.py",
    "tests/unit/streamer/test_checkpoint_command.py",
)
_SINK = ("tests/unit/sinks/test_carried_checkpoints.py",)
_AUDIT = ("tests/unit/sinks/test_audit.py",)

OF_CHECKPOINTS = (
    Mutant(
        "sinks/hudi/sink_progress.py",
        "        if stored != self._checkpoint:\n",
        "        if False:\n",
        "two runs of one pipeline commit each record twice: a checkpoint that another moved counts",
        _SINK,
    ),
    Mutant(
        "sinks/hudi/sink_progress.py",
        "encode_progress(known.with_progress(self._identity, progress), self._identity)",
        "encode_progress(TableProgress().with_progress(self._identity, progress), self._identity)",
        "a commit forgets the other streamers: once theirs are archived they read all again",
        _SINK,
    ),
    Mutant(
        "sinks/hudi/sink_progress.py",
        "            applied=before.applied if before else {},\n",
        "",
        "Apache Hudi's streamer obeys a reset a second time",
        _SINK,
    ),
    Mutant(
        "sinks/hudi/sink_progress.py",
        "        self._checkpoint = end\n",
        "",
        "the second batch of each run is refused",
        _SINK,
    ),
    Mutant(
        "lakemark/operations/service_commit.py",
        "return {**facts, **carry_progress(extra)}",
        "return dict(facts)",
        "a compaction carries no checkpoint: once the commits before it are archived, it is lost",
        _SINK,
    ),
    Mutant(
        "lakemark/transaction/streamer_progress.py",
        'ingest.sort(key=lambda c: (c[0].completed_at or "", c[0].requested_at), reverse=True)',
        "ingest.sort(key=lambda c: c[0].requested_at, reverse=True)",
        "a run goes on from a commit that was requested last and completed before another",
        _LOOKUP,
    ),
    Mutant(
        "lakemark/transaction/streamer_progress.py",
        "if before is None or before.progress.known_at < progress.known_at:",
        "if before is None:",
        "an entry that was copied counts more than a newer one in an older commit",
        _LOOKUP,
    ),
    Mutant(
        "lakemark/transaction/streamer_progress.py",
        "        if len(valid) == len(recorded.streamers):",
        "        if True:",
        "after an undone commit the place before it is not found",
        _LOOKUP,
    ),
    Mutant(
        "lakemark/transaction/streamer_progress.py",
        "for n, entry in recorded.streamers.items() if is_in_effect(entry.commit)}",
        "for n, entry in recorded.streamers.items()}",
        "a run goes on behind records whose commit was undone",
        (*_PROGRESS, "tests/recovery/test_restored_checkpoint.py"),
    ),
    Mutant(
        "lakemark/transaction/streamer_progress.py",
        "    if may_be_service or instant.completed_at is None:\n",
        "    if instant.completed_at is None:\n",
        "a compaction that took long sets the stream back",
        _LOOKUP,
    ),
    Mutant(
        "lakemark/transaction/streamer_progress.py",
        "        kept |= _known_to_apache(listed, default.progress.commit)\n",
        "        pass\n",
        "archival takes the commit that Apache Hudi's streamer would go on from",
        _PROGRESS,
    ),
    Mutant(
        "lakemark/transaction/streamer_progress.py",
        "if i.requested_at <= newest and checkpoint_key(extra) is not None",
        "if checkpoint_key(extra) is not None",
        "archival keeps another commit than that which Apache Hudi's streamer goes on from",
        _PROGRESS,
    ),
    Mutant(
        "lakemark/transaction/streamer_progress.py",
        "(i, extra) for i, extra in commits if i.is_completed and i.action.is_ingest]\n"
        "    has_delta_commits",
        "(i, extra) for i, extra in commits]\n    has_delta_commits",
        "a run goes on from a commit that has not completed",
        _LOOKUP,
    ),
    Mutant(
        "lakemark/transaction/carried_metadata.py",
        "for k in (CHECKPOINT_KEY_V2, CHECKPOINT_KEY) if",
        "for k in (CHECKPOINT_KEY, CHECKPOINT_KEY_V2) if",
        "a run goes on from another place than Apache Hudi's streamer",
        _LOOKUP,
    ),
    Mutant(
        "checkpoints/commit_keys.py",
        "    if not checkpoint.offsets:\n",
        "    if False:\n",
        "a checkpoint without partitions starts the stream at the beginning",
        (*_LOOKUP, *_CHECKPOINT),
    ),
    Mutant(
        "lakemark/transaction/carried_metadata.py",
        "        carried[keys.CHECKPOINTS] = extra_metadata[keys.CHECKPOINTS]\n",
        "        pass\n",
        "a compaction forgets all streamers that have an identity",
        (*_LOOKUP, *_SINK),
    ),
    Mutant(
        "lakemark/transaction/streamer_progress.py",
        'known_at = instant.completed_at or "" if is_own else',
        'known_at = "" if is_own else',
        "a commit's own progress counts less than any that was carried",
        _LOOKUP,
    ),
    Mutant(
        "lakemark/transaction/streamer_progress.py",
        "    if default is not None and default.checkpoint == checkpoint:\n",
        "    if default is not None:\n",
        "the progress of Apache Hudi's streamer is overlooked beside an older book",
        _PROGRESS,
    ),
    Mutant(
        "lakemark/transaction/streamer_progress.py",
        'str(entry.get("known_at") or commit)',
        'str(entry.get("known_at") or instant.completed_at)',
        "a carried entry without its time counts as the newest",
        _LOOKUP,
    ),
    Mutant(
        "checkpoints/progress.py",
        "own.checkpoint if identity == DEFAULT_IDENTITY else None",
        "own.checkpoint",
        "Apache Hudi's streamer goes on from the place of another streamer",
        _PROGRESS,
    ),
    Mutant(
        "checkpoints/checkpoint.py",
        "partitions = self.offsets.keys() | records.keys()",
        "partitions = self.offsets.keys()",
        "a partition that was added to the topic is read from its beginning at each start",
        _CHECKPOINT,
    ),
    Mutant(
        "checkpoints/checkpoint.py",
        "offset <= other.offsets.get(partition, -1)",
        "offset <= other.offsets.get(partition, offset)",
        "a checkpoint without a partition passes for a later one",
        _CHECKPOINT,
    ),
    Mutant(
        "checkpoints/checkpoint.py",
        "ordered = MappingProxyType(dict(sorted(self.offsets.items())))",
        "ordered = MappingProxyType(dict(self.offsets))",
        "equal checkpoints are written in two ways",
        _CHECKPOINT,
    ),
    Mutant(
        "checkpoints/checkpoint.py",
        "int(match[1]) in offsets or ",
        "",
        "a damaged checkpoint that names a partition twice sets the stream anywhere",
        _CHECKPOINT,
    ),
    Mutant(
        "lakemark/transaction/streamer_progress.py",
        'return timeline.has_history and "" < as_of < (timeline.start or "")',
        "return False",
        "a streamer whose last commit another writer archived reads all again",
        _LOOKUP_IN_TABLE,
    ),
    Mutant(
        "checkpoints/lookup.py",
        "or (found is None and timeline.has_history):",
        "or False:",
        "a streamer of which only archived commits tell reads all again",
        _LOOKUP_IN_TABLE,
    ),
    Mutant(
        "lakemark/transaction/streamer_progress.py",
        "return newest[:_TO_THE_SECOND] if completed[-1].is_legacy and not is_quiet else newest",
        "return newest",
        "a commit of the same second is overlooked in version 6",
        _LOOKUP_IN_TABLE,
    ),
    Mutant(
        "checkpoints/plan.py",
        "if known is not None and keeps_some else",
        "if known is not None else",
        "offsets set for a topic that was created again are refused at the next start",
        _PLAN,
    ),
    Mutant(
        "checkpoints/plan.py",
        "{**kept, **wanted.offsets}",
        "{**wanted.offsets}",
        "setting one partition resets all others",
        _PLAN,
    ),
    Mutant(
        "checkpoints/plan.py",
        "kept = before.offsets if before is not None and is_same_topic else {}",
        "kept = before.offsets if before is not None else {}",
        "offsets of another topic are kept for the new one",
        _PLAN,
    ),
    Mutant(
        "checkpoints/edit.py",
        "return commit.is_legacy or is_progress or is_change",
        "return commit.is_legacy or is_change",
        "a checkpoint set by hand overrules a batch that completed meanwhile",
        _EDIT,
    ),
    Mutant(
        "checkpoints/edit.py",
        "        if pending.state is State.REQUESTED or not _is_of_this_project(table, pending):\n",
        "        if False:\n",
        "Apache Hudi's streamer overrules a checkpoint that was set while it was writing",
        _EDIT,
    ),
    Mutant(
        "checkpoints/edit.py",
        "{**self.table_keys, **encode_progress(known, self.identity)}",
        "{**encode_progress(known, self.identity)}",
        "after a checkpoint is set by hand the table has no schema and no bucket count",
        _EDIT,
    ),
    Mutant(
        "sinks/audit.py",
        "if read.count + read.added_rows != accepted + rejected + read.ignored + read.filtered:",
        "if False:",
        "a batch is published although records of it got lost on their way",
        _AUDIT,
    ),
    Mutant(
        "sinks/audit.py",
        "if counts and arrived != counts.to_write:",
        "if False:",
        "a batch is published although changes got lost when rows were moved",
        _AUDIT,
    ),
    Mutant(
        "sinks/audit.py",
        "    if written > arrived:\n",
        "    if False:\n",
        "a batch is published although changes of it were written twice",
        _AUDIT,
    ),
    Mutant(
        "sinks/audit.py",
        "edges = [(begin, read.first), (read.last + 1, end)]",
        "edges = [(read.last + 1, end)]",
        "records that were deleted before the first one that was read are not reported",
        _AUDIT,
    ),
    Mutant(
        "sinks/audit.py",
        "other = [gap for gap in later.gaps if gap[0] > self.last]",
        "other = []",
        "gaps between records are not reported if a batch has several chunks",
        _AUDIT,
    ),
)
