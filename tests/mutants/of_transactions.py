"""Mutants of transactions: how an instant begins, conflicts, completes, and is rolled back."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TRANSACTION = "lakemark/transaction/transaction.py"
_PUBLICATION = "lakemark/transaction/publication.py"
_ROLLBACK = "lakemark/transaction/rollback.py"
_CONFLICTS = "lakemark/transaction/conflicts.py"
_HEARTBEAT = "lakemark/transaction/heartbeat.py"
_SHARING = "lakemark/transaction/multi_writer.py"
_LOSS = "lakemark/transaction/completion_loss.py"
_ATTEMPT = "lakemark/transaction/attempt.py"

_OF_CONFLICTS = ("tests/unit/transaction/test_conflicts.py",)
_OF_HEARTBEATS = ("tests/unit/transaction/test_heartbeat.py",)
_OF_PUBLICATION = ("tests/unit/transaction/test_publication.py",)
_OF_ROLLBACKS = ("tests/unit/transaction/test_rollback.py", "tests/recovery/test_undoing.py")
_OF_LOSS = ("tests/unit/transaction/test_completion_loss.py",)
_OF_TRANSACTIONS = (
    "tests/unit/transaction/test_transaction.py",
    "tests/unit/transaction/test_rollback.py",
)
_OF_CHECKS = ("tests/recovery/test_lease_checks.py",)
_OF_BASES = ("tests/recovery/test_base_of_a_commit.py",)
_LATE_PLANS = ("tests/recovery/test_late_plans.py",)
_LATE_FILES = ("tests/recovery/test_late_files.py",)
_OF_ATTEMPTS = ("tests/unit/transaction/test_attempt.py",)
_OF_NON_BLOCKING = ("tests/unit/operations/test_non_blocking.py",)

_BEGINNING = (
    Mutant(
        _TRANSACTION,
        "            lease.check()\n        except LeaseLost:\n            self.cancel()",
        "            pass\n        except LeaseLost:\n            self.cancel()",
        "a commit begins on a timeline that others have archived since: rows revert",
        (*_OF_BASES, *_OF_CHECKS),
    ),
    Mutant(
        _TRANSACTION,
        "        with context.lock.hold(LOCK_WAIT_S) as lease:\n"
        "            timeline = context.timeline.load()\n",
        "        timeline = context.timeline.load()\n"
        "        with context.lock.hold(LOCK_WAIT_S) as lease:\n",
        "a commit is written over the timeline from before it waited for the lock: rows revert",
        _OF_BASES,
    ),
    Mutant(
        _TRANSACTION,
        "version, uuid4().hex, operation)",
        'version, "one of us", operation)',
        "two writers that generate one time share an instant: the rows of one are lost",
        (
            "tests/recovery/test_fence.py::"
            "test_two_writers_that_generate_the_same_time_do_not_share_an_instant",
        ),
    ),
    Mutant(
        _TRANSACTION,
        "    except BaseException:\n        heartbeat.stop()\n        raise",
        "    except BaseException:\n        raise",
        "an instant that could not be requested keeps its heartbeat: others wait for nobody",
        _OF_TRANSACTIONS,
    ),
    Mutant(
        _TRANSACTION,
        "            check_not_executed(context, timeline.find(pending.requested_at) or pending)\n",
        "",
        "two writers execute one plan, and the second deletes the files of the first",
        _OF_TRANSACTIONS,
    ),
    Mutant(
        "lakemark/transaction/plan_owner.py",
        "    if has_heartbeat(context.storage, planned, context.multi_writer):\n",
        "    if False:\n",
        "a plan that another writer executes is executed a second time",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _TRANSACTION,
        "            _check_not_undone(context, pending, timeline)\n",
        "",
        "a rollback that resumes deletes the files of the attempt that began meanwhile",
        _OF_TRANSACTIONS,
    ),
    Mutant(
        _TRANSACTION,
        "            clear_attempts(context, pending, lease)",
        "            pass",
        "a plan whose executor died is never executed",
        _OF_TRANSACTIONS,
    ),
    Mutant(
        _TRANSACTION,
        "                lease.check()\n"
        "                context.timeline.create(attempt, content)\n",
        "                context.timeline.create(attempt, content)\n",
        "an attempt is begun without the lock beside another",
        _OF_CHECKS,
    ),
    Mutant(
        _TRANSACTION,
        "            begun._check_attempt_under(lease)",
        "            pass",
        "an attempt that was begun late deletes a compaction that was archived",
        _OF_CHECKS,
    ),
    Mutant(
        _TRANSACTION,
        "if current is None or current.state is not State.REQUESTED:",
        "if current is None:",
        "a compaction that another writer completed is executed again",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _TRANSACTION,
        "            context.multi_writer.let_clocks_pass()\n        return begun, decided",
        "        return begun, decided",
        "a writer whose clock is behind requests an earlier instant than this one",
        _OF_TRANSACTIONS,
    ),
)

_ATTEMPTS = (
    Mutant(
        _TRANSACTION,
        "            if self.instant.attempt:\n                self._check_inflight(timeline)\n",
        "",
        "a lost attempt whose heartbeat has expired leaves its files",
        ("tests/recovery/test_attempts.py",),
    ),
    Mutant(
        _TRANSACTION,
        "        if self.instant.attempt and not has_instant(self._context, self.instant):\n",
        "        if False:\n",
        "an attempt whose files were deleted is published instead of the one that followed",
        _OF_TRANSACTIONS,
    ),
    Mutant(
        _ROLLBACK,
        "        if target.attempt and not (current == target and has_instant(context, target)):\n",
        "        if False:\n",
        "a late attempt rolls back the attempt that followed it",
        _OF_ATTEMPTS,
    ),
    Mutant(
        _ROLLBACK,
        "        lease.check()  # if the lock was lost, another attempt may have begun by now\n",
        "        pass\n",
        "a late rollback removes the inflight instant of the attempt that followed",
        _OF_ATTEMPTS,
    ),
    Mutant(
        _ATTEMPT,
        "    context.timeline.withdraw_all(current.requested_at, lease.check)\n",
        "",
        "an attempt whose files are deleted can still be published",
        _OF_ATTEMPTS,
    ),
    Mutant(
        _ATTEMPT,
        "    lease.check()\n    delete_files_of(context, current",
        "    delete_files_of(context, current",
        "a process without the lock deletes the files of an attempt that others have published",
        _OF_ATTEMPTS,
    ),
    Mutant(
        _ATTEMPT,
        "    lease.check()\n    context.timeline.forget(current, keep_plan=True)\n",
        "    context.timeline.forget(current, keep_plan=True)\n",
        "a process without the lock takes the inflight instant of another attempt away",
        _OF_ATTEMPTS,
    ),
    Mutant(
        _ATTEMPT,
        "attempt=uuid4().hex)",
        'attempt="one")',
        "two attempts at a plan write files of the same names, and delete each other's",
        _OF_ATTEMPTS,
    ),
    Mutant(
        _ATTEMPT,
        ".difference(published)",
        "",
        "an attempt that was published deletes its files because it is taken for lost",
        _OF_ATTEMPTS,
    ),
    Mutant(
        _ATTEMPT,
        "    found = archived.find(attempt.requested_at)\n",
        "    found = None\n",
        "an attempt that was published and archived deletes its files: rows are lost",
        ("tests/recovery/test_attempts.py",),
    ),
    Mutant(
        _ATTEMPT,
        " if _is_of(p, attempt.attempt)]",
        "]",
        "an attempt that has lost its instant deletes the files of the one that followed",
        _OF_ATTEMPTS,
    ),
)

_COMPLETION = (
    Mutant(
        _TRANSACTION,
        "            self._check_inflight(timeline)\n",
        "",
        "an instant that was rolled back, or is about to be, is published",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _TRANSACTION,
        "if current is None or current.state is State.REQUESTED:",
        "if current is None:",
        "a compaction whose files a rollback has deleted is published",
        _OF_TRANSACTIONS,
    ),
    Mutant(
        _TRANSACTION,
        '        if current.is_completed:\n            return "it has already completed"\n',
        "",
        "a compaction that another writer completed is published a second time",
        _OF_TRANSACTIONS,
    ),
    Mutant(
        _TRANSACTION,
        "for rollback in _rollbacks_of(self._context, name, timeline):",
        "for rollback in ():",
        "a commit that a pending rollback is about to undo is published, and its rows vanish",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _TRANSACTION,
        "        self._check_base(timeline)\n",
        "",
        "a commit over one that was undone meanwhile brings its rows back",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _TRANSACTION,
        'raise Fenced(name, f"{restore} is under way")',
        "pass",
        "a commit completes in the middle of a restore",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _TRANSACTION,
        "            if not timeline.is_committed(seen.requested_at):\n",
        "            if False:\n",
        "a commit is published over one that an operator rolled back",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _TRANSACTION,
        "            self._began_with,\n            timeline,\n",
        "                timeline,\n                timeline,\n",
        "what others completed meanwhile is no conflict: rows of one of two writers are lost",
        _OF_TRANSACTIONS,
    ),
    Mutant(
        _TRANSACTION,
        "                precondition(timeline)\n",
        "                pass\n",
        "a batch is committed although another run has moved its checkpoint: rows twice",
        (
            "tests/recovery/test_fence.py::"
            "test_commit_whose_precondition_fails_under_the_lock_publishes_nothing",
        ),
    ),
    Mutant(
        _TRANSACTION,
        "            delete_files_of(self._context, self.instant, leftovers, awaited)\n",
        "            pass\n",
        "files of failed attempts stay and are read: rows twice",
        _OF_TRANSACTIONS,
    ),
    Mutant(
        _TRANSACTION,
        "                if not self._find_earlier_unseen(timeline, metadata):\n",
        "                if True:\n",
        "a commit is published before an earlier one has looked, which then hides its rows",
        _OF_TRANSACTIONS,
    ),
    Mutant(
        _TRANSACTION,
        "            self._heartbeat.check()\n",
        "            pass\n",
        "a writer that others count as dead publishes",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _TRANSACTION,
        "                self._check_alive()\n                return publication",
        "                return publication",
        "a writer whose heartbeat expires between two attempts publishes",
        _OF_TRANSACTIONS,
    ),
    Mutant(
        _TRANSACTION,
        "                if attempt == 0:\n                    raise\n                break\n",
        "                raise\n",
        "a commit that may have landed is undone and written again: rows twice",
        ("tests/recovery/test_lost_lease.py", *_OF_TRANSACTIONS),
    ),
    Mutant(
        _TRANSACTION,
        "                published = self._find_published(completed_at)\n",
        "                published = None\n",
        "a commit whose answer was lost is taken for one that was not published",
        ("tests/recovery/test_lost_lease.py",),
    ),
    Mutant(
        _TRANSACTION,
        "            self._context.timeline.withdraw(self.instant)",
        "            pass",
        "prepared content of completed commits stays for ever",
        _OF_TRANSACTIONS,
    ),
    Mutant(
        _TRANSACTION,
        "            drop_markers(self._context.storage, self.instant.requested_at)\n",
        "",
        "markers of completed commits stay for ever",
        _OF_TRANSACTIONS,
    ),
    Mutant(
        _PUBLICATION,
        "        self.lease.check_time()\n",
        "",
        "content that was prepared after a take-over is published later: a row is lost",
        _OF_PUBLICATION,
    ),
    Mutant(
        "lakemark/timeline/locks/table_lock.py",
        "                except LeaseLost as loss:\n                    raise loss from error\n",
        "                except LeaseLost:\n                    raise error from None\n",
        "a lost lease is reported as a metadata table that does not fit",
        _OF_PUBLICATION,
    ),
    Mutant(
        _PUBLICATION,
        "self.store.publish(self.pending, completed_at, self.lease.check)",
        "self.store.publish(self.pending, completed_at, lambda: None)",
        "an instant is published without the lock beside Apache Hudi",
        ("tests/recovery/test_lost_lease.py", *_OF_CHECKS),
    ),
    Mutant(
        _PUBLICATION,
        "        except NotFound:\n            self.lease.check()\n",
        "        except NotFound:\n",
        "a lock that was taken over is reported as a rollback: the run ends for good",
        _OF_PUBLICATION,
    ),
)

_ROLLBACKS = (
    Mutant(
        "lakemark/transaction/instant_files.py",
        "may_name_slice = names_slice or was_version_6(storage)",
        "may_name_slice = names_slice",
        "after an upgrade, rows in logs of version 6 stay when their commit is undone",
        ("tests/recovery/test_version_6.py",),
    ),
    Mutant(
        _ROLLBACK,
        "            lease.check()\n            context.delete_files(late)\n",
        "            context.delete_files(late)\n",
        "a writer without the lock deletes files of a compaction that was executed again",
        _OF_CHECKS,
    ),
    Mutant(
        _ROLLBACK,
        "    lease.check()  # only now, because planning lists the table, which may take long\n",
        "",
        "a rollback is requested without the lock, of a commit that others have built on",
        _OF_CHECKS,
    ),
    Mutant(
        _ROLLBACK,
        "        lease.check()\n        context.timeline.unpublish(target)\n",
        "        context.timeline.unpublish(target)\n",
        "a completed commit is taken off the timeline without the lock",
        _OF_CHECKS,
    ),
    Mutant(
        _ROLLBACK,
        "    lease.check()\n    block = rollback_block",
        "    block = rollback_block",
        "a rollback deletes files without the lock",
        _OF_CHECKS,
    ),
    Mutant(
        _ROLLBACK,
        "        context.timeline.withdraw(target)\n        timeline = context.timeline.load()\n"
        "        current",
        "        timeline = context.timeline.load()\n        current",
        "an own instant is undone while it can still be published",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "        context.timeline.withdraw_all(commit.requested_at, lease.check)",
        "        pass",
        "the instant of a writer that counts as dead is undone while it can still be published",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "        context.timeline.withdraw_all(requested_at, lease.check)\n",
        "",
        "a commit that an operator undoes can still be published",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "        timeline = context.timeline.load()\n        current = timeline.find(commit",
        "        current = timeline.find(commit",
        "a commit that completed right before its rollback is undone: acknowledged rows are lost",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "        if current is not None and current.is_completed:\n            return False\n",
        "",
        "an own instant that completed is undone: acknowledged rows are lost",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "        if find_completed(archived, [target.requested_at]):\n            return False\n",
        "",
        "a commit that completed and was archived is reported as undone, and written twice",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "        if find_undone(context.timeline, [target.requested_at], timeline, archived):\n",
        "        if True:\n",
        "files of an instant are deleted although no rollback of it is known",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "    timeline = context.timeline.load()\n    check_no_restore(timeline)\n"
        "    if context.multi_writer",
        "    timeline = context.timeline.load()\n    if context.multi_writer",
        "the next start does not refuse a table between two states",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "    timeline = context.timeline.load()\n    check_no_restore(timeline)\n    late = ",
        "    timeline = context.timeline.load()\n    late = ",
        "a recovery that waited for the lock rolls back commits in the middle of a restore",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "    check_no_restore(timeline)\n    for rollback, plan in",
        "    for rollback, plan in",
        "an operator's rollback goes on in the middle of a restore",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        " if i.requested_at in suspects]",
        "]",
        "an instant is undone that was seen dead only once",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        " if i.requested_at not in targets\n",
        "\n",
        "a commit that a living writer rolls back is rolled back a second time",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "any(is_unplanned(context, i) for i in compactions) or (",
        "(",
        "a compaction without a plan stays on the timeline, and Apache Hudi cannot read the table",
        ("tests/unit/transaction/test_rollback.py",),
    ),
    Mutant(
        "lakemark/timeline/timeline_reader.py",
        "        if not isinstance(gone, CorruptData) or self.is_requested(pending):\n",
        "        if True:\n",
        "no process can write beside a compaction that appeared after its plan was removed",
        ("tests/unit/transaction/test_rollback.py",),
    ),
    Mutant(
        "lakemark/timeline/timeline_reader.py",
        "        if pending.state is State.REQUESTED:  # as of a timeline",
        "        if False:  # as of a timeline",
        "a query on an older timeline takes a removed plan for a plan without slices",
        ("tests/unit/transaction/test_rollback.py",),
    ),
    Mutant(
        _ROLLBACK,
        "has_all_files(context, target, replaced_since(target, timeline, context.timeline))",
        "has_all_files(context, target)",
        "no writer starts beside a dead rollback of a commit whose files a clean deleted",
        ("tests/unit/services/test_undoing_beside_others.py",),
    ),
    Mutant(
        _ROLLBACK,
        "not _is_planned(context, rollback) or _is_obsolete(context, rollback, timeline):\n",
        "not _is_planned(context, rollback):\n",
        "a dead writer's rollback deletes a commit that has completed since",
        (
            "tests/recovery/test_writers.py::test_rollback_of_a_completed_commit_is_abandoned_unless"
            "_it_has_deleted_files",
        ),
    ),
    Mutant(
        _ROLLBACK,
        "        check_never_completed(context, commit, timeline)\n",
        "",
        "a commit whose completed file was lost is deleted: acknowledged rows are gone",
        ("tests/recovery/test_lost_completion.py",),
    ),
    Mutant(
        _ROLLBACK,
        "context.timeline.forget(target, keep_plan=keeps_plan)",
        "context.timeline.forget(target)",
        "the rollback of a compaction removes its plan, against which logs were written",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "    if target is not None:\n        context.timeline.withdraw_all(",
        "    if False:\n        context.timeline.withdraw_all(",
        "a target that prepared content during its rollback can still be published",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "        context.timeline.unpublish(target)\n        timeline",
        "        timeline",
        "the rollback of a completed commit deletes its files while queries read them",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "    delete_unawaited(context, files, awaited, block)",
        "    pass",
        "a rollback leaves the files of the dead writer, which count as committed later",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "    drop_markers(context.storage, plan.instant)\n    if not keeps_plan",
        "    if not keeps_plan",
        "markers of undone instants stay, and prove what is not so",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "        forget_heartbeat(context.storage, plan.instant)\n    return done",
        "        pass\n    return done",
        "heartbeats of undone instants stay",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "    if not keeps_plan:  # otherwise",
        "    if True:  # otherwise",
        "a late rollback deletes the heartbeat of the next attempt, which others then undo",
        _OF_ATTEMPTS,
    ),
    Mutant(
        _HEARTBEAT,
        "            if self._silent_s() > self._policy.expires_after_s:\n                return\n",
        "",
        "an attempt deletes the heartbeat of the one that replaced it, which others then undo",
        _OF_ATTEMPTS,
    ),
    Mutant(
        _TRANSACTION,
        "        heartbeat.abandon()\n        raise\n",
        "        heartbeat.stop()\n        raise\n",
        "a writer deletes the heartbeat of the writer that has begun the instant",
        _OF_ATTEMPTS,
    ),
    Mutant(
        _ROLLBACK,
        "    if target is not None and was_completed:\n        check_undoable(",
        "    if False:\n        check_undoable(",
        "the rollback that another process left undoes a commit that others have built on",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "        context.storage, target, context.multi_writer\n    ):\n",
        "        context.storage, target, context.multi_writer\n    ) and False:\n",
        "an operator undoes the commit of a living writer",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "    _forget_undone(context, context.timeline.load())\n",
        "",
        "a completed compaction that was half rolled back is executed again as a plan",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "        context.metadata_updater.on_rollback(\n            plan.instant,\n",
        "        (lambda *_, **__: None)(\n            plan.instant,\n",
        "the metadata table lists files of an instant that was rolled back",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "        if plan.instant == requested_at:\n",
        "        if False:\n",
        "an instant gets a second rollback beside the one that is pending",
        _OF_ROLLBACKS,
    ),
    Mutant(
        _ROLLBACK,
        "        if not _is_planned(context, rollback) or ",
        "        if ",
        "a rollback that began after it was archived stops every writer",
        _LATE_PLANS,
    ),
    Mutant(
        _ROLLBACK,
        "            context.timeline.forget(rollback.inflight())\n",
        "            pass\n",
        "a process that has lost the lock leaves a rollback without a plan",
        _LATE_PLANS,
    ),
)

_LIFE = (
    Mutant(
        _SHARING,
        " and not is_fresh(i, policy, clock)]",
        "]",
        "the instant of a living writer that does not beat yet is undone",
        _OF_HEARTBEATS,
    ),
    Mutant(
        _SHARING,
        "i.requested_at not in alive and ",
        "",
        "the instant of a living writer is undone once it is older than a heartbeat",
        _OF_HEARTBEATS,
    ),
    Mutant(
        _SHARING,
        "        if alive:\n",
        "        if False:\n",
        "the only writer of a table undoes another that is alive",
        _OF_HEARTBEATS,
    ),
    Mutant(
        _HEARTBEAT,
        "self._stopped.is_set() or self._silent_s() > self._policy.expires_after_s",
        "self._stopped.is_set()",
        "a writer whose instant others may have undone looks alive again",
        _OF_HEARTBEATS,
    ),
    Mutant(
        _HEARTBEAT,
        "        if silent_s > self._policy.expires_after_s:\n",
        "        if False:\n",
        "a writer that others count as dead does not notice it",
        _OF_HEARTBEATS,
    ),
    Mutant(
        _HEARTBEAT,
        '        storage.put(self._path, b"")\n        threading',
        "        threading",
        "an instant is requested without a heartbeat",
        _OF_HEARTBEATS,
    ),
    Mutant(
        _HEARTBEAT,
        ' if path.rpartition("/")[2] not in pending]',
        "]",
        "the heartbeat of a pending instant is removed before its writer is undone",
        _OF_HEARTBEATS,
    ),
    Mutant(
        _HEARTBEAT,
        "            if self._stopped.is_set():\n                return\n",
        "",
        "a writer that ends removes the heartbeat of the next writer of its plan",
        _OF_HEARTBEATS,
    ),
)

_MEETINGS = (
    Mutant(
        _CONFLICTS,
        "        if not began_with.is_committed(theirs.requested_at):\n",
        "        if began_with.find(theirs.requested_at) is None:\n",
        "a commit that was pending when ours began is no conflict: its rows are lost",
        _OF_CONFLICTS + _OF_TRANSACTIONS,
    ),
    Mutant(
        _CONFLICTS,
        "_written(metadata, ignored) | _replaced(metadata)",
        "_written(metadata, ignored)",
        "a commit to a file group that was replaced meanwhile is published: its rows are lost",
        _OF_CONFLICTS,
    ),
    Mutant(
        _CONFLICTS,
        "bucket_or_file_id(file_id)) for",
        "file_id) for",
        "two writers each make a file group of one bucket",
        _OF_CONFLICTS,
    ),
    Mutant(
        _CONFLICTS,
        "was_planned or not names_slices",
        "True",
        "in version 6 a compaction ends a slice without the logs that were written meanwhile",
        _OF_CONFLICTS,
    ),
    Mutant(
        _CONFLICTS,
        "now.pending(Action.COMPACTION) if names_slices or closes else ()",
        "()",
        "in version 6 a commit writes logs to a slice that a planned compaction ends without them",
        _OF_CONFLICTS,
    ),
    Mutant(
        _CONFLICTS,
        "    for planned, replaced in _clusterings(now, store):\n        if planned",
        "    for planned, replaced in ():\n        if planned",
        "rows that are written after the plan of a clustering are lost",
        _OF_CONFLICTS,
    ),
    Mutant(
        _CONFLICTS,
        "        if planned.requested_at != ours.requested_at:\n",
        "        if True:\n",
        "a clustering conflicts with its own plan",
        _OF_CONFLICTS,
    ),
    Mutant(
        _CONFLICTS,
        "        if now.find(unseen.requested_at) is None and now.is_archived",
        "        if False and now.is_archived",
        "a commit that another writer completed and archived meanwhile is overwritten",
        _OF_CONFLICTS,
    ),
    Mutant(
        _CONFLICTS,
        "        and is_fresh(theirs, multi_writer.heartbeats, clock)\n",
        "",
        "a commit waits for ever for one that will never look",
        _OF_CONFLICTS,
    ),
    Mutant(
        _CONFLICTS,
        "        and theirs.requested_at < ours.requested_at\n",
        "",
        "two commits wait for each other",
        _OF_CONFLICTS,
    ),
    Mutant(
        _CONFLICTS,
        "        return theirs.compacted and is_planned_for\n",
        "        return is_planned_for\n",
        "two writers of one bucket do not conflict: it gets two file groups",
        _OF_CONFLICTS,
    ),
    Mutant(
        _LOSS,
        "    if context.timeline.is_prepared(pending) or marked_files(context.storage, name):\n",
        "    if marked_files(context.storage, name):\n",
        "a dead writer that prepared its content blocks the table for ever",
        _OF_LOSS,
    ),
    Mutant(
        _LOSS,
        "is_prepared(pending) or marked_files(context.storage, name):\n",
        "is_prepared(pending):\n",
        "a dead writer that left markers blocks the table for ever",
        _OF_LOSS,
    ),
    Mutant(
        _LOSS,
        "if _is_ours(context, pending) and context.metadata_updater",
        "if context.metadata_updater",
        "a dead Apache Hudi writer blocks the table for ever",
        _OF_LOSS,
    ),
    Mutant(
        _LOSS,
        "        if instant.is_completed and instant.action in COMMITS:\n",
        "        if False:\n",
        "a commit that others have built on is deleted once its completed file is lost",
        _OF_LOSS,
    ),
)

_SLICES = (
    Mutant(
        "lakemark/transaction/rollback.py",
        "plan.action in _COMPACTIONS or has_logs_in_slice(context, plan.instant)\n",
        "plan.action in _COMPACTIONS\n",
        "in version 6, rows in the slice of a compaction are lost when its dead rollback goes on",
        ("tests/unit/transaction/test_rollback.py",),
    ),
    Mutant(
        "lakemark/transaction/conflicts.py",
        "        _check_slices(ours, metadata, now)\n",
        "        pass\n",
        "in version 6, rows are acknowledged in a slice that was rolled back meanwhile",
        ("tests/unit/transaction/test_rollback.py",),
    ),
    Mutant(
        "lakemark/transaction/rollback.py",
        "        timeline = context.timeline.load()  # the rollback changed the timeline",
        "        pass  # the rollback changed the timeline",
        "a start fails beside a compaction whose rollback died",
        ("tests/unit/transaction/test_rollback.py",),
    ),
    Mutant(
        "lakemark/metadata/bootstrap.py",
        "        withdraw_properties(storage)\n",
        "",
        "queries look for a metadata table that was dropped before its name arrived",
        ("tests/recovery/test_late_copies.py",),
    ),
)

_NON_BLOCKING = (
    Mutant(
        _CONFLICTS,
        "    is_shared = non_blocking and ours.action is Action.DELTA_COMMIT\n",
        "    is_shared = False\n",
        "a non-blocking writer writes its batch again because another one writes the same bucket",
        _OF_NON_BLOCKING,
    ),
    Mutant(
        _CONFLICTS,
        "    is_shared = non_blocking and ours.action is Action.DELTA_COMMIT\n",
        "    is_shared = non_blocking\n",
        "two compactions of one file group are published",
        _OF_CONFLICTS,
    ),
    Mutant(
        _CONFLICTS,
        "_file_groups(_file_ids(metadata.write_stats).difference(ignored))",
        "set() if ignored else _file_groups(_file_ids(metadata.write_stats))",
        "a bucket gets a second file group from a writer that is not non-blocking",
        _OF_NON_BLOCKING,
    ),
    Mutant(
        "lakemark/operations/file_group_assigner.py",
        "        if current is None and self.shared is not None:\n",
        "        if False and self.shared is not None:\n",
        "two non-blocking writers each create a file group of one bucket",
        _OF_NON_BLOCKING,
    ),
    Mutant(
        "lakemark/operations/file_group_assigner.py",
        "of_queries, shared=self.shared",
        "of_queries",
        "tasks of a cluster each create a file group of one bucket for two non-blocking writers",
        ("tests/unit/sinks/test_exchange.py",),
    ),
    Mutant(
        "lakemark/operations/file_group_assigner.py",
        "next(g for g in groups if g not in self.replaced)",
        "next(groups)",
        "rows that are written after their partition was deleted are not found",
        _OF_NON_BLOCKING,
    ),
    Mutant(
        "lakemark/write/file_group_write.py",
        "    if current.base is None and not current.logs:\n",
        "    if current.base is not None:\n",
        "readers do not find the partition of a file group that begins with a log",
        _OF_NON_BLOCKING,
    ),
    Mutant(
        "lakemark/operations/written_columns.py",
        "        if adds_columns and set(self.schema) < set(both):\n",
        "        if adds_columns:\n",
        "a commit of narrower columns is published: values of the wider type do not fit",
        _OF_NON_BLOCKING,
    ),
)

OF_TRANSACTIONS = (
    *_BEGINNING,
    *_ATTEMPTS,
    *_COMPLETION,
    *_ROLLBACKS,
    *_LIFE,
    *_MEETINGS,
    *_SLICES,
    *_NON_BLOCKING,
)
