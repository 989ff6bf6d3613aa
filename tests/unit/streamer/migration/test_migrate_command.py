"""``lakemark migrate`` prints a pipeline file that ``lakemark validate`` accepts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lakemark.storage import StorageLocation, open_storage
from streamer.cli import FAILED, MISUSED, OK, main
from tests.tables import Row, commit, make, writer
from tests.unit.streamer.migration.jobs import (
    KEYGEN,
    PARTITION,
    PROPERTIES,
    RECORD_KEY,
    SCHEMA_FILE,
    SCHEMAS,
    chain,
    schema_file,
    words,
)

GENERATOR = "hoodie.datasource.write.keygenerator.class"
JAAS = "sasl.jaas.config"
SECRET = "geheim"
SCHEMA_PROVIDER = "hoodie.streamer.schemaprovider"
FILE_PROVIDER = f"{SCHEMAS}FilebasedSchemaProvider"


def write_properties(folder: Path, properties: Mapping[str, str]) -> str:
    file = folder / "job.properties"
    lines = [f"{name}={value}" for name, value in {**PROPERTIES, **properties}.items()]
    file.write_text("\n".join(lines))
    return str(file)


def test_printed_pipeline_is_valid_and_has_no_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    login = f'org.example.PlainLoginModule required username="u" password="{SECRET}";'
    file = write_properties(tmp_path, {JAAS: login, "security.protocol": "SASL_SSL"})
    path = tmp_path / "orders"
    job = words({"--target-base-path": str(path), "--continuous": ""})
    assert main(["migrate", file, "--", *job]) == OK
    printed = capsys.readouterr()
    assert SECRET not in printed.out + printed.err
    assert "KAFKA_SASL_JAAS_CONFIG: from sasl.jaas.config" in printed.err
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(printed.out)
    assert main(["validate", str(pipeline)]) == MISUSED
    assert "KAFKA_SASL_JAAS_CONFIG is not set" in capsys.readouterr().err
    monkeypatch.setenv("KAFKA_SASL_JAAS_CONFIG", login)
    assert main(["validate", str(pipeline)]) == OK
    assert SECRET not in capsys.readouterr().out


WITH_KEYS = f"s3a://AKIAKEY:{SECRET}@lake"


@pytest.mark.parametrize(
    ("properties", "options"),
    [
        ({SCHEMA_FILE: f"{WITH_KEYS}/orders.avsc"}, {"--schemaprovider-class": FILE_PROVIDER}),
        ({f"{SCHEMA_PROVIDER}.target.schema.file": f"{WITH_KEYS}/orders.avsc"}, {}),
        (
            {"hoodie.streamer.transformer.sql.file": f"{WITH_KEYS}/orders.sql"},
            {"--transformer-class": chain("SqlFileBasedTransformer")},
        ),
        ({"include": f"{WITH_KEYS}/base.properties"}, {}),
        ({"a.password": SECRET}, {"--payload-class": SECRET}),
        ({"sasl.jaas.config": f'x required password="{SECRET}";'}, {"--payload-class": SECRET}),
    ],
)
def test_secret_of_any_value_is_not_printed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    properties: dict[str, str],
    options: dict[str, str],
) -> None:
    file = write_properties(tmp_path, properties)
    schema = str(schema_file(tmp_path))
    given = [] if SCHEMA_FILE in properties else ["--source-schema", schema]
    assert main(["migrate", file, *given, "--", *words(options)]) != OK
    printed = capsys.readouterr()
    assert "***" in printed.err
    for secret in (SECRET, "AKIAKEY"):
        assert secret not in printed.out + printed.err


def test_secret_in_the_name_of_the_property_file_is_not_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["migrate", f"{WITH_KEYS}/job.properties"]) == MISUSED
    printed = capsys.readouterr()
    assert "cannot read s3a://***@lake/job.properties" in printed.err
    assert SECRET not in printed.err


def test_exit_code_shows_that_rows_would_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_properties(tmp_path, {"hoodie.clustering.schedule.inline": "true"})
    assert main(["migrate", file, "--", *words({})]) == OK
    expected = "hoodie.clustering.schedule.inline: run lakemark table cluster --schedule"
    assert expected in capsys.readouterr().err
    job = words({"--payload-class": "com.example.Own"})
    assert main(["migrate", file, "--", *job]) == FAILED
    printed = capsys.readouterr()
    assert "the rows depend on them:\n  --payload-class: com.example.Own" in printed.err
    assert printed.out.startswith("# The job of HoodieStreamer with job.properties")
    head = printed.out.partition("\nsource:")[0]
    assert "# NOT COMPLETE: " in head
    assert "# - --payload-class: com.example.Own" in head


def test_file_that_is_complete_does_not_say_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_properties(tmp_path, {"hoodie.archive.beyond.savepoint": "true"})
    assert main(["migrate", file, "--", *words({})]) == OK
    assert "NOT COMPLETE" not in capsys.readouterr().out


def test_nothing_is_printed_for_a_source_without_counterpart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_properties(tmp_path, {})
    assert main(["migrate", file]) == FAILED
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no pipeline file is printed:" in printed.err
    assert "--source-class: it is missing" in printed.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.properties"], "cannot read none.properties"),
        (["job.properties", "--", "--target"], "--target is not an option of HoodieStreamer"),
    ],
)
def test_wrong_argument_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    write_properties(tmp_path, {})
    monkeypatch.chdir(tmp_path)
    assert main(["migrate", *arguments]) == MISUSED
    assert message in capsys.readouterr().err


def test_existing_table_is_checked_as_a_run_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t"
    storage = open_storage(StorageLocation(str(path)))
    make(storage)
    commit(writer(storage), [Row("a")])
    bucket = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
    job = words({"--target-base-path": str(path)})
    file = write_properties(tmp_path, bucket)
    assert main(["migrate", file, "--check-table", "--", *job]) == OK
    assert f"the pipeline can continue table {path}" in capsys.readouterr().err
    for wrong, message in (
        ({RECORD_KEY: "v"}, "record_key is id in the table and v in the pipeline"),
        ({"hoodie.bucket.index.num.buckets": "3"}, "bucket"),
    ):
        file = write_properties(tmp_path, {**bucket, **wrong})
        assert main(["migrate", file, "--check-table", "--", *job]) == MISUSED
        assert message in capsys.readouterr().err


def test_missing_table_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_properties(tmp_path, {})
    job = words({"--target-base-path": str(tmp_path / "none")})
    assert main(["migrate", file, "--check-table", "--", *job]) == OK
    printed = capsys.readouterr().err
    assert "there is no table at" in printed
    assert "the columns are not checked: the first run infers the columns" in printed


def test_new_table_that_a_run_refuses_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = "hoodie.keygen.timebased."
    folders = {
        GENERATOR: f"{KEYGEN}TimestampBasedKeyGenerator",
        PARTITION: "ts",
        f"{times}timestamp.type": "EPOCHMILLISECONDS",
        f"{times}output.dateformat": "yyyy-MM-dd",
        f"{times}timezone": "GMT+8:00",
    }
    file = write_properties(tmp_path, folders)
    job = words({"--target-base-path": str(tmp_path / "none")})
    assert main(["migrate", file, "--check-table", "--", *job]) == MISUSED
    assert "the folders of a new table are in UTC" in capsys.readouterr().err


@pytest.mark.parametrize("exists", [True, False])
def test_dead_letter_table_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], exists: bool
) -> None:
    """The table at the path of the dead letters is another one."""
    path = tmp_path / "t"
    for one in (path, Path(f"{path}_dead_letters"))[0 if exists else 1 :]:
        storage = open_storage(StorageLocation(str(one)))
        make(storage)
        commit(writer(storage), [Row("a")])
    bucket = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
    file = write_properties(tmp_path, bucket)
    job = words({"--target-base-path": str(path)})
    assert main(["migrate", file, "--check-table", "--", *job]) == MISUSED
    assert f"table {path}_dead_letters does not match the settings" in capsys.readouterr().err
