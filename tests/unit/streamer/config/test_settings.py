from __future__ import annotations

from pathlib import Path

import pytest

from streamer.config.errors import ConfigError
from streamer.config.load import load, validated
from streamer.config.pipeline import PipelineConfig
from streamer.config.printed import resolved_yaml
from streamer.config.settings import resolve, sounds_secret

SECRET = "geheim-4711"


def pipeline(**consumer: object) -> PipelineConfig:
    return validated(
        {
            "source": {"bootstrap": "b:1", "topic": "t", "consumer": consumer},
            "table": {"path": "p", "record_key": "k"},
        }
    )


def test_values_are_found_when_they_are_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    config = pipeline(a=True, b=500, c={"env": "LAKEMARK_TEST"}, d={"file": str(file)}, e="text")
    file.write_text("from a file \n")
    monkeypatch.setenv("LAKEMARK_TEST", "from the environment")
    assert resolve(config.source.consumer, "source.consumer") == {
        "a": "true",
        "b": "500",
        "c": "from the environment",
        "d": "from a file ",
        "e": "text",
    }


def test_all_that_cannot_be_found_is_told(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff")
    config = pipeline(
        a={"env": "LAKEMARK_NOT_SET"}, b={"file": str(tmp_path / "no")}, c={"file": str(binary)}
    )
    with pytest.raises(ConfigError) as raised:
        resolve(config.source.consumer, "source.consumer")
    assert str(raised.value).splitlines() == [
        "source.consumer.a: environment variable LAKEMARK_NOT_SET is not set",
        f"source.consumer.b: cannot read {tmp_path}/no: No such file or directory",
        f"source.consumer.c: cannot read {binary}: not UTF-8 text",
    ]
    assert [str(p) for p in config.unresolved()] == str(raised.value).splitlines()


@pytest.mark.parametrize(
    "name",
    """
    sasl.jaas.config|ssl.key.password|ssl.keystore.key|sasl.oauthbearer.client.credentials.secret
    aws_secret_access_key|aws_access_key_id|aws_session_token|account_key|azure_storage_account_key
    google_service_account_key|fs.s3a.secret.key|fs.s3a.access.key|basic.auth.user.info|bearer_token
    spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net|API_KEY|private_key|sas_token|sas_key
    """.replace("\n", "|")
    .replace(" ", "")
    .strip("|")
    .split("|"),
)
def test_nothing_ever_prints_a_secret(name: str, tmp_path: Path) -> None:
    assert sounds_secret(name)
    config = pipeline(**{name: SECRET})
    for printed in (resolved_yaml(config), repr(config), str(config), str(config.model_dump())):
        assert SECRET not in printed
    assert config.source.consumer[name].resolve() == SECRET
    file = tmp_path / "p.yaml"
    file.write_text("source: {bootstrap: b, topic: t}\ntable: {path: p, record_key: k}")
    with pytest.raises(ConfigError) as raised:
        load(str(file), [f"source.consumer.{name}=[{SECRET}]", f"table.{name}={SECRET}"])
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "name", ["max.poll.records", "aws_endpoint", "key.order", "fetch.max.bytes"]
)
def test_what_is_no_secret_is_shown(name: str) -> None:
    assert f"{name}: '5'" in resolved_yaml(pipeline(**{name: 5}))


@pytest.mark.parametrize("value", [None, [1], {}, {"env": ""}, {"env": 5}, {"enw": "X"}])
def test_a_setting_is_a_value_or_says_where_it_is(value: object) -> None:
    with pytest.raises(ConfigError, match=r"expected a value, \{env: NAME\} or \{file: PATH\}"):
        pipeline(a=value)


def test_properties_that_others_decide_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset is set by source\.starting"):
        pipeline(**{"auto.offset.reset": "latest"})
    with pytest.raises(ConfigError, match=r"leave out the prefix, write ssl\.protocol"):
        pipeline(**{"kafka.ssl.protocol": "TLS"})
