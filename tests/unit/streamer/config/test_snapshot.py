"""The section ``snapshot``: the pipeline that reads it, and what is refused before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakemark.errors import HudiError
from streamer.cli import main
from streamer.config.errors import ConfigError
from streamer.config.files_source import FilesSourceConfig
from streamer.config.load import apply_override, load, validated
from streamer.config.pipeline import PipelineConfig
from streamer.config.secrets import build_redactor
from streamer.config.snapshot import snapshot_warnings
from streamer.job.plan import plan_job

COLUMNS = {"id": "string", "n": "bigint"}
PARQUET = {"path": "/export", "format": "parquet"}


def tree(snapshot: Mapping[str, object] = PARQUET, *overrides: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "source": {"bootstrap_servers": "b:1", "topic": "t"},
        "snapshot": dict(snapshot),
        "decode": {"schema": COLUMNS},
        "table": {"path": "/lake/t", "record_key": "id", "ordering": "n"},
    }
    for override in overrides:
        apply_override(found, override)
    return found


def config(snapshot: Mapping[str, object] = PARQUET, *overrides: str) -> PipelineConfig:
    return validated(tree(snapshot, *overrides))


def reported(snapshot: Mapping[str, object], *overrides: str) -> str:
    with pytest.raises(ConfigError) as raised:
        config(snapshot, *overrides)
    return str(raised.value)


def test_pipeline_of_the_snapshot_differs_only_in_source_decode_and_transform() -> None:
    steps = [{"step": "filter", "where": "n > 0"}]
    given = tree(PARQUET, "source.checkpoint_id=mine")
    whole = validated({**given, "transform": steps})
    of_snapshot = whole.of_snapshot()
    assert isinstance(of_snapshot.source, FilesSourceConfig)
    assert (of_snapshot.source.path, of_snapshot.source.checkpoint_id) == ("/export", "mine")
    assert of_snapshot.source.on_bad_file == "fail"
    assert (of_snapshot.decode.format, of_snapshot.decode.columns) == ("columns", COLUMNS)
    assert (of_snapshot.transform, of_snapshot.table) == (whole.transform, whole.table)
    assert (
        validated({**given, "transform": steps, "snapshot": {**PARQUET, "transform": []}})
        .of_snapshot()
        .transform
        == ()
    )


def test_formats_of_text_are_decoded_as_the_topic_declares() -> None:
    csv = config({"path": "/export", "format": "csv", "header": True}).of_snapshot()
    assert (csv.decode.format, csv.decode.columns) == ("csv", COLUMNS)
    assert config({"path": "/export", "format": "json"}).of_snapshot().decode.format == "json"
    own = {"path": "/export", "format": "csv", "decode": {"schema": {"n": "int", "id": "string"}}}
    assert config(own).of_snapshot().decode.columns == {"n": "int", "id": "string"}


@pytest.mark.parametrize(
    ("snapshot", "overrides", "problem"),
    [
        ({"path": "/e"}, (), "snapshot.format: missing"),
        (
            {**PARQUET, "format": "csv", "decode": {"format": "json"}},
            (),
            "snapshot.decode.format: json does not fit snapshot.format csv; use csv",
        ),
        ({**PARQUET, "header": True}, (), "snapshot.header: has no effect with format parquet"),
        ({"kind": "table", "path": "/lake/t"}, (), "snapshot.path: is also table.path"),
        ({**PARQUET, "path": "/lake/"}, (), "snapshot.path: contains table.path, /lake/t, whose"),
        (
            {**PARQUET, "path": "file:///lake/t_dead_letters"},
            (),
            "snapshot.path: contains dead_letters.path, /lake/t_dead_letters, whose files would",
        ),
        (
            {**PARQUET, "decode": {"schema": {"id": "string"}}},
            (),
            "table.ordering: for the rows of snapshot: 'n' is not a column of "
            "snapshot.decode.schema (id); a step of snapshot.transform can add it",
        ),
        (
            {**PARQUET, "transform": [{"step": "drop", "columns": ["other"]}]},
            (),
            "snapshot.transform.0.drop: ",
        ),
        (
            PARQUET,
            ("source.kind=files", "source.format=json", "source.path=/in"),
            "snapshot: is only for pipelines that read Kafka, but source.kind is files",
        ),
        ({**PARQUET, "storage": {"k": {"env": "NOT_SET"}}, "pattern": ""}, (), "snapshot.pattern"),
    ],
)
def test_wrong_snapshots_are_refused_with_the_names_of_their_settings(
    snapshot: Mapping[str, object], overrides: tuple[str, ...], problem: str
) -> None:
    given = tree(snapshot, *overrides)
    if overrides:
        del given["source"]["topic"], given["source"]["bootstrap_servers"]
    with pytest.raises(ConfigError) as raised:
        validated(given)
    assert any(line.startswith(problem) for line in str(raised.value).splitlines()), raised.value


@pytest.mark.parametrize(
    "folder",
    [
        {"path": "/lake", "pattern": "export/*.parquet"},
        {"path": "/lake/t/export"},
        {"path": "/lake/t_export"},
        {"path": "s3://lake"},
    ],
)
def test_folders_of_which_no_written_file_is_read_are_accepted(folder: dict[str, str]) -> None:
    assert config({**PARQUET, **folder}).of_snapshot().source.origin.startswith(folder["path"])


def test_a_pipeline_of_files_does_not_read_the_files_that_it_writes() -> None:
    given = tree()
    del given["snapshot"]
    given["source"] = {"kind": "files", "path": "/lake", "format": "json"}
    with pytest.raises(ConfigError, match=r"source\.path: contains table\.path, /lake/t, whose"):
        validated(given)


def test_a_problem_of_both_kinds_of_records_is_reported_once() -> None:
    assert reported(PARQUET, "table.record_key=other").count("'other' is not a column") == 1


def test_rows_without_the_position_of_events_need_a_step_that_adds_it() -> None:
    debezium = ("decode.format=debezium", "decode.database=postgres")
    given = tree(PARQUET, *debezium)
    del given["table"]["ordering"]
    with pytest.raises(ConfigError, match=r"'_position' is not a column of snapshot\.decode"):
        validated(given)
    steps = [{"step": "add", "columns": {"_position": "0"}}]
    found = validated({**given, "snapshot": {**PARQUET, "transform": steps}})
    assert found.table.ordering == ("_position",)


@pytest.mark.parametrize(
    ("overrides", "warning"),
    [
        ((), ""),
        (("source.starting_offsets=latest",), "no record is read that reached the topic before"),
        (("table.ordering=[]",), "without table.ordering, a record that is older than"),
        (("table.ordering=[]", "source.starting_offsets=latest"), "no record is read that"),
        (("table.ordering=[]", "table.operation=insert"), "is inserted again"),
        (("table.ordering=[]", "table.operation=insert", "table.duplicates=drop"), ""),
    ],
)
def test_warnings_name_records_that_are_missing_or_too_old(
    overrides: tuple[str, ...], warning: str
) -> None:
    found = config(PARQUET, *overrides)
    warnings = snapshot_warnings(found.kafka, found.table)
    assert len(warnings) == bool(warning)
    assert all(warning in one for one in warnings)


def test_files_and_secrets_of_the_section_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.avsc").write_text(
        '{"type":"record","name":"r","fields":[{"name":"id","type":"string"},'
        '{"name":"n","type":"long"}]}'
    )
    snapshot = {
        **PARQUET,
        "storage": {"secret_key": {"env": "EXPORT_SECRET"}},
        "decode": {"schema": {"avro": "rows.avsc"}},
    }
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(tree(snapshot)))
    found = load(str(file))
    assert found.of_snapshot().decode.columns == COLUMNS
    assert [one.path for one in found.unresolved()] == ["snapshot.storage.secret_key"]
    monkeypatch.setenv("EXPORT_SECRET", "of-the-export")
    assert not found.unresolved()
    assert build_redactor(found)("key of-the-export") == "key ***"
    assert main(["validate", str(file)]) == 0
    shown = capsys.readouterr()
    assert "of-the-export" not in shown.out + shown.err
    assert "a run reads first the snapshot, unless the table records that it was read" in shown.err

    file.write_text(yaml.safe_dump(tree({**snapshot, "decode": {"schema": {"avro": "none.avsc"}}})))
    with pytest.raises(ConfigError, match=r"cannot read .*none\.avsc"):
        load(str(file))


@pytest.mark.parametrize("source", [{}, {"topics": ["a", "b"]}, {"topic_pattern": "a.*"}])
def test_several_pipelines_in_a_process_have_no_snapshot(
    tmp_path: Path, source: Mapping[str, object]
) -> None:
    first, second = tree(), tree()
    first["table"]["path"] = "/lake/{topic}"
    if source:
        del first["source"]["topic"]
        first["source"].update(source)
    del second["snapshot"]
    files = []
    for name, content in (("first", first), ("second", second)):
        files.append(str(tmp_path / f"{name}.yaml"))
        Path(files[-1]).write_text(yaml.safe_dump(content))
    with pytest.raises(HudiError, match="snapshot: needs a process of its own, and one topic"):
        plan_job(files)
