"""Errors and lost answers of an object store are handled, and locations and options are applied."""

from __future__ import annotations

import os
import socket
import time
import traceback
import urllib.request
from collections.abc import Iterator
from uuid import uuid4

import pytest

from lakemark.errors import HudiError, InvalidConfig, StorageUnavailable, Unsupported
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.storage import AlreadyExists, InvalidPath, NotFound
from lakemark.storage.store_errors import StoreErrors
from tests.fixtures.s3 import S3Server
from tests.unit.storage.http_servers import answering, losing_answers, serving

SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"


def at(endpoint: str, **options: str) -> Storage:
    defaults = {
        "endpoint": endpoint,
        "access_key_id": "AKIAEXAMPLE",
        "secret_access_key": SECRET,
        "retry_timeout_s": "0.3",
    }
    return open_storage(StorageLocation("s3://lake/table", {**defaults, **options}))


# Answers that were lost: the store did what it was asked, the caller did not hear of it


@pytest.fixture
def lost() -> list[str]:
    """A list for the methods whose next answer is lost."""
    return []


@pytest.fixture
def deaf(s3_server: S3Server, lost: list[str]) -> Iterator[Storage]:
    """A storage on the session's store, behind a server that loses answers."""
    with serving(losing_answers(s3_server.endpoint, lost)) as endpoint:
        options = {**s3_server.options, "endpoint": endpoint}
        yield open_storage(StorageLocation(f"s3://{s3_server.bucket}/{uuid4().hex}", options))


def test_a_create_whose_answer_was_lost_is_ours(deaf: Storage, lost: list[str]) -> None:
    lost += ["PUT"]
    deaf.create("a", b"ours")
    assert lost == []
    assert deaf.read("a") == b"ours"


def test_a_create_that_lost_the_race_and_the_answer_is_theirs(
    deaf: Storage, lost: list[str]
) -> None:
    deaf.create("a", b"theirs")
    lost += ["PUT"]
    with pytest.raises(AlreadyExists):
        deaf.create("a", b"ours")
    assert deaf.read("a") == b"theirs"


def test_a_replacement_whose_answer_was_lost_is_ours(deaf: Storage, lost: list[str]) -> None:
    deaf.create("a", b"1")
    _, version = deaf.read_versioned("a")
    assert version is not None
    lost += ["PUT"]
    assert deaf.replace("a", b"2", version) == deaf.read_versioned("a")[1]
    assert deaf.read("a") == b"2"


def test_publishing_can_be_repeated_when_the_answer_was_lost(
    deaf: Storage, lost: list[str]
) -> None:
    deaf.put("prepared", b"commit")
    lost += ["PUT"]
    try:
        deaf.publish("prepared", "done")
    except StorageUnavailable:
        deaf.publish("prepared", "done")
    assert deaf.read("done") == b"commit"


def test_a_large_file_whose_last_answer_was_lost_is_ours(deaf: Storage, lost: list[str]) -> None:
    size_bytes = (16 << 20) + 1
    file = deaf.create_streaming("big")
    file.write(bytes(size_bytes))
    lost += ["POST", "POST"]  # the first begins the upload, the last makes the object
    assert file.close() == size_bytes
    info = deaf.head("big")
    assert info is not None
    assert info.size_bytes == size_bytes


# Refusals


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidConfig),
        (401, InvalidConfig),
        (403, InvalidConfig),
        (404, NotFound),
        (429, StorageUnavailable),
        (500, StorageUnavailable),
        (503, StorageUnavailable),
    ],
)
def test_the_status_decides_the_type_of_the_error(status: int, kind: type[HudiError]) -> None:
    with serving(answering(status, f"<Message>you sent {SECRET}</Message>")) as endpoint:
        storage = at(endpoint)
        with pytest.raises(kind) as refused:
            storage.read("a/b")
    assert "s3://lake/table/a/b" in str(refused.value)
    assert SECRET not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize("user_info", [f"ann:{SECRET}", f"ann:4/{SECRET}/x", SECRET])
def test_an_error_does_not_repeat_the_credentials_of_a_proxy(user_info: str) -> None:
    errors = StoreErrors("s3://lake/table", {"proxy_url": f"http://{user_info}@proxy:3128"})
    answer = f"cannot connect to http://{user_info}@proxy:3128/?x=1"
    with pytest.raises(StorageUnavailable, match=r"http://\*\*\*@proxy:3128") as refused:
        with errors.typed("a/b"):
            raise OSError(answer)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("status", [403, 503])
def test_a_refused_write_is_not_taken_for_done(status: int) -> None:
    with serving(answering(status)) as endpoint:
        storage = at(endpoint)
        for write in (
            lambda: storage.create("a", b""),
            lambda: storage.put("a", b""),
            lambda: storage.replace("a", b"", "version"),
            lambda: storage.publish("a", "b"),
            lambda: storage.delete(["a"]),
            lambda: storage.create_streaming("a").close(),
        ):
            with pytest.raises((InvalidConfig, StorageUnavailable)):
                write()


def test_a_bucket_that_is_missing_is_named(s3_server: S3Server) -> None:
    storage = open_storage(StorageLocation("s3://nowhere/table", s3_server.options))
    with pytest.raises(InvalidConfig, match="create the bucket"):
        storage.create("a", b"")
    with pytest.raises(InvalidConfig, match="create the bucket"):
        storage.list_folder("")


def test_a_dead_endpoint_is_reported_in_bounded_time() -> None:
    with socket.socket() as silent:  # listens, and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        storage = at(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout="0.5s")
        started = time.monotonic()
        with pytest.raises(StorageUnavailable):
            storage.read("a")
        assert time.monotonic() - started < 15, "by default one request alone may take 20 s"
    with pytest.raises(StorageUnavailable):  # nobody listens any more
        storage.create("a", b"")


# What other tools leave


def test_folder_markers_of_other_tools_are_no_objects(s3_server: S3Server) -> None:
    root = uuid4().hex
    for folder in (f"{root}/", f"{root}/p/"):  # consoles and Hadoop write an empty "<folder>/"
        url = f"{s3_server.endpoint}/{s3_server.bucket}/{folder}"
        urllib.request.urlopen(urllib.request.Request(url, method="PUT")).close()
    table = open_storage(s3_server.location(root))
    assert table.list_folder("") == (["p"], [])
    table.create("p/x", b"1")
    assert table.list_folder("") == (["p"], [])
    assert [info.path for info in table.list_folder("p")[1]] == ["p/x"]
    table.create("p/q/r/y", b"1")
    assert [info.path for info in table.list_tree("")] == ["p/q/r/y", "p/x"]


# Locations and options


def test_memory_is_shared_by_name() -> None:
    name = uuid4().hex
    open_storage(StorageLocation(f"memory://{name}/a")).create("b", b"1")
    assert open_storage(StorageLocation(f"memory://{name}")).read("a/b") == b"1"
    assert open_storage(StorageLocation(f"memory://other-{name}")).list_tree("") == []


def test_the_environment_supplies_missing_settings(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "from-environment")
    storage = open_storage(StorageLocation(f"s3a://{s3_server.bucket}/{uuid4().hex}/"))
    storage.create("a", b"1")
    assert storage.list_folder("")[1][0].path == "a"


@pytest.mark.parametrize(
    ("url", "options", "names"),
    [
        ("ftp://host/path", {}, "ftp"),
        ("s3://", {}, "bucket"),
        ("s3://AKIA:secret@bucket/path", {}, "options"),
        ("s3://bucket/path", {"acces_key": SECRET}, "acces_key"),
        ("s3://bucket/path", {"access_key_id": "only"}, "SecretAccessKey"),
        ("s3://bucket/path", {"retry_timeout_s": "soon"}, "retry_timeout_s"),
        ("az://container/path", {}, "Account"),
        ("file://host/path", {}, "host"),
    ],
)
def test_a_wrong_location_is_refused_with_the_reason(
    url: str, options: dict[str, str], names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(InvalidConfig, match=names) as refused:
        open_storage(StorageLocation(url, options))
    assert "secret@" not in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_prefix_outside_the_bucket_is_refused() -> None:
    with pytest.raises(InvalidPath):
        open_storage(StorageLocation("memory://bucket/a/../b"))


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("gs://bucket/path", {"skip_signature": "true"}),
        ("az://container/path", {"account_name": "lake", "account_key": "c2VjcmV0"}),
        ("abfss://container@lake.dfs.core.windows.net/path", {"account_key": "c2VjcmV0"}),
    ],
)
def test_other_clouds_open_without_a_request(url: str, options: dict[str, str]) -> None:
    storage = open_storage(StorageLocation(url, options))
    assert storage.supports_compare_and_swap
    assert "c2VjcmV0" not in repr(storage)


def test_a_process_forked_after_a_request_gets_an_error_with_the_reason() -> None:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}"))
    storage.create("a", b"1")
    child = os.fork()
    if child == 0:
        try:
            storage.read("a")
        except Unsupported as refused:
            os._exit(0 if "spawn" in str(refused) else 2)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert storage.read("a") == b"1"
