"""The servers of the lock providers ``zookeeper`` and ``dynamodb``, for the contract of locks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from botocore.config import Config

from lakemark.timeline.locks import dynamodb_lock as dynamodb
from lakemark.timeline.locks import zookeeper_session
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


@contextmanager
def patient_clients() -> Iterator[None]:
    """Let this process wait a minute for each answer, because a busy machine may pause a server."""
    limits = Config(connect_timeout=60, read_timeout=60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dynamodb, "_CLIENT_SETTINGS", dynamodb._CLIENT_SETTINGS.merge(limits))
        for limit in ("_CONNECTION_S", "_ANSWER_S"):
            patch.setattr(zookeeper_session, limit, 60.0)
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
