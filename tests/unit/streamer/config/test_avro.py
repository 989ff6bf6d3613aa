from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from streamer.config.decode import AvroDecodeConfig
from streamer.config.errors import ConfigError
from streamer.config.load import apply_override, load, validated
from streamer.config.render import render_yaml
from transforms.decode.avro_framing import ConfluentFraming, PlainFraming

RECORD = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}'
REGISTRY = {"url": "http://registry:8081"}


def tree(**decode: object) -> dict[str, Any]:
    return {
        "source": {"bootstrap_servers": "b:1", "topic": "t"},
        "decode": {"format": "avro", **decode},
        "table": {"path": "/lake/t", "record_key": "id"},
    }


def reported(decode: dict[str, object], *overrides: str) -> list[str]:
    given = tree(**decode)
    for override in overrides:
        apply_override(given, override)
    try:
        validated(given)
    except ConfigError as error:
        return str(error).splitlines()
    return []


def test_the_format_is_json_unless_something_else_is_said() -> None:
    for decode in ({}, {"format": "json"}):
        given = {**tree(), "decode": decode}
        assert validated(given).decode.format == "json"
    assert validated({k: v for k, v in tree().items() if k != "decode"}).decode.format == "json"


@pytest.mark.parametrize(
    ("decode", "problem"),
    [
        ({}, "decode.schema_registry: missing; wire_format confluent needs it"),
        ({"format": "xml"}, "decode.format: 'xml': expected 'json', 'avro'"),
        ({"schema_registry": REGISTRY, "writer_schema": RECORD}, "decode.writer_schema: has no"),
        ({"wire_format": "plain"}, "decode.writer_schema: missing; wire_format plain needs it"),
        ({"wire_format": "plain", "writer_schema": '"int"'}, "cannot be converted to columns"),
        ({"wire_format": "plain", "writer_schema": "{"}, "decode.writer_schema: cannot be"),
        (
            {"wire_format": "plain", "writer_schema": RECORD, "tombstone_key": "avro"},
            "decode.key_schema: missing",
        ),
        ({"schema_registry": REGISTRY, "subjekt": "s"}, "did you mean subject? accepted: schema"),
        ({"schema_registry": {"url": "http://u:p@h"}}, "decode.schema_registry.url: ***"),
        (
            {"schema_registry": {"url": "https://a-token@h"}},
            "decode.schema_registry.url: ***: expected a URL without user, password or token; "
            "put them in decode.schema_registry.access",
        ),
        (
            {"schema_registry": {**REGISTRY, "access": {"password": "hidden"}}},
            "decode.schema_registry.access: password needs user",
        ),
        (
            {"schema_registry": {**REGISTRY, "access": {"user": "u", "token": "hidden"}}},
            "user and token are alternatives",
        ),
        ({"format": "json", "tombstone_key": "avro"}, "decode.tombstone_key: avro has no effect"),
    ],
)
def test_invalid_avro_setting_is_reported_with_its_path(
    decode: dict[str, object], problem: str
) -> None:
    lines = reported(decode)
    assert any(problem in line for line in lines), lines
    assert "hidden" not in "".join(lines)


def test_absent_fields_need_json() -> None:
    (line,) = reported({"schema_registry": REGISTRY}, "table.partial_update=absent_fields")
    assert line.startswith("table.partial_update: absent_fields needs JSON records, but")


def test_secrets_are_found_when_needed_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    access = {"user": "reader", "password": {"env": "REGISTRY_PASSWORD"}}
    given = tree(schema_registry={**REGISTRY, "access": access})
    apply_override(given, "decode.schema_registry.access.ca_file=/etc/ca.pem")
    config = validated(given)
    assert isinstance(config.decode, AvroDecodeConfig)
    assert [problem.path for problem in config.unresolved()] == [
        "decode.schema_registry.access.password"
    ]
    monkeypatch.setenv("REGISTRY_PASSWORD", "hidden")
    assert not config.unresolved()
    framing = config.decode.framing()
    assert isinstance(framing, ConfluentFraming)
    assert framing.registry.credentials.headers()["Authorization"].startswith("Basic ")
    assert "hidden" not in repr(config) + repr(framing) + render_yaml(config)
    plain = validated(tree(schema_registry={**REGISTRY, "access": {"token": "hidden"}}))
    assert "hidden" not in render_yaml(plain)


def test_schemas_may_be_in_files_next_to_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(RECORD)
    (tmp_path / "key.avsc").write_text('"string"')
    given = tree(
        wire_format="plain",
        writer_schema={"file": "order.avsc"},
        tombstone_key="avro",
        key_schema={"file": "key.avsc"},
    )
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(given))
    config = load(str(tmp_path / "p.yaml"))
    assert isinstance(config.decode, AvroDecodeConfig)
    framing = config.decode.framing()
    assert isinstance(framing, PlainFraming)
    assert framing.stored.text == RECORD
    assert config.decode.newest_schema("t").root.arrow.names == ["id"]
