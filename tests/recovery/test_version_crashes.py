"""A version change that dies at any write leaves the old table or the new one, and is repeated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest

from table.errors import Refused
from table.hudi_table import HudiTable, open_table
from table.model.format_version import FormatVersion
from table.storage import StorageLocation
from table.timeline.timeline_store import TimelineStore
from table.upgrade.change import change_version
from tests.golden.golden_table import sorted_rows, unpack
from tests.storages.faulty_storage import FaultyStorage, SimulatedCrash

#: Of the many writes, so many are tried, first and last among them.
TRIED = 9

_INSTANTS = (".commit", ".clean", ".replacecommit", ".requested", ".inflight")


def rows_of(folder: Path) -> list[object]:
    table = open_table(StorageLocation(str(folder)))
    return list(sorted_rows(table.snapshot().read_all()))


def changed(folder: Path, version: FormatVersion, nth: int | None) -> FaultyStorage:
    """Change a table whose process dies after a write."""
    table: HudiTable = open_table(StorageLocation(str(folder)))
    storage = FaultyStorage(table.storage, nth, "after")
    timeline = TimelineStore.of_table(storage, table.properties)
    change_version(replace(table.access, storage=storage, timeline=timeline), version)
    return storage


@pytest.mark.parametrize(
    ("name", "version"),
    [("v6_cow_simple", FormatVersion.V9), ("v9_cow_simple", FormatVersion.V6)],
)
def test_it_is_one_or_the_other(name: str, version: FormatVersion, tmp_path: Path) -> None:
    golden = Path(unpack(name, tmp_path).table.location.url.removeprefix("file://"))
    rows = rows_of(golden)
    counted = tmp_path / "counted"
    copytree(golden, counted)
    writes = changed(counted, version, None).writes
    assert rows_of(counted) == rows
    for nth in sorted({round(at * (writes - 1) / (TRIED - 1)) for at in range(TRIED)}):
        folder = tmp_path / str(nth)
        copytree(golden, folder)
        with pytest.raises(SimulatedCrash):
            changed(folder, version, nth)
        assert rows_of(folder) == rows
        changed(folder, version, None)
        assert open_table(StorageLocation(str(folder))).version is version
        assert rows_of(folder) == rows
        assert sorted(p.name for p in folder.rglob("*") if p.suffix in _INSTANTS) == sorted(
            p.name for p in counted.rglob("*") if p.suffix in _INSTANTS
        )


def test_an_archive_that_lies_beside_all_else_is_all_that_goes(tmp_path: Path) -> None:
    golden = unpack("v6_cow_simple", tmp_path).root
    rows = rows_of(golden)
    path = golden / ".hoodie/hoodie.properties"
    said = [line for line in path.read_text().splitlines() if "archivelog.folder" not in line]
    path.write_text("\n".join([*said, "hoodie.archivelog.folder="]))
    archive_log = golden / ".hoodie/.commits_.archive.1_1-0-1"
    archive_log.touch()
    change_version(open_table(StorageLocation(str(golden))).access, FormatVersion.V9)
    assert open_table(StorageLocation(str(golden))).version is FormatVersion.V9
    assert rows_of(golden) == rows
    assert not archive_log.exists()


def test_a_timeline_in_the_place_of_the_other_is_left_alone(tmp_path: Path) -> None:
    golden = unpack("v9_cow_simple", tmp_path).root
    home, path = golden / ".hoodie", golden / ".hoodie/hoodie.properties"
    said = [line for line in path.read_text().splitlines() if "timeline.path" not in line]
    path.write_text("\n".join([*said, "hoodie.timeline.path="]))
    for file in (home / "timeline").iterdir():
        file.rename(home / file.name)
    rows, files = rows_of(golden), {p for p in home.rglob("*") if p.is_file()}
    with pytest.raises(Refused, match=r"hoodie\.timeline\.path is empty"):
        change_version(open_table(StorageLocation(str(golden))).access, FormatVersion.V6)
    assert rows_of(golden) == rows
    assert files <= set(home.rglob("*"))
