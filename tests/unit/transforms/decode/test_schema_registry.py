"""A registry at fault; ``tests/stream/test_avro.py`` asks one that is well."""

from __future__ import annotations

import json
from collections.abc import Iterator
from threading import Timer

import pytest

from tests.schema_registry import FaultyRegistry
from transforms.decode.schema_registry import (
    RegistryCredentials,
    RegistryRefused,
    RegistryUnavailable,
    SchemaCache,
    SchemaNotFound,
    SchemaRegistry,
)

TEXT = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]})


@pytest.fixture
def server() -> Iterator[FaultyRegistry]:
    with FaultyRegistry() as running:
        running.answers["/schemas/ids/1"] = {"schema": TEXT}
        yield running


def test_one_that_is_down_is_asked_again_until_it_is_up(server: FaultyRegistry) -> None:
    server.failures = [503, 429]
    assert SchemaRegistry(server.url).schema(1).text == TEXT
    server.stop()
    timer = Timer(0.4, server.start)
    timer.start()
    assert SchemaRegistry(server.url).schema(1).text == TEXT
    timer.join()


def test_one_that_stays_down_ends_in_an_error_that_may_pass(server: FaultyRegistry) -> None:
    server.stop()
    with pytest.raises(RegistryUnavailable, match=r"does not answer .* check decode.schema_reg"):
        SchemaRegistry(server.url, retry_timeout_s=0.3).schema(1)


def test_credentials_are_sent_and_never_shown(server: FaultyRegistry) -> None:
    server.require("reader", "hidden")
    access = RegistryCredentials("reader", "hidden")
    assert SchemaRegistry(server.url, access).schema(1).text == TEXT
    assert "hidden" not in repr(SchemaRegistry(server.url, access))
    with pytest.raises(RegistryRefused, match="status 401; check the credentials") as refused:
        SchemaRegistry(server.url, RegistryCredentials("reader", "wrong!")).schema(1)
    assert "wrong!" not in str(refused.value)
    server.sign_in = "Bearer abc"
    assert SchemaRegistry(server.url, RegistryCredentials(token="abc")).schema(1).text == TEXT


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        ([], RegistryRefused, "is no schema registry"),
        ({"schema": TEXT, "references": ["x"]}, RegistryRefused, "is no schema registry"),
        (
            {"schema": TEXT, "references": [{"name": "s", "subject": "s", "version": "latest"}]},
            SchemaNotFound,
            "refers to itself",
        ),
    ],
)
def test_what_no_registry_says_is_refused(
    server: FaultyRegistry, answer: object, error: type[Exception], text: str
) -> None:
    server.answers["/subjects/s/versions/latest"] = answer
    with pytest.raises(error, match=text):
        SchemaRegistry(server.url).newest("s")


def test_credentials_follow_no_redirect_to_another_server(server: FaultyRegistry) -> None:
    with FaultyRegistry() as moved:
        moved.moved_to = server.url
        with pytest.raises(RegistryRefused, match="status 302"):
            SchemaRegistry(moved.url, RegistryCredentials(token="abc")).schema(1)
    assert not server.asked


def test_an_id_that_is_missing_is_asked_for_again_only_after_a_while(
    server: FaultyRegistry,
) -> None:
    now = 0.0
    known = SchemaCache(SchemaRegistry(server.url), lambda: now)
    for _ in range(2):
        with pytest.raises(SchemaNotFound, match="has no schemas/ids/9"):
            known.schema(9)
    assert server.asked == ["/schemas/ids/9"]
    server.answers["/schemas/ids/9"] = {"schema": TEXT}
    now = 31.0
    assert known.schema(9) is known.schema(9)
    assert len(server.asked) == 2


def test_no_number_of_ids_that_are_missing_keeps_the_registry_busy(
    server: FaultyRegistry,
) -> None:
    now = 0.0
    known = SchemaCache(SchemaRegistry(server.url), lambda: now)
    known.schema(1)
    for schema_id in range(100, 1200):
        with pytest.raises(SchemaNotFound):
            known.schema(schema_id)
    assert len(server.asked) == 1001
    with pytest.raises(SchemaNotFound, match="was not asked for it"):
        known.schema(1200)
    assert known.schema(1).text == TEXT, "what is known stays known"
    server.answers["/schemas/ids/1200"] = {"schema": TEXT}
    now = 31.0
    assert known.schema(1200).text == TEXT
