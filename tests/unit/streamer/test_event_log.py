from __future__ import annotations

import io
import json
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.config.load import validated
from streamer.config.secrets import build_redactor
from streamer.event_log import JsonLines, event_log
from streamer.events import Event, Retrying, RunFailed
from tests.depth import examples
from tests.unit.streamer.event_samples import CLASSES, of_class

OWN = {"time", "pipeline", "event"}


def reported(event: Event) -> dict[str, Any]:
    out = io.StringIO()
    JsonLines(out, lambda text: text).listener("orders")(event)
    (line,) = out.getvalue().splitlines()
    parsed: dict[str, Any] = json.loads(line)
    return parsed


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_each_event_is_one_object_with_all_its_fields(kind: type[Any], data: st.DataObject) -> None:
    line = reported(data.draw(of_class(kind)))
    assert datetime.fromisoformat(line["time"]).tzinfo is not None
    assert line["event"] == kind.__name__
    assert line.keys() == OWN | {field.name for field in fields(kind)}


def test_no_field_of_an_event_hides_what_the_log_adds() -> None:
    names = {(kind.__name__, f.name) for kind in CLASSES for f in fields(kind) if f.name in OWN}
    assert names == {("RunStarted", "pipeline")}, "which is the same"


def test_no_secret_of_the_configuration_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_SECRET", "from-environment")
    (tmp_path / "token").write_text("from-file\n")
    jaas = 'org.example.Login required username="reader" password="in-jaas";'
    config = validated(
        {
            "source": {
                "bootstrap_servers": "localhost:9092",
                "topic": "orders",
                "consumer": {"sasl.jaas.config": jaas, "ssl.key.password": "plain/secret"},
            },
            "table": {
                "path": "s3://lake/orders",
                "record_key": "id",
                "storage": {
                    "region": "eu-central-1",
                    "proxy_url": "user:in-proxy@proxy:3128",
                    "secret_access_key": {"env": "STORE_SECRET"},
                    "session_token": {"file": str(tmp_path / "token")},
                },
            },
        }
    )
    log = tmp_path / "events"
    error = (
        f'eu-central-1: "from-environment" from-file {jaas} in-jaas plain/secret '
        "http://reader:in-url@store:9000 in-proxy"
    )
    passed_on: list[Event] = []
    with event_log(log, "orders", build_redactor(config), passed_on.append) as listener:
        listener(RunFailed("DataLoss", error))
        listener(Retrying(error, 1, 5, 1.0))
    text = log.read_text()
    for secret in (
        "from-environment",
        "from-file",
        "in-jaas",
        "plain/secret",
        "in-url",
        "in-proxy",
    ):
        assert secret not in text
    first, second = map(json.loads, text.splitlines())
    assert first["error"].startswith('eu-central-1: "***" *** ')
    assert first["error"] == second["error"]
    assert len(passed_on) == 2


def test_event_log_is_appended(tmp_path: Path) -> None:
    log = tmp_path / "events"
    for name in ("first", "second"):
        with event_log(log, "orders", str, lambda _: None) as listener:
            listener(RunFailed(name, ""))
    assert [json.loads(line)["error_type"] for line in log.read_text().splitlines()] == [
        "first",
        "second",
    ]
