"""The sentences of the technical specification (table version 4), and what proves them."""

from __future__ import annotations

from tests.spec.sentences.proofs import Sentences

SENTENCES: Sentences = {
    "Data Layout": {
        "folders are flat, or follow the partition values": [
            "test_each_partition_value_is_a_level_of_folders",
            "unit/keygen/test_key_generator.py::test_several_fields_give_nested_folders",
        ],
        "without partitions, data files are in the table's own folder": [
            "test_files_of_a_table_without_partitions_are_in_its_folder",
            "unit/keygen/test_key_generator.py::test_path_of_unpartitioned_table_is_the_root",
        ],
        "partition columns stay in the data files": [
            "test_partition_columns_stay_in_data_files",
            "differs: Files and indexes: Partition columns stay in the data files.",
            "unit/read/test_path_columns.py::test_dropped_column_is_read_after_all_others",
        ],
        ".hoodie holds the transaction logs and the metadata": [
            "test_the_metadata_of_a_table_is_below_hoodie",
        ],
        "a file stores the settings that writers and readers share": [
            "test_properties_are_shared_by_writers_and_readers",
            "unit/config/test_table_properties.py::test_what_apache_hudi_wrote_is_read_and_its_checksum_agrees",
            "unit/config/test_table_spec.py::test_a_new_table_has_the_properties_that_apache_hudi_writes",
        ],
        "settings without a default must be given at creation": [
            "test_properties_without_a_default_must_be_given",
            "unit/config/test_table_properties.py::test_damaged_properties_are_named",
        ],
    },
    "Table Types": {
        "base files are columnar, or HFiles": [
            "unit/write/test_base_file_writer.py::test_rows_are_written_and_bytes_do_not_depend_on_the_batches",
            "unit/read/test_older_tables.py::test_hfile_base_files_and_blocks_are_read",
            "differs: Files and indexes: Base files are Parquet, ORC or HFile.",
        ],
        "log files have inserts, updates and deletes for a base file, as blocks": [
            "unit/write/test_log_file_writer.py::test_each_append_writes_upserts_then_deletes",
            "unit/read/test_file_group_reader.py::test_blocks_of_several_logs_are_merged_onto_the_base",
            "differs: Log files: Logs are appended to.",
        ],
        "copy-on-write stores base files only, merge-on-read both": [
            "test_updates_write_a_slice_or_a_log",
            "unit/write/test_one_merge.py::test_copy_on_write_and_merge_on_read_and_compaction_agree",
        ],
    },
    "User fields": {
        "the partitioning key is optional": [
            "test_files_of_a_table_without_partitions_are_in_its_folder",
        ],
        "record keys are unique within each partition": [
            "test_a_key_identifies_one_record_of_each_partition",
            "unit/operations/test_inserts.py::test_same_key_in_another_partition_is_no_duplicate",
            "differs: Files and indexes: Record keys are unique within each partition.",
            "unit/operations/test_inserts.py::test_insert_stores_a_key_twice_if_keys_are_looked_up",
        ],
        "records of one key are merged by an ordering field, or by custom logic": [
            "test_highest_ordering_value_wins_by_event_time",
            "test_merger_is_selected_by_the_strategy_id_of_the_table",
        ],
        "that logic is commutative": [
            "test_result_does_not_depend_on_the_order_of_arrival",
            "differs: Record merger: Merging is commutative.",
            "test_a_row_that_arrives_after_a_newer_delete_depends_on_the_stored_delete",
        ],
        "that logic is associative": [
            "test_merging_is_associative",
            "differs: Record merger: Merging is associative.",
            "test_unconditional_deletes_are_not_associative_in_apache_hudi_either",
        ],
        "that logic is idempotent": ["test_the_same_changes_again_change_no_row"],
    },
    "Meta fields": {
        "each record is stored with them, next to the fields of the schema": [
            "test_each_record_is_stored_with_the_meta_fields",
            "unit/write/test_meta_column_values.py::test_meta_columns_are_always_first",
        ],
        "commit time: of the commit that created the record": [
            "test_a_record_keeps_the_time_of_the_commit_that_wrote_it",
            "unit/write/test_meta_column_values.py::test_new_rows_get_meta_columns_and_old_rows_keep_theirs",
            "unit/operations/test_cluster.py::test_meta_columns_stay_except_for_the_name_of_the_file",
        ],
        "commit time enables incremental queries": [
            "unit/read/test_incremental.py::test_incremental_query_returns_the_merged_changes_of_the_range",
        ],
        "sequence number: unique for each record of a transaction": [
            "test_sequence_numbers_are_unique_within_a_commit",
        ],
        "record key: stored, whatever happens to the key fields": [
            "test_each_record_is_stored_with_the_meta_fields",
            "interop/test_key_encodings.py::test_updates_of_both_writers_match_the_stored_keys",
        ],
        "partition path: of the record": ["test_each_record_is_stored_with_the_meta_fields"],
        "file name: of the record's data file": [
            "test_file_names_of_logged_rows_are_file_ids",
            "differs: Files and indexes: Each record has the name of its data file.",
        ],
        "in a file, all records have one partition path and one file name": [
            "test_each_record_is_stored_with_the_meta_fields",
        ],
        "the other fields are optional": [
            "unit/operations/test_virtual_keys.py::test_rows_are_those_of_a_dictionary",
            "unit/operations/test_virtual_keys.py::test_files_have_null_meta_columns_and_no_bloom_filter",
        ],
    },
    "Transaction Log (Timeline)": {
        "each action makes an instant": ["test_every_action_occurs"],
        "states are requested, inflight and completed": [
            "test_each_action_is_requested_then_inflight_then_completed",
        ],
        "an inflight action may fail many times": [
            "recovery/test_every_write.py::test_next_process_finishes_the_work_of_one_stopped_at_any_write",
            "recovery/test_attempts.py::test_another_attempt_completes_wherever_the_first_process_is_paused",
        ],
        "a state is registered by an atomic write of a file below .hoodie": [
            "test_a_plan_is_stored_when_it_is_requested_and_never_changes",
            "contract/test_storage.py::test_only_one_of_many_creators_succeeds",
        ],
        "storage must write atomically, and read what was written": [
            "contract/test_storage.py::test_streamed_file_appears_complete_when_it_is_closed",
            "contract/test_storage.py::test_storage_behaves_like_a_dict_of_paths",
            "contract/test_storage.py::test_probe_refuses_a_store_without_conditional_puts",
        ],
        "the name of the file: timestamp, action, state": [
            "unit/timeline/test_layout.py::test_names_that_apache_hudi_wrote_in_layout_1",
            "differs: Timeline: Files of instants are called",
        ],
        "timestamps increase strictly, with milliseconds": [
            "test_times_increase_from_one_action_to_the_next",
            "unit/timeline/test_clock.py::test_a_moment_survives_to_the_millisecond",
        ],
        "commit: all of its changes are visible, or none": [
            "test_a_commit_that_has_not_completed_is_not_read",
            "recovery/test_every_write.py::test_next_process_finishes_the_work_of_one_stopped_at_any_write",
        ],
        "commit: data, metadata and indexes change together": [
            "test_the_metadata_table_changes_in_the_transaction_of_each_action",
            "property/test_metadata_table.py::test_metadata_table_agrees_with_the_files_after_any_history",
        ],
        "deltacommit: only in merge-on-read tables": ["test_every_action_occurs"],
        "rollback: removes the files of an unsuccessful write": [
            "test_side_effects_are_removed",
            "test_only_what_was_rolled_back_did_not_complete",
            "recovery/test_undoing.py::test_writer_is_fenced_if_its_base_was_rolled_back",
            "interop/test_undoing.py::test_each_continues_after_a_rollback_of_the_other",
        ],
        "savepoint: its commit is not cleaned": [
            "unit/services/test_cleaning_plan.py::test_savepoints_keep_their_slices",
            "unit/services/test_archival_plan.py::test_nothing_from_a_pending_write_or_savepoint_on",
        ],
        "restore: back to a savepoint": [
            "unit/operations/test_table.py::test_savepoint_and_restore",
            "unit/services/test_undoing_beside_others.py::test_a_restore_leaves_nothing_of_what_came_after",
        ],
        "clean: deletes versions that are no longer read": [
            "unit/services/test_cleaning_plan.py::test_what_a_query_as_of_the_earliest_commit_reads_stays",
            "interop/test_table_services.py::test_both_delete_the_same_files",
        ],
        "compaction: applies the batched updates": ["test_a_compaction_makes_the_next_slice"],
        "replacecommit: replaces files atomically, and rows stay": [
            "unit/operations/test_cluster.py::test_rows_are_the_same_after_files_were_clustered",
            "differs: Timeline: A replace commit is a table service",
        ],
        "indexing: updates an index, and no data": [
            "unit/operations/test_indexes.py::test_each_index_is_created_and_then_updated",
            "unit/operations/test_indexes.py::test_the_timeline_has_apaches_indexing_action",
        ],
        "a plan is made before the request, and stored in the requested file": [
            "test_a_plan_is_stored_when_it_is_requested_and_never_changes",
        ],
        "the content of these files is JSON or Avro": [
            "unit/timeline/test_content.py::test_json_and_avro_say_the_same",
            "unit/codec/test_avro_container.py::test_a_file_of_apaches_timeline_is_written_the_same",
            "differs: Timeline: The content of instants is JSON or Avro.",
        ],
        "completed files have numbers for each file id, sizes, and the schema": [
            "test_a_completed_commit_describes_its_files",
        ],
        "completed files have the checkpoint": [
            "unit/checkpoints/test_lookup_in_table.py::test_progress_that_only_the_archive_knows_is_found",
        ],
        "the actions give the state of the table at any instant": [
            "unit/read/test_time_travel.py::test_each_instant_shows_the_changes_until_then",
            "property/test_file_slices.py::test_every_committed_file_is_in_exactly_one_slice",
            "golden/test_slices.py::test_every_active_or_archived_commit_can_be_read",
        ],
    },
    "Metadata": {
        "it is a merge-on-read table below .hoodie/metadata": [
            "test_the_metadata_table_is_a_merge_on_read_table",
        ],
        "its records have partitions and record keys": [
            "test_the_metadata_table_is_a_merge_on_read_table",
            "unit/metadata/test_payload.py::test_what_was_written_is_read",
        ],
        "files: from the path of a partition to its file names": [
            "unit/metadata/test_file_records.py::test_a_listing_is_apaches_record",
            "differs: Files and indexes: The metadata table has",
        ],
        "files: queries list by it, and prune": [
            "recovery/test_stale_listings.py::test_query_with_a_metadata_table_lists_no_partition",
            "unit/metadata/test_apaches_tables.py::test_the_listing_is_that_of_storage",
        ],
        "bloom_filters: the key is made of hashes of partition and file name": [
            "unit/metadata/test_bloom_filter_records.py::test_the_records_are_apaches",
        ],
        "bloom_filters: show that a file lacks a key": [
            "unit/metadata/test_apaches_tables.py::test_bloom_filters_contain_the_keys_of_their_files",
            "unit/operations/test_key_queries.py::test_only_files_with_the_keys_are_read",
        ],
        "column_stats: of the columns of all records": [
            "unit/metadata/column_stats/test_encode_batch.py::test_statistics_of_files_become_apaches_bytes",
            "unit/metadata/test_apaches_tables.py::test_statistics_are_those_of_the_base_files",
            "unit/metadata/column_stats/test_encode.py::test_the_first_columns_with_an_order_are_indexed",
            "differs: Files and indexes: `column_stats` has statistics",
        ],
        "column_stats: queries skip files by them": [
            "unit/read/test_pruning.py::test_skipped_slice_has_no_match_however_its_files_merge",
            "unit/read/test_pruning.py::test_query_does_not_open_skipped_files",
        ],
        "Apache Hudi stores it in HFiles": [
            "unit/codec/test_hfile_writer.py::test_apaches_entries_become_apaches_bytes",
            "unit/codec/test_hfile.py::test_a_file_of_apache_is_read",
        ],
    },
    "File Layout Hierarchy": {
        "a file group has the versions of a base file, one for each commit": [
            "test_updates_write_a_slice_or_a_log",
        ],
        "a file group has a unique id": [
            "unit/index/test_bucket.py::test_a_file_id_names_its_bucket_and_repeats_for_every_attempt",
            "unit/operations/test_non_blocking.py::test_first_commits_of_a_bucket_create_one_file_group",
            "differs: Files and indexes: A file id is unique in the table.",
        ],
        "a slice has the time of the commit that created it": [
            "test_updates_write_a_slice_or_a_log",
            "property/test_file_slices.py::test_log_belongs_to_the_newest_slice_at_its_completion",
        ],
        "a slice of merge-on-read has a base file and logs": [
            "test_updates_write_a_slice_or_a_log",
            "golden/test_slices.py::test_snapshot_slices_have_the_rows_that_apache_reads",
        ],
        "each log is of one delta commit": ["test_data_files_are_named_after_their_commits"],
    },
    "Base file": {
        "the name: file id, write token, time of the commit, extension": [
            "test_data_files_are_named_after_their_commits",
        ],
        "the write token increases with each attempt": [
            "differs: Write tokens: A write token increases",
            "unit/view/test_file_system_view.py::test_later_of_two_attempts_is_used_in_any_listing_order",
            "unit/transaction/test_attempt.py::test_two_attempts_write_files_of_different_names",
        ],
        "files of failed attempts can be removed": [
            "differs: Write tokens: Cleaning removes partial files",
            "unit/transaction/test_transaction.py::test_files_that_the_commit_does_not_name_are_deleted_before_it_is_published",
        ],
    },
    "Log File Format": {
        "the name: file id, time of the base file, version, write token": [
            "test_data_files_are_named_after_their_commits",
            "unit/view/test_slicing_v6.py::test_logs_belong_to_the_slice_in_their_name",
            "differs: Log files: A log's name begins with the file id.",
            "differs: Log files: The timestamp in a log's name",
        ],
        "the log version": [
            "unit/write/test_log_versions.py::test_each_log_of_a_slice_has_the_next_version",
            "differs: Log files: The version in a log's name",
        ],
        "rows are in Avro, Parquet or HFile, as configured": [
            "test_the_format_of_data_blocks_can_be_chosen",
            "differs: Log files: Rows of logs are in Avro, Parquet or HFile",
        ],
        "all other fields are as Java's DataOutputStream writes them": [
            "unit/log/test_log_reader.py::test_apaches_blocks_are_written_as_apache_wrote_them",
        ],
        "a block begins with the magic": [
            "unit/log/test_log_reader.py::test_a_file_that_begins_otherwise_is_corrupt",
        ],
        "then the length without the magic": [
            "unit/log/test_log_reader.py::test_a_file_cut_anywhere_keeps_its_complete_blocks",
        ],
        "then the format version, and the id of the type": [
            "unit/log/test_log_reader.py::test_unknown_versions_types_and_headers_are_refused",
            "differs: Log files: Type ids of blocks begin with 1",
        ],
        "header and footer map ids to texts": [
            "unit/log/test_log_reader.py::test_what_was_written_is_read",
            "differs: Log files: Header and footer begin with their length",
        ],
        "three ids of header entries": [
            "unit/log/test_log_reader.py::test_apaches_blocks_are_written_as_apache_wrote_them",
            "differs: Log files: Three header keys",
        ],
        "the total length shows a corrupt block": [
            "unit/log/test_log_reader.py::test_block_with_another_length_at_its_end_is_torn",
            "differs: Log files: The last field of a block is the size",
        ],
        "what follows the total length is ignored": [
            "unit/log/test_log_reader.py::test_a_block_is_torn_if_something_else_follows_it",
            "differs: Log files: Data after the last field of a block is ignored.",
        ],
    },
    "Log file format block types": {
        "command: no content, only the type of the command": [
            "test_a_command_block_has_a_command_and_no_content",
        ],
        "command: undoes what an unsuccessful write left": [
            "unit/log/test_effective_blocks.py::test_effective_blocks_are_those_of_apache",
            "differs: Log files: A command block undoes the previous block.",
        ],
        "command: there is no other one": [
            "unit/log/test_effective_blocks.py::test_an_unknown_command_is_refused",
        ],
        "delete: version, length, keys": [
            "unit/log/test_delete_block.py::test_apaches_deletes_are_written_as_apache_wrote_them",
        ],
        "delete: serialized with Kryo": [
            "unit/log/test_delete_block.py::test_java_objects_of_old_releases_are_read",
            "differs: Log files: The keys of a delete block are serialized with Kryo.",
        ],
        "delete: record key, partition path and ordering value": [
            "unit/log/test_delete_block.py::test_deletes_come_back",
            "differs: Log files: A deleted record has an ordering value.",
        ],
        "delete: after the data blocks of its batch": [
            "unit/write/test_log_file_writer.py::test_each_append_writes_upserts_then_deletes",
        ],
        "corrupted: never written, but returned by the reader": [
            "unit/log/test_log_reader.py::test_torn_blocks_are_stepped_over_as_the_model_does",
            "unit/log/test_log_reader.py::test_unknown_versions_types_and_headers_are_refused",
        ],
        "Avro: version, number of records, then each with its length": [
            "unit/log/test_data_block.py::test_apaches_avro_content_is_written_byte_for_byte",
            "unit/log/test_data_block.py::test_apaches_avro_rows_are_read_as_fastavro_reads_them",
        ],
        "HFile: keys in sorted order, Avro records as values": [
            "unit/log/test_data_block.py::test_rows_of_an_hfile_come_out_in_the_order_of_their_keys",
            "unit/codec/test_hfile_writer.py::test_keys_that_do_not_ascend_are_no_file",
        ],
        "HFile: an index for lookups and range scans": [
            "unit/codec/test_hfile.py::test_a_lookup_reads_its_own_blocks_only",
            "unit/codec/test_hfile.py::test_a_lookup_of_prefixes_finds_the_keys_that_begin_with_one",
        ],
        "Parquet: the records in columns": [
            "unit/log/test_data_block.py::test_parquet_is_what_apache_expects",
            "unit/log/test_data_block.py::test_of_a_large_parquet_block_only_the_wanted_column_is_fetched",
        ],
    },
    "Reader Expectations": {
        "a query reads a snapshot": ["test_a_query_keeps_its_snapshot"],
        "1: of the last completed commit, or of a chosen one": [
            "unit/read/test_time_travel.py::test_each_instant_shows_the_changes_until_then",
        ],
        "2: slices of completed commits up to that time": [
            "test_a_commit_that_has_not_completed_is_not_read",
            "test_rows_change_only_when_a_write_completes",
            "unit/view/test_retention.py::test_later_slices_logs_and_replacements_are_hidden",
            "golden/test_slices.py::test_time_travel_slices_have_the_rows_that_apache_reads",
        ],
        "2: listings may come from the index of files": [
            "unit/metadata/test_apaches_tables.py::test_the_listing_is_that_of_storage",
            "unit/operations/test_selective_queries.py::test_parts_of_a_table_have_the_same_slices_as_the_whole_table",
        ],
        "3.1: logs are loaded for lookups by key, in memory or on disk": [
            "unit/merge/test_key_lookup.py::test_key_is_found_at_its_first_row",
            "golden/test_read.py::test_merge_that_spills_to_disk_gives_the_same_rows",
        ],
        "3.2: changes of a key are merged by the ordering field, deletes in their order": [
            "unit/read/test_file_group_reader.py::test_last_change_wins_by_commit_time_deletes_included",
            "property/test_record_merger.py::test_fold_equals_the_sequential_fold",
        ],
        "3.3: rows of the base file are merged with newer changes": [
            "property/test_record_merger.py::test_apply_equals_the_pair_rule_with_the_base_row_as_older",
            "golden/test_slice_model.py::test_model_returns_the_rows_of_apache",
        ],
        "4: replaced file groups are filtered out": [
            "unit/view/test_file_system_view.py::test_replaced_groups_are_hidden_but_known_to_the_cleaner",
            "property/test_replaced_partitions.py::test_queries_find_the_rows_of_the_model",
        ],
    },
    "Writer Expectations": {
        "inserts, updates and deletes": [
            "unit/operations/test_table.py::test_upsert_inserts_and_updates",
            "unit/operations/test_table.py::test_delete_by_condition_and_by_keys",
        ],
        "files are written first, and completing the action registers them all": [
            "test_data_files_are_written_while_their_instant_is_inflight",
        ],
        "1: the time of the action is later than all on the timeline": [
            "test_times_increase_from_one_action_to_the_next",
            "unit/timeline/test_clock.py::test_the_next_instant_is_later_than_the_newest",
        ],
        "1: changes are merged with the last completed commit": [
            "recovery/test_base_of_a_commit.py::test_rows_committed_while_a_writer_waited_for_the_lock_are_kept",
        ],
        "2: each record is tagged as an update or as new, in the whole table": [
            "contract/test_index.py::test_stored_keys_are_assigned_to_their_file_group",
            "contract/test_index.py::test_keys_are_new_in_a_partition_without_file_groups",
            "unit/operations/test_global_keys.py::test_rows_are_those_of_the_model",
            "differs: Files and indexes: A writer may choose the file group",
        ],
        "2: an index makes tagging efficient": [
            "unit/metadata/test_record_index_records.py::test_no_data_file_is_searched_for_keys",
            "unit/index/test_partition_changes.py::test_keys_excluded_by_range_and_bloom_filter_are_not_read",
        ],
        "3.1: copy-on-write makes a new slice": ["test_updates_write_a_slice_or_a_log"],
        "3.2: merge-on-read writes a new log of the slice": [
            "test_updates_write_a_slice_or_a_log",
        ],
        "4: a delete has only the meta fields and the operation": [
            "test_deletes_are_stored_without_data",
            "differs: Log files: A delete has the meta fields and the operation.",
        ],
        "5: conflicts are checked after all files are written, before the action completes": [
            "unit/transaction/test_transaction.py::test_what_another_writer_completes_meanwhile_conflicts_whenever_it_began",
            "recovery/test_lease_checks.py::test_writer_checks_its_lease_right_before_each_step",
        ],
        "6: indexes and metadata change in the same transaction": [
            "test_the_metadata_table_changes_in_the_transaction_of_each_action",
            "recovery/test_parallel_writes.py::test_next_writer_recovers_whichever_log_of_the_metadata_table_is_missing",
        ],
    },
    "Compatibility": {
        "newer readers read older tables": [
            "golden/test_answers.py::test_every_query_returns_the_rows_of_apache_hudi",
            "golden/test_old_versions.py::test_logs_of_release_0_9_have_java_objects",
            "differs: Files and indexes: Newer readers read older table versions.",
        ],
        "older readers need not read newer tables": [
            "unit/model/test_format_version.py::test_other_versions_are_refused",
        ],
    },
    "Balancing write and query performance": {
        "copy-on-write makes a slice for every batch of updates": [
            "test_updates_write_a_slice_or_a_log",
        ],
        "a read-optimized query reads base files only": [
            "test_a_compaction_makes_the_next_slice",
            "unit/view/test_file_system_view.py::test_read_optimized_shows_the_newest_base_file",
        ],
        "each record merged into the table is compared with the stored record of its key": [
            "property/test_histories.py::test_query_returns_the_rows_of_the_model",
        ],
        "merging may be deferred to queries if keys are mapped to file groups consistently": [
            "unit/index/test_bucket.py::test_bucket_of_simple_key_equals_java",
            "unit/index/test_hash_ring.py::test_a_hash_belongs_to_the_first_bucket_that_reaches_it",
        ],
        "users choose the size of files": [
            "unit/operations/test_lookup_tables.py::test_files_have_the_sizes_of_the_python_api",
            "unit/operations/test_inserts.py::test_files_of_a_bulk_insert_have_about_the_target_size",
        ],
    },
    "Table Management": {
        "services run with the writer, or asynchronously": [
            "unit/streamer/test_services.py::test_tables_are_compacted_then_cleaned_then_archived",
            "unit/streamer/test_async_compaction.py::test_batches_continue_while_a_compaction_runs",
        ],
        "any client may request a service, and another process finds and runs it": [
            "unit/operations/test_cluster.py::test_a_scheduled_plan_is_executed_later_in_its_own_order",
            "interop/test_undoing.py::test_each_executes_the_compaction_that_the_other_planned",
        ],
    },
    "Compaction": {
        "applies all logs of a slice, and writes the next slice": [
            "test_a_compaction_makes_the_next_slice",
        ],
        "by the rules of the reader": [
            "test_compaction_merges_all_logs_by_the_merge_mode",
            "property/test_table_services.py::test_services_do_not_change_the_rows_of_retained_commits",
        ],
    },
    "Clustering": {
        "the clustering columns are settings of the table": [
            "differs: Services and concurrency: The clustering columns are settings of the table.",
            "unit/operations/test_cluster.py::test_a_scheduled_plan_is_executed_later_in_its_own_order",
        ],
        "1: a strategy chooses file groups, for example by size": [
            "unit/services/test_clustering_plan.py::test_small_slices_fill_groups_the_largest_first",
            "unit/services/test_clustering_plan.py::test_only_the_chosen_partitions_are_rewritten",
        ],
        "2: groups of a bounded size": [
            "unit/services/test_clustering_plan.py::test_each_slice_is_in_one_group_whose_size_is_limited",
        ],
        "3: the plan is stored on the timeline when it is requested": [
            "test_a_plan_is_stored_when_it_is_requested_and_never_changes",
            "unit/model/test_clustering_plan.py::test_a_plan_is_stored_with_absolute_paths_and_read_with_names",
        ],
        "4: new file groups of the target size, sorted by the columns": [
            "unit/operations/test_cluster.py::test_rows_are_the_same_after_files_were_clustered",
            "interop/test_clustering.py::test_both_cluster_the_table_in_turn",
        ],
    },
    "Cleaning": {
        "nothing is deleted that will be needed": [
            "unit/services/test_cleaning_plan.py::test_a_planned_compaction_keeps_what_it_reads_whatever_is_retained",
            "unit/services/test_cleaning_plan.py::test_a_planned_clustering_keeps_what_it_reads",
            "property/test_table_services.py::test_services_do_not_change_the_rows_of_retained_commits",
        ],
        "nothing is deleted that a query is reading": [
            "unit/read/test_file_group_reader.py::test_file_cleaned_meanwhile_raises_snapshot_changed",
            "differs: Services and concurrency: Cleaning deletes no version that is in use.",
        ],
        "the state as of a cleaned commit cannot be read": [
            "unit/view/test_retention.py::test_time_travel_to_a_cleaned_state_is_refused",
            "unit/read/test_time_travel.py::test_cleaned_state_is_refused_after_the_clean_was_archived",
        ],
        "keep_latest_commits: the changes of the last commits stay": [
            "unit/services/test_cleaning_plan.py::test_what_a_query_as_of_the_earliest_commit_reads_stays",
        ],
        "keep_latest_file_versions: so many versions of each file stay": [
            "unit/services/test_cleaning_plan.py::test_versions_count_the_slices_of_each_group",
        ],
    },
    "Multiple concurrent readers": {
        "readers load the timeline, and read its latest commit": [
            "test_a_query_keeps_its_snapshot"
        ],
        "readers never wait for readers or writers": [
            "unit/operations/test_table.py::test_opening_for_a_query_opens_no_lock_and_no_writer",
            "unit/streamer/test_commands_on_any_table.py::test_read_commands_change_nothing",
        ],
    },
    "Concurrency control with writes": {
        "inserts never conflict": [
            "differs: Services and concurrency: Writers that only insert never conflict.",
            "unit/transaction/test_conflicts.py::test_bulk_insert_that_adds_keys_conflicts_only_with_later_commits_that_looked_keys_up",
            "unit/transaction/test_conflicts.py::test_commits_that_add_keys_to_one_partition_conflict_if_keys_are_looked_up",
        ],
        "services do not change the rows": [
            "test_rows_change_only_when_a_write_completes",
            "property/test_table_services.py::test_services_do_not_change_the_rows_of_retained_commits",
        ],
    },
    "Multiple table write client conflicts": {
        "of two writers of a file group, the first one to commit succeeds": [
            "unit/transaction/test_conflicts.py::test_writers_of_one_file_group_conflict_by_what_they_do",
            "recovery/test_writers.py::test_first_commits_of_two_writers_to_one_bucket_conflict",
        ],
        "the changes of the other one are removed": [
            "recovery/test_writers.py::test_two_writers_that_die_and_conflict_write_each_batch_once_and_in_order",
        ],
        "this needs an external lock": [
            "contract/test_lock.py::test_processes_exclude_each_other",
        ],
        "optimistic: files first, then the lock, then the check for newer slices": [
            "test_data_files_are_written_while_their_instant_is_inflight",
            "unit/transaction/test_transaction.py::test_what_another_writer_completes_meanwhile_conflicts_whenever_it_began",
        ],
        "optimistic: a transaction with conflicts is retried": [
            "unit/operations/test_two_writers.py::test_conflicting_upsert_is_written_again_on_the_other",
        ],
        "pessimistic: locks of file ids until the commit": [
            "differs: Services and concurrency: Writers may lock the file groups",
            "recovery/test_early_conflicts.py::test_later_of_two_processes_fails_before_it_writes",
        ],
        "writers of one process need no external lock": [
            "contract/test_lock.py::test_threads_exclude_each_other",
        ],
        "lock providers are pluggable": [
            "unit/timeline/locks/test_providers.py::test_provider_of_another_package_gets_the_url_and_the_options",
        ],
        "there are providers for ZooKeeper and DynamoDB": [
            "interop/test_locks.py::test_apache_hudi_and_lakemark_exclude_each_other_in_zookeeper",
            "interop/test_locks.py::test_amazons_client_and_lakemark_exclude_each_other_in_dynamodb",
        ],
    },
    "Table service client and Table write client conflicts": {
        "a service makes a slice while writers add logs": [
            "recovery/test_writers.py::test_commit_does_not_conflict_with_a_concurrent_compaction",
        ],
        "readers add the changes of the earlier slice that the new one lacks": [
            "interop/test_overlapping_compaction.py::test_compaction_keeps_the_rows_of_a_late_delta_commit_of_lakemark",
            "property/test_file_slices.py::test_readers_see_all_files_while_a_compaction_is_pending",
        ],
    },
    "Multiple Table service client conflicts": {
        "conflicting services are aborted early": [
            "unit/operations/test_log_compaction.py::test_log_compaction_yields_to_a_compaction_that_was_planned_meanwhile",
            "unit/operations/test_cluster.py::test_groups_in_a_pending_compaction_are_kept",
        ],
        "planning is serialized by short locks": [
            "unit/services/test_under_the_lock.py::test_a_compaction_holds_what_was_committed_before_the_lock_was_acquired",
        ],
    },
    "Optimistic concurrency efficiency": {
        "a key is in one file group at any time": [
            "unit/operations/test_resize_buckets.py::test_every_key_is_in_exactly_one_bucket_of_the_newest_ring",
            "contract/test_index.py::test_key_in_two_file_groups_is_refused_by_name",
            "differs: Files and indexes: A key is in one file group at any time.",
            "unit/operations/test_inserts.py::test_rows_of_a_key_that_several_file_groups_store_are_deleted",
        ],
        "the unit of concurrency is the file group": [
            "unit/transaction/test_conflicts.py::test_writers_of_different_file_groups_do_not_conflict",
        ],
        "logs may be in a row-oriented format": ["test_the_format_of_data_blocks_can_be_chosen"],
    },
}
