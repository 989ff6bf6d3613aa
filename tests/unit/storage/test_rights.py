"""The rights of a writer are proven by using them; nothing is left at the location."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakemark.errors import InvalidConfig, StorageUnavailable
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.open_storage import RETRY_TIMEOUT_S
from lakemark.storage.rights import RightsMissing, check_rights
from lakemark.storage.s3_policy import minimal_policy
from lakemark.storage.storage import AccessDenied
from lakemark.storage.trial_folders import TrialFolders
from tests.fixtures.s3 import S3Server
from tests.unit.storage.http_servers import answering, serving

ALL = {"list", "create", "read", "conditional requests", "publish (copy)", "delete"}


def used_rights(location: StorageLocation) -> tuple[str, ...]:
    with TrialFolders().open(location) as folder:
        return check_rights(location, folder)


def paths(location: StorageLocation) -> list[str]:
    return [one.path for one in open_storage(location).list_tree("")]


def test_all_rights_are_used_on_s3(s3_server: S3Server) -> None:
    location = s3_server.location()
    assert set(used_rights(location)) == ALL
    assert paths(location) == []


@pytest.mark.parametrize("existing", ["", "rows", "rows/.hoodie"])
def test_local_folders_stay_as_they_are(tmp_path: Path, existing: str) -> None:
    if existing:
        (tmp_path / existing).mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    assert set(used_rights(StorageLocation(str(tmp_path / "rows")))) == ALL
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("denied", "missing"),
    [
        (["s3:PutObject"], ["create"]),
        (["s3:GetObject"], ["read"]),
        (["s3:GetObject", "s3:PutObject"], ["create", "read"]),
        (["s3:DeleteObject"], ["delete"]),
        (["s3:DeleteObject", "s3:PutObject", "s3:GetObject"], ["delete", "read"]),
    ],
    ids=lambda one: "+".join(name.removeprefix("s3:") for name in one),
)
def test_missing_rights_are_named_and_nothing_is_left(
    s3_server: S3Server, denied: list[str], missing: list[str]
) -> None:
    location = s3_server.own_bucket()
    s3_server.deny(location, *denied)
    with pytest.raises(RightsMissing, match=f"{location.url}: not allowed: ") as raised:
        used_rights(location)
    assert list(raised.value.missing) == missing
    assert raised.value.leftovers == ()
    assert "test-secret" not in str(raised.value)
    assert paths(location) == []


@pytest.mark.parametrize("code", ["InvalidAccessKeyId", "SignatureDoesNotMatch"])
def test_unknown_credentials_are_no_missing_rights(code: str) -> None:
    with serving(answering(403, f"<Error><Code>{code}</Code></Error>")) as url:
        options = {
            "endpoint": url,
            "access_key_id": "AKIATESTKEYIDENT",
            "secret_access_key": "geheim",
        }
        location = StorageLocation("s3://lake/rows", {**options, "region": "x"})
        with pytest.raises(InvalidConfig, match="check the credentials") as raised:
            used_rights(location)
    assert not isinstance(raised.value, AccessDenied | RightsMissing)
    assert "geheim" not in str(raised.value)


def test_missing_bucket_is_named(s3_server: S3Server) -> None:
    location = StorageLocation("s3://no-such-bucket/rows", s3_server.options)
    with pytest.raises(InvalidConfig, match="create the bucket") as raised:
        used_rights(location)
    assert not isinstance(raised.value, RightsMissing)


def test_store_that_is_away_is_no_missing_right() -> None:
    options = {"endpoint": "http://127.0.0.1:1", "access_key_id": "a", "secret_access_key": "b"}
    options |= {"region": "x", RETRY_TIMEOUT_S: "0.1"}
    with pytest.raises(StorageUnavailable):
        used_rights(StorageLocation("s3://lake/rows", options))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_local_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RightsMissing, match="create"):
        used_rights(StorageLocation(str(tmp_path / "rows")))


def test_policy_contains_the_bucket_the_prefix_and_no_other_object() -> None:
    policy = minimal_policy(["s3://lake/a/rows", "s3://other/"])
    resources = [one["Resource"] for one in policy["Statement"]]
    assert resources == [
        "arn:aws:s3:::lake",
        "arn:aws:s3:::lake/a/rows/*",
        "arn:aws:s3:::other",
        "arn:aws:s3:::other/*",
    ]
    listing, objects = policy["Statement"][:2]
    assert listing["Condition"]["StringLike"]["s3:prefix"] == ["a/rows", "a/rows/*"]
    assert objects["Action"] == [
        "s3:GetObject",
        "s3:PutObject",
        "s3:DeleteObject",
        "s3:AbortMultipartUpload",
    ]
