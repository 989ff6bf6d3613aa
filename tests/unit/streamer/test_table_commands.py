"""The commands ``query`` and ``table`` work on a table that Apache Hudi wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest

from lakemark.config import keys
from lakemark.config.table_properties import TableProperties
from lakemark.operations.create import create_table
from lakemark.storage import StorageLocation
from lakemark.storage.properties_file import replace_properties
from streamer.cli import FAILED, MISUSED, OK, main
from tests.golden.golden_table import GoldenTable, unpack
from tests.tables import spec
from transforms.schema_text import parse_schema

Run = Callable[..., str]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> GoldenTable:
    return unpack("v9_mor_parquet_bucket", tmp_path_factory.mktemp("golden"))


@pytest.fixture
def run(golden: GoldenTable, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs a command on the table, and returns its output."""

    def on_table(command: str, *options: str) -> str:
        assert main([*command.split(), str(golden.root), *options]) == OK
        return capsys.readouterr().out

    return on_table


@pytest.mark.parametrize("kind", ["snapshot", "read_optimized"])
def test_a_file_of_all_rows_is_what_apache_hudi_reads(
    run: Run, golden: GoldenTable, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "rows.parquet"
    run("query", "--type", kind, "--out", str(file), "--columns", "id,qty")
    found = pyarrow.parquet.read_table(file).sort_by("id")
    assert found.to_pydict() == (
        golden.expected(kind).select(["id", "qty"]).sort_by("id").to_pydict()
    )


def test_a_condition_may_name_columns_that_are_not_shown(run: Run, golden: GoldenTable) -> None:
    out = run("query", "--columns", "id", "--where", "qty > 300 and region = 'r1'", "--json")
    rows = golden.expected("snapshot").to_pylist()
    expected = {row["id"] for row in rows if row["qty"] > 300 and row["region"] == "r1"}
    assert expected
    assert {json.loads(line)["id"] for line in out.splitlines()} == expected


def test_the_screen_gets_some_rows_and_no_columns_of_the_format(run: Run) -> None:
    lines = run("query").splitlines()
    assert len(lines) == 1 + 20
    assert lines[0].startswith("id ")
    assert "_hoodie_commit_time" not in lines[0]
    assert len(run("query", "--limit", "3", "--columns", "_hoodie_commit_time").splitlines()) == 4


def test_unknown_column_is_reported_with_the_known_ones(
    golden: GoldenTable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", str(golden.root), "--columns", "id,quantity"]) == MISUSED
    assert "has no column quantity; its columns are " in capsys.readouterr().err
    assert main(["query", str(golden.root), "--columns", "ID"]) == MISUSED
    assert "did you mean id?" in capsys.readouterr().err
    assert main(["query", str(golden.root), "--where", "quantity = 1"]) == MISUSED
    assert "there is no column 'quantity'" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["as_of", "incremental"])
def test_the_past_is_what_apache_hudi_reads(
    run: Run, golden: GoldenTable, tmp_path: Path, kind: str
) -> None:
    options = {
        "as_of": ("--as-of", golden.queries["as_of"].get("as.of.instant", "")),
        "incremental": ("--begin", *golden.queries["incremental"].values(), "--type", kind),
    }
    file = tmp_path / "rows.parquet"
    run("query", *options[kind], "--out", str(file), "--columns", "id,qty")
    found = pyarrow.parquet.read_table(file).sort_by("id")
    assert found.to_pydict() == (
        golden.expected(kind).select(["id", "qty"]).sort_by("id").to_pydict()
    )


def test_a_row_is_found_by_its_key(run: Run, golden: GoldenTable) -> None:
    key = golden.expected("snapshot")["_hoodie_record_key"][0].as_py()
    (line,) = run("query", "--key", key, "--columns", "_hoodie_record_key", "--json").splitlines()
    assert json.loads(line) == {"_hoodie_record_key": key}


def test_changes_are_listed_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden = unpack("v9_mor_cdc", tmp_path)
    command = ["query", str(golden.root), "--type", "cdc", "--begin", "earliest", "--json"]
    assert main(command) == OK
    reported = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = golden.expected("cdc").to_pylist()
    assert sorted(reported, key=str) == sorted(expected, key=str)


def test_cdc_query_of_a_table_without_change_data_says_what_to_do(
    golden: GoldenTable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", str(golden.root), "--type", "cdc", "--begin", "earliest"]) == MISUSED
    err = capsys.readouterr().err
    assert "keeps no change data (hoodie.table.cdc.enabled is not true)" in err
    assert "use an incremental query" in err


CREATED = {"type": "record", "name": "orders", "fields": [{"name": "qty", "type": "long"}]}
WRONG_QUERIES = [
    (["--where", "qty >"], 'syntax error at or near ">", at character 5'),
    (["--where", "qty > 1 1"], 'syntax error at or near "1", at character 9'),
    (["--where", "qty = 'a"], "unterminated string literal, at character 7"),
    (["--as-of", "yesterday"], "'yesterday' is not a time"),
    (["--type", "incremental", "--begin", "yesterday"], "'yesterday'"),
    (["--type", "incremental", "--begin", "earliest", "--end", "2026-13-01"], "'2026-13-01'"),
]
WRONG_COLUMNS = [
    (["--where", "qyt > 1"], "there is no column 'qyt'; did you mean qty?"),
    (["--where", "qty = 'a'"], "'a' cannot be a value of qty (int64)"),
    (["--columns", "qyt"], "the table has no column qyt"),
    (["--columns", "qty,qty"], "columns ['qty'] are requested more than once"),
]


def without_commits(folder: Path, create_schema: object = None) -> str:
    """Create a table without commits.

    Unlike lakemark, Spark SQL stores a schema when it creates a table; ``create_schema`` is that
    schema.
    """
    table = create_table(StorageLocation(str(folder / "orders")), spec())
    if create_schema is not None:
        stored = {keys.CREATE_SCHEMA: json.dumps(create_schema)}
        properties = TableProperties({**table.properties.values, **stored})
        replace_properties(table.storage, table.properties, properties, lambda: None)
    return table.location.url


@pytest.mark.parametrize(("query", "error"), [*WRONG_QUERIES, *WRONG_COLUMNS])
def test_wrong_query_of_a_table_without_commits_is_refused(
    query: list[str], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", without_commits(tmp_path, CREATED), *query]) == MISUSED
    assert error in capsys.readouterr().err


@pytest.mark.parametrize(("query", "error"), WRONG_QUERIES)
def test_wrong_query_is_refused_before_the_columns_are_known(
    query: list[str], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", without_commits(tmp_path), *query]) == MISUSED
    assert error in capsys.readouterr().err


@pytest.mark.parametrize("create_schema", [None, CREATED])
@pytest.mark.parametrize(
    "query",
    [
        [],
        ["--where", "qty > 1 and (qty in (2, 3) or qty is not null)", "--columns", "qty"],
        ["--as-of", "2026-01-01"],
        ["--type", "incremental", "--begin", "earliest"],
        ["--type", "read_optimized", "--key", "7"],
    ],
)
def test_query_of_a_table_without_commits_finds_nothing(
    query: list[str],
    create_schema: object,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["query", without_commits(tmp_path, create_schema), *query]) == OK
    assert capsys.readouterr() == ("", "the table has no commit yet\n")


@pytest.mark.parametrize("extension", ["parquet", "jsonl", "csv"])
def test_file_of_a_table_without_commits_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], extension: str
) -> None:
    create_table(StorageLocation(str(tmp_path / "orders")), spec())
    file = tmp_path / f"rows.{extension}"
    assert main(["query", str(tmp_path / "orders"), "--out", str(file)]) == FAILED
    assert "has no commit yet, so it has no columns and no file was written" in (
        capsys.readouterr().err
    )
    assert not file.exists()


def test_file_of_a_span_without_commits_has_columns_and_no_rows(
    run: Run, golden: GoldenTable, tmp_path: Path
) -> None:
    file = tmp_path / "rows.parquet"
    run("query", "--type", "incremental", "--begin", "2099-01-01", "--out", str(file))
    found = pyarrow.parquet.read_table(file)
    assert (found.num_rows, "id" in found.column_names) == (0, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--begin", "earliest"], "--begin and --end need --type incremental or --type cdc"),
        (["--type", "incremental"], "--type incremental needs --begin"),
        (
            ["--type", "cdc", "--begin", "0", "--where", "id = 'a'"],
            "--where cannot be combined with",
        ),
        (
            ["--type", "incremental", "--begin", "0", "--as-of", "2026-01-01"],
            "--as-of cannot be combined",
        ),
        (["--as-of", "yesterday"], "'yesterday' is not a time; accepted: yyyyMMddHHmmss"),
    ],
)
def test_times_that_do_not_fit_the_query_are_refused(
    golden: GoldenTable, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["query", str(golden.root), *options]) == MISUSED
    assert message in capsys.readouterr().err


def test_show_prints_properties_and_sizes_of_the_table(run: Run) -> None:
    facts = json.loads(run("table show", "--json"))
    assert facts["type"] == "MERGE_ON_READ"
    assert facts["merge_mode"] == "EVENT_TIME_ORDERING"
    assert (facts["record_key"], facts["partitioned_by"]) == (["id"], ["region"])
    assert (facts["partitions"], facts["file_groups"], facts["commits"]) == (3, 6, 5)
    assert (facts["log_files"], facts["not_compacted"]) == (17, 5)
    assert (facts["plans_pending"], facts["oldest_plan_s"]) == (0, None)
    assert "merge mode       EVENT_TIME_ORDERING" in run("table show")


def test_show_prints_columns_as_a_pipeline_file_declares_them(run: Run) -> None:
    columns = json.loads(run("table show", "--json"))["columns"]
    assert columns.pop("attrs") == "map<string, int64>", "a map cannot be declared"
    assert parse_schema(columns).names == [*columns]


def test_names_for_programs_have_no_blanks(run: Run) -> None:
    lines = [run("table show", "--json"), *run("table files", "--json").splitlines()]
    for line in [*lines, *run("table timeline", "--json").splitlines()]:
        assert all(name.isidentifier() for name in json.loads(line))
    assert "record key" in run("table show")


def test_a_query_that_finds_nothing_says_so(run: Run) -> None:
    assert run("query", "--where", "qty < 0") == "no rows\n"


def test_timeline_and_files_list_every_one(run: Run, golden: GoldenTable) -> None:
    instants = [json.loads(line) for line in run("table timeline", "--json").splitlines()]
    assert [row["requested"] for row in instants] == [
        instant.requested_at for instant in golden.view.timeline.instants
    ]
    assert instants[0]["operation"] == "INSERT"
    files = [json.loads(line) for line in run("table files", "--json").splitlines()]
    assert {(row["partition"], row["file_id"]) for row in files} == {
        (one.group.partition_path, one.group.file_id) for one in golden.view.latest_slices()
    }
    assert len(run("table timeline").splitlines()) == 1 + len(instants)
    assert len(run("table files").splitlines()) == 1 + len(files)
