"""What the metadata of a commit says about the rows."""

from __future__ import annotations

import pytest

from lakemark.model.commit_metadata import CommitMetadata, Operation, WriteStat

_WRITTEN = (WriteStat(path="north/a.parquet"),)


@pytest.mark.parametrize(
    ("metadata", "changes_no_row"),
    [
        (CommitMetadata(operation=Operation.COMPACT, write_stats=_WRITTEN), True),
        (CommitMetadata(operation=Operation.LOG_COMPACT, write_stats=_WRITTEN), True),
        (
            CommitMetadata(
                operation=Operation.CLUSTER,
                write_stats=_WRITTEN,
                replaced_file_ids={"north": ("b",)},
            ),
            True,
        ),
        (CommitMetadata(operation=Operation.UPSERT), True),
        (CommitMetadata(operation=Operation.UPSERT, write_stats=(WriteStat(path=None),)), True),
        (CommitMetadata(operation=Operation.UPSERT, write_stats=_WRITTEN), False),
        (CommitMetadata(operation=Operation.DELETE, write_stats=_WRITTEN), False),
        (CommitMetadata(operation=Operation.UNKNOWN, write_stats=_WRITTEN), False),
        (CommitMetadata(operation=Operation.UNKNOWN, replaced_file_ids={"": ("b",)}), False),
        (CommitMetadata(operation=Operation.DELETE_PARTITION), False),
        (CommitMetadata(operation=Operation.INSERT_OVERWRITE), False),
    ],
)
def test_only_services_and_commits_without_files_certainly_change_no_row(
    metadata: CommitMetadata, changes_no_row: bool
) -> None:
    assert metadata.changes_no_row is changes_no_row
