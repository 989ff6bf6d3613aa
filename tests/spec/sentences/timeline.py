"""The sentences of "Timeline" (1.0.0) that demand a behaviour, and what proves them."""

from __future__ import annotations

from tests.spec.sentences.proofs import Sentences

SENTENCES: Sentences = {
    "Timeline": {
        "writes and table services are recorded as actions": ["test_every_action_occurs"],
        "changes of the schema are recorded": [
            "test_a_change_of_the_columns_is_in_its_commit",
            "unit/timeline/test_content.py::test_only_writes_change_the_schema",
        ],
        "the timeline is the source of truth: other files are not read": [
            "test_files_of_no_instant_are_not_read",
            "recovery/test_late_files.py::test_late_files_of_a_rolled_back_instant_are_not_read",
        ],
        "times increase over all processes": [
            "recovery/test_fence.py::test_two_writers_that_generate_the_same_time_do_not_share_an_instant",
            "recovery/test_lost_lease.py::test_no_commit_completes_behind_the_cursor_of_a_reader",
        ],
        "the requested time identifies the action": [
            "test_data_files_are_written_while_their_instant_is_inflight",
        ],
        "the plan is made before the request, and never changes": [
            "test_a_plan_is_stored_when_it_is_requested_and_never_changes",
        ],
        "data and metadata are changed before the action completes": [
            "test_data_files_are_written_while_their_instant_is_inflight",
            "test_the_metadata_table_changes_in_the_transaction_of_each_action",
        ],
        "there are three states": ["test_each_action_is_requested_then_inflight_then_completed"],
    },
    "Action Types": {
        "COMMIT: an atomic write of base files": [
            "test_every_action_occurs",
            "test_a_commit_that_has_not_completed_is_not_read",
        ],
        "DELTA_COMMIT: some or all of its data is in logs": [
            "test_data_files_are_named_after_their_commits",
        ],
        "REPLACE_COMMIT: replaces file groups atomically": [
            "unit/operations/test_overwrite.py::test_overwrite_replaces_the_rows_of_its_partitions",
            "unit/operations/test_overwrite.py::test_queries_of_other_times_see_a_replacement_at_its_time",
        ],
        "REPLACE_COMMIT: for overwrites, deleted partitions and clustering": [
            "unit/operations/test_overwrite.py::test_overwrite_of_the_table_replaces_all_rows",
            "unit/operations/test_overwrite.py::test_deletion_of_partitions_reports_and_removes_their_rows",
            "unit/operations/test_cluster.py::test_rows_are_the_same_after_files_were_clustered",
        ],
        "CLEANS: deletes the files of slices that are no longer needed": [
            "golden/test_table_services.py::test_cleaning_deletes_old_slices_and_keeps_the_rows",
            "differs: Timeline: The clean action is called `cleans`.",
        ],
        "COMPACTION: merges logs into base files": ["test_a_compaction_makes_the_next_slice"],
        "LOGCOMPACTION: merges logs into a larger log of the same slice": [
            "unit/operations/test_log_compaction.py::test_queries_of_every_commit_find_the_rows_of_a_table_without_log_compactions",
            "unit/operations/test_log_compaction.py::test_fewer_blocks_are_read_until_the_next_commits",
        ],
        "CLUSTERING: rewrites file groups as new ones, in another order": [
            "unit/operations/test_cluster.py::test_rows_are_the_same_after_files_were_clustered",
        ],
        "INDEXING: builds an index of a column while others write": [
            "unit/operations/test_indexes.py::test_commits_of_other_writers_are_caught_up",
            "unit/operations/test_indexes.py::test_a_program_continues_while_indexes_appear_and_disappear",
        ],
        "ROLLBACK: removes the files of an unsuccessful write": ["test_side_effects_are_removed"],
        "SAVEPOINT: its slices are not cleaned": [
            "unit/services/test_cleaning_plan.py::test_savepoints_keep_their_slices",
        ],
        "SAVEPOINT: queries can travel to it": [
            "unit/read/test_savepoint_travel.py::test_savepoint_state_is_readable_and_other_cleaned_times_are_refused",
            "differs: Timeline: A savepoint allows time travel to its instant.",
        ],
        "RESTORE: brings the table back to a savepoint": [
            "unit/operations/test_table.py::test_savepoint_and_restore",
            "interop/test_undoing.py::test_apache_continues_the_metadata_table_that_a_restore_rebuilt",
        ],
        "an action may have another name when it completes, and the same requested time": [
            "test_every_action_occurs",
            "test_each_action_is_requested_then_inflight_then_completed",
            "unit/timeline/test_layout.py::test_names_that_apache_hudi_wrote_in_layout_2",
        ],
        "several operations map to one action": [
            "unit/operations/test_inserts.py::test_insert_merges_a_stored_key_in_a_table_with_buckets",
        ],
    },
    "State Transitions": {
        "the file of a state: requested time, action, state": [
            "unit/timeline/test_layout.py::test_names_that_apache_hudi_wrote_in_layout_2",
            "differs: Timeline: Files of instants are called",
        ],
        "the file of a completed action has both times": [
            "unit/timeline/test_layout.py::test_an_instant_of_layout_2_is_parsed_from_its_name",
        ],
        "a transition is atomic, by an atomic operation of the storage": [
            "contract/test_storage.py::test_publishing_creates_the_object_once",
            "recovery/test_lost_lease.py::test_writer_publishes_in_time_or_not_at_all_wherever_it_is_paused",
        ],
        "requested: no process has begun, and another one may perform the action": [
            "unit/operations/test_cluster.py::test_the_plan_of_a_dead_writer_is_executed_by_the_next_clustering",
            "interop/test_undoing.py::test_each_executes_the_compaction_that_the_other_planned",
        ],
        "requested to inflight: a process performs it": [
            "test_each_action_is_requested_then_inflight_then_completed",
            "unit/transaction/test_transaction.py::test_of_two_writers_that_claim_a_plan_at_the_same_time_one_waits_for_the_other",
        ],
        "inflight to requested: after a failure": [
            "recovery/test_undoing.py::test_rollback_of_an_inflight_compaction_keeps_its_plan",
        ],
        "inflight to inflight: another attempt": [
            "recovery/test_attempts.py::test_another_attempt_completes_wherever_the_first_process_is_paused",
            "interop/test_undoing.py::test_each_executes_the_compaction_that_the_other_began_and_abandoned",
        ],
        "inflight to completed": ["test_each_action_is_requested_then_inflight_then_completed"],
        "the highest state that is recorded is the current one": [
            "unit/timeline/test_timeline.py::test_an_instant_is_as_far_as_its_furthest_file",
        ],
    },
    "TrueTime Generation": {
        "times are unique and increase": ["test_times_increase_from_one_action_to_the_next"],
        "only one process generates a time at a time": [
            "recovery/test_fence.py::test_two_writers_that_generate_the_same_time_do_not_share_an_instant",
            "contract/test_lock.py::test_processes_exclude_each_other",
        ],
        "it waits under the lock for the largest clock drift": [
            "unit/transaction/test_transaction.py::test_the_lock_is_kept_until_other_clocks_have_passed_the_new_instant",
            "differs: Timeline: After a process has generated a time",
        ],
    },
    "Ordering of Actions": {
        "by completion time, writes are serializable": [
            "unit/timeline/test_timeline.py::test_completed_instants_are_ordered_by_completion_not_by_request",
            "recovery/test_writers.py::test_two_writers_that_die_and_conflict_write_each_batch_once_and_in_order",
            "differs: Timeline: Changes of a record are ordered by completion time.",
        ],
        "records may be merged by event time instead": [
            "property/test_non_blocking.py::test_rows_are_those_of_all_commits_in_any_order",
        ],
        "requested times are compared with completion times for concurrent services": [
            "property/test_file_slices.py::test_log_belongs_to_the_newest_slice_at_its_completion",
            "interop/test_overlapping_compaction.py::test_compaction_keeps_the_rows_of_a_late_delta_commit_of_apache",
        ],
    },
    "Active Timeline": {
        "it is in .hoodie/timeline, one file for each state of an action": [
            "test_each_action_is_requested_then_inflight_then_completed",
            "unit/timeline/test_layout.py::test_properties_say_where_the_folders_are",
        ],
        "all actions begin there": ["test_every_action_occurs"],
        "completed actions are moved to the history from time to time": [
            "test_only_the_oldest_completed_actions_are_archived",
            "unit/streamer/test_services.py::test_tables_are_compacted_then_cleaned_then_archived",
            "differs: Timeline: Archiving moves older entries",
            "interop/test_archived_commits.py"
            "::test_queries_do_not_add_old_logs_to_the_newest_slice",
        ],
        "side effects of actions are removed before they are archived": [
            "recovery/test_attempts.py::test_archival_deletes_the_files_of_attempts_that_did_not_complete",
            "unit/operations/test_log_compaction.py::test_archival_deletes_logs_that_a_lost_attempt_wrote_late",
        ],
    },
    "LSM Timeline History": {
        "it has completed actions, their plans and their content": [
            "test_only_the_oldest_completed_actions_are_archived",
            "unit/timeline/test_archived_content.py::test_content_is_the_same_from_the_archive",
        ],
        "it is in a folder below .hoodie/timeline, as Parquet": [
            "unit/timeline/test_lsm_writer.py::test_a_file_is_as_apache_writes_it",
        ],
        "_version_ names the current manifest": [
            "unit/timeline/test_lsm_writer.py::test_a_file_is_as_apache_writes_it",
            "differs: Timeline: `_version_` names",
        ],
        "a manifest lists the files, and every change makes a new one": [
            "unit/timeline/test_lsm_writer.py::test_what_was_added_is_found_however_often_it_was_merged",
        ],
        "there may be several manifests": [
            "unit/timeline/test_lsm_writer.py::test_an_older_manifest_whose_files_are_lost_is_not_used",
            "unit/timeline/test_lsm_history.py::test_without_a_version_the_largest_manifest_counts",
        ],
        "files are named after their first and last time, and their level": [
            "unit/timeline/test_lsm_writer.py::test_a_file_is_as_apache_writes_it",
            "unit/timeline/test_lsm_history.py::test_only_files_whose_names_cover_the_instant_are_opened_and_each_once",
        ],
        "each level is sorted by time": [
            "unit/timeline/test_lsm_writer.py::test_what_was_added_is_found_however_often_it_was_merged",
        ],
        "files of a level are merged into one of the next level": [
            "unit/timeline/test_lsm_writer.py::test_what_was_added_is_found_however_often_it_was_merged",
            "golden/test_table_services.py::test_archival_appends_to_the_history_of_apache",
        ],
    },
    "Timeline Archival Configs": {
        "at most 30 commits stay active, at least 20 remain, and 10 files are merged": [
            "test_defaults_of_archival",
            "unit/services/test_archival_plan.py::test_from_more_than_the_most_down_to_the_fewest",
        ],
    },
}
