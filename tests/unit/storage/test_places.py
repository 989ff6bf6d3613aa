"""What a url names, and what is told of a place that takes no files."""

from __future__ import annotations

from pathlib import Path

import pytest

from table.errors import InvalidConfig
from table.storage import StorageLocation, open_storage, place_of
from table.storage.probe import check_conditional_puts
from table.storage.storage import InvalidPath


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
def test_each_place_has_one_spelling(urls: list[str]) -> None:
    assert len({place_of(url) for url in urls}) == 1


def test_other_places_are_others(tmp_path: Path) -> None:
    urls = [
        "/lake/t",
        "/lake/t2",
        "s3://lake/t",
        "gs://lake/t",
        "s3://lake2/t",
        "s3://lake",
        "lake",
    ]
    assert len({place_of(url) for url in urls}) == len(urls)


def test_a_link_is_the_place_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    assert place_of(f"{tmp_path}/link/t") == place_of(f"{tmp_path}/lake/t")


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
def test_what_names_no_place_is_refused_as_when_it_is_opened(
    url: str, error: type[Exception]
) -> None:
    with pytest.raises(error) as named:
        place_of(url)
    with pytest.raises(error) as opened:
        open_storage(StorageLocation(url))
    assert str(named.value) == str(opened.value)


def test_a_place_that_takes_no_files_is_told_itself(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root in (tmp_path / "file" / "table", Path("/proc/nothing")):
        with pytest.raises(InvalidConfig, match=f"^{root}: ") as raised:
            check_conditional_puts(open_storage(StorageLocation(str(root))))
        assert "probe" not in str(raised.value)
