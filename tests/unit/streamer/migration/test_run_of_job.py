"""``lakemark run --props`` loads the pipeline that ``lakemark migrate`` prints, or refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.cli import MISUSED, main
from streamer.config import settings
from streamer.config.load import load_text
from streamer.migration.run_of_job import IncompleteTranslation, load_pipeline_of_job
from streamer.migration.translation import translate
from tests.unit.streamer.migration.jobs import REGISTRY_URL, SCHEMAS, SOURCES, job

JAAS, SECRET = "sasl.jaas.config", "geheim"
VARIABLES = ("KAFKA_SASL_JAAS_CONFIG", "SCHEMA_REGISTRY_USER", "SCHEMA_REGISTRY_PASSWORD")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in VARIABLES:  # set, so that monkeypatch restores them, whatever the test sets
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    yield


def test_pipeline_is_that_of_the_printed_file() -> None:
    given = job({"auto.offset.reset": "earliest", "hoodie.archive.beyond.savepoint": "true"})
    loaded = load_pipeline_of_job(given, ["run.mode=once"])
    text = translate(given).text
    assert text is not None
    assert loaded.config == load_text(text, overrides=["run.mode=once"])
    (warning,) = loaded.warnings
    assert warning.startswith("without counterpart: hoodie.archive.beyond.savepoint=true: ")


def test_secrets_of_the_property_file_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    given = job({JAAS: f"x required password={SECRET};"})
    config = load_pipeline_of_job(given).config
    assert config.unresolved() == []
    found = settings.resolve(config.kafka.consumer, "source.consumer")
    assert found[JAAS] == f"x required password={SECRET};"
    monkeypatch.setenv("KAFKA_SASL_JAAS_CONFIG", "other")
    config = load_pipeline_of_job(given).config
    assert settings.resolve(config.kafka.consumer, "source.consumer")[JAAS] == "other"


def test_user_and_password_of_a_schema_registry_are_divided() -> None:
    properties = {
        REGISTRY_URL: "http://registry:8081/subjects/orders-value/versions/latest",
        "schema.registry.basic.auth.user.info": f"reader:{SECRET}:1",
        "basic.auth.credentials.source": "USER_INFO",
    }
    given = job(
        properties,
        source_class=f"{SOURCES}AvroKafkaSource",
        schemaprovider_class=f"{SCHEMAS}SchemaRegistryProvider",
    )
    config = load_pipeline_of_job(given).config
    access = config.decode.schema_registry.access  # type: ignore[union-attr]
    assert settings.resolve(access, "access") == {"user": "reader", "password": f"{SECRET}:1"}


def test_job_with_other_rows_is_refused_with_option_value_and_remedy() -> None:
    given = job({JAAS: f"x required password={SECRET};"}, payload_class="com.example.Own")
    with pytest.raises(IncompleteTranslation) as raised:
        load_pipeline_of_job(given)
    message = str(raised.value)
    assert "--payload-class com.example.Own: " in message
    assert "complete the pipeline file" in message
    assert SECRET not in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "p.yaml", "--props", "j.properties"], "p.yaml is not needed"),
        (["run", "p.yaml", "--", "--continuous"], "name its property file with --props"),
        (["run", "--props", "none.properties"], "cannot read none.properties"),
        (["shadow", "p.yaml", "--to", "t", "--", "--continuous"], "p.yaml is a pipeline file"),
    ],
)
def test_wrong_arguments_are_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == MISUSED
    assert message in capsys.readouterr().err


def test_secret_of_the_property_file_is_in_no_event(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    properties, events = tmp_path / "j.properties", tmp_path / "events.jsonl"
    properties.write_text(f"a.password={SECRET}\n")
    output = ["--log-format", "json", "--events", str(events)]
    words = ["--target-base-path", "/lake/orders", "--payload-class", SECRET]
    assert main(["run", *output, "--props", str(properties), "--", *words]) == MISUSED
    for text in (capsys.readouterr().err, events.read_text()):
        assert '"event": "RunFailed"' in text
        assert "--payload-class ***" in text
        assert SECRET not in text
