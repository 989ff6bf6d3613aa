"""The least policy of AWS that lets a writer use a table on S3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_ON_OBJECTS = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]


def minimal_policy(urls: Sequence[str]) -> dict[str, Any]:
    """Return an IAM policy with the rights of a writer of these tables, and no others.

    ``PutObject`` also allows multipart uploads and, with ``GetObject``, copies. Without
    ``ListBucket``, S3 answers "access denied" instead of "not found" for an absent object.

    Args:
        urls: the canonical URLs of the tables, ``s3://bucket/prefix``.
    """
    return {
        "Version": "2012-10-17",
        "Statement": [statement for url in urls for statement in _statements(url)],
    }


def _statements(url: str) -> list[dict[str, Any]]:
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    arn, below = f"arn:aws:s3:::{bucket}", f"{prefix}/*" if prefix else "*"
    listing: dict[str, Any] = {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": arn}
    if prefix:
        listing["Condition"] = {"StringLike": {"s3:prefix": [prefix, below]}}
    return [listing, {"Effect": "Allow", "Action": _ON_OBJECTS, "Resource": f"{arn}/{below}"}]
