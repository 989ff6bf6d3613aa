"""Mutants of merging: which record of a key wins, and which values fill its missing columns."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ORDERING = ("tests/unit/merge/test_ordering.py",)
_EXHAUSTED = (
    "tests/unit/merge/partial_update/test_missing_columns.py::"
    "test_fold_of_every_sequence_of_three_changes_equals_the_model",
    "tests/unit/merge/partial_update/test_missing_columns.py::"
    "test_merge_of_every_change_with_every_stored_row_equals_the_model",
)
_MERGER = ("tests/unit/merge/test_record_merger.py", *_EXHAUSTED)
_FILLING = (*_EXHAUSTED, "tests/unit/merge/partial_update/test_missing_columns.py")
_PARTIAL = (
    "tests/unit/merge/partial_update/test_partial_rows.py",
    "tests/unit/write/test_partial_blocks.py",
)
_RARE = ("tests/unit/merge/partial_update/test_rare_column_sets.py",)
_STREAM = ("tests/unit/merge/test_merge_stream.py", "tests/property/test_record_merger.py")
_LOOKUP = ("tests/unit/merge/test_key_lookup.py",)
_PAYLOADS = ("tests/spec/test_record_payloads.py", "tests/unit/merge/test_table_merger.py")
_CUSTOM = (
    "tests/unit/merge/custom/test_refused.py",
    "tests/unit/merge/custom/test_adapter.py",
    "tests/unit/merge/custom/test_check.py",
    "tests/spec/test_custom_mergers.py",
)
_BLOCKS = ("tests/unit/log/test_effective_blocks.py",)
_READER = ("tests/unit/read/test_file_group_reader.py", "tests/spec/test_record_merger.py")

OF_MERGING = (
    Mutant(
        "lakemark/merge/ordering.py",
        "_SHORT_DECIMAL_DIGITS = 18",
        "_SHORT_DECIMAL_DIGITS = 19",
        "a decimal of 19 digits is ranked by 64 of its bits: an older row replaces a newer",
        _ORDERING,
    ),
    Mutant(
        "lakemark/merge/ordering.py",
        "order = np.lexsort(columns[::-1])",
        "order = np.lexsort(columns)",
        "the last ordering field counts more than the first",
        _ORDERING,
    ),
    Mutant(
        "lakemark/merge/ordering.py",
        "    ranks[_to_numpy(column.is_null())] = 0\n",
        "",
        "a row without an ordering value replaces rows that have one",
        _ORDERING,
    ),
    Mutant(
        "lakemark/merge/ordering.py",
        "return bits ^ ((bits >> 63) & np.iinfo(np.int64).max)",
        "return bits",
        "negative ordering values of doubles are compared the wrong way round",
        _ORDERING,
    ),
    Mutant(
        "lakemark/merge/ordering.py",
        "    if is_java_integer(column.type):\n",
        "    if column.type == pa.int64():\n",
        "a delete ordered by 0 in an int column loses, as Apache Hudi's readers never let it",
        _ORDERING,
    ),
    Mutant(
        "lakemark/merge/ordering.py",
        "    if len(fields) != 1:\n",
        "    if not fields:\n",
        "a delete deletes newer rows if the first of its ordering fields is 0",
        _ORDERING,
    ),
    Mutant(
        "lakemark/merge/record_merger.py",
        "(newer >= older) | self._unconditional_deletes(changes)",
        "(newer > older) | self._unconditional_deletes(changes)",
        "a row with the ordering value of the stored row does not replace it",
        _MERGER,
    ),
    Mutant(
        "lakemark/merge/record_merger.py",
        "(newer >= older) | self._unconditional_deletes(changes)",
        "newer >= older",
        "an unconditional delete does not delete the row of the base file",
        _MERGER,
    ),
    Mutant(
        "lakemark/merge/record_merger.py",
        "return keys.last(rows[ranks[rows] == largest[keys.codes[rows]]])",
        "return keys.first(rows[ranks[rows] == largest[keys.codes[rows]]])",
        "of two changes with one ordering value the first wins",
        _MERGER,
    ),
    Mutant(
        "lakemark/merge/record_merger.py",
        "        if not unconditional.any():\n",
        "        if True:\n",
        "an unconditional delete in a log loses to an older row with a larger ordering value",
        _MERGER,
    ),
    Mutant(
        "lakemark/merge/record_merger.py",
        "        if self.deletes_are_unconditional:\n",
        "        if False:\n",
        "deletes of a table whose payload lets them win always lose to late rows",
        _EXHAUSTED,
    ),
    Mutant(
        "lakemark/merge/record_merger.py",
        "return changes.take(keys.last(np.arange(changes.num_rows)))",
        "return changes.take(keys.first(np.arange(changes.num_rows)))",
        "in a commit-time table the first change of a batch wins",
        _MERGER,
    ),
    Mutant(
        "lakemark/merge/precedence.py",
        "(kinds == ChangeKind.DELETE) | (kinds == ChangeKind.FLAGGED_DELETE)",
        "kinds == ChangeKind.DELETE",
        "a row flagged as deleted that is ordered by 0 does not delete",
        _MERGER,
    ),
    Mutant(
        "lakemark/merge/precedence.py",
        "rows[is_after & ((kinds != ChangeKind.DELETE) | ~had_delete)]",
        "rows[is_after]",
        "after an unconditional delete a late ordered delete counts against newer rows",
        _MERGER,
    ),
    Mutant(
        "lakemark/merge/precedence.py",
        "counts = is_effective & is_upsert & (rows >= begin) & (begin != NO_ROW)",
        "counts = is_effective & is_upsert & (begin != NO_ROW)",
        "columns of a row from before a delete fill the row that came after it",
        _FILLING,
    ),
    Mutant(
        "lakemark/merge/precedence.py",
        "is_effective = (rows > deleted_at) | has_columns",
        "is_effective = rows > deleted_at",
        "a payload forgets the columns of a row that was flagged as deleted",
        _EXHAUSTED,
    ),
    Mutant(
        "lakemark/merge/precedence.py",
        "    dense_ranks[~is_effective] = 0\n",
        "",
        "a row that an unconditional delete ended still outranks later rows",
        _EXHAUSTED,
    ),
    Mutant(
        "lakemark/merge/payload_merger.py",
        "wins: Mask = deletes | (ranks",
        "wins: Mask = (ranks",
        "a late delete of PartialUpdateAvroPayload does not delete the row of the base file",
        _EXHAUSTED,
    ),
    Mutant(
        "lakemark/merge/payload_merger.py",
        "or pa.types.is_timestamp(kind)\n",
        "or pa.types.is_timestamp(kind)\n        or pa.types.is_string(kind)\n",
        "rows ordered by text merge otherwise than in Apache Hudi's payload",
        ("tests/unit/merge/test_table_merger.py",),
    ),
    Mutant(
        "lakemark/merge/partial_update/missing_columns.py",
        "late = keys.first(rows[precedence.contributes & ~sets & ~missing])",
        "late = keys.last(rows[precedence.contributes & ~sets & ~missing])",
        "of two late rows the second fills a column that the first had filled",
        _FILLING,
    ),
    Mutant(
        "lakemark/merge/partial_update/missing_columns.py",
        "np.where(newer_leads, ~newer_missing, late_fills)",
        "newer_leads & ~newer_missing",
        "a late partial row fills nothing in the row of the base file",
        _FILLING,
    ),
    Mutant(
        "lakemark/merge/partial_update/missing_columns.py",
        "takes[name] = np.where(is_new, is_written, takes[name])",
        "pass",
        "a row that was filled keeps its commit time: incremental queries do not see it",
        _FILLING,
    ),
    Mutant(
        "lakemark/merge/partial_update/missing_columns.py",
        "missing: Mask = (bits[:, position // 8]",
        "missing: Mask = (bits[:, 0]",
        "in tables of more than eight columns partial rows lose or overwrite columns",
        (
            "tests/unit/merge/partial_update/test_missing_columns.py::"
            "test_each_of_many_columns_is_taken_from_the_row_that_has_it",
        ),
    ),
    Mutant(
        "lakemark/merge/partial_update/missing_columns.py",
        "chunk.offset * width : (chunk.offset + len(chunk)) * width",
        "0 : len(chunk) * width",
        "partial rows in a slice of a table take the written columns of other rows",
        (
            "tests/unit/merge/partial_update/test_missing_columns.py::"
            "test_each_of_many_columns_is_taken_from_the_row_that_has_it",
        ),
    ),
    Mutant(
        "lakemark/merge/join.py",
        "updated = is_upsert & (wins | (partial_update is not None))",
        "updated = is_upsert & wins",
        "a late partial row fills nothing in the stored row",
        _FILLING,
    ),
    Mutant(
        "lakemark/merge/join.py",
        "return JoinedRows(updated, wins & ~is_upsert, rows)",
        "return JoinedRows(updated, ~is_upsert, rows)",
        "a late delete deletes a newer row",
        _MERGER,
    ),
    Mutant(
        "lakemark/merge/change_index.py",
        "np.flatnonzero(self._is_upsert & ~self._was_matched)",
        "np.flatnonzero(~self._was_matched)",
        "a delete of a key that was never there makes a row of nulls",
        _MERGER,
    ),
    Mutant(
        "lakemark/merge/change_index.py",
        "        self._was_matched[change_rows] = True\n",
        "",
        "each updated row is there twice",
        _MERGER,
    ),
    Mutant(
        "lakemark/merge/change_index.py",
        "    stays[dropped] = False\n",
        "",
        "a query returns rows that were deleted",
        _STREAM,
    ),
    Mutant(
        "lakemark/merge/change_index.py",
        "    stays[replaced] = False\n",
        "",
        "a query returns the old and the new row of each key that was updated",
        _STREAM,
    ),
    Mutant(
        "lakemark/merge/merge_stream.py",
        "    keeps_order: bool = True,\n",
        "    keeps_order: bool = False,\n",
        "a compaction moves updated rows, and the row groups of a file no longer ascend",
        _STREAM,
    ),
    Mutant(
        "lakemark/merge/key_lookup.py",
        "        if len(self._hidden):\n",
        "        if False:\n",
        "of keys with equal hashes one is not found, and its row is there twice",
        _LOOKUP,
    ),
    Mutant(
        "lakemark/merge/key_lookup.py",
        "found[rows[is_same]] = candidates[is_same]",
        "found[rows] = candidates",
        "a change replaces the row of another key with the same hash",
        _LOOKUP,
    ),
    Mutant(
        "lakemark/merge/key_codes.py",
        "first.codes * max(other.key_count, 1) + other.codes",
        "first.codes + other.codes",
        "rows of other partitions with other keys are taken for one record",
        ("tests/unit/merge/test_record_merger.py",),
    ),
    Mutant(
        "lakemark/merge/partial_update/partial_rows.py",
        "            written[:, position] = sources >= 0\n",
        "",
        "a partial row overwrites the columns that it does not have",
        _PARTIAL,
    ),
    Mutant(
        "lakemark/merge/partial_update/partial_rows.py",
        "return pa.concat_tables([rows, deletes.cast(rows.schema)])",
        "return rows",
        "a partial row that came after a delete in an earlier block takes the deleted columns",
        _PARTIAL,
    ),
    Mutant(
        "lakemark/merge/partial_update/partial_rows.py",
        "if has_partial_rows(part) or _may_come_late(merger):",
        "if has_partial_rows(part):",
        "a whole row that came too late fills what a partial one leaves to the base file",
        _PARTIAL,
    ),
    Mutant(
        "lakemark/merge/partial_update/rare_column_sets.py",
        "        is_rare &= ~is_changed.to_numpy()\n",
        "",
        "a rare partial row takes columns from before the last change of its key",
        _RARE,
    ),
    Mutant(
        "lakemark/merge/partial_update/rare_column_sets.py",
        "minlength=len(keys.dictionary))[codes] == 1",
        "minlength=len(keys.dictionary))[codes] >= 1",
        "a key that is stored twice gets the columns of one row in both",
        _RARE,
    ),
    Mutant(
        "lakemark/merge/merge_stream.py",
        "chain([pending.fold()], arriving)",
        "chain(arriving, [pending.fold()])",
        "if changes do not fit into memory, older ones replace newer",
        _STREAM,
    ),
    Mutant(
        "lakemark/merge/merge_stream.py",
        "sorted({*newer.divisions, *older.divisions})",
        "sorted(older.divisions)",
        "if changes do not fit into memory, new keys are lost",
        _STREAM,
    ),
    Mutant(
        "lakemark/merge/merge_stream.py",
        "self._tables, self._unfolded_bytes = [folded], 0",
        "self._tables, self._unfolded_bytes = [changes], 0",
        "changes that were folded to save memory are lost",
        _STREAM,
    ),
    Mutant(
        "lakemark/merge/custom/fold.py",
        "        begins[1:] |= alone[:-1]\n",
        "",
        "a custom merger is asked for a delete's neighbours before it is asked for the delete",
        _CUSTOM,
    ),
    Mutant(
        "lakemark/merge/custom/fold.py",
        "merge(rows.take(older), rows.take(older + 1))",
        "merge(rows.take(older + 1), rows.take(older))",
        "a custom merger gets the newer record as the older one",
        _CUSTOM,
    ),
    Mutant(
        "lakemark/merge/custom/outcome.py",
        "    _check_has_data(merger, keys, older, newer, outcome)\n",
        "",
        "a custom merger may make a row of nulls of a delete",
        _CUSTOM,
    ),
    Mutant(
        "lakemark/merge/custom/outcome.py",
        "is_lost = (~before[0] & ~before[1]) | (outcome.keep & ~had_none)",
        "is_lost = outcome.keep & ~had_none",
        "a delete that a custom merger returns without its ordering value loses to late rows",
        _CUSTOM,
    ),
    Mutant(
        "lakemark/read/log_changes.py",
        "_DELETING_OPERATIONS = pa.array(DELETE_OPERATIONS)",
        "_DELETING_OPERATIONS = pa.array(DELETE_OPERATIONS[:1])",
        "rows that Flink retracted are read",
        _READER,
    ),
    Mutant(
        "lakemark/read/log_changes.py",
        "np.where(unconditional, ChangeKind.COMMIT_TIME_DELETE, ChangeKind.DELETE)",
        "np.full(len(unconditional), ChangeKind.DELETE)",
        "a delete without an ordering value in a log loses to the row of the base file",
        _READER,
    ),
    Mutant(
        "lakemark/read/log_changes.py",
        "is_written = [not names or name in names for name in self.schema.names]",
        "is_written = [True for name in self.schema.names]",
        "a partial block of a log overwrites the columns that it does not have",
        ("tests/unit/write/test_partial_blocks.py", *_READER),
    ),
    Mutant(
        "lakemark/log/effective_blocks.py",
        "            found.pop(_target_of(block), None)\n",
        "            _target_of(block)\n",
        "rows that were rolled back by a block of the log are read",
        _BLOCKS,
    ),
    Mutant(
        "lakemark/log/effective_blocks.py",
        "elif block.type in CHANGING and is_visible(block.instant_time):",
        "elif block.type in CHANGING:",
        "blocks of failed or later commits in a log of version 6 are read",
        _BLOCKS,
    ),
    Mutant(
        "lakemark/log/effective_blocks.py",
        "final = rewritten_by.get(instant, instant)",
        "final = instant",
        "blocks that a log compaction wrote again replace what came after them",
        _BLOCKS,
    ),
    Mutant(
        "lakemark/write/file_group_write.py",
        "_merge(context, task, stored, changes)",
        "_merge(context, task, stored, reversed(list(changes)))",
        "in a copy-on-write table the older of two changes wins if they are in several chunks",
        ("tests/unit/write/test_one_merge.py",),
    ),
    Mutant(
        "lakemark/write/sorted_runs.py",
        "self._key(self._held[0], 0) <= bound:",
        "self._key(self._held[0], 0) < bound:",
        "a merge of runs fails at a batch with only one key",
        ("tests/unit/write/test_sorted_runs.py",),
    ),
    Mutant(
        "lakemark/write/sorted_runs.py",
        "            sources = [self._read(run, bucket), *sources[_MERGED_RUNS:]]\n",
        "            sources = [*sources[_MERGED_RUNS:], self._read(run, bucket)]\n",
        "of two changes of one key in a large bulk insert, the older one wins",
        ("tests/unit/write/test_sorted_runs.py",),
    ),
    Mutant(
        "lakemark/operations/table_index.py",
        "if not slices and _records_index(table, (LOOKUP, GLOBAL_LOOKUP)):",
        "if False:",
        "an empty table with a lookup index becomes a table with buckets",
        ("tests/unit/operations/test_inserts.py",),
    ),
)
