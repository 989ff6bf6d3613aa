from __future__ import annotations

import json
from collections.abc import Iterator
from threading import Timer

import pytest

from tests.schema_registry import RegistryServer
from transforms.decode.avro_references import StoredSchema
from transforms.decode.registry import (
    KnownSchemas,
    RegistryAccess,
    RegistryRefused,
    RegistryUnavailable,
    SchemaNotFound,
    SchemaRegistry,
)

TEXT = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]})


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        running.schemas[1] = TEXT
        yield running


def test_schemas_are_had_by_id_and_by_subject_with_those_they_refer_to(
    server: RegistryServer,
) -> None:
    server.subjects["a/b"] = [{"schema": '"int"'}, {"schema": TEXT}]
    refers = [{"name": "x.y", "subject": "a/b", "version": 1}]
    server.subjects["whole"] = [{"schema": TEXT, "references": refers}]
    registry = SchemaRegistry(server.url + "/")
    assert registry.schema(1) == StoredSchema(TEXT)
    assert registry.newest("a/b").text == TEXT
    server.schemas[2] = {"schema": TEXT, "references": refers}
    for stored in (registry.newest("whole"), registry.schema(2)):
        (reference,) = stored.references
        assert (reference.name, reference.stored.text) == ("x.y", '"int"')


def test_one_that_is_down_is_asked_again_until_it_is_up(server: RegistryServer) -> None:
    server.failures = [503, 429]
    assert SchemaRegistry(server.url).schema(1).text == TEXT
    server.stop()
    timer = Timer(0.4, server.start)
    timer.start()
    assert SchemaRegistry(server.url).schema(1).text == TEXT
    timer.join()


def test_one_that_stays_down_ends_in_an_error_that_may_pass(server: RegistryServer) -> None:
    server.stop()
    with pytest.raises(RegistryUnavailable, match=r"does not answer .* check decode.schema_reg"):
        SchemaRegistry(server.url, patience_s=0.3).schema(1)


def test_credentials_are_sent_and_never_shown(server: RegistryServer) -> None:
    server.require("reader", "hidden")
    access = RegistryAccess("reader", "hidden")
    assert SchemaRegistry(server.url, access).schema(1).text == TEXT
    assert "hidden" not in repr(SchemaRegistry(server.url, access))
    with pytest.raises(RegistryRefused, match="status 401; check the credentials") as refused:
        SchemaRegistry(server.url, RegistryAccess("reader", "wrong!")).schema(1)
    assert "wrong!" not in str(refused.value)
    server.sign_in = "Bearer abc"
    assert SchemaRegistry(server.url, RegistryAccess(token="abc")).schema(1).text == TEXT


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        ({"schema": "{}", "schemaType": "PROTOBUF"}, SchemaNotFound, "PROTOBUF, not AVRO"),
        ({"schema": TEXT, "references": ["x"]}, RegistryRefused, "is no schema registry"),
        (
            {"schema": TEXT, "references": [{"name": "s", "subject": "s", "version": 1}]},
            SchemaNotFound,
            "refers to itself",
        ),
    ],
)
def test_what_is_no_avro_schema_is_refused(
    server: RegistryServer, answer: dict[str, object], error: type[Exception], text: str
) -> None:
    server.subjects["s"] = [answer]
    with pytest.raises(error, match=text):
        SchemaRegistry(server.url).newest("s")


def test_what_answers_without_an_object_is_no_registry(server: RegistryServer) -> None:
    server.schemas[1] = []
    with pytest.raises(RegistryRefused, match="is no schema registry"):
        SchemaRegistry(server.url).schema(1)


def test_what_is_missing_is_told_apart_from_a_wrong_address(server: RegistryServer) -> None:
    server.subjects["s"] = [{"schema": TEXT}]
    registry = SchemaRegistry(server.url)
    with pytest.raises(SchemaNotFound, match="has no schemas/ids/9"):
        registry.schema(9)
    with pytest.raises(SchemaNotFound, match="has no subjects/none/"):
        registry.newest("none")
    refers = {"name": "n", "subject": "s", "version": 2}
    server.schemas[3] = {"schema": TEXT, "references": [refers]}
    with pytest.raises(SchemaNotFound, match="has no subjects/s/versions/2"):
        registry.schema(3)
    with pytest.raises(RegistryRefused, match=r"status 404; check decode.schema_registry.url"):
        SchemaRegistry(f"{server.url}/elsewhere").schema(1)


def test_credentials_follow_no_redirect_to_another_server(server: RegistryServer) -> None:
    with RegistryServer() as moved:
        moved.moved_to = server.url
        with pytest.raises(RegistryRefused, match="status 302"):
            SchemaRegistry(moved.url, RegistryAccess(token="abc")).schema(1)
    assert not server.asked


def test_an_id_that_is_missing_is_asked_for_again_only_after_a_while(
    server: RegistryServer,
) -> None:
    now = 0.0
    known = KnownSchemas(SchemaRegistry(server.url), lambda: now)
    for _ in range(2):
        with pytest.raises(SchemaNotFound, match="has no schemas/ids/9"):
            known.schema(9)
    assert server.asked == ["/schemas/ids/9"]
    server.schemas[9] = TEXT
    now = 31.0
    assert known.schema(9) is known.schema(9)
    assert len(server.asked) == 2


def test_no_number_of_ids_that_are_missing_keeps_the_registry_busy(
    server: RegistryServer,
) -> None:
    now = 0.0
    known = KnownSchemas(SchemaRegistry(server.url), lambda: now)
    known.schema(1)
    for schema_id in range(100, 1200):
        with pytest.raises(SchemaNotFound):
            known.schema(schema_id)
    assert len(server.asked) == 1001
    with pytest.raises(SchemaNotFound, match="was not asked for it"):
        known.schema(1200)
    assert known.schema(1).text == TEXT, "what is known stays known"
    server.schemas[1200] = TEXT
    now = 31.0
    assert known.schema(1200).text == TEXT
