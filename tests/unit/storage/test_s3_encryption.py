"""Encryption by the store: each object that is written asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import boto3
import pyarrow as pa
import pytest

import lakemark
from lakemark.errors import InvalidConfig
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.object_storage import _PART_BYTES, _SINGLE_PUT_BYTES
from tests.fixtures.s3 import S3Server

KEY = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"

SETTINGS: list[tuple[dict[str, str], tuple[str, str | None]]] = [
    ({"aws_server_side_encryption": "aws:kms", "aws_sse_kms_key_id": KEY}, ("aws:kms", KEY)),
    ({"aws_server_side_encryption": "AES256"}, ("AES256", None)),
]


def encryption(server: S3Server, location: StorageLocation, path: str) -> tuple[str, str | None]:
    """Return the algorithm and the key with which the server stores an object."""
    bucket, _, prefix = location.url.removeprefix("s3://").partition("/")
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=server.options["access_key_id"],
        aws_secret_access_key=server.options["secret_access_key"],
    )
    found = client.head_object(Bucket=bucket, Key=f"{prefix}/{path}")
    return found["ServerSideEncryption"], found.get("SSEKMSKeyId")


def encrypted(server: S3Server, options: Mapping[str, str]) -> StorageLocation:
    return StorageLocation(server.own_bucket().url, {**server.options, **options})


@pytest.mark.parametrize(("options", "stored"), SETTINGS, ids=["kms", "s3"])
def test_objects_of_each_kind_of_write_are_encrypted(
    s3_server: S3Server, options: dict[str, str], stored: tuple[str, str | None]
) -> None:
    location = encrypted(s3_server, options)
    storage = open_storage(location)
    storage.create("created", b"1")
    storage.create("prepared", b"2")
    storage.publish("prepared", "published")
    large = storage.create_streaming("large")
    for _ in range(_SINGLE_PUT_BYTES // _PART_BYTES + 1):
        large.write(bytes(_PART_BYTES))
    large.close()
    for path in ("created", "prepared", "published", "large"):
        assert encryption(s3_server, location, path) == stored, path


@pytest.mark.parametrize(("options", "stored"), SETTINGS, ids=["kms", "s3"])
def test_all_files_of_a_table_are_encrypted(
    s3_server: S3Server, options: dict[str, str], stored: tuple[str, str | None]
) -> None:
    location = encrypted(s3_server, options)
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    given: dict[str, Any] = {**location.options}
    table = lakemark.create(location.url, schema=schema, record_key="id", **given)
    for number in range(2):
        table.upsert(pa.table({"id": ["a"], "n": [number]}, schema=schema))
    paths = [one.path for one in open_storage(location).list_tree("")]
    assert len(paths) > 5
    assert {encryption(s3_server, location, path) for path in paths} == {stored}


def test_unknown_algorithm_is_refused() -> None:
    options = {"region": "us-east-1", "aws_server_side_encryption": "rot13"}
    with pytest.raises(InvalidConfig, match="rot13"):
        open_storage(StorageLocation("s3://lake/t", options))
