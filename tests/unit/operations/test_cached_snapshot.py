"""An open table keeps its file slices up to date after each of its own changes."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

import lakemark
from lakemark.view.file_system_view import FileSystemView
from tests.unit.operations.tables import SCHEMA, contents, rows


@pytest.mark.parametrize("method", ["with_commit", "without_files"])
def test_change_that_was_published_succeeds_if_the_file_slices_cannot_be_updated(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A published change succeeds even if the store does not answer while slices are updated."""
    table = lakemark.create(
        tmp_path / "orders",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        metadata_table=False,  # its statistics also need the file slices after a commit
    )
    table.upsert(rows(("a", "north", 1, 1)))

    def fail(*_: object) -> NoReturn:
        message = "no answer"
        raise lakemark.StorageUnavailable(message)

    monkeypatch.setattr(FileSystemView, method, fail)
    for number in (2, 3, 4):
        assert table.upsert(rows(("a", "north", number, number))).upserts == 1
        assert table.compact().instants
    assert table.clean(retain_commits=1).files
    assert contents(table) == {"a": ("north", 4, 4)}
