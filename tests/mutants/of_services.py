"""Mutants of table services: cleaning, restore, savepoints, compaction, archival, upgrade."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CLEANING = "lakemark/services/cleaning.py"
_OF_ORPHANS = ("tests/unit/operations/test_orphan_removal.py",)
_RESTORE = "lakemark/services/restore.py"
_SAVEPOINT = "lakemark/services/savepoint.py"
_COMPACTION = "lakemark/services/compaction.py"
_ARCHIVAL = "lakemark/services/archival.py"
_ARCHIVAL_PLAN = "lakemark/services/archival_plan.py"
_ARCHIVING = "lakemark/timeline/archiving.py"
_LSM_WRITER = "lakemark/timeline/lsm_writer.py"
_UNDOABLE = "lakemark/transaction/rollback_checks.py"
_UNDONE = "lakemark/timeline/undone_instants.py"
_UPGRADE = "lakemark/upgrade/change.py"
_METADATA_TABLE = "lakemark/operations/metadata_table.py"
_BOOTSTRAP = "lakemark/metadata/bootstrap.py"
_PROPERTIES = "lakemark/storage/properties_file.py"
_METADATA = "lakemark/metadata/metadata_writer.py"
_METADATA_COMPACTION = "lakemark/metadata/metadata_compaction.py"
_VALID_INSTANTS = "lakemark/metadata/valid_instants.py"

_OF_CHECKS = ("tests/recovery/test_lease_checks.py",)
_LATE_PLANS = ("tests/recovery/test_late_plans.py",)
_LATE_FILES = ("tests/recovery/test_late_files.py",)
_LOST_LEASE = ("tests/recovery/test_lost_lease.py",)
_UNDOING = (
    "tests/unit/services/test_undoing_beside_others.py",
    "tests/recovery/test_undoing.py",
)
_OF_CLEANING = (
    "tests/unit/services/test_undoing_beside_others.py",
    "tests/unit/services/test_cleaning.py",
    "tests/unit/services/test_under_the_lock.py",
)
_ARCHIVERS = ("tests/recovery/test_two_archivers.py",)
_OF_ARCHIVAL = (
    "tests/unit/services/test_archival_plan.py",
    "tests/recovery/test_base_of_a_commit.py",
)
_OF_HISTORY = ("tests/unit/timeline/test_lsm_writer.py", "tests/recovery/test_two_archivers.py")
_OF_UPGRADES = ("tests/unit/streamer/test_table_version.py", "tests/recovery/test_version_6.py")
_OF_RINGS = ("tests/golden/test_hash_rings.py",)
_OF_METADATA = ("tests/recovery/test_lost_lease.py", "tests/unit/metadata/test_trust.py")

_CLEANS = (
    Mutant(
        "lakemark/services/cleaning.py",
        "    if rollbacks_of_completed_commits(timeline, store):\n",
        "    if False:\n",
        "the rows under a commit are cleaned while a late request may still take the commit back",
        ("tests/unit/services/test_undoing_beside_others.py",),
    ),
    Mutant(
        _CLEANING,
        "        lease.check()\n        root = context",
        "        root = context",
        "a clean is planned without the lock, of files that a restore needs by now",
        _OF_CHECKS,
    ),
    Mutant(
        _CLEANING,
        "        lease.check()  # if the plan was created late, ``claim`` removes it\n",
        "",
        "a clean whose plan appeared late deletes files that a savepoint keeps",
        _OF_CHECKS + _LATE_PLANS,
    ),
    Mutant(
        _CLEANING,
        "        lease.check()\n        context.timeline.forget(current)\n",
        "        context.timeline.forget(current)\n",
        "a process without the lock removes the plan of a clean that others execute",
        _OF_CHECKS,
    ),
    Mutant(
        "lakemark/services/cleaning.py",
        "            and pending.state is State.REQUESTED\n",
        "",
        "what a clean deleted before its process died is recorded nowhere",
        ("tests/unit/services/test_undoing_beside_others.py",),
    ),
    Mutant(
        "lakemark/transaction/rollback_checks.py",
        "        *_only(target, timeline, store),\n",
        "",
        "the only commit that is not archived is rolled back: no file is read any more",
        ("tests/unit/transaction/test_rollback.py",),
    ),
    Mutant(
        "lakemark/services/planned_files.py",
        "        if file.size_bytes < log_sizes.get(file.path, 0):\n",
        "        if False:\n",
        "the rows of a log that was cut are lost for good",
        ("tests/unit/services/test_compaction_of_damaged_logs.py",),
    ),
    Mutant(
        "lakemark/write/file_group_write.py",
        "        _check_has_no_files(context.storage, partition_path)\n",
        "",
        "a partition whose metafile was deleted gets second file groups",
        ("tests/unit/write/test_lost_partition_metafile.py",),
    ),
    Mutant(
        "lakemark/metadata/log_names.py",
        "return [name.instant for name in names if self._begins_slice(name)]",
        "return [name.instant for name in names]",
        "logs of the metadata table are named after a base file that nobody reads",
        ("tests/unit/services/test_undoing_beside_others.py",),
    ),
    Mutant(
        "lakemark/transaction/rollback.py",
        "        if timeline.archived_time(commit.requested_at) is not None:\n",
        "        if False:\n",
        "an inflight file that comes back after the archival keeps writers from starting",
        ("tests/unit/transaction/test_rollback.py",),
    ),
    Mutant(
        "lakemark/timeline/lsm_history.py",
        "is_unnamed = stated is None and newest[1] == self.manifest(newest[0])",
        "is_unnamed = False",
        "Apache Hudi finds no history if the first archiver died",
        ("tests/unit/timeline/test_lsm_writer.py",),
    ),
    Mutant(
        _CLEANING,
        "        reason = _obsolete(planned, current, timeline, context.timeline)\n",
        '        reason = "" if planned else "it is lost"\n',
        "a clean deletes files that a restore or a savepoint needs since",
        _LATE_PLANS,
    ),
    Mutant(
        _CLEANING,
        "        if change.action is Action.RESTORE or (\n",
        "        if False or (\n",
        "a clean that was planned before a restore deletes the files that this brought back",
        _LATE_PLANS,
    ),
    Mutant(
        _CLEANING,
        "            change.action is Action.ROLLBACK\n",
        "            False\n",
        "a clean that was planned before a rollback deletes the files that are the newest again",
        _LATE_PLANS,
    ),
    Mutant(
        _CLEANING,
        "        if change.action is Action.SAVEPOINT and _keeps",
        "        if False and _keeps",
        "a clean that was planned before a savepoint deletes files that it keeps",
        _LATE_PLANS,
    ),
    Mutant(
        _CLEANING,
        "        if timeline.pending(Action.CLEAN):  # its plan may name the same files\n",
        "        if False:\n",
        "two cleans delete and record the same files",
        _OF_CLEANING,
    ),
    Mutant(
        _CLEANING,
        "        check_no_restore(timeline)\n        if timeline",
        "        if timeline",
        "a clean is planned in the middle of a restore",
        _OF_CLEANING,
    ),
    Mutant(
        _CLEANING,
        "        if planned is None and multi_writer and is_fresh(",
        "        if False and is_fresh(",
        "the plan that a living writer is writing is removed",
        _OF_CLEANING,
    ),
    Mutant(
        _CLEANING,
        "multi_writer is None or not has_heartbeat(context.storage, pending, multi_writer)",
        "True",
        "a clean that another writer executes is executed beside it",
        _OF_CLEANING,
    ),
    Mutant(
        _CLEANING,
        "        if current is None:\n            raise Fenced(",
        "        if False:\n            raise Fenced(",
        "a clean is published whose plan was removed",
        _OF_CLEANING,
    ),
    Mutant(
        _CLEANING,
        "        if current.is_completed:  # another executor of the same plan was faster\n",
        "        if False:\n",
        "a clean that another process completed is completed twice",
        _OF_CLEANING,
    ),
    Mutant(
        _CLEANING,
        "    context.delete_files(planned.paths)\n",
        "",
        "a clean says that files are gone which fill the disk",
        _OF_CLEANING,
    ),
)

_RESTORES = (
    Mutant(
        "lakemark/services/restore.py",
        "            _check_again(context, pending, plan, timeline)\n",
        "",
        "a restore that appears after its files were cleaned leaves a table without rows",
        ("tests/recovery/test_late_plans.py",),
    ),
    Mutant(
        _RESTORE,
        "    lease.check()\n    context.timeline.create(requested",
        "    context.timeline.create(requested",
        "a restore is requested without the lock",
        _OF_CHECKS,
    ),
    Mutant(
        _RESTORE,
        "    lease.check()  # if the plan is late, ``_with_later_commits`` adds missing commits\n",
        "",
        "a restore whose plan appeared late keeps a commit that it should undo",
        _OF_CHECKS + _LATE_PLANS,
    ),
    Mutant(
        _RESTORE,
        "    lease.check()\n    if current is not None and",
        "    if current is not None and",
        "a restore that lost the lock deletes commits that came after it",
        _OF_CHECKS,
    ),
    Mutant(
        _RESTORE,
        "            plan = _with_later_commits(plan, pending, timeline, is_merge_on_read)\n",
        "            pass\n",
        "a resumed restore keeps a commit that it should undo",
        _LATE_PLANS,
    ),
    Mutant(
        _RESTORE,
        "        context.timeline.withdraw_all(name, lease.check)\n",
        "        pass\n",
        "a commit that a restore undoes can still be published",
        _UNDOING,
    ),
    Mutant(
        _RESTORE,
        "        context.timeline.unpublish(current)\n        current",
        "        current",
        "a restore deletes files of commits that queries still see",
        _UNDOING,
    ),
    Mutant(
        _RESTORE,
        "    for clean in timeline.pending(Action.CLEAN):\n",
        "    for clean in ():\n",
        "a restore brings files back to the timeline that a pending clean deletes",
        _UNDOING,
    ),
    Mutant(
        _RESTORE,
        "    if timeline.has_history:\n",
        "    if False:\n",
        "a restore keeps commits that were archived, and says that it undid all",
        _UNDOING,
    ),
    Mutant(
        _RESTORE,
        "    for name in sorted(later):\n",
        "    for name in ():\n",
        "a restore deletes a commit that a savepoint keeps",
        _UNDOING,
    ),
    Mutant(
        _RESTORE,
        "drop_metadata_table(context.storage, read_properties(context.storage), lease.check)\n",
        "pass\n",
        "the metadata table lists files that a restore deleted",
        _UNDOING,
    ),
    Mutant(
        _RESTORE,
        "    _forget_rollbacks(context, timeline, plan)\n",
        "",
        "a pending rollback of an instant that a restore undid blocks the next writer",
        _UNDOING,
    ),
    Mutant(
        _RESTORE,
        "        undone += remove_archived(context, pending.requested_at, lease)\n",
        "        pass\n",
        "rows of archived commits return with the first commit after a restore to the empty table",
        _UNDOING,
    ),
    Mutant(
        "lakemark/services/orphans.py",
        "            return _Fate.UNDONE if instant in undone else _Fate.UNKNOWN\n",
        "            return _Fate.UNDONE\n",
        "files are deleted although it is unclear whether their instant has completed",
        _OF_ORPHANS,
    ),
    Mutant(
        "lakemark/services/orphans.py",
        "        return _Fate.COMPLETED if found.is_completed else _Fate.PENDING\n",
        "        return _Fate.COMPLETED if found.is_completed else _Fate.UNDONE\n",
        "files of a pending commit are deleted as orphans",
        _OF_ORPHANS,
    ),
    Mutant(
        "lakemark/view/file_lister.py",
        "    return [info for info in objects if not info.path.startswith(prefixes)]\n",
        "    return objects\n",
        "files of another table in a folder of the table are deleted",
        _OF_ORPHANS,
    ),
    Mutant(
        "lakemark/services/archival.py",
        "    found += _written_before_restore(context, before)\n",
        "",
        "Apache Hudi reads files that were written during a restore to the empty table",
        _OF_ORPHANS,
    ),
    Mutant(
        _UNDONE,
        "_restored_since(store, since, timeline) | _restored_before(archived, restores)",
        "_restored_since(store, since, timeline)",
        "rows come back that a restore removed, after the restore was archived",
        _UNDOING,
    ),
    Mutant(
        _UNDONE,
        "max(find_emptied_at(store, timeline), _emptied_before(archived, restores))",
        "find_emptied_at(store, timeline)",
        "rows come back after the archival of a restore to the empty table",
        _UNDOING,
    ),
    Mutant(
        _UNDONE,
        "if store.has_deleted_archived(i)",
        "if True",
        "committed files are skipped that a restore of another program has kept",
        _UNDOING,
    ),
    Mutant(
        "lakemark/services/orphans.py",
        "info.path not in self.listed and info.name not in self.kept",
        "info.path not in self.listed",
        "files that a savepoint keeps are deleted as orphans",
        _OF_ORPHANS,
    ),
    Mutant(
        _SAVEPOINT,
        "    for clean in timeline.pending(Action.CLEAN):\n",
        "    for clean in ():\n",
        "a savepoint keeps files that a pending clean deletes",
        _UNDOING,
    ),
    Mutant(
        _SAVEPOINT,
        "        if commit <= requested_at:\n",
        "        if commit == requested_at:\n",
        "a savepoint keeps files of a commit that a late request makes pending again",
        _UNDOING,
    ),
    Mutant(
        _RESTORE,
        "        and not timeline.has_reappeared(i)\n",
        "",
        "a restore deletes the files of an archived commit whose inflight file appears again",
        _LATE_PLANS,
    ),
    Mutant(
        "lakemark/transaction/rollback.py",
        "    if timeline.has_reappeared(target):\n        _forget_archived",
        "    if False:\n        _forget_archived",
        "the files of an archived compaction whose inflight file appears again are deleted",
        _LATE_PLANS,
    ),
    Mutant(
        _RESTORE,
        "    check_not_rolled_back(timeline, context.timeline, restore_to)\n",
        "",
        "the table is restored to a commit that a late request makes pending again",
        _UNDOING,
    ),
    Mutant(
        _SAVEPOINT,
        "    check_not_cleaned(timeline, store, requested_at)\n\n",
        "\n",
        "a savepoint is made of a state whose files were cleaned",
        _UNDOING,
    ),
    Mutant(
        _SAVEPOINT,
        "    check_no_restore(timeline)\n    if requested_at",
        "    if requested_at",
        "a savepoint is made of a commit that a restore is about to undo",
        _UNDOING,
    ),
    Mutant(
        _UNDOABLE,
        "    if any(i.requested_at == name for i in timeline.completed(Action.SAVEPOINT)):\n",
        "    if False:\n",
        "the rollback of a commit deletes files that a savepoint keeps",
        _UNDOING,
    ),
    Mutant(
        _UNDOABLE,
        "    if later:\n",
        "    if False:\n",
        "the rollback of a commit takes away what later commits were written over",
        _UNDOING,
    ),
    Mutant(
        _UNDOABLE,
        "    for writing in timeline.pending(*COMMITS):\n",
        "    for writing in ():\n",
        "the rollback of a commit takes away what a living writer writes over",
        _UNDOING,
    ),
    Mutant(
        _UNDOABLE,
        "        if service.requested_at > name:\n",
        "        if False:\n",
        "a planned compaction reads logs of a commit that was rolled back",
        _UNDOING,
    ),
    Mutant(
        _UNDOABLE,
        "    for clean in timeline.pending(Action.CLEAN):\n",
        "    for clean in ():\n",
        "a pending clean deletes the files that a rollback made the newest",
        _UNDOING,
    ),
    Mutant(
        _UNDOABLE,
        "        if storage.head(path) is None:\n",
        "        if False:\n",
        "a compaction is rolled back whose logs were cleaned: its rows are the only ones",
        (*_UNDOING, "tests/unit/services/test_cleaning.py"),
    ),
)

_COMPACTIONS = (
    Mutant(
        _COMPACTION,
        "        lease.check()\n        # model: request compaction\n",
        "        # model: request compaction\n",
        "a compaction is planned without the lock, and lacks a commit",
        _OF_CHECKS,
    ),
    Mutant(
        _COMPACTION,
        "        if store.version.logs_name_their_slice and store.pending_writes(timeline):\n",
        "        if False:\n",
        "in version 6 a compaction ends a slice to which a writer is adding logs",
        ("tests/recovery/test_version_6.py",),
    ),
    Mutant(
        _COMPACTION,
        "    with context.lock.hold(LOCK_WAIT_S) as lease:\n"
        "        timeline = context.timeline.load()\n",
        "    timeline = context.timeline.load()\n"
        "    with context.lock.hold(LOCK_WAIT_S) as lease:\n",
        "a compaction is planned on a timeline from before the lock: it lacks a commit",
        ("tests/unit/services/test_under_the_lock.py",),
    ),
    Mutant(
        "lakemark/operations/table_writer.py",
        "            self.check_columns(timeline)\n",
        "            pass\n",
        "a commit hides the column that another one added meanwhile",
        ("tests/unit/sinks/test_schema_changes.py", "tests/unit/sinks/test_schema_requests.py"),
    ),
)

_ARCHIVALS = (
    Mutant(
        _ARCHIVAL,
        "        store.archive(instants, lease.check, HistorySettings(policy.files_to_merge))\n",
        "        store.archive(instants, lambda: None)\n",
        "an archiver without the lock writes and deletes instants",
        _OF_CHECKS,
    ),
    Mutant(
        _ARCHIVAL,
        "    lease.check()\n    context.delete_files(found)\n",
        "    context.delete_files(found)\n",
        "an archiver without the lock deletes files of a commit",
        ("tests/unit/services/test_under_the_lock.py",),
    ),
    Mutant(
        _ARCHIVAL,
        "        check_no_restore(timeline)\n",
        "",
        "instants are archived that a pending restore is to undo",
        ("tests/unit/services/test_under_the_lock.py",),
    ),
    Mutant(
        _ARCHIVAL,
        "    context.delete_files(found)\n",
        "",
        "late files of an undone instant count as committed once its rollback is archived",
        _LATE_FILES,
    ),
    Mutant(
        _ARCHIVAL,
        "        if instant.requested_at >= cleaned_until or is_late:\n",
        "        if False:\n",
        "replaced file groups are read again once their replacement is archived: rows twice",
        _UNDOING,
    ),
    Mutant(
        _ARCHIVAL_PLAN,
        "    for one in _before_pending(timeline):\n",
        "    for one in ():\n",
        "what completed beside a pending write is archived: its writer finds no conflict",
        _OF_ARCHIVAL,
    ),
    Mutant(
        _ARCHIVAL_PLAN,
        '    yield from (i.requested_at for i in older if (i.completed_at or "") > pending',
        "    yield from (i.requested_at for i in () if (i.completed_at or '') > pending",
        "a commit that completed after a write began is archived: no conflict is found",
        _OF_ARCHIVAL,
    ),
    Mutant(
        _ARCHIVAL_PLAN,
        "waiting = (i for i in data_timeline.pending() if i.action is not Action.SAVEPOINT)\n",
        "waiting = data_timeline.pending()\n",
        "the savepoint of a dead process stops the archival of the metadata table",
        ("tests/unit/services/test_archival_plan.py",),
    ),
    Mutant(
        _ARCHIVING,
        "        new = [i for i in instants if (i.requested_at, i.action) not in known]\n",
        "        new = [*instants]\n",
        "what a dead archiver has archived is in the history twice",
        ("tests/unit/timeline/test_lsm_writer.py", "tests/recovery/test_two_archivers.py"),
    ),
    Mutant(
        _ARCHIVING,
        "        check()\n        pending",
        "        pending",
        "an archiver without the lock deletes instants from the timeline",
        ("tests/unit/services/test_under_the_lock.py",),
    ),
    Mutant(
        _UNDONE,
        "set(instants) - find_completed(archived, instants)",
        "set(instants)",
        "files of a compaction that was executed again and archived are deleted",
        _UNDOING,
    ),
    Mutant(
        _UNDONE,
        "        *rollbacks_since(store, since, timeline),\n",
        "",
        "late files of an instant that was just rolled back are read",
        _LATE_FILES,
    ),
)

_HISTORIES = (
    Mutant(
        _LSM_WRITER,
        '            self._storage.create(f"{self._history.folder}/{name}", manifest)\n',
        '            self._storage.put(f"{self._history.folder}/{name}", manifest)\n',
        "of two archivers one replaces the manifest of the other: instants are lost",
        _OF_HISTORY,
    ),
    Mutant(
        _LSM_WRITER,
        "                self._storage.replace(path, str(number).encode(), version)\n",
        "                self._storage.put(path, str(number).encode())\n",
        "a late archiver takes the history back to an older version",
        _OF_HISTORY,
    ),
    Mutant(
        _LSM_WRITER,
        "            if stated is not None and stated > number:\n                break\n",
        "",
        "an archiver that was paused makes an older manifest the newest",
        _OF_HISTORY,
    ),
    Mutant(
        _LSM_WRITER,
        "            newest = max(self._history.versions())\n",
        "            newest = number\n",
        "on a local disk a late archiver takes the history back to an older version",
        _OF_HISTORY,
    ),
    Mutant(
        _LSM_WRITER,
        "        self._check()\n        with _as_conflict(name):\n",
        "        with _as_conflict(name):\n",
        "an archiver without the lock writes a manifest beside Apache Hudi",
        _OF_CHECKS,
    ),
    Mutant(
        _LSM_WRITER,
        "        self._check()\n        self._storage.delete(",
        "        self._storage.delete(",
        "an archiver without the lock deletes files of the history",
        ("tests/unit/services/test_under_the_lock.py",),
    ),
    Mutant(
        _LSM_WRITER,
        "                self._check()\n                self._move_pointer",
        "                self._move_pointer",
        "an archiver without the lock names the next version of the history",
        ("tests/unit/services/test_under_the_lock.py",),
    ),
    Mutant(
        _LSM_WRITER,
        "if is_data_file(name) and name not in named)",
        "if is_data_file(name))",
        "archival deletes files of the history that its manifest names",
        _OF_HISTORY,
    ),
    Mutant(
        _LSM_WRITER,
        "    return next(file for file in files if file.name not in names)\n",
        "    return next(files)\n",
        "an archival for whose range there is a file fails for ever",
        _OF_HISTORY,
    ),
    Mutant(
        _LSM_WRITER,
        "            if len(kept) < manifests_kept:\n",
        "            if len(kept) < 1:\n",
        "readers that have read the manifest before find its files gone",
        _OF_HISTORY,
    ),
)

_VERSIONS = (
    Mutant(
        _BOOTSTRAP,
        "replace_properties(storage, properties, bare, check_lease)\n",
        "replace_properties(storage, properties, bare, lambda: None)\n",
        "a process without the lock takes a metadata table away that another has made",
        ("tests/unit/services/test_under_the_lock.py",),
    ),
    Mutant(
        _BOOTSTRAP,
        "        check_lease()\n        storage.delete(step)\n",
        "        storage.delete(step)\n",
        "a process without the lock deletes files of a metadata table that another has made",
        ("tests/unit/services/test_under_the_lock.py",),
    ),
    Mutant(
        "lakemark/metadata/deletion_order.py",
        "for step in sorted(steps)]",
        "for step in sorted(steps, reverse=True)]",
        "a writer of Apache Hudi executes a compaction of a metadata table that was dropped",
        ("tests/recovery/test_dropped_metadata_table.py",),
    ),
    Mutant(
        _PROPERTIES,
        "            storage.replace(PROPERTIES_PATH, content, version)\n",
        "            storage.put(PROPERTIES_PATH, content)\n",
        "a process that was paused names a timeline that an upgrade has deleted",
        ("tests/unit/storage/test_properties_file.py", "tests/unit/services"),
    ),
    Mutant(
        _PROPERTIES,
        "    if TableProperties.parse(content).to_bytes() != before.to_bytes():\n",
        "    if False:\n",
        "on a local disk a process that was paused writes properties that were made from old ones",
        ("tests/unit/storage/test_properties_file.py", "tests/unit/services"),
    ),
    Mutant(
        _UPGRADE,
        "        lease.check()\n        storage.create(move.target",
        "        storage.create(move.target",
        "an upgrade without the lock writes instants to a timeline that others use by now",
        ("tests/unit/services/test_under_the_lock.py",),
    ),
    Mutant(
        _UPGRADE,
        "        _check_nothing_pending(context, timeline)\n",
        "",
        "an upgrade moves a table on which a writer is at work",
        ("tests/unit/services/test_under_the_lock.py", *_OF_UPGRADES),
    ),
    Mutant(
        _UPGRADE,
        "        _check_merged(context, change, timeline)\n",
        "",
        "logs that the new version reads otherwise are taken over: rows are lost",
        _OF_UPGRADES,
    ),
    Mutant(
        _UPGRADE,
        "            bare = drop_metadata_table(context.storage, bare, lease.check)\n",
        "            pass\n",
        "an upgraded table has a metadata table of the old version",
        _UNDOING,
    ),
    Mutant(
        _UPGRADE,
        "    _delete_leftovers(storage, layout, {",
        "    _ = (storage, layout, {",
        "what an upgrade that died left is on the timeline of the next one",
        ("tests/unit/services/test_under_the_lock.py", *_OF_UPGRADES),
    ),
)

_METADATA_TABLES = (
    Mutant(
        _BOOTSTRAP,
        "not wrote.isdisjoint(undone[_slice_of(file)]) or any(",
        "any(",
        "a log that a rollback block undid is never cleaned after a rebuild",
        ("tests/recovery/test_metadata_leftovers.py",),
    ),
    Mutant(
        _BOOTSTRAP,
        "    return log.partition_path, log.name.file_id, log.name.instant\n",
        '    return "", "", ""\n',
        "a rebuilt metadata table lists a log that its writer will delete",
        ("tests/recovery/test_metadata_leftovers.py",),
    ),
    Mutant(
        _VALID_INSTANTS,
        '    return min(created, key=lambda i: i.completed_at or "", default=None)\n',
        "    return min(created, key=lambda i: i.requested_at, default=None)\n",
        "commits are expected in a metadata table that listed their files",
        ("tests/unit/metadata/test_valid_instants.py",),
    ),
    Mutant(
        _VALID_INSTANTS,
        "    return _FIRST_NUMBER + uuid4().int % (_NUMBERS_END - count - _FIRST_NUMBER)\n",
        "    return _FIRST_NUMBER\n",
        "a late deletion of a dropped metadata table hits the files of the next one",
        ("tests/recovery/test_metadata_leftovers.py",),
    ),
    Mutant(
        _METADATA_TABLE,
        "            build_metadata_table(table, timeline, lease.check)\n",
        "            build_metadata_table(table, timeline, lambda: None)\n",
        "a metadata table that is made without the lock lacks a commit: rows are hidden",
        ("tests/unit/services/test_under_the_lock.py",),
    ),
    Mutant(
        _METADATA_TABLE,
        "        build_metadata_table(table, table.store.load(), lease.check)\n",
        "        build_metadata_table(table, table.store.load(), lambda: None)\n",
        "a metadata table that is made anew without the lock lacks a commit: rows are hidden",
        ("tests/unit/services/test_under_the_lock.py",),
    ),
    Mutant(
        _METADATA_TABLE,
        "        table.metadata_writer.compact(table.store.load(), lease.check)\n",
        "        table.metadata_writer.compact(table.store.load(), lambda: None)\n",
        "a compaction of the metadata table without the lock lacks a commit",
        ("tests/unit/services/test_under_the_lock.py",),
    ),
    Mutant(
        _METADATA,
        "        if not self._instants.is_prepared(instant):\n",
        "        if False:\n",
        "the metadata table is told of a commit that was rolled back meanwhile",
        _OF_METADATA,
    ),
    Mutant(
        "lakemark/metadata/writer_state.py",
        "return not {*completed} <= {*known} or any(",
        "return any(",
        "the metadata table goes on although it lacks a commit of another writer",
        (*_OF_METADATA, "tests/unit/services/test_under_the_lock.py"),
    ),
    Mutant(
        _METADATA,
        ".undo(target",
        ".timeline or (target",
        "the metadata table keeps what it was told of an undone commit",
        ("tests/unit/transaction/test_rollback.py",),
    ),
    Mutant(
        _METADATA_COMPACTION,
        " and all(_has_completed(i, data) for i in commits)",
        "",
        "a base file of the metadata table holds a commit that may be rolled back",
        _UNDOING,
    ),
    Mutant(
        _METADATA_COMPACTION,
        "        if mismatch is not None:\n            raise FilesDiffer(mismatch)\n",
        "",
        "a compaction of a damaged metadata table hides files for good",
        ("tests/unit/metadata",),
    ),
    Mutant(
        "lakemark/metadata/metadata_store.py",
        "self.instants.publish(pending, completed_at, check_not_fenced)",
        "self.instants.publish(pending, completed_at, lambda: None)",
        "a commit of the metadata table is published without the lock",
        _OF_METADATA,
    ),
)

_RESIZES = (
    Mutant(
        "lakemark/index/ring_changes.py",
        "        if change.resizes != ring.resizes:\n",
        "        if False:\n",
        "a plan is executed although the hash ring was resized since",
        ("tests/unit/index/test_ring_changes.py",),
    ),
    Mutant(
        "lakemark/services/clustering.py",
        "    if context.timeline.pending_writes(timeline):\n",
        "    if False:\n",
        "buckets are resized while a writer adds rows to them",
        ("tests/unit/operations/test_resize_buckets.py",),
    ),
    Mutant(
        "lakemark/services/bucket_rewriter.py",
        "                        check_expected(group, task)\n",
        "",
        "a resize moves rows to the bucket of another hash, next to its own rows",
        ("tests/unit/operations/test_resize_buckets.py",),
    ),
    Mutant(
        "lakemark/operations/planned_resize.py",
        "        if not _is_written_twice(table, planned, name, change):\n",
        "        if False:\n",
        "rows that were written after a resize was planned are lost",
        ("tests/unit/operations/test_resize_buckets.py",),
    ),
    Mutant(
        "lakemark/metadata/column_stats/derive.py",
        "        *commit.replaced_file_ids,\n",
        "",
        "the statistics of a partition cover files that a resize replaced",
        ("tests/unit/operations/test_resize_buckets.py",),
    ),
)

_CLUSTERINGS = "tests/unit/operations/test_cluster.py"

_CLUSTERED = (
    Mutant(
        "lakemark/operations/cluster.py",
        "            for name in sorted(added_files(view, one)):\n",
        "            for name in ():\n",
        "rows that were written after a clustering was planned are lost",
        (f"{_CLUSTERINGS}::test_rows_that_were_added_after_the_plan_are_not_lost",),
    ),
    Mutant(
        "lakemark/metadata/metadata_writer.py",
        "changes[_RECORD_INDEX] = self._keys_of(state, instant).moves(stats)",
        "_ = self._keys_of(state, instant).moves(stats)",
        "after a clustering, the record index locates every key in a replaced file group",
        (f"{_CLUSTERINGS}::test_rows_are_the_same_after_files_were_clustered",),
    ),
    Mutant(
        "lakemark/write/sorted_runs.py",
        "return tuple((value is not None, value) for value in values)",
        "return tuple((value is None, value) for value in values)",
        "a merge of runs puts rows with a null behind rows with a value",
        ("tests/unit/write/test_sorted_runs.py",),
    ),
    Mutant(
        "lakemark/write/sorted_runs.py",
        "        return map(self._dictionaries.update, run.read(bucket))\n",
        "        return run.read(bucket)\n",
        "a clustering mixes texts with their numbers in a dictionary that became too large",
        ("tests/unit/write/test_sorted_runs.py",),
    ),
    Mutant(
        "lakemark/log/parquet_format.py",
        "sizes.get(field.name, NO_SIZE)",
        "sizes[field.name]",
        "a table with an empty base file is not clustered any more",
        ("tests/unit/read/test_base_file.py",),
    ),
)

_OVERWRITES = "tests/unit/operations/test_overwrite.py"
_MEANWHILE = f"{_OVERWRITES}::test_replacement_includes_rows_that_another_writer_adds_meanwhile"
_REPLACED_MEANWHILE = (
    f"{_OVERWRITES}::test_write_is_repeated_if_its_partition_was_replaced_meanwhile"
)
_INDEXES_OF_REPLACED = f"{_OVERWRITES}::test_record_and_secondary_index_follow_replacements"

_LIFETIMES = "tests/unit/services/test_partition_lifetime.py"

_REPLACED_PARTITIONS = (
    Mutant(
        "lakemark/transaction/conflicts.py",
        "    groups |= _partitions_of(metadata)\n",
        "",
        "rows survive an overwrite, because they were added while it was written",
        (_MEANWHILE, _REPLACED_MEANWHILE),
    ),
    Mutant(
        "lakemark/operations/replaced_groups.py",
        "    if pending:\n",
        "    if False:\n",
        "an overwrite conflicts with a pending compaction each time, and never succeeds",
        (
            f"{_OVERWRITES}::test_pending_compaction_is_executed_before_its_file_groups_are_replaced",
        ),
    ),
    Mutant(
        "lakemark/metadata/metadata_writer.py",
        "            groups = [*stats, *metadata.replaced_groups]\n",
        "            groups = [*stats]\n",
        "the record index keeps the keys of deleted rows: they cannot be inserted elsewhere",
        (_INDEXES_OF_REPLACED,),
    ),
    Mutant(
        "lakemark/metadata/metadata_writer.py",
        "            may_be_compacted\n            or is_in_index\n",
        "            is_in_index\n",
        "the record index misses the rows that a rollback of a deletion brought back",
        (f"{_OVERWRITES}::test_rollback_of_a_deletion_restores_a_compacted_record_index",),
    ),
    Mutant(
        "lakemark/metadata/column_stats/derive.py",
        "    return commit.replaced_partitions | {\n",
        "    return set() | {\n",
        "the statistics of a partition cover the rows that an overwrite has replaced",
        (f"{_OVERWRITES}::test_deletion_of_partitions_reports_and_removes_their_rows",),
    ),
    Mutant(
        "lakemark/operations/overwrite.py",
        "        _check_not_elsewhere(writer, context, rows, partitions)\n",
        "",
        "an overwrite stores a key twice, although keys are unique in the whole table",
        (f"{_OVERWRITES}::test_key_with_a_row_in_a_kept_partition_is_refused",),
    ),
    Mutant(
        "lakemark/metadata/metadata_writer.py",
        "            may_be_compacted\n            or is_in_index\n",
        "            may_be_compacted\n",
        "an index that was built after a commit locates rows in its deleted files after a rollback",
        (f"{_OVERWRITES}::test_rollback_drops_an_index_that_was_built_after_the_commit",),
    ),
    Mutant(
        "lakemark/transaction/rollback.py",
        " = was_completed or rollback.state is State.INFLIGHT",
        " = was_completed",
        "an index that was built after a commit survives a rollback whose first process died",
        ("tests/recovery/test_late_copies.py",),
    ),
    Mutant(
        "lakemark/transaction/rollback_checks.py",
        "        yield from _cleaned_since(target, metadata, timeline, store)\n",
        "        pass\n",
        "a rollback brings a file group back without the rows of its cleaned slices",
        (
            f"{_OVERWRITES}::"
            "test_rollback_is_refused_if_a_savepoint_keeps_only_older_slices_of_a_replaced_group",
        ),
    ),
    Mutant(
        "lakemark/operations/partition_expiry.py",
        "commits | _archived(table, view, min(old.values()), Action.REPLACE_COMMIT)",
        "commits",
        "new rows of a partition expire at once, because it was deleted before",
        (_LIFETIMES,),
    ),
    Mutant(
        "lakemark/operations/partition_expiry.py",
        "        found[path] = max(found[path], _last_change(table, path, logs))\n",
        "        pass\n",
        "rows in the logs of archived commits expire early in version 6",
        (_LIFETIMES,),
    ),
    Mutant(
        "lakemark/transaction/late_completion.py",
        "        and not _hides_no_later_rows(context.timeline, commit, timeline)\n",
        "        and commit.action is not Action.REPLACE_COMMIT\n",
        "an overwrite that completes after its rollback hides a partition",
        ("tests/recovery/test_late_copies.py",),
    ),
    Mutant(
        "lakemark/operations/hash_ring_assigner.py",
        "                self._check_not_replaced(FileGroupId(path, file_id))\n",
        "",
        "rows are written to file groups that no query reads",
        (f"{_OVERWRITES}::test_tables_with_consistent_hashing_are_refused",),
    ),
)

_PARTITION_BUCKETS = (
    Mutant(
        "lakemark/index/partition_buckets.py",
        "            if re.search(pattern, partition_path, re.ASCII):\n",
        "            if re.match(pattern, partition_path, re.ASCII):\n",
        "a partition gets another number of buckets than Apache Hudi gives it",
        ("tests/unit/index/test_partition_buckets.py",),
    ),
    Mutant(
        "lakemark/transaction/rollback.py",
        "        delete_partition_buckets(context.storage, plan.instant)\n",
        "",
        "bucket counts outlive the rollback of their replace commit: keys get second rows",
        ("tests/unit/index/test_partition_buckets.py",),
    ),
)

_HASH_RINGS = (
    Mutant(
        "lakemark/transaction/rollback.py",
        "        delete_rings(context.storage, plan.instant)\n",
        "",
        "the buckets of a resize outlive its rollback: every key in them gets a second row",
        _OF_RINGS,
    ),
    Mutant(
        "lakemark/transaction/rollback.py",
        "            context.timeline.forget(clustering)\n",
        "            pass\n",
        "a clustering whose rollback died at its end is pending for ever, and refuses all writes",
        _OF_RINGS,
    ),
    Mutant(
        _RESTORE,
        "        delete_rings(context.storage, name)\n",
        "        pass\n",
        "the buckets of a resize outlive a restore: every key in them gets a second row",
        _OF_RINGS,
    ),
    Mutant(
        "lakemark/index/ring_files.py",
        "timeline.find(instant) is None and _is_trusted(",
        "False and _is_trusted(",
        "we and Apache Hudi write one key to different buckets after a rollback",
        _OF_RINGS,
    ),
    Mutant(
        "lakemark/index/ring_files.py",
        " or timeline.archived_time(instant) is not None",
        "",
        "a table is refused after a resize without a marker was archived",
        _OF_RINGS,
    ),
    Mutant(
        "lakemark/index/lookup.py",
        "        self.positions[at[live_here]] = position\n",
        "",
        "a row that moved to another partition and back is changed where it was deleted: two rows",
        ("tests/unit/operations/test_lookup_tables.py",),
    ),
)

OF_SERVICES = (
    *_CLEANS,
    *_RESIZES,
    *_CLUSTERED,
    *_REPLACED_PARTITIONS,
    *_PARTITION_BUCKETS,
    *_HASH_RINGS,
    *_RESTORES,
    *_COMPACTIONS,
    *_ARCHIVALS,
    *_HISTORIES,
    *_VERSIONS,
    *_METADATA_TABLES,
)
