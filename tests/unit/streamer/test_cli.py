from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lakemark.storage import StorageLocation, open_storage
from streamer.cli import FAILED, INTERRUPTED, MISUSED, OK, main, parser
from streamer.commands import demo
from tests.tables import Row, commit, make, writer
from tests.unit.streamer import failing_run

PIPELINE = """
source: {bootstrap_servers: "localhost:9092", topic: orders, consumer: {ssl.key.password: geheim}}
table: {path: /lake/orders, record_key: id}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> str:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    return str(file)


def test_help_imports_no_engine() -> None:
    program = (
        "import sys, streamer.cli\n"
        "try: streamer.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print({'pyspark', 'pyarrow', 'pydantic', 'rich', 'numpy'} & sys.modules.keys())"
    )
    reported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert reported.stdout.endswith("set()\n")
    for command in (
        "demo",
        "run",
        "validate",
        "migrate",
        "shadow",
        "compare",
        "doctor",
        "preview",
        "query",
        "subscribe",
        "table",
        "checkpoint",
        "broker",
        "completion",
    ):
        assert re.search(rf"^ +{command}\s", reported.stdout, re.MULTILINE)


def test_query_of_a_table_imports_no_engine_no_pipeline_and_no_writer(
    tmp_path: Path,
) -> None:
    """A query imports no module whose import takes longer than the query of a small table."""
    storage = open_storage(StorageLocation(str(tmp_path / "t")))
    make(storage)
    commit(writer(storage), [Row("a")])
    program = (
        "import gc, sys\n"
        f"sys.argv = ['lakemark', 'query', {str(tmp_path / 't')!r}, '--json']\n"
        "from lakemark.__main__ import main\n"
        "main()\n"
        "engines = {'pandas', 'pyspark', 'pydantic', 'yaml', 'confluent_kafka', 'pyarrow.csv'}\n"
        "ours = {'streamer.pipeline', 'streamer.config', 'sinks', 'transforms'}\n"
        "writers = {f'lakemark.{name}' for name in ('metadata.metadata_writer', 'transaction',\n"
        "    'write', 'services', 'table', 'spark', 'read.cdc', 'merge.custom.check')}\n"
        "print((engines | ours | writers) & sys.modules.keys())\n"
        "assert gc.isenabled(), 'only the imports go without'"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    row, imported = shown.stdout.splitlines()
    assert json.loads(row)["id"] == "a"
    assert imported == "set()"


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=str(OK)):
        main(["--version"])
    assert re.fullmatch(r"lakemark \d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["quary", "t"], "unknown value 'quary'; did you mean query?"),
        (["table", "chek", "t"], "unknown value 'chek'; did you mean check?"),
        (["query", "t", "--colums", "a"], "--colums a; did you mean --columns?"),
        (["table", "clean", "t", "--retain-comits=3"], "did you mean --retain-commits?"),
        (["query", "t", "--type", "increment"], "did you mean incremental?"),
    ],
    ids=str,
)
def test_unknown_command_or_option_gets_a_suggestion(
    arguments: list[str], near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=str(MISUSED)):
        main(arguments)
    assert near in capsys.readouterr().err


def test_option_without_a_similar_one_gets_no_suggestion(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match=str(MISUSED)):
        main(["checkpoint", "reset", "t", "--to", "earliest"])
    assert "unrecognized arguments: --to earliest\n" in capsys.readouterr().err


def parsers(one: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield one
    for action in one._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


def test_every_command_and_each_of_its_options_has_a_help_text() -> None:
    for one in parsers(parser()):
        assert one.description, one.prog
        for action in one._actions:
            is_list = isinstance(action, argparse._SubParsersAction)
            assert is_list or action.help, f"{one.prog} {action.dest}"


def test_validate_lists_what_was_checked_and_what_was_not(
    pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", pipeline]) == OK
    checked, by_doctor, with_spark = re.split(r"not checked here.*\n", capsys.readouterr().err)
    assert checked.startswith("checked:\n  the settings, one by one and together\n")
    assert [line.strip() for line in by_doctor.splitlines()] == [
        "Java",
        "Spark",
        "broker localhost:9092",
        "topic orders at localhost:9092",
        "reading topic orders",
        "storage /lake/orders",
        "rights on /lake/orders",
        "lock provider storage",
        "table /lake/orders",
        "storage /lake/orders_dead_letters",
        "rights on /lake/orders_dead_letters",
        "dead-letter table /lake/orders_dead_letters",
        "columns and keys",
        "offsets to resume from",
        "memory for a batch",
    ]
    assert "  whether records of the topic become rows\n" in with_spark


def test_validate_checks_several_files_together(
    pipeline: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "several"
    folder.mkdir()
    for name in ("first", "second"):
        settings = yaml.safe_load(Path(pipeline).read_text())
        settings["table"]["path"] = f"/lake/{name}"
        settings["source"]["topic"] = name
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(settings))
    assert main(["validate", str(folder)]) == OK
    shown = capsys.readouterr()
    tables = [one["table"]["path"] for one in yaml.safe_load_all(shown.out)]
    assert tables == ["/lake/first", "/lake/second"]
    assert shown.err.count("not checked here; lakemark doctor checks:") == 2
    (folder / "third.yaml").write_text((folder / "second.yaml").read_text())
    assert main(["validate", str(folder)]) == MISUSED
    assert "third.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("topics", "shown_topics", "title"),
    [
        ({"topics": ["a", "b"]}, ["a", "b"], "a\n"),
        ({"topic_pattern": "shop_.*"}, ["topic"], "each topic that matches 'shop_.*'; here with"),
    ],
)
def test_validate_checks_a_file_of_several_topics(
    topics: dict[str, object],
    shown_topics: list[str],
    title: str,
    pipeline: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = yaml.safe_load(Path(pipeline).read_text())
    del settings["source"]["topic"]
    settings["source"] |= topics
    settings["table"]["path"] = "/lake/{topic}"
    file = tmp_path / "several.yaml"
    file.write_text(yaml.safe_dump(settings))
    assert main(["validate", str(file)]) == OK
    shown = capsys.readouterr()
    tables = [one["table"]["path"] for one in yaml.safe_load_all(shown.out)]
    assert tables == [f"/lake/{topic}" for topic in shown_topics]
    assert shown.err.startswith(title)
    assert shown.out.startswith(f"--- # {title}")


def test_validate_warns_of_partitions_by_a_timestamp(
    pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = "decode.schema={id: string, at: timestamp}"
    assert main(["validate", pipeline, "--set", columns, "--set", "table.partition_by=at"]) == OK
    *others, heading, warning = capsys.readouterr().err.splitlines()
    assert heading == "warning: the run is refused unless the table exists:"
    assert "table.partition_by: 'at' is of type timestamp" in warning
    assert not any("table.partition_by" in line for line in others)


@pytest.mark.parametrize(
    ("step", "refused"),
    [
        ("{step: cast, columns: {seen: timestamp}}", {"day(seen)": False, "seen": True}),
        (
            "{step: sql, query: 'select id, cast(seen as timestamptz) as seen from records'}",
            {"day(seen)": False, "seen": True},
        ),
        ("{step: cast, columns: {seen: date}}", {"seen": False}),
    ],
)
def test_validate_judges_partitions_by_the_columns_after_the_steps(
    step: str, refused: dict[str, bool], pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--set", "decode.schema={id: string, seen: string}", "--set", f"transform=[{step}]"]
    for column, is_refused in refused.items():
        partition = f"table.partition_by={column}"
        assert main(["validate", pipeline, *given, "--set", partition]) == OK
        assert ("warning: the run is refused" in capsys.readouterr().err) == is_refused


def test_validate_warns_of_a_time_zone_in_partitions(
    pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    in_berlin = "table.partition_by=day(at, Europe/Berlin)"
    assert main(["validate", pipeline, "--set", in_berlin]) == OK
    (line,) = (x for x in capsys.readouterr().err.splitlines() if "table.partition_by" in x)
    assert "day(at, Europe/Berlin) has a time zone, which is for existing tables only" in line
    assert main(["validate", pipeline, "--set", "table.partition_by=day(at)"]) == OK
    assert "table.partition_by:" not in capsys.readouterr().err
    assert main(["validate", pipeline, "--set", "table.partition_by=week(at)"]) == MISUSED
    assert "'week(at)' does not name a partition field" in capsys.readouterr().err


def test_validate_imports_the_merger(pipeline: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", pipeline, "--set", "table.merger=no.such:Merger"]) == MISUSED
    out, err = capsys.readouterr()
    assert out == ""
    assert "no.such" in err


def test_validate_does_not_print_a_secret_in_an_error(
    pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", pipeline, "--set", "table.merger=geheim:Merger"]) == MISUSED
    assert "geheim" not in capsys.readouterr().err


def test_validate_prints_the_whole_pipeline_masked(
    pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", pipeline, "--set", "table.buckets=9"]) == OK
    out, err = capsys.readouterr()
    assert "buckets: 9" in out
    assert "ssl.key.password: '***'" in out
    assert "geheim" not in out + err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["frobnicate"],
        ["run", "p.yaml", "--once", "--continuous"],
        ["query", "t", "--limit", "0"],
        ["query", "t", "--json", "--out", "x.csv"],
        ["table", "rows", "t"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_ends_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == MISUSED


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["query", "t", "--limit", "abc"],
            "--limit: expected a whole number, 1 or more, not 'abc'",
        ),
        (["query", "t", "--limit", "-1"], "--limit: expected a whole number, 1 or more, not '-1'"),
        (["demo", "--records", "1e3"], "--records: expected a whole number, 1 or more, not '1e3'"),
        (["broker", "start", "--port", "99999"], "--port: expected a port from 1 to 65535, or 0"),
        (["broker", "start", "--port", "-5"], "--port: expected a port from 1 to 65535, or 0"),
        (["broker", "start", "--port", "x"], "--port: expected a port from 1 to 65535, or 0"),
        (["query", "t", "--out", "s3://b/f.csv"], "--out: expected a path on the local disk"),
        (["query", "t", "--out", "s3//b/f.csv"], "--out: a location that begins with 's3//'"),
        (["run", "p.yaml", "--events", "s3:/b/f"], "--events: a location that begins with 's3:'"),
        (["demo", "--home", "gs:/b/f"], "--home: a location that begins with 'gs:'"),
    ],
    ids=lambda given: given if isinstance(given, str) else given[-1],
)
def test_invalid_number_is_explained(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == MISUSED
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a: \x01", "name: 2024-13-45", "a: " + "[" * 5_000], ids=range(3))
def test_a_file_that_is_no_yaml_ends_with_2_and_one_message(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(name)
    assert main(["validate", str(file)]) == MISUSED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"lakemark: {file} is not valid YAML")


def test_a_wrong_configuration_ends_with_2_and_one_message(
    pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", pipeline, "--set", "table.type=mor"]) == MISUSED
    out, err = capsys.readouterr()
    assert out == ""
    assert err == ("lakemark: table.type: 'mor': expected 'merge_on_read' or 'copy_on_write'\n")


def test_missing_secret_is_reported_before_the_run(
    pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    override = "spark.conf.spark.x={env: LAKEMARK_NOT_SET}"
    assert main(["validate", pipeline, "--set", override]) == MISUSED
    assert "spark.conf.spark.x: environment variable LAKEMARK_NOT_SET" in capsys.readouterr().err


def test_a_failure_ends_with_1_and_its_trace_is_shown_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", str(tmp_path)]) == FAILED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"lakemark: no Hudi table at {tmp_path}")
    assert "check the path: a table's folder contains .hoodie" in line
    for arguments in (["--debug", "query", str(tmp_path)], ["query", str(tmp_path), "--debug"]):
        assert main(arguments) == FAILED
        assert "Traceback" in capsys.readouterr().err


def test_no_secret_is_in_an_error_or_its_trace(
    pipeline: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = ["--set", "metrics.port=9464", "--set", "metrics.host=geheim.invalid"]
    query = ["query", str(tmp_path / "geheim"), "--storage", "secret_access_key=geheim"]
    both = ["table", "compact", str(tmp_path / "geheim-heimlich"), "--config", pipeline]
    both += ["--storage", "secret_access_key=heimlich"]
    for command, shown in (
        (["run", pipeline, *taken], "***.invalid"),
        (query, "/***"),
        (both, "/***-***"),
    ):
        for arguments in (command, ["--debug", *command]):
            assert main(arguments) != OK
            reported = capsys.readouterr().err
            assert shown in reported.splitlines()[-1]
            assert "geheim" not in reported
            assert "heimlich" not in reported
            assert ("Traceback" in reported) == ("--debug" in arguments)


def test_a_query_is_checked_before_the_table_is_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", str(tmp_path), "--out", "rows.xls"]) == MISUSED
    assert "ends in .parquet" in capsys.readouterr().err
    out = tmp_path / "missing" / "rows.csv"
    assert main(["query", str(tmp_path), "--out", str(out)]) == MISUSED
    assert (
        f"--out {out}: the folder {out.parent} does not exist; create it" in capsys.readouterr().err
    )
    assert main(["query", str(tmp_path), "--storage", "region"]) == MISUSED
    assert "--storage expects NAME=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_failed_run_exits_at_once_despite_running_threads(log_format: str, tmp_path: Path) -> None:
    """The pipeline comes from a pipe, which can be read once."""
    program = [sys.executable, "-m", failing_run.__name__, str(tmp_path / "orders")]
    arguments = ["run", "/dev/stdin", "--once", "--log-format", log_format]
    ended = subprocess.run(
        [*program, *arguments, "--parallel-batches", "2"],
        capture_output=True,
        text=True,
        input=PIPELINE,
        timeout=failing_run.HELD_S / 2,
    )
    assert ended.returncode == FAILED
    warning = "--parallel-batches has no effect, because there is only one pipeline"
    assert warning in ended.stdout + ended.stderr
    reported = [line for line in ended.stderr.splitlines() if "there is no topic orders" in line]
    assert [line[:7] for line in reported] == ["lakemar" if log_format == "text" else '{"time"']


@pytest.mark.parametrize("table", ["s3//bucket/t", "s3:/bucket/t"])
def test_broken_url_of_a_table_is_refused(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "show", table]) == MISUSED
    assert "for a URL, write s3://…" in capsys.readouterr().err


def test_query_refuses_an_empty_list_of_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty list, for example from an empty shell variable, is refused; it selects no column."""
    with pytest.raises(SystemExit, match=str(MISUSED)):
        main(["query", "/lake/orders", "--columns", " , "])
    assert "expected names such as a,b,c" in capsys.readouterr().err


def test_wrong_pipeline_file_is_one_json_event(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, events = tmp_path / "pipeline.yaml", tmp_path / "events.jsonl"
    file.write_text("tabel: {}")
    command = ["run", str(file), "--log-format", "json", "--events", str(events)]
    assert main(command) == MISUSED
    (line,) = capsys.readouterr().err.splitlines()
    event = json.loads(line)
    assert (event["event"], event["error_type"]) == ("RunFailed", "ConfigError")
    assert "tabel" in event["error"]
    assert json.loads(events.read_text())["error"] == event["error"]


def test_run_does_not_start_without_a_secret_that_it_needs_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The options of a catalog, for example, are needed only after the first commit."""
    file, folder = tmp_path / "pipeline.yaml", tmp_path / "in"
    folder.mkdir()
    tree = {
        "source": {"kind": "files", "path": str(folder), "format": "json"},
        "decode": {"schema": {"id": "string"}},
        "table": {"path": str(tmp_path / "rows"), "record_key": "id"},
        "catalogs": [{"kind": "glue", "database": "d", "options": {"region": {"env": "NO_SUCH"}}}],
        "run": {"mode": "once"},
    }
    file.write_text(json.dumps(tree))
    assert main(["run", str(file)]) == MISUSED
    missing = "catalogs.0.options.region: environment variable NO_SUCH is not set"
    assert missing in capsys.readouterr().err
    assert not (tmp_path / "rows").exists()


def test_hints_of_the_demo_name_the_program_that_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "lakemark"
    program.parent.mkdir()
    program.write_text("#!/bin/sh")
    program.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(program), "demo"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert f"  {program} query home/orders" in demo.hints(Path("home"), "9092")
    monkeypatch.setenv("PATH", str(program.parent))
    assert "  lakemark query home/orders" in demo.hints(Path("home"), "9092")


@pytest.mark.parametrize("one", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_while_it_reads_its_file_ends_as_if_done(
    one: signal.Signals, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.yaml"
    os.mkfifo(file)
    command = [sys.executable, "-m", "lakemark", "run", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        with file.open("w"):  # once the run reads the file
            run.send_signal(one)
            _, complaints = run.communicate(timeout=300)
    assert (run.returncode, complaints) == (OK, "lakemark: run was stopped\n")


def test_an_error_that_ctrl_c_has_caused_is_not_reported(
    pipeline: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_arguments: object) -> int:
        try:
            raise KeyboardInterrupt
        finally:
            message = "the JVM has ended"
            raise ConnectionError(message)

    monkeypatch.setattr("streamer.commands.validate.execute", interrupted)
    assert main(["validate", pipeline]) == INTERRUPTED
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("words", [["run", "p.yaml", "--onc"], ["table", "show", "t", "--js"]])
def test_abbreviated_options_are_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(words)
    assert refused.value.code == MISUSED
    assert f"unrecognized arguments: {words[-1]}; did you mean" in capsys.readouterr().err


def test_a_path_that_gives_no_name_is_refused_with_the_setting_to_add(
    pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ["--set", "table.path=/lake/Köln ä"]
    assert main(["validate", pipeline, *path]) == MISUSED
    assert "it is the last part of table.path, so set it" in capsys.readouterr().err
    assert main(["validate", pipeline, *path, "--set", "table.name=koeln"]) == OK


@pytest.mark.parametrize("given_ms", [None, "7"])
def test_arrow_keeps_freed_memory_for_the_next_batch(given_ms: str | None) -> None:
    given = {} if given_ms is None else {"MIMALLOC_PURGE_DELAY": given_ms}
    others = {name: text for name, text in os.environ.items() if "MIMALLOC" not in name}
    ended = subprocess.run(
        [sys.executable, "-m", "lakemark", "sql", "select 1"],
        capture_output=True,
        text=True,
        env={**others, **given, "MIMALLOC_VERBOSE": "1"},
    )
    assert ended.returncode == 0, ended.stderr
    assert f"'purge_delay': {given_ms or 30_000}" in ended.stderr
