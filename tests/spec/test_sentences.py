"""Every sentence of the specification "Record Merger" that states behaviour, and what proves it.

Sentences are told in short, in the order in which they stand there. A test is named by its function
alone where it stands in this folder; elsewhere with its file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]

SENTENCES = {
    "Record Merger": {
        "changes of a key may arrive in any order, at any time": [
            "test_changes_of_a_key_arrive_in_any_order_at_any_time",
        ],
    },
    "Merge Modes": {
        "queries, writers and table services come to the same, deterministic result": [
            "test_queries_writers_and_services_give_the_same_results",
            "property/test_histories.py::test_a_query_gives_what_the_model_says",
        ],
        "writing combines the changes of a batch, which writes fewer records": [
            "test_changes_of_a_batch_are_combined_before_they_are_written",
            "test_the_mode_decides_which_change_of_a_batch_is_written",
        ],
        "copy-on-write merges full and partial updates and deletes against storage": [
            "test_copy_on_write_merges_a_full_update_against_the_record_in_storage",
            "test_a_partial_update_is_merged_against_the_record_in_storage",
            "test_a_delete_is_merged_against_the_record_in_storage",
        ],
        "compaction merges all changes in logs against base files by the mode": [
            "test_compaction_merges_all_of_the_logs_by_the_mode",
        ],
        "queries merge logs after filters and projections": [
            "test_a_query_merges_whatever_columns_it_returns",
            "test_a_query_filters_what_the_merge_came_to",
        ],
        "there are three modes": ["test_there_are_three_merge_modes"],
        "the default is inferred: event time with ordering fields, else commit time": [
            "test_the_mode_is_inferred_from_the_ordering_fields",
            "test_without_an_ordering_field_the_new_record_replaces_the_old_one",
            "test_several_ordering_fields_compare_one_after_the_other",
        ],
        "a mode that is asked for is persisted": ["test_an_explicit_mode_is_kept_in_the_table"],
        "all reads and writes then use it": ["test_all_reads_and_writes_use_the_mode_of_the_table"],
        "a write config may override it, which should not be done": [
            "test_a_later_writer_may_not_ask_for_another_mode",
        ],
    },
    "COMMIT_TIME_ORDERING": {
        "the record of the latest write is the result": [
            "test_commit_time_picks_the_record_of_the_latest_write",
        ],
        "the example: a change log in order of its lsn": [
            "test_a_change_log_in_strict_order_is_applied_as_it_comes",
        ],
    },
    "EVENT_TIME_ORDERING": {
        "the highest value of an ordering or precombine field is the result": [
            "test_event_time_picks_the_highest_value",
            "test_the_ordering_field_may_be_stored_as_precombine_field",
        ],
        "the example: older states that arrive late are ignored": [
            "test_a_canceled_order_is_not_created_again",
            "test_a_paid_order_does_not_wait_for_its_payment_again",
            "test_a_deleted_order_stays_deleted_when_an_older_state_arrives",
            "test_a_delete_without_ordering_value_wins_whatever_it_meets",
        ],
        "it goes with writers that do not block each other": [
            "test_event_time_orders_what_writers_wrote_that_did_not_wait_for_each_other",
            "golden/test_answers.py::test_every_query_answers_as_apache_does",
        ],
    },
    "CUSTOM": {
        "the example: order_info goes into the canceled record that has payment_info": [
            "test_order_info_is_merged_into_the_record_that_has_payment_info",
            "test_records_of_one_batch_are_merged_by_the_same_logic",
        ],
        "queries filter across both without joins": [
            "test_downstream_filters_across_both_without_a_join",
        ],
        "the interface merges full records and partial ones": [
            "test_a_partial_record_is_merged_with_the_columns_that_it_carries",
        ],
        "a buffered record has key, ordering value, schema and operation": [
            "test_a_record_comes_with_key_ordering_value_and_operation",
        ],
        "it takes the older and the newer record": [
            "test_the_older_record_is_the_one_that_was_written_before",
        ],
        "the strategy id is a UUID, persisted, and what the merger returns": [
            "test_the_strategy_is_kept_in_the_table",
        ],
        "by it the merger of a table is deduced": [
            "test_the_merger_is_found_by_the_strategy_of_the_table",
        ],
        "partialMerge returns only changed fields": [
            "test_a_partial_result_has_the_fields_that_changed_and_no_others",
        ],
        "partialMerge deletes by the operation": ["test_a_partial_result_may_be_a_delete"],
    },
    "Implementation Guidelines": {
        "1: both methods return a record": [
            "test_a_merger_that_returns_nothing_is_refused",
            "test_a_partial_merge_that_returns_nothing_is_refused",
        ],
        "1: a deletion has its data where possible, for merges to come": [
            "test_the_data_of_a_deleted_record_is_there_for_the_next_merge",
        ],
        "1: null data is acceptable": [
            "test_a_delete_may_come_back_without_data",
            "test_an_unconditional_delete_reaches_the_merger",
        ],
        "2: operation DELETE deletes the row": [
            "test_a_result_that_is_a_delete_deletes_the_row",
            "test_a_data_row_that_is_flagged_as_deleted_is_ordered_like_data",
        ],
        "3: ordering values are always set, for merges to come": [
            "test_a_result_keeps_its_ordering_value_for_merges_to_come",
            "test_a_result_without_ordering_value_is_refused",
        ],
        "4: the record context has values, keys and new records, whatever the engine": [
            "test_the_context_is_all_that_a_merger_needs",
        ],
        "5: merging is associative": [
            "test_merging_is_associative",
            "test_merging_is_associative_for_the_states_of_an_order",
            "test_unconditional_deletes_are_not_associative_in_apache_hudi_either",
            "unit/merge/custom/test_rules.py::test_each_rule_finds_who_breaks_it",
        ],
    },
    "Merge Mode Configs": {
        "custom logic needs the strategy id and the implementation": [
            "test_custom_logic_needs_strategy_and_class",
            "test_a_merger_is_named_by_its_class",
        ],
        "the first implementation of the strategy is taken": [
            "test_the_order_of_the_mergers_matters",
        ],
    },
    "Record Payloads (deprecated)": {
        "payload-based configurations continue to work": [
            "test_a_payload_goes_on_working",
            "interop/test_histories.py::test_one_history_makes_the_same_rows",
            "interop/test_histories.py::test_one_history_makes_the_same_rows_in_older_tables",
        ],
        "OverwriteWithLatest: of a batch the greatest value, then the latest record": [
            "test_overwriting_payloads_combine_a_batch_as_it_comes",
            "test_overwrite_with_latest_is_latest_write_wins",
        ],
        "Default: the ordering field counts for both; the example": [
            "test_the_default_payload_honors_the_ordering_field",
            "test_the_default_payload_honors_the_ordering_field_in_precombine_too",
        ],
        "EventTime: for late data, by a field that users set": [
            "test_late_data_loses_by_event_time",
            "test_event_time_has_to_be_configured",
        ],
        "OverwriteNonDefaults: only fields that differ from their default": [
            "test_only_fields_without_their_default_are_overwritten",
            "unit/merge/partial_update/test_missing_columns.py::"
            "test_other_defaults_than_null_count_as_java_finds_them_equal",
        ],
        "PartialUpdate: certain fields are updated; the example": [
            "test_a_partial_update_fills_what_storage_lacks",
            "test_a_partial_update_leaves_what_it_does_not_set",
            "test_a_partial_update_is_combined_in_a_batch_too",
            "test_a_partial_update_is_seen_by_an_incremental_query",
        ],
        "a payload makes the precombine field ineffective": [
            "test_a_payload_may_render_the_ordering_field_ineffective",
        ],
        "changes of MySQL, Postgres and the migration service are applied": [
            "test_changes_of_mysql_are_ordered_by_their_place_in_the_binlog",
            "test_a_value_that_postgres_did_not_send_stays",
            "test_changes_of_the_migration_service_come_in_order",
        ],
        "one may implement payloads of one's own": ["test_a_payload_of_ones_own_is_refused"],
    },
}

_PROOFS = [
    proof for section in SENTENCES.values() for proofs in section.values() for proof in proofs
]


def test_every_sentence_has_its_proof() -> None:
    assert all(proofs for section in SENTENCES.values() for proofs in section.values())


@pytest.mark.parametrize("file", sorted({p.partition("::")[0] for p in _PROOFS if "::" in p}))
def test_proofs_elsewhere_exist(file: str) -> None:
    named = {proof.partition("::")[2] for proof in _PROOFS if proof.startswith(f"{file}::")}
    assert named <= {*_tests_of(_TESTS / file)}


def test_every_test_of_this_folder_proves_a_sentence() -> None:
    files = [path for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__)]
    there = sorted(name for path in files for name in _tests_of(path))
    assert sorted(proof for proof in _PROOFS if "::" not in proof) == there


def _tests_of(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name
