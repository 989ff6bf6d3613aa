"""Expression indexes are created and dropped, and each commit updates them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from lakemark.config.parquet_settings import PARQUET_DEFAULTS
from lakemark.config.table_properties import TableType
from lakemark.errors import InvalidConfig, Refused, Unsupported
from lakemark.execution.runner import LocalRunner
from lakemark.metadata.expressions.expression_index import ExpressionIndex
from lakemark.metadata.index_definition import define_expression_index, read_definitions
from lakemark.metadata.metadata_compaction import EVERY_DELTA_COMMITS
from lakemark.model.action import Action
from lakemark.model.changes import ChangeKind
from lakemark.model.format_version import FormatVersion
from lakemark.model.row_order import RowOrder
from lakemark.operations.change_version import change_table_version
from lakemark.operations.clean import clean
from lakemark.operations.cluster import cluster_table, schedule_clustering
from lakemark.operations.create_index import create_index
from lakemark.operations.drop_index import drop_index
from lakemark.operations.metadata_table import (
    keep_metadata_table,
    metadata_differences,
    rebuild_metadata_table,
)
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.table_indexes import IndexState, list_indexes
from lakemark.operations.table_writer import TableWriter
from lakemark.read.explanation import SkipReason
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.clustering_plan import ClusteringPolicy
from lakemark.storage import Storage, StorageLocation
from lakemark.transaction.rollback import roll_back_named
from tests.table_services import new_storage
from tests.tables import (
    Row,
    commit,
    contents,
    keys_of_two_buckets,
    lookup_writer,
    make,
    write_files,
    writer,
)

DAYS, FILTERS = "expr_index_days", "expr_index_filters"
DAY = 86_400

each_type = pytest.mark.parametrize("table_type", TableType)


def at(day: int, hour: int = 12) -> int:
    """Return a time of a day since the epoch, in seconds."""
    return day * DAY + hour * 3600


def indexed(
    table_type: TableType = TableType.MERGE_ON_READ, version: FormatVersion = FormatVersion.V9
) -> TableWriter:
    """Return a table with an index of days, and of bloom filters of ids."""
    storage = new_storage()
    make(storage, table_type, version=version)
    to = lookup_writer(storage)
    commit(to, [Row("Aa", 1, at(10)), Row("b", 1, at(20)), Row("s", 1, at(30), region="south")])
    create_index(to.table, "days", expression="from_unixtime(v, yyyy-MM-dd)")
    if table_type is TableType.COPY_ON_WRITE:
        create_index(to.table, "filters", expression="upper(id)", kind="bloom_filters")
    return lookup_writer(storage)


def days_of(to: TableWriter) -> dict[str, tuple[str, str]]:
    """Return the bounds of the days of each partition, according to the index."""
    table = lookup_writer(to.table.storage).table
    rows = _index(table, DAYS).of_partitions(pa.string()).to_pylist()
    return {row["partition_path"]: (row["min"], row["max"]) for row in rows}


def _index(table: OpenTable, partition: str) -> ExpressionIndex:
    metadata = table.metadata_opener.open(table.properties, table.timeline, table.store.clock)
    assert metadata is not None
    return ExpressionIndex.of(metadata, partition)


def around(first: int, last: int | None = None) -> tuple[str, str]:
    """Return the days in all time zones of the noons of two days."""
    days = first - 1, (first if last is None else last) + 1
    low, high = (datetime.fromtimestamp(at(day), UTC).strftime("%Y-%m-%d") for day in days)
    return low, high


def check(to: TableWriter) -> None:
    table = lookup_writer(to.table.storage).table
    expected = {DAYS} if table.properties.is_merge_on_read else {DAYS, FILTERS}
    assert expected <= {*table.properties.metadata_partitions}
    assert metadata_differences(table) == []


@each_type
@pytest.mark.parametrize("version", [FormatVersion.V8, FormatVersion.V9])
def test_partitions_cover_exactly_the_rows_that_queries_read(
    table_type: TableType, version: FormatVersion
) -> None:
    to = indexed(table_type, version)
    assert days_of(to) == {"north": around(10, 20), "south": around(30)}
    commit(to, [Row("b", 2, at(50)), Row("w", 2, at(40), region="west")])
    wide = around(10, 50)
    assert days_of(to) == {"north": wide, "south": around(30), "west": around(40)}
    check(to)
    commit(to, [Row("Aa", 3, at(45)), Row("s", 3, region="south", kind=ChangeKind.DELETE)])
    if table_type is TableType.MERGE_ON_READ:
        to = lookup_writer(to.table.storage)
        to.table.refresh()
        lakemark.Table(to.table).compact()
    assert days_of(to) == {"north": around(45, 50), "west": around(40)}
    check(to)
    clean(to.table, CleaningPolicy(commits=1))
    check(to)
    rebuild_metadata_table(to.table)
    assert days_of(to) == {"north": around(45, 50), "west": around(40)}
    check(to)


def test_the_metadata_table_is_compacted_with_the_index() -> None:
    to = indexed()
    for n in range(EVERY_DELTA_COMMITS + 2):
        commit(to, [Row(f"k{n}", 2, at(60 + n))])
    check(to)
    assert days_of(to)["north"] == around(10, 60 + EVERY_DELTA_COMMITS + 1)


def test_a_rollback_undoes_the_changes() -> None:
    to = indexed()
    before = days_of(to)
    undone = commit(to, [Row("z", 2, at(90))])
    roll_back_named(to.table.context, undone.requested_at)
    assert days_of(to) == before
    check(to)


def test_a_write_that_began_earlier_is_not_hidden_by_a_later_one() -> None:
    storage, (one, other) = new_storage(), keys_of_two_buckets()
    make(storage)
    to = writer(storage)
    commit(to, [Row(one, 1, at(10)), Row(other, 1, at(11))])
    create_index(to.table, "days", expression="from_unixtime(v, yyyy-MM-dd)")
    late = writer(storage)
    files = write_files(late, [Row(other, 2, at(70))])
    commit(to, [Row(one, 2, at(21))])
    low, high = days_of(to)["north"]
    assert low < around(10)[0] < around(70)[1] < high, "the statistics cover all days"
    late.commit(files, {})
    low, high = days_of(to)["north"]
    assert low < around(10)[0] < around(70)[1] < high
    commit(writer(storage), [Row(one, 3, at(22))])
    assert days_of(to)["north"] == around(10, 70)
    assert metadata_differences(writer(storage).table) == []


@pytest.mark.parametrize("is_clustering", [False, True], ids=["write", "clustering"])
def test_a_rollback_does_not_bring_back_statistics_that_lack_rows(is_clustering: bool) -> None:
    """The rows that a commit replaced are visible again if it is rolled back."""
    storage = new_storage()
    make(storage, TableType.COPY_ON_WRITE)
    to = lookup_writer(storage, replace(PARQUET_DEFAULTS, small_file_bytes=0))
    commit(to, [Row(f"h{n}", 1, at(11)) for n in range(100)])  # clustered first
    commit(to, [Row("a", 1, at(10))])
    create_index(to.table, "days", expression="from_unixtime(v, yyyy-MM-dd)")
    earlier = lookup_writer(storage)
    if is_clustering:
        oldest = ClusteringPolicy(order=RowOrder(("v",)), max_group_bytes=1, max_groups=1)
        assert schedule_clustering(earlier.table, oldest)
    else:
        files = write_files(earlier, [Row("h1", 2, at(70))])
    later = commit(lookup_writer(storage), [Row("a", 2, at(21))])
    if is_clustering:
        assert cluster_table(lookup_writer(storage).table, oldest)
    else:
        earlier.commit(files, {})
    roll_back_named(writer(storage).table.context, later.requested_at)
    assert contents(storage)["a"] == (1, at(10))
    keep_metadata_table(writer(storage).table)  # as each writer does when it starts
    assert days_of(to)["north"] == around(10, 11 if is_clustering else 70)
    assert metadata_differences(writer(storage).table) == []


def test_a_commit_that_began_before_the_index_has_its_records() -> None:
    to = indexed()
    files = write_files(to, [Row("c", 5, at(80))])
    create_index(lookup_writer(to.table.storage).table, "ids", expression="id")
    to.commit(files, {})
    check(to)
    assert "expr_index_ids" in lookup_writer(to.table.storage).table.properties.metadata_partitions


def test_indexes_are_listed_and_dropped() -> None:
    to = indexed(TableType.COPY_ON_WRITE)
    found = {one.name: (one.kind, one.expression, one.state) for one in list_indexes(to.table)}
    assert found == {
        "days": ("column_stats", "from_unixtime(v, 'yyyy-MM-dd')", IndexState.COMPLETE),
        "filters": ("bloom_filters", "upper(id)", IndexState.COMPLETE),
    }
    assert not to.table.timeline.pending(Action.INDEXING)
    with pytest.raises(InvalidConfig, match="drop it, or choose another name"):
        create_index(to.table, "days", expression="from_unixtime(v, yyyy)")
    for name in found:
        drop_index(to.table, name)
    assert list_indexes(to.table) == []
    assert not {DAYS, FILTERS} & {*read_definitions(to.table.storage)}
    commit(to, [Row("q", 5, at(1))])


@pytest.mark.parametrize(
    ("expression", "kind", "error", "text"),
    [
        ("regexp_extract(id, a)", "column_stats", InvalidConfig, "is not an expression"),
        ("lower(id, 1)", "column_stats", InvalidConfig, "is not an expression"),
        ("lower(nothing)", "column_stats", InvalidConfig, "has no column 'nothing'"),
        ("lower(v)", "column_stats", Unsupported, "does not compute lower of int64"),
        ("to_date(id)", "column_stats", Unsupported, "does not compute to_date of string"),
        ("from_unixtime(v, dd-MM)", "column_stats", Unsupported, "format 'dd-MM'"),
        ("from_unixtime(v, 'EEE')", "column_stats", Unsupported, "format 'EEE'"),
        ("substring(id, 1)", "column_stats", Unsupported, "needs an integer as the option 'len'"),
        ("lower(id)", "filters", InvalidConfig, "is no kind of expression index"),
        ("lower(id)", "bloom_filters", Unsupported, "is a merge-on-read table"),
    ],
)
def test_wrong_expressions_are_refused(
    expression: str, kind: str, error: type[Exception], text: str
) -> None:
    to = lookup_writer(_table_with_rows())
    with pytest.raises(error, match=text):
        create_index(to.table, "wrong", expression=expression, kind=kind)
    assert list_indexes(to.table) == []


def test_a_column_has_indexes_of_one_expression_only() -> None:
    """Apache Hudi uses any index of a column for each condition on the column."""
    to = indexed(TableType.COPY_ON_WRITE)
    with pytest.raises(InvalidConfig, match=r"'filters' of upper\(id\).* index drop .* filters"):
        create_index(to.table, "ids", expression="lower(id)")
    create_index(to.table, "ids", expression="upper(id)")
    check(to)


def test_an_index_of_times_that_apache_hudi_cannot_read_is_not_created(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.date32())])
    row = pa.table([["a"], [datetime(2020, 5, 5, tzinfo=UTC).date()]], schema=schema)
    old, new = (
        lakemark.create(tmp_path / str(version), schema=schema, record_key="id", version=version)
        for version in (8, 9)
    )
    for table in (old, new):
        table.upsert(row)
    with pytest.raises(Unsupported, match=r"year\(day\) are of type int32.* upgrade the table"):
        old.create_index("days", expression="year(day)")
    old.create_index("days", expression="date_add(day, 1)")
    new.create_index("days", expression="year(day)")
    assert old.metadata_differences() == new.metadata_differences() == []


def test_a_downgrade_drops_the_indexes_of_times_that_apache_hudi_cannot_read(
    tmp_path: Path,
) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.date32()), ("born", pa.date32())])
    day = datetime(2020, 5, 5, tzinfo=UTC).date()
    table = lakemark.create(tmp_path / "t", schema=schema, record_key="id", index="lookup")
    table.upsert(pa.table([["a"], [day], [day]], schema=schema))
    for name, expression in (("d", "year(day)"), ("b", "date_add(born, 1)"), ("i", "upper(id)")):
        table.create_index(name, expression=expression)
    opened = open_table(StorageLocation(str(tmp_path / "t")))
    change_table_version(opened, FormatVersion.V8, LocalRunner(1))
    changed = lakemark.open(tmp_path / "t")
    assert [one.name for one in changed.indexes] == ["b", "i"]
    assert changed.metadata_differences() == []
    definitions = read_definitions(open_table(StorageLocation(str(tmp_path / "t"))).storage)
    of_expressions = {n: d.version for n, d in definitions.items() if n.startswith("expr_index")}
    assert of_expressions == {"expr_index_b": "V1", "expr_index_i": "V1"}


def _table_with_rows() -> Storage:
    storage = new_storage()
    make(storage)
    commit(lookup_writer(storage), [Row("a", 1, 1)])
    return storage


@pytest.mark.refuses("An expression index whose function lakemark does not compute as Spark does")
def test_an_index_with_another_function_is_refused_by_name() -> None:
    to = indexed()
    stored = read_definitions(to.table.storage)[DAYS]
    options = {"expr": "regexp_extract", "pattern": "a", "idx": "0"}
    other = type(stored)(DAYS, "column_stats", "regexp_extract", ("id",), options, "V2")
    define_expression_index(to.table.storage, other, lambda: None)
    before = lookup_writer(to.table.storage).table.timeline.completed()
    with pytest.raises(
        Unsupported, match=rf"{DAYS}.*'regexp_extract' as Spark does; drop the index"
    ):
        commit(lookup_writer(to.table.storage), [Row("q", 5, 5)])
    table = lookup_writer(to.table.storage).table
    assert table.timeline.completed() == before
    drop_index(table, "days")
    commit(lookup_writer(to.table.storage), [Row("q", 5, 5)])


def test_a_null_is_refused_where_apache_hudi_would_fail(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    url = str(tmp_path_factory.mktemp("null") / "t")
    schema = pa.schema([("id", pa.string()), ("note", pa.string())])

    def rows(*notes: str | None) -> pa.Table:
        return pa.table([[f"k{n}" for n in range(len(notes))], list(notes)], schema=schema)

    table = lakemark.create(url, schema=schema, record_key="id", table_type="copy_on_write")
    table.upsert(rows("a", "B"))
    table.create_index("notes", expression="lower(note)", kind="bloom_filters")
    table.create_index("bounds", expression="lower(note)")
    with pytest.raises(Refused, match=r"null in column 'note'.*drop the index"):
        table.upsert(rows("a", None))
    assert sorted(table.snapshot(["note"]).read_all()["note"].to_pylist()) == ["B", "a"]
    table.drop_index("notes")
    table.upsert(rows("ä", None, "c"))
    assert table.metadata_differences() == []
    assert [one.name for one in table.indexes] == ["bounds"]


def test_statistics_count_only_values() -> None:
    """As in Apache Hudi, whose statistics of columns count nulls, too."""
    to = indexed()
    rows = _index(to.table, DAYS).of_files(pa.string()).to_pylist()
    assert sorted((row["null_count"], row["value_count"]) for row in rows) == [(0, 1), (0, 2)]


def test_a_query_skips_files_by_the_filters_of_an_expression(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("note", pa.string()), ("part", pa.string())])
    table = lakemark.create(
        str(tmp_path / "t"),
        schema=schema,
        record_key="id",
        partition_by="part",
        buckets=1,
        table_type="copy_on_write",
    )

    def rows(part: str, *notes: str) -> pa.Table:
        """Return rows whose bounds do not exclude any of the notes."""
        named = ["A", *notes, "zz"]
        ids = [f"{part}{n}" for n in range(len(named))]
        return pa.table([ids, named, [part] * len(named)], schema=schema)

    for part, note in (("a", "Anna"), ("b", "Nora"), ("c", "ärger")):
        table.upsert(rows(part, note))
    table.create_index("notes", expression="lower(note)", kind="bloom_filters")
    table.upsert(rows("a", "Nils"))
    for note, expected, skipped in (
        ("Nora", ["b1"], ["a"]),  # a file has no filter if its values depend on the session
        ("Nils", ["a1"], ["b"]),
        ("Anna", [], ["a", "b"]),
        ("nora", [], ["a"]),
        ("Maria", [], ["a", "b"]),
        ("zy", [], ["a", "b"]),
        ("", [], []),
        ("yä", [], []),
    ):
        where = f"note = '{note}'"
        assert table.scan(columns=["id"], where=where).to_table()["id"].to_pylist() == expected
        explanation = table.explain(where=where)
        by_filter = [one for one in explanation.skipped if one.reason is SkipReason.BLOOM_FILTER]
        assert sorted(one.file_slice.group.partition_path for one in by_filter) == skipped, note


def test_a_text_with_other_characters_than_ascii_is_not_looked_up_in_filters(
    tmp_path: Path,
) -> None:
    """Apache Hudi adds it to a filter in the default charset of Java, which may not be UTF-8."""
    columns = ["id", "note", "part"]
    schema = pa.schema([(name, pa.string()) for name in columns])
    table = lakemark.create(
        str(tmp_path / "t"),
        schema=schema,
        record_key="id",
        partition_by="part",
        buckets=1,
        table_type="copy_on_write",
    )
    rows = [["a", "b", "c", "d"], ["A", "ÿ", "A", "ÿ"], ["p", "p", "q", "q"]]
    table.upsert(pa.table(rows, schema=schema))
    table.create_index("notes", expression="trim(note)", kind="bloom_filters")
    for note, count in (("b", 2), ("é", 0)):
        skipped = table.explain(where=f"note = '{note}'").skipped
        assert [one.reason for one in skipped] == [SkipReason.BLOOM_FILTER] * count, note
