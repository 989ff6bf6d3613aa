"""The client against a faulty registry; ``tests/stream/test_avro.py`` uses a real one."""

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


def test_requests_are_retried_until_the_registry_answers(server: FaultyRegistry) -> None:
    server.failures = [503, 429]
    assert SchemaRegistry(server.url).schema(1).text == TEXT
    server.stop()
    timer = Timer(0.4, server.start)
    timer.start()
    assert SchemaRegistry(server.url).schema(1).text == TEXT
    timer.join()


def test_retriable_error_is_raised_if_the_registry_never_answers(server: FaultyRegistry) -> None:
    server.stop()
    with pytest.raises(RegistryUnavailable, match=r"does not answer .* check decode.schema_reg"):
        SchemaRegistry(server.url, retry_timeout_s=0.3).schema(1)


def test_credentials_are_sent_but_not_shown_in_repr_and_errors(server: FaultyRegistry) -> None:
    server.require("reader", "hidden")
    credentials = RegistryCredentials("reader", "hidden")
    assert SchemaRegistry(server.url, credentials).schema(1).text == TEXT
    assert "hidden" not in repr(SchemaRegistry(server.url, credentials))
    with pytest.raises(RegistryRefused, match="status 401; check the credentials") as refused:
        SchemaRegistry(server.url, RegistryCredentials("reader", "wrong!")).schema(1)
    assert "wrong!" not in str(refused.value)
    server.sign_in = "Bearer abc"
    assert SchemaRegistry(server.url, RegistryCredentials(token="abc")).schema(1).text == TEXT


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        ([], RegistryRefused, "is not a schema registry"),
        ({"schema": TEXT, "references": ["x"]}, RegistryRefused, "is not a schema registry"),
        (
            {"schema": TEXT, "references": [{"name": "s", "subject": "s", "version": "latest"}]},
            SchemaNotFound,
            "refers to itself",
        ),
    ],
)
def test_invalid_answer_is_refused(
    server: FaultyRegistry, answer: object, error: type[Exception], text: str
) -> None:
    server.answers["/subjects/s/versions/latest"] = answer
    with pytest.raises(error, match=text):
        SchemaRegistry(server.url).latest("s")


def test_redirect_to_another_server_is_refused_so_that_it_receives_no_credentials(
    server: FaultyRegistry,
) -> None:
    with FaultyRegistry() as moved:
        moved.moved_to = server.url
        with pytest.raises(RegistryRefused, match="status 302"):
            SchemaRegistry(moved.url, RegistryCredentials(token="abc")).schema(1)
    assert not server.asked


def test_missing_id_is_requested_again_after_thirty_seconds(
    server: FaultyRegistry,
) -> None:
    now = 0.0
    cache = SchemaCache(SchemaRegistry(server.url), lambda: now)
    for _ in range(2):
        with pytest.raises(SchemaNotFound, match="has no schemas/ids/9"):
            cache.schema(9)
    assert server.asked == ["/schemas/ids/9"]
    server.answers["/schemas/ids/9"] = {"schema": TEXT}
    now = 31.0
    assert cache.schema(9) is cache.schema(9)
    assert len(server.asked) == 2


def test_requests_of_missing_ids_are_limited(
    server: FaultyRegistry,
) -> None:
    now = 0.0
    cache = SchemaCache(SchemaRegistry(server.url), lambda: now)
    cache.schema(1)
    for schema_id in range(100, 1200):
        with pytest.raises(SchemaNotFound):
            cache.schema(schema_id)
    assert len(server.asked) == 1001
    with pytest.raises(SchemaNotFound, match="was not asked for this id"):
        cache.schema(1200)
    assert cache.schema(1).text == TEXT, "cached schemas are still returned"
    server.answers["/schemas/ids/1200"] = {"schema": TEXT}
    now = 31.0
    assert cache.schema(1200).text == TEXT


def test_a_schema_that_others_share_is_requested_once(server: FaultyRegistry) -> None:
    for level in range(30):
        listed = [
            {"name": f"{name}{level}", "subject": f"s{level - 1}", "version": 1} for name in "ab"
        ]
        answer = {"schema": TEXT, "references": listed if level else []}
        server.answers[f"/subjects/s{level}/versions/1"] = answer
    server.answers["/subjects/s0/versions/2"] = {"schema": TEXT}
    top = [
        {"name": "a", "subject": "s29", "version": 1},
        {"name": "b", "subject": "s0", "version": 2},
    ]
    server.answers["/schemas/ids/2"] = {"schema": TEXT, "references": top}
    stored = SchemaRegistry(server.url).schema(2)
    assert len(server.asked) == len(set(server.asked)) == 32
    assert len(list(stored.all_references())) == 2 * 29 + 2
    assert hash(stored) == hash(SchemaRegistry(server.url).schema(2))
