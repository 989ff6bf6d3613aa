"""The servers of the lock providers ``zookeeper`` and ``dynamodb``, for the contract of locks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from lakemark.timeline.locks.open_lock import LockProviderName
from tests.fixtures.s3 import AWS_CREDENTIALS

if TYPE_CHECKING:
    from tests.fixtures.s3 import S3Server
    from tests.fixtures.zookeeper import ZooKeeper


@contextmanager
def aws_credentials() -> Iterator[None]:
    """Set the credentials of moto's server for this process and its children during a block."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in AWS_CREDENTIALS.items():
            environment.setenv(name, value)
        yield


def lock_options(provider: LockProviderName, request: pytest.FixtureRequest) -> dict[str, str]:
    """Return options that name a new lock; start the server of the provider, if it has one."""
    if provider is LockProviderName.ZOOKEEPER:
        zookeeper: ZooKeeper = request.getfixturevalue("zookeeper")
        return zookeeper.new_lock()
    if provider is LockProviderName.DYNAMODB:
        return dynamodb_lock(request.getfixturevalue("s3_server"))
    return {}


def dynamodb_lock(server: S3Server, table: str = "locks") -> dict[str, str]:
    """Return options that name a new lock of moto's server."""
    return {
        "table": table,
        "partition_key": uuid4().hex,
        "region": "us-east-1",
        "endpoint_url": server.endpoint,
    }
