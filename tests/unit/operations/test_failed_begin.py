"""A commit that cannot begin leaves no pending instant, so that others can write at once."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakemark
from lakemark.operations.table_writer import TableWriter
from tests.unit.operations.tables import contents, create, reopen, rows


def test_missing_ordering_column_requests_no_instant(tmp_path: Path) -> None:
    table = create(str(tmp_path / "orders"))
    stored = tmp_path / "orders" / ".hoodie" / "hoodie.properties"
    lines = stored.read_text().splitlines()
    changed = ["hoodie.table.ordering.fields=zz" if "ordering.fields" in x else x for x in lines]
    stored.write_text("\n".join(changed))
    before = list(reopen(table.location).timeline.instants)
    with pytest.raises(lakemark.InvalidConfig, match="field 'zz' is not among the columns"):
        reopen(table.location).upsert(rows(("a", "north", 1, 1)))
    assert list(reopen(table.location).timeline.instants) == before


def test_failure_after_the_request_removes_the_instant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(str(tmp_path / "orders"))

    def fail(self: TableWriter, instant: str) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(TableWriter, "_context", fail)
        with pytest.raises(MemoryError):
            table.upsert(rows(("a", "north", 1, 1)))
    assert not reopen(table.location).timeline.pending()
    table.upsert(rows(("b", "north", 1, 1)))
    assert contents(table) == {"b": ("north", 1, 1)}
