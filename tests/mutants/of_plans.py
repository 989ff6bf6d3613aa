"""Mutants of the plans of cleaning, archival and compaction."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CLEANING = ("tests/unit/services/test_cleaning_plan.py",)
_CLEANED = (*_CLEANING, "tests/property/test_table_services.py")
_ARCHIVAL = ("tests/unit/services/test_archival_plan.py",)
_COMPACTION = ("tests/property/test_table_services.py", "tests/golden/test_table_services.py")

OF_PLANS = (
    Mutant(
        "lakemark/services/cleaning_plan.py",
        "return commits[-policy.commits] if len(commits) > policy.commits else None",
        "return commits[-1] if len(commits) > policy.commits else None",
        "the past that should be kept is cleaned",
        _CLEANING,
    ),
    Mutant(
        "lakemark/services/cleaning_plan.py",
        "if chosen is None or pending is None or chosen.requested_at <= pending.requested_at:",
        "if True:",
        "files that a pending commit replaces are never cleaned",
        _CLEANING,
    ),
    Mutant(
        "lakemark/services/cleaning_plan.py",
        "        if group.id not in view.clusterings:\n",
        "        if True:\n",
        "a clean deletes what a pending clustering reads",
        _CLEANED,
    ),
    Mutant(
        "lakemark/services/cleaning_plan.py",
        "is_over = earliest is None or view.replaced[group.id] < earliest.requested_at",
        "is_over = True",
        "the past before an overwrite is cleaned although it should be kept",
        _CLEANING,
    ),
    Mutant(
        "lakemark/services/cleaning_plan.py",
        "old = [s for s in group.slices if s.base_instant < earliest.requested_at][:-1]",
        "old = [s for s in group.slices if s.base_instant < earliest.requested_at]",
        "the state as of the earliest commit that is kept cannot be read",
        _CLEANING,
    ),
    Mutant(
        "lakemark/services/cleaning_plan.py",
        "    return old[: len(free)]\n",
        "    return old\n",
        "a clean deletes what a pending compaction reads",
        _CLEANED,
    ),
    Mutant(
        "lakemark/services/cleaning_plan.py",
        "return [s for s in group.slices if s.base_instant < group.compaction][:-1]",
        "return [s for s in group.slices if s.base_instant < group.compaction]",
        "a clean by versions deletes what a pending compaction reads",
        _CLEANED,
    ),
    Mutant(
        "lakemark/services/cleaning_plan.py",
        "for s in slices if not kept.intersection(_own_names(s))}",
        "for s in slices}",
        "a clean deletes files of a savepoint",
        _CLEANING,
    ),
    Mutant(
        "lakemark/services/cleaning_plan.py",
        "return {*bases, *(str(log.name) for log in file_slice.logs)}",
        "return {*bases}",
        "a clean deletes logs of a savepoint whose slice has no base file",
        _CLEANING,
    ),
    Mutant(
        "lakemark/services/cleaning_plan.py",
        "        yield from (str(log.name) for log in file_slice.logs)\n",
        "        yield from ()\n",
        "logs of old slices are never cleaned",
        _CLEANING,
    ),
    Mutant(
        "lakemark/services/cleaning_plan.py",
        "is_base = isinstance(file, BaseFile) and file.name.instant in chosen",
        "is_base = isinstance(file, BaseFile) and file.name.instant <= max(chosen)",
        "a clean deletes base files of slices that a savepoint keeps",
        _CLEANING,
    ),
    Mutant(
        "lakemark/services/cleaning_plan.py",
        "versions = policy.file_versions - (len(free) < len(group.slices))",
        "versions = policy.file_versions - 1",
        "a clean by versions keeps one version less than it should",
        _CLEANING,
    ),
    Mutant(
        "lakemark/services/cleaning_plan.py",
        "return next((i for i in commits if i.requested_at >= since), None)",
        "return commits[-1] if commits else None",
        "a clean by hours keeps the newest commit alone",
        _CLEANING,
    ),
    Mutant(
        "lakemark/services/archival_plan.py",
        "oldest = commits[: len(commits) - policy.min_commits]",
        "oldest = commits[: len(commits) - policy.min_commits + 1]",
        "fewer commits stay active than should",
        _ARCHIVAL,
    ),
    Mutant(
        "lakemark/services/archival_plan.py",
        'older if (i.completed_at or "") > pending.requested_at)',
        "older if False)",
        "a conflict is archived before a pending writer looks for it: rows are lost",
        _ARCHIVAL,
    ),
    Mutant(
        "lakemark/services/archival_plan.py",
        "yield older[-1].requested_at if older else pending.requested_at",
        "yield pending.requested_at",
        "the active timeline begins with a pending commit, and files before it are hidden",
        _ARCHIVAL,
    ),
    Mutant(
        "lakemark/services/archival_plan.py",
        "    yield from (i.requested_at for i in timeline.completed(Action.SAVEPOINT))\n",
        "",
        "commits behind a savepoint are archived, and it cannot be restored",
        _ARCHIVAL,
    ),
    Mutant(
        "lakemark/services/archival_plan.py",
        "        yield last if last is not None else deltas[0].requested_at\n",
        "        yield from ()\n",
        "delta commits are archived before compaction counts them: it is never due",
        _ARCHIVAL,
    ),
    Mutant(
        "lakemark/services/archival_plan.py",
        "chosen = [i for i in oldest if end is None or i.requested_at < end]",
        "chosen = [i for i in oldest if end is None or i.requested_at <= end]",
        "the commit that somebody still needs is archived",
        _ARCHIVAL,
    ),
    Mutant(
        "lakemark/services/archival_plan.py",
        "needed = 2 + sum(i.requested_at > earliest.requested_at for i in commits)",
        "needed = sum(i.requested_at > earliest.requested_at for i in commits)",
        "commits are archived before the clean that looks at them",
        _ARCHIVAL,
    ),
    Mutant(
        "lakemark/services/archival_plan.py",
        "chosen += [i for i in timeline.completed(*_FOLLOWING) if i.requested_at < last]",
        "pass",
        "cleans and rollbacks fill the active timeline",
        _ARCHIVAL,
    ),
    Mutant(
        "lakemark/services/archival_plan.py",
        "chosen += [i for i in timeline.completed(*_FOLLOWING) if i.requested_at < last]",
        "chosen += timeline.completed(*_FOLLOWING)",
        "the newest clean is archived, and queries of a cleaned past return some rows",
        _ARCHIVAL,
    ),
    Mutant(
        "lakemark/services/compaction_plan.py",
        "operation if there is None or _has_all(operation, there) else there",
        "operation",
        "a compaction loses the rows of a log that its plan did not name",
        ("tests/unit/metadata/test_trust.py",),
    ),
    Mutant(
        "lakemark/services/compaction.py",
        "if store.version.logs_name_their_slice and store.pending_writes(timeline):",
        "if False:",
        "a compaction of version 6 ends a slice that a pending commit writes to: rows are lost",
        ("tests/recovery/test_version_6.py",),
    ),
    Mutant(
        "lakemark/services/compaction_plan.py",
        "compactions = [*timeline.pending(Action.COMPACTION), *timeline.completed(Action.COMMIT)]",
        "compactions = [*timeline.completed(Action.COMMIT)]",
        "while a compaction is pending, another is planned after every commit",
        ("tests/unit/services/test_compaction_plan.py",),
    ),
    Mutant(
        "lakemark/services/planned_files.py",
        "file = data_file(group.partition_path, name, info.size_bytes) if info else None",
        "file = data_file(group.partition_path, name, 0) if info else None",
        "a compaction reads logs as empty, and their rows are lost",
        _COMPACTION,
    ),
    Mutant(
        "lakemark/services/compaction.py",
        "            [*names, *operation.log_files],\n",
        "            [*names, *operation.log_files[:1]],\n",
        "a compaction merges the first log of a slice, and the rows of the others are lost",
        _COMPACTION,
    ),
    Mutant(
        "lakemark/model/compaction_plan.py",
        'tuple(record.get("deltaFilePaths") or ()),',
        'tuple(record.get("deltaFilePaths") or ())[:1],',
        "a compaction that is resumed merges the first log of a slice alone",
        ("tests/unit/model/test_compaction_plan.py",),
    ),
)
