"""Mutants of indexes: how they are created, the entries that a commit changes, and queries."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RECORDS = ("tests/unit/metadata/test_secondary_index_records.py",)

_PARTITIONED = ("tests/unit/metadata/test_partitioned_record_index.py",)

_CREATION = ("tests/unit/operations/test_indexes.py",)

_KEY_QUERIES = ("tests/unit/operations/test_key_queries.py",)
_DEMANDED_KEYS = ("tests/unit/read/test_demanded_keys.py",)

OF_INDEXES = (
    Mutant(
        "lakemark/metadata/new_index.py",
        "for one in gone:",
        "for one in ():",
        "a new index has records of rows that were changed while it was built",
        _CREATION,
    ),
    Mutant(
        "lakemark/operations/create_index.py",
        "if content.update(_sources(table, build), lease.check):",
        "if False:",
        "a new index lacks the commits since its rows were read",
        _CREATION,
    ),
    Mutant(
        "lakemark/operations/index_checks.py",
        "is_hashed = table.first_ring_count is not None",
        "is_hashed = False",
        "a table with consistent hashing gets a record index, and no writer can write it any more",
        _CREATION,
    ),
    Mutant(
        "lakemark/write/new_file_groups.py",
        "_new_rows(waiting.take(limit)), written=[indexed])",
        "_new_rows(waiting.take(limit)))",
        "the record index lacks the automatic keys of a bulk insert",
        _CREATION,
    ),
    Mutant(
        "lakemark/metadata/recorded_files.py",
        'since = [i for i in self._since_compaction() if (i.completed_at or "") >= created_at]',
        "since = self._since_compaction()",
        "an index that was dropped and created again stops every writer",
        _CREATION,
    ),
    Mutant(
        "lakemark/operations/later_commits.py",
        "if not later:",
        "if True:",
        "a batch is refused because another writer's keys are compacted into the record index",
        _CREATION,
    ),
    Mutant(
        "lakemark/index/key_search.py",
        "replace(one, logs=(*one.logs, *logs)) for one",
        "replace(one, logs=(*logs,)) for one",
        "a late change that loses to a row of an older log replaces the row's value in the index",
        _RECORDS,
    ),
    Mutant(
        "lakemark/metadata/secondary_index_records.py",
        "return changes.hashed_by(hashed_part) if column.hashes_values else changes",
        "return changes",
        "entries of an index of version 2 are in file groups in which no reader looks for them",
        _RECORDS,
    ),
    Mutant(
        "lakemark/metadata/partition_shards.py",
        "max(MIN_GROUPS, stored.get(series_prefix(path), 0))",
        "MIN_GROUPS",
        "keys of a new partition are not found once another writer has added more file groups",
        _PARTITIONED,
    ),
    Mutant(
        "lakemark/metadata/record_index.py",
        "for path, one in found.items() if _are_begun(one, is_valid)}",
        "for path, one in found.items()}",
        "the rollback of a dead writer removes keys of other writers from a partitioned index",
        ("tests/unit/metadata/test_pending_index_series.py",),
    ),
    Mutant(
        "lakemark/index/record_level.py",
        "        if not is_indexed and groups:\n",
        "        if False:\n",
        "stored keys are added again, because the files of a partitioned index were lost",
        ("tests/unit/metadata/test_lost_index_series.py",),
    ),
    Mutant(
        "lakemark/metadata/index_sources.py",
        "for path in self.partitions if index.is_partitioned else ():",
        "for path in ():",
        "Apache Hudi fails to write to a partition that had no rows when the index was created",
        _PARTITIONED,
    ),
    Mutant(
        "lakemark/metadata/metadata_writer.py",
        "if is_global and state.shard_counts is not None:",
        "if False:",
        "a row that moves gets a second row, because the record index was replaced meanwhile",
        _PARTITIONED,
    ),
    Mutant(
        "lakemark/read/demanded_values.py",
        "return {name: one[name] | other[name] for name in one.keys() & other.keys()}",
        "return {**one, **other}",
        "a query with or misses the rows that meet only one of its conditions",
        _RECORDS,
    ),
    Mutant(
        "lakemark/index/key_filters.py",
        'return not file_slice.logs and base is not None and base.name.extension == "parquet"',
        'return base is not None and base.name.extension == "parquet"',
        "a query by key misses the rows of logs whose base file lacks the key",
        _KEY_QUERIES,
    ),
    Mutant(
        "lakemark/index/stored_filters.py",
        "return pa.concat_arrays([some, self.others]) if len(self.others) else some",
        "return some",
        "an upsert adds a row twice, because the order of its key is not that of the file's range",
        ("tests/unit/index/test_stored_filters.py",),
    ),
    Mutant(
        "lakemark/index/stored_filters.py",
        "ranges.get(one.path, (None, None))",
        'ranges.get(one.path, ("", ""))',
        "an upsert adds a row twice, because the metadata table lacks the file with its key",
        ("tests/unit/index/test_stored_filters.py",),
    ),
    Mutant(
        "lakemark/index/key_filters.py",
        "return {file for file, may_contain in found.items() if not may_contain}",
        "return {file for file, may_contain in found.items() if may_contain}",
        "a query by key skips exactly the files with the key",
        _KEY_QUERIES,
    ),
    Mutant(
        "lakemark/operations/table_queries.py",
        "is_current = is_latest and isinstance(query, Snapshot)",
        "is_current = True",
        "a query of earlier rows misses those that the record index does not have any more",
        _KEY_QUERIES,
    ),
    Mutant(
        "lakemark/read/demanded_keys.py",
        "return pc.unique(keys) if is_certain and not keys.null_count else None",
        "return pc.unique(keys) if not keys.null_count else None",
        "a query by a key that two rows share misses one of them",
        _DEMANDED_KEYS,
    ),
    Mutant(
        "lakemark/read/demanded_keys.py",
        "if config.has_lone_complex_key:",
        "if False:",
        "a query misses the rows whose keys have the other encoding of a single complex key",
        _DEMANDED_KEYS,
    ),
)
