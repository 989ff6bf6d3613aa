"""lakemark's locks in ZooKeeper and DynamoDB exclude Apache Hudi's writers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lakemark.errors import LockTimeout
from lakemark.storage import StorageLocation, open_storage
from lakemark.timeline.locks.open_lock import open_lock
from lakemark.timeline.locks.options import hash_of_path, implicit_node
from lakemark.timeline.locks.table_lock import TableLock
from tests.contract.lock_servers import aws_credentials, dynamodb_lock
from tests.fixtures.s3 import S3Server
from tests.fixtures.zookeeper import ZooKeeper
from tests.interop.java_locks import (
    AmazonLock,
    ApacheZooKeeperLock,
    JavaLock,
    amazon_client,
    apache_hudi,
)
from tests.interop.oracle import OracleUnavailable

pytestmark = pytest.mark.oracle

TIMES = 20

#: The lease of Amazon's client, so long that a pause does not keep it from renewing the lease.
#: lakemark waits that much longer for its lock.
_RENEWED_MS = 15_000


@pytest.fixture(scope="module")
def hudi() -> Iterator[Any]:
    try:
        with apache_hudi() as jvm:
            yield jvm
    except OracleUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def amazon() -> Iterator[Any]:
    with aws_credentials(), amazon_client() as jvm:
        yield jvm


def opened(tmp_path: Path, provider: str, options: Mapping[str, str]) -> TableLock:
    storage = open_storage(StorageLocation(str(tmp_path / "table")))
    return open_lock(storage, provider=provider, options=options)


def check_exclusion(ours: TableLock, theirs: JavaLock, counter: Path) -> None:
    """Check that each of the locks excludes the other, also if both want it all the time.

    Only one thread uses ``theirs`` at a time, because Curator's mutex belongs to a thread.
    """
    theirs.acquire()
    with pytest.raises(LockTimeout, match="held by"):
        ours.acquire(wait_s=1)
    theirs.release()
    counter.write_text("0")

    def add_one() -> None:
        number = int(counter.read_text())
        time.sleep(0.002)
        counter.write_text(str(number + 1))

    def count() -> None:
        for _ in range(TIMES):
            with ours.hold(60):
                add_one()

    with ThreadPoolExecutor(1) as pool:
        counting = pool.submit(count)
        for _ in range(TIMES):
            theirs.acquire()
            add_one()
            theirs.release()
        counting.result()
    assert int(counter.read_text()) == 2 * TIMES


def test_apache_hudi_and_lakemark_exclude_each_other_in_zookeeper(
    hudi: Any, zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    options = zookeeper.new_lock()
    theirs = ApacheZooKeeperLock(hudi, options)
    check_exclusion(opened(tmp_path, "zookeeper", options), theirs, tmp_path / "counter")


@pytest.mark.parametrize("path", ["s3a://lake/orders", "s3://lake/orders", "/lake/Bestellungen ü"])
def test_implicit_names_are_those_of_apache_hudi(path: str, hudi: Any) -> None:
    package = hudi.org.apache.hudi.client.transaction.lock
    base_path, lock_key = implicit_node(path)
    implicit = package.ZookeeperBasedImplicitBasePathLockProvider
    assert (base_path, lock_key) == (implicit.getLockBasePath(path), implicit.LOCK_KEY)
    assert base_path == f"/tmp/{hash_of_path(path)}"


def test_amazons_client_and_lakemark_exclude_each_other_in_dynamodb(
    amazon: Any, s3_server: S3Server, tmp_path: Path
) -> None:
    options = dynamodb_lock(s3_server)
    ours = opened(tmp_path, "dynamodb", options)
    ours.acquire(wait_s=0).release()
    check_exclusion(ours, AmazonLock(amazon, options, _RENEWED_MS), tmp_path / "counter")


def test_lock_of_a_dead_writer_passes_between_amazons_client_and_lakemark(
    amazon: Any, s3_server: S3Server, tmp_path: Path
) -> None:
    options = dynamodb_lock(s3_server)
    storage = open_storage(StorageLocation(str(tmp_path / "table")))
    ours = open_lock(storage, lease_s=2.0, provider="dynamodb", options=options)
    theirs = AmazonLock(amazon, options, _RENEWED_MS)
    lease = ours.acquire(wait_s=0)
    theirs.acquire()  # the lease is not renewed, as if its holder had died
    assert lease.remaining_s() == 0, "they waited until its end"
    with pytest.raises(LockTimeout, match="held by"):
        ours.acquire(wait_s=1)  # they renew their lease
    theirs.release()
    ours.acquire(wait_s=0).release()
