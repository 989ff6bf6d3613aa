"""Files are listed from the metadata table, without a listing of storage."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.model.file_slice import ALL_PARTITIONS
from lakemark.view.file_lister import FileLister
from tests.depth import examples
from tests.unit.metadata.metadata_tables import MadeUpTable, Record, files

GROUP = "files-0000-0"
NAMES = [f"f{number}-0_0-1-2_2026010100000000{number}.parquet" for number in range(3)]

#: Sizes by file name, None for a file that is removed; None for all that is under the key.
Change = dict[str, int | None] | None
CHANGES: st.SearchStrategy[Change] = st.none() | st.dictionaries(
    st.sampled_from(NAMES), st.none() | st.integers(1, 9), max_size=3
)


@settings(deadline=None, max_examples=examples(30))
@given(st.lists(CHANGES, max_size=6))
def test_a_file_exists_according_to_its_newest_record(commits: list[Change]) -> None:
    """Its size is the largest that any record gives since the last removal of the partition."""
    sizes: dict[str, int] = {}
    there: set[str] = set()
    for commit in commits:
        if commit is None:
            sizes, there = {}, set()
        for name, size in (commit or {}).items():
            there = there - {name} if size is None else there | {name}
            sizes[name] = max(sizes.get(name, 0), size or 0)
    table = MadeUpTable("files")
    table.add(GROUP, {ALL_PARTITIONS: files({"p": 0})}, *({"p": c and files(c)} for c in commits
                                                          if c != {}))  # fmt: skip
    lister: FileLister = MetadataFileLister(table.open())
    found = {str(file.name): file.size_bytes for file in lister.list_files()["p"]}
    assert found == {name: sizes[name] for name in there}


def test_partitions_come_and_go() -> None:
    table = MadeUpTable("files")
    base: dict[str, Record] = {
        ALL_PARTITIONS: files({"p": 0, "q": 0}),
        "p": files({NAMES[0]: 5}),
        "q": files({NAMES[1]: 5}),
    }
    table.add(GROUP, base, {ALL_PARTITIONS: files({"q": None, "r": 0})})
    lister = MetadataFileLister(table.open())
    assert lister.list_partitions() == ["p", "r"]
    listed = lister.list_files()
    assert [str(file.name) for file in listed["p"]] == NAMES[:1]
    assert listed["r"] == [] and list(listed) == ["p", "r"]
    assert [file.path for file in lister.list_some(["q"])["q"]] == [f"q/{NAMES[1]}"]
    assert lister.list_some(["none"]) == {"none": []}


def test_the_only_partition_of_a_table_without_partitions_is_the_root() -> None:
    table = MadeUpTable("files")
    log = ".f0-0_20260101000000001.log.1_0-1-2"
    cdc = log + ".cdc"
    listed = {NAMES[0]: 5, log: 6, cdc: 7, "no data file": 8}
    table.add(GROUP, None, {ALL_PARTITIONS: files({".": 0}), ".": files(dict(listed))})
    lister = MetadataFileLister(table.open())
    assert lister.list_partitions() == [""]
    assert {file.path: file.size_bytes for file in lister.list_files()[""]} == {
        NAMES[0]: 5, log: 6, cdc: 7,
    }  # fmt: skip
    assert len(lister.list_some([""])[""]) == 3


def test_a_table_without_files_has_no_partitions() -> None:
    table = MadeUpTable("files")
    table.add(GROUP, {ALL_PARTITIONS: files({})})
    assert MetadataFileLister(table.open()).list_files() == {}
    nothing = MadeUpTable("files")
    assert MetadataFileLister(nothing.open()).list_partitions() == []
