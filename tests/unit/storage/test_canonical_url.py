"""Canonical urls of storages, and the errors for unusable roots."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark.errors import InvalidConfig
from lakemark.storage import StorageLocation, canonical_url, open_storage
from lakemark.storage.probe import check_conditional_puts
from lakemark.storage.storage import InvalidPath


@pytest.mark.parametrize(
    "urls",
    [
        ["/lake/t", "/lake/t/", "/lake/./x/../t", "file:///lake/t", "file://localhost/lake/t"],
        ["s3://bucket/t", "s3a://bucket/t", "s3://bucket/t/"],
        ["abfs://c@account.host/t", "abfss://c@account.host/t/"],
        ["az://c/t", "abfs://c/t"],
        ["memory://name", "memory://name/"],
    ],
    ids=lambda urls: urls[0],
)
def test_each_root_has_one_canonical_url(urls: list[str]) -> None:
    assert len({canonical_url(url) for url in urls}) == 1


def test_different_roots_have_different_canonical_urls(tmp_path: Path) -> None:
    urls = [
        "/lake/t",
        "/lake/t2",
        "s3://lake/t",
        "gs://lake/t",
        "s3://lake2/t",
        "s3://lake",
        "lake",
    ]
    assert len({canonical_url(url) for url in urls}) == len(urls)


def test_the_url_of_a_link_is_that_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    assert canonical_url(f"{tmp_path}/link/t") == canonical_url(f"{tmp_path}/lake/t")


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("ftp://x", InvalidConfig),
        ("s3:///t", InvalidConfig),
        ("s3://key@bucket/t", InvalidConfig),
        ("file://host/t", InvalidConfig),
        ("gs://bucket/a/../t", InvalidPath),
    ],
)
def test_an_invalid_url_is_refused_as_when_it_is_opened(url: str, error: type[Exception]) -> None:
    with pytest.raises(error) as named:
        canonical_url(url)
    with pytest.raises(error) as opened:
        open_storage(StorageLocation(url))
    assert str(named.value) == str(opened.value)


@pytest.mark.parametrize("scheme", ["hdfs", "HDFS", "viewfs"])
def test_hdfs_is_refused_by_name(scheme: str) -> None:
    with pytest.raises(InvalidConfig, match="HDFS is not supported: copy the table to one of"):
        open_storage(StorageLocation(f"{scheme}://namenode:8020/lake/orders"))


@pytest.mark.parametrize(
    ("url", "scheme"),
    [
        ("s3//bucket/t", "s3"),
        ("s3:/bucket/t", "s3"),
        ("s3:bucket/t", "s3"),
        ("s3;//bucket/t", "s3"),
        ("S3//bucket/t", "s3"),
        ("gs:/bucket", "gs"),
        ("abfss//c@account.host/t", "abfss"),
        ("memory:/t", "memory"),
        ("hdfs:/lake/t", "hdfs"),
        ("http//host/t", "http"),
        ("swift:/lake/t", "swift"),
    ],
)
def test_broken_url_scheme_is_refused_instead_of_becoming_a_local_folder(
    url: str, scheme: str
) -> None:
    with pytest.raises(InvalidConfig, match="neither a URL nor a plain path") as raised:
        canonical_url(url)
    assert f"write {scheme}://…;" in str(raised.value)
    with pytest.raises(InvalidConfig):
        open_storage(StorageLocation(url))


@pytest.mark.parametrize(
    "path", ["s3/t", "./s3//t", "lake//t", "a:b/t", "s3x/t", "/s3:/t", "file:/lake/t", "c:t"]
)
def test_plain_path_that_resembles_a_url_is_accepted(path: str) -> None:
    assert canonical_url(path).startswith("file:///")


def test_an_unusable_root_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root in (tmp_path / "file" / "table", Path("/proc/nothing")):
        with pytest.raises(InvalidConfig, match=f"^{root}: ") as raised:
            check_conditional_puts(open_storage(StorageLocation(str(root))))
        assert "probe" not in str(raised.value)
