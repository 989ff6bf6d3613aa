"""Keys of S3 that are replaced in their file while a process writes a table."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakemark
from lakemark.errors import InvalidConfig
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.s3_credentials import CredentialsFile
from tests.fixtures.s3 import S3Server
from tests.unit.storage.http_servers import checking_keys, serving

SECRET = "v3ry-s3cr3t"

#: The client of S3 asks for keys at most every 0.1 s. After this time, it asks at the next request.
ASKED_EVERY_S = 0.11


def write_keys(path: Path, key: str, profile: str = "default", more: str = "") -> None:
    """Replace the file as programs do that rotate keys: by a rename."""
    text = f"[other]\nregion=x\n[{profile}]\naws_access_key_id = {key}\n"
    new = path.with_suffix(".new")
    new.write_text(f"{text}aws_secret_access_key = {SECRET}%{key}\n{more}")
    new.rename(path)


class Store:
    """An S3 server that accepts only some keys, and the options of a client that reads a file."""

    def __init__(self, endpoint: str, accepted: set[str], file: Path) -> None:
        self.accepted, self.file = accepted, file
        self.options: dict[str, Any] = {
            "endpoint": endpoint,
            "region": "us-east-1",
            "credentials_file": str(file),
        }

    def rotate(self, key: str) -> None:
        """Accept only another key, which the file contains from now on."""
        write_keys(self.file, key)
        self.accepted.clear()
        self.accepted.add(key)
        time.sleep(ASKED_EVERY_S)


@pytest.fixture
def store(s3_server: S3Server, tmp_path: Path) -> Iterator[Store]:
    accepted: set[str] = set()
    with serving(checking_keys(s3_server.endpoint, accepted)) as endpoint:
        running = Store(endpoint, accepted, tmp_path / "credentials")
        running.rotate("AKIAFIRST")
        yield running


def test_open_table_uses_the_new_keys(s3_server: S3Server, store: Store) -> None:
    url = s3_server.location().url
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    table = lakemark.create(url, schema=schema, record_key="id", **store.options)
    for number in range(3):
        table.upsert(pa.table({"id": ["a"], "n": [number]}, schema=schema))
        store.rotate(f"AKIA{number}")
    assert table.scan(columns=["n"]).to_table().to_pylist() == [{"n": 2}]


def test_former_keys_are_used_while_the_file_is_being_written(
    s3_server: S3Server, store: Store
) -> None:
    storage = open_storage(StorageLocation(s3_server.location().url, store.options))
    storage.create("a", b"1")
    for unfinished in ("", "[default]\naws_access", "\xff"):
        store.file.write_text(unfinished, encoding="latin-1")
        assert storage.read("a") == b"1"
    store.file.unlink()
    assert storage.read("a") == b"1"
    store.rotate("AKIASECOND")
    assert storage.read("a") == b"1"


def test_keys_that_the_store_does_not_know_are_reported_without_the_secret(
    s3_server: S3Server, store: Store
) -> None:
    storage = open_storage(StorageLocation(s3_server.location().url, store.options))
    store.accepted.clear()
    with pytest.raises(InvalidConfig, match="check the credentials") as refused:
        storage.read("a")
    assert SECRET not in str(refused.value)


def test_file_that_is_replaced_right_after_it_was_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read = tmp_path / "credentials", CredentialsFile._read
    write_keys(file, "AKIAFIRST")

    def read_and_replace(self: CredentialsFile) -> Mapping[str, str]:
        keys = read(self)
        write_keys(file, "AKIASECOND")
        return keys

    with monkeypatch.context() as patch:
        patch.setattr(CredentialsFile, "_read", read_and_replace)
        found = CredentialsFile(str(file))
    assert found()["access_key_id"] == "AKIASECOND"


def test_a_section_and_a_session_token_are_read(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    write_keys(file, "AKIA", "lake", "aws_session_token = t0ken\n")
    found = CredentialsFile(str(file), "lake")()
    assert (found["access_key_id"], found["secret_access_key"]) == ("AKIA", f"{SECRET}%AKIA")
    assert found.get("token") == "t0ken"


@pytest.mark.parametrize(
    ("options", "text", "problem"),
    [
        ({}, None, "No such file or directory"),
        ({}, f"{SECRET}", "is not a file of sections and keys"),
        ({}, f"[lake]\naws_access_key_id={SECRET}", r"has no section \[default\]"),
        ({"profile": "lake"}, f"[lake]\naws_access_key_id={SECRET}", "no aws_secret_access_key"),
        ({"aws_secret_access_key": SECRET}, "", "credentials_file and aws_secret_access_key both"),
    ],
)
def test_unusable_file_is_refused_without_its_content(
    tmp_path: Path, options: dict[str, str], text: str | None, problem: str
) -> None:
    file = tmp_path / "credentials"
    if text is not None:
        file.write_text(text)
    given = {"region": "us-east-1", "credentials_file": str(file), **options}
    with pytest.raises(InvalidConfig, match=problem) as refused:
        open_storage(StorageLocation("s3://lake/t", given))
    assert SECRET not in str(refused.value)


def test_profile_without_a_file_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="profile is only for credentials_file"):
        open_storage(StorageLocation("s3://lake/t", {"region": "us-east-1", "profile": "lake"}))
