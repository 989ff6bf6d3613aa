"""The sentences of "Record Merger" that state behaviour, and the tests that prove them."""

from __future__ import annotations

from tests.spec.sentences.proofs import Sentences

SENTENCES: Sentences = {
    "Record Merger": {
        "changes of a key may arrive in any order, at any time": [
            "test_result_does_not_depend_on_the_order_of_arrival",
        ],
    },
    "Merge Modes": {
        "queries, writers and table services come to the same, deterministic result": [
            "test_queries_writers_and_services_give_the_same_results",
            "property/test_histories.py::test_query_returns_the_rows_of_the_model",
        ],
        "writing combines the changes of a batch, which writes fewer records": [
            "test_changes_of_a_batch_are_combined_before_they_are_written",
            "test_the_mode_decides_which_change_of_a_batch_is_written",
        ],
        "copy-on-write merges full and partial updates and deletes against storage": [
            "test_full_update_is_merged_with_the_stored_record_in_copy_on_write",
            "test_partial_update_is_merged_with_the_stored_record",
            "test_delete_is_merged_with_the_stored_record",
        ],
        "compaction merges all changes in logs against base files by the mode": [
            "test_compaction_merges_all_logs_by_the_merge_mode",
        ],
        "queries merge logs after filters and projections": [
            "test_query_merges_for_any_projection",
            "test_query_filters_merged_rows",
        ],
        "there are three modes": ["test_there_are_three_merge_modes"],
        "the default is inferred: event time with ordering fields, else commit time": [
            "test_the_mode_is_inferred_from_the_ordering_fields",
            "test_without_an_ordering_field_the_new_record_replaces_the_old_one",
            "test_several_ordering_fields_compare_one_after_the_other",
        ],
        "a mode that is asked for is persisted": [
            "test_explicit_merge_mode_is_stored_in_the_table"
        ],
        "all reads and writes then use it": ["test_all_reads_and_writes_use_the_mode_of_the_table"],
        "a write config may override it, which should not be done": [
            "test_writer_with_another_merge_mode_is_refused",
        ],
    },
    "COMMIT_TIME_ORDERING": {
        "the record of the latest write is the result": [
            "test_latest_write_wins_by_commit_time",
        ],
        "the example: a change log in order of its lsn": [
            "test_ordered_change_log_is_applied_in_sequence",
        ],
    },
    "EVENT_TIME_ORDERING": {
        "the highest value of an ordering or precombine field is the result": [
            "test_highest_ordering_value_wins_by_event_time",
            "test_the_ordering_field_may_be_stored_as_precombine_field",
        ],
        "the example: older states that arrive late are ignored": [
            "test_a_canceled_order_is_not_created_again",
            "test_a_paid_order_does_not_wait_for_its_payment_again",
            "test_a_deleted_order_stays_deleted_when_an_older_state_arrives",
            "test_delete_without_ordering_value_always_wins",
        ],
        "it goes with writers that do not block each other": [
            "test_event_time_orders_changes_of_non_blocking_writers",
            "golden/test_answers.py::test_every_query_returns_the_rows_of_apache_hudi",
        ],
    },
    "CUSTOM": {
        "the example: order_info goes into the canceled record that has payment_info": [
            "test_order_info_is_merged_into_the_record_that_has_payment_info",
            "test_records_of_one_batch_are_merged_by_the_same_logic",
        ],
        "queries filter across both without joins": [
            "test_queries_filter_both_parts_without_a_join",
        ],
        "the interface of a merger is HoodieRecordMerger": [
            "differs: Record merger: A custom merger is a Java class",
        ],
        "the interface merges full records and partial ones": [
            "test_partial_record_is_merged_with_its_written_columns",
        ],
        "a buffered record has key, ordering value, schema and operation": [
            "test_a_record_comes_with_key_ordering_value_and_operation",
        ],
        "it takes the older and the newer record": [
            "test_older_record_is_the_one_written_before",
        ],
        "the strategy id is a UUID, persisted, and what the merger returns": [
            "test_strategy_id_is_stored_in_the_table",
        ],
        "by it the merger of a table is deduced": [
            "test_merger_is_selected_by_the_strategy_id_of_the_table",
        ],
        "partialMerge returns only changed fields": [
            "test_partial_result_has_only_the_changed_fields",
        ],
        "partialMerge deletes by the operation": ["test_a_partial_result_may_be_a_delete"],
    },
    "Implementation Guidelines": {
        "1: both methods return a record": [
            "test_a_merger_that_returns_nothing_is_refused",
            "test_a_partial_merge_that_returns_nothing_is_refused",
        ],
        "1: a deletion has its data where possible, for merges to come": [
            "test_data_of_a_deleted_record_is_available_to_the_next_merge",
        ],
        "1: null data is acceptable": [
            "test_result_may_be_a_delete_without_data",
            "test_unconditional_delete_is_passed_to_the_merger",
        ],
        "2: operation DELETE deletes the row": [
            "test_delete_result_removes_the_row",
            "test_a_data_row_that_is_flagged_as_deleted_is_ordered_like_data",
        ],
        "3: ordering values are always set, for merges to come": [
            "test_result_keeps_its_ordering_value_for_later_merges",
            "test_a_result_without_ordering_value_is_refused",
            "differs: Record merger: Ordering values may be null.",
        ],
        "4: the record context has values, keys and new records, whatever the engine": [
            "test_record_context_is_sufficient_for_a_merger",
        ],
        "5: merging is associative": [
            "test_merging_is_associative",
            "test_merging_is_associative_for_the_states_of_an_order",
            "test_unconditional_deletes_are_not_associative_in_apache_hudi_either",
            "differs: Record merger: Merging is associative.",
            "unit/merge/custom/test_check.py::test_each_broken_rule_is_reported",
        ],
    },
    "Merge Mode Configs": {
        "custom logic needs the strategy id and the implementation": [
            "test_custom_mode_requires_strategy_id_and_class",
            "test_a_merger_is_named_by_its_class",
        ],
        "the first implementation of the strategy is taken": [
            "test_the_order_of_the_mergers_matters",
        ],
    },
    "Record Payloads (deprecated)": {
        "payload-based configurations continue to work": [
            "test_payload_configuration_continues_to_work",
            "interop/test_histories.py::test_history_gives_the_same_rows_in_both",
            "interop/test_histories.py::test_history_gives_the_same_rows_in_older_tables",
        ],
        "OverwriteWithLatest: of a batch the greatest value, then the latest record": [
            "test_overwriting_payloads_precombine_a_batch",
            "test_overwrite_with_latest_is_latest_write_wins",
        ],
        "Default: the ordering field counts for both; the example": [
            "test_the_default_payload_honors_the_ordering_field",
            "test_the_default_payload_honors_the_ordering_field_in_precombine_too",
        ],
        "EventTime: for late data, by a field that users set": [
            "test_late_data_loses_by_event_time",
            "test_event_time_payload_requires_an_ordering_field",
        ],
        "OverwriteNonDefaults: only fields that differ from their default": [
            "test_only_fields_that_differ_from_their_default_are_overwritten",
            "unit/merge/partial_update/test_missing_columns.py::test_defaults_other_than_null_are_compared_as_in_java",
        ],
        "PartialUpdate: certain fields are updated; the example": [
            "test_late_partial_update_fills_missing_fields_of_the_stored_record",
            "test_partial_update_keeps_fields_that_it_does_not_set",
            "test_a_partial_update_is_combined_in_a_batch_too",
            "test_a_partial_update_is_seen_by_an_incremental_query",
        ],
        "a payload makes the precombine field ineffective": [
            "test_a_payload_may_render_the_ordering_field_ineffective",
        ],
        "changes of MySQL, Postgres and the migration service are applied": [
            "test_changes_of_mysql_are_ordered_by_binlog_position",
            "test_value_that_postgres_did_not_send_is_kept",
            "test_changes_of_aws_dms_are_applied_in_order",
        ],
        "one may implement payloads of one's own": ["test_custom_payload_class_is_refused"],
    },
}
