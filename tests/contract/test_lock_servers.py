"""Locks on a server: Apache Hudi's nodes and items, lost connections, and expired sessions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
from kazoo.client import KazooClient

from lakemark.errors import (
    CorruptData,
    InvalidConfig,
    LockTimeout,
    OutcomeUnknown,
    Retriable,
    StorageUnavailable,
)
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.timeline.locks.lock_provider import LockRecord
from lakemark.timeline.locks.open_lock import LockProviderName, open_lock
from lakemark.timeline.locks.table_lock import Lease, LeaseLost, SystemClock, TableLock
from lakemark.timeline.locks.zookeeper_lock import ZooKeeperLock
from tests.clocks import ManualClock
from tests.contract.lock_servers import (
    aws_credentials,
    dynamodb_lock,
    lock_options,
    patient_clients,
)
from tests.fixtures.relay import Relay, relay_to
from tests.fixtures.s3 import S3Server
from tests.fixtures.zookeeper import ZooKeeper
from tests.storages.interrupted_storage import InterruptedStorage
from tests.table_services import make_plain, new_storage
from tests.tables import Row, commit, contents, reopened, write_files
from tests.waiting import until
from tests.writers import shared_writer

PREPARED = ".hoodie/.aux/prepared/20260101000000000"

each_server = pytest.mark.parametrize(
    "provider", [LockProviderName.ZOOKEEPER, LockProviderName.DYNAMODB]
)


@pytest.fixture(scope="module", autouse=True)
def credentials() -> Iterator[None]:
    with aws_credentials(), patient_clients():
        yield


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(StorageLocation(str(tmp_path / "table")))


@pytest.fixture
def provider() -> LockProviderName:
    return LockProviderName.ZOOKEEPER


@pytest.fixture
def options(provider: LockProviderName, request: pytest.FixtureRequest) -> dict[str, str]:
    return lock_options(provider, request)


@pytest.fixture
def lock(storage: Storage, provider: LockProviderName, options: dict[str, str]) -> TableLock:
    return open_lock(storage, provider=provider, options=options)


@pytest.fixture
def other(storage: Storage, provider: LockProviderName, options: dict[str, str]) -> TableLock:
    return open_lock(storage, provider=provider, options=options)


# Lost answers and connections


@pytest.fixture
def relay(provider: LockProviderName, options: dict[str, str]) -> Iterator[Relay]:
    address = options.get("hosts") or options["endpoint_url"].removeprefix("http://")
    with relay_to(address) as relay:
        yield relay


@pytest.fixture
def relayed(
    storage: Storage, provider: LockProviderName, options: dict[str, str], relay: Relay
) -> TableLock:
    """The lock, whose requests pass the relay; it is connected already."""
    changed = {"hosts": relay.address, "endpoint_url": f"http://{relay.address}"}
    changed = {name: text for name, text in changed.items() if name in options}
    lock = open_lock(storage, provider=provider, options={**options, **changed})
    lock.acquire(wait_s=0).release()
    return lock


@each_server
@pytest.mark.parametrize("nth", range(5))
def test_lost_answer_does_not_lose_the_lock(
    relayed: TableLock, other: TableLock, relay: Relay, nth: int
) -> None:
    relay.lose_answer(nth)
    lease = relayed.acquire(wait_s=30)
    relay.restore()
    lease.check()
    with pytest.raises(LockTimeout):
        other.acquire(wait_s=0)
    lease.release()
    other.acquire(wait_s=0).release()


@each_server
def test_lease_cannot_be_checked_without_a_connection(
    relayed: TableLock, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakemark.timeline.locks.zookeeper_session._CONNECTION_S", 0.2)
    with pytest.raises(StorageUnavailable), relayed.hold(wait_s=0) as lease:
        relay.cut()
        lease.check()
    with pytest.raises(StorageUnavailable):
        relayed.acquire(wait_s=0)
    relay.restore()
    monkeypatch.undo()


@pytest.mark.parametrize("is_cut", [True, False], ids=["connection cut", "session expired"])
def test_commit_is_not_published_after_the_lock_was_lost(
    is_cut: bool,
    options: dict[str, str],
    relay: Relay,
    zookeeper: ZooKeeper,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lakemark.timeline.locks.zookeeper_session._CONNECTION_S", 0.2)
    storage = new_storage()
    make_plain(storage)
    options = {**options, "hosts": relay.address}
    lock = open_lock(storage, provider="zookeeper", options=options)
    lose = relay.cut if is_cut else partial(expire_session, lock, zookeeper.hosts)
    interrupted = InterruptedStorage(storage, lose)
    late = reopened(shared_writer(interrupted, has_metadata=False), lock=lock)
    commit(late, [Row("a", 1, 1)])
    written = write_files(late, [Row("a", 2, 2)])
    interrupted.is_before = lambda number, method, path: "/prepared/" in path
    with pytest.raises((Retriable, OutcomeUnknown)):
        late.commit(written, {})
    assert interrupted.stopped_at is not None
    assert contents(storage) == {"a": (1, 1)}


# ZooKeeper


@pytest.fixture
def client(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    """A client of another program."""
    client = KazooClient(zookeeper.hosts, timeout=60)
    client.start(60)
    yield client
    client.stop()
    client.close()


def node_of(options: Mapping[str, str]) -> str:
    return f"{options['base_path']}/{options['lock_key']}"


def wait_as_apache(client: KazooClient, options: Mapping[str, str]) -> str:
    """Create the node with which Apache Hudi 1.2 asks for the lock."""
    path = f"{node_of(options)}/_c_{uuid4()}-lock-"
    created: str = client.create(
        path, b"application_id=Unknown", ephemeral=True, sequence=True, makepath=True
    )
    return created


def expire_session(lock: TableLock, hosts: str) -> None:
    """Let the server end the session of a lock, as if it had not heard it for long."""
    provider = lock._provider
    assert isinstance(provider, ZooKeeperLock)
    session = provider._session._connected()
    clone = KazooClient(hosts, timeout=60, client_id=session.client_id)
    clone.start(60)
    clone.stop()
    clone.close()


def test_lock_that_apache_holds_is_acquired_when_its_node_is_gone(
    lock: TableLock, client: KazooClient, options: dict[str, str]
) -> None:
    theirs = wait_as_apache(client, options)
    client.set(node_of(options), b"127.0.0.1")  # what Curator writes
    with pytest.raises(LockTimeout, match=r"lock /locks/.*/orders of ZooKeeper.*Apache Hudi"):
        lock.acquire(wait_s=0.1)
    client.delete(theirs)
    with lock.hold(wait_s=0) as lease:
        lease.check()
        waiting = wait_as_apache(client, options)
        first, second = sorted(client.get_children(node_of(options)), key=lambda name: name[-10:])
        assert (first[:3], second) == ("_c_", waiting.rpartition("/")[2])
    assert client.get_children(node_of(options)) == [second], "it is Apache Hudi's turn"


def test_lock_is_acquired_in_the_order_of_the_queue(
    lock: TableLock, client: KazooClient, options: dict[str, str]
) -> None:
    holder = wait_as_apache(client, options)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lock.acquire, 30)
        until(lambda: len(client.get_children(node_of(options))) == 2)
        wait_as_apache(client, options)
        client.delete(holder)
        waiting.result().check()


def test_writer_that_gives_up_leaves_the_queue(
    lock: TableLock, other: TableLock, client: KazooClient, options: dict[str, str]
) -> None:
    with lock.hold(wait_s=0):
        with pytest.raises(LockTimeout):
            other.acquire(wait_s=0.1)
        assert len(client.get_children(node_of(options))) == 1


def test_holder_whose_session_expired_has_lost_the_lock(
    lock: TableLock, options: dict[str, str], storage: Storage, zookeeper: ZooKeeper
) -> None:
    own_session = {**options, "session_timeout_s": "71"}
    other = open_lock(storage, provider="zookeeper", options=own_session)
    lease = lock.acquire(wait_s=0)
    storage.put(PREPARED, b"of the first holder")
    expire_session(lock, zookeeper.hosts)
    with other.hold(wait_s=0):
        assert storage.head(PREPARED) is None, "the lock was not released"
        until(lambda: is_taken(lease), "the end of the lease")
    with pytest.raises(LeaseLost):
        lease.renew()


def is_taken(lease: Lease) -> bool:
    """Return whether a lease is lost; false while its session is not open again."""
    with suppress(StorageUnavailable):
        with pytest.raises(LeaseLost, match="another writer"):
            lease.check()
        return True
    return False


def test_lease_ends_before_the_session_of_a_suspended_process(
    storage: Storage, zookeeper: ZooKeeper
) -> None:
    options = {**zookeeper.new_lock(), "session_timeout_s": "40"}
    clock = ManualClock()
    lock = open_lock(storage, provider="zookeeper", options=options, clock=clock)
    lease = lock.acquire(wait_s=0)
    assert lease.remaining_s() == 36
    clock.sleep(10)
    lease.renew()
    assert lease.remaining_s() == 36


def test_server_that_expires_sessions_early_is_refused(
    storage: Storage, zookeeper: ZooKeeper
) -> None:
    options = {**zookeeper.new_lock(), "session_timeout_s": "20"}
    lock = open_lock(storage, provider="zookeeper", options=options, clock=ManualClock())
    with pytest.raises(InvalidConfig, match=r"after 20 s.*lease takes 60 s.*maxSessionTimeout"):
        lock.acquire(wait_s=0)
    options["session_timeout_s"] = "70"
    open_lock(storage, provider="zookeeper", options=options).acquire(wait_s=0).release()


def test_folder_of_the_servers_is_created(storage: Storage, zookeeper: ZooKeeper) -> None:
    options = {**zookeeper.new_lock(), "hosts": f"{zookeeper.hosts}/lakes"}
    with open_lock(storage, provider="zookeeper", options=options).hold(wait_s=0) as lease:
        lease.check()


# DynamoDB


@pytest.fixture
def dynamodb(s3_server: S3Server) -> Any:
    """A client of another program."""
    return boto3.client("dynamodb", region_name="us-east-1", endpoint_url=s3_server.endpoint)


@pytest.fixture
def stored_lock(s3_server: S3Server, storage: Storage) -> tuple[TableLock, dict[str, str]]:
    """A lock in DynamoDB, whose table exists, and its options."""
    options = dynamodb_lock(s3_server)
    lock = open_lock(storage, provider="dynamodb", options=options)
    lock.acquire(wait_s=0).release()
    return lock, options


Put = Callable[..., None]


@pytest.fixture
def put_as_apache(dynamodb: Any, stored_lock: tuple[TableLock, dict[str, str]]) -> Put:
    """Write the item of the lock as Amazon's client does for Apache Hudi."""
    _, options = stored_lock

    def put(lease_ms: int, **more: str) -> None:
        item = {
            "key": options["partition_key"],
            "ownerName": "apache",
            "leaseDuration": str(lease_ms),
            "recordVersionNumber": str(uuid4()),
            **more,
        }
        texts = {name: {"S": text} for name, text in item.items()}
        dynamodb.put_item(TableName=options["table"], Item=texts)

    return put


def test_item_has_the_attributes_of_amazons_client(
    dynamodb: Any, stored_lock: tuple[TableLock, dict[str, str]], storage: Storage
) -> None:
    _, options = stored_lock
    lock = open_lock(storage, provider="dynamodb", options=options, clock=ManualClock())

    def item() -> dict[str, str]:
        key = {"key": {"S": options["partition_key"]}}
        stored = dynamodb.get_item(TableName=options["table"], Key=key)["Item"]
        return {name: text["S"] for name, text in stored.items()}

    assert item()["isReleased"] == "1"
    lease = lock.acquire(wait_s=0)
    held = item()
    record = LockRecord.parse(held["lakemarkRecord"].encode(), "")
    assert (held["ownerName"], "isReleased" in held) == (record.owner, False)
    assert held["leaseDuration"] == "60000"
    lease.renew()
    assert item()["recordVersionNumber"] != held["recordVersionNumber"]


def test_lock_that_apache_renews_is_not_acquired(
    stored_lock: tuple[TableLock, dict[str, str]], put_as_apache: Put, storage: Storage
) -> None:
    """The writer waits for much longer than a lease."""

    class WhileApacheRenews(SystemClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            put_as_apache(300)

    _, options = stored_lock
    put_as_apache(300)
    lock = open_lock(storage, provider="dynamodb", options=options, clock=WhileApacheRenews())
    with pytest.raises(LockTimeout, match=r"DynamoDB table locks.* 'apache'"):
        lock.acquire(wait_s=3)


def test_lock_of_a_dead_apache_writer_is_taken_over_when_it_was_seen_for_its_lease(
    stored_lock: tuple[TableLock, dict[str, str]], put_as_apache: Put, storage: Storage
) -> None:
    lock, _ = stored_lock
    put_as_apache(700)
    storage.put(PREPARED, b"of a writer that may be paused")
    began_s = time.monotonic()
    lock.acquire(wait_s=10).release()
    assert time.monotonic() - began_s > 0.7
    assert storage.head(PREPARED) is None


def test_lock_that_apache_released_is_acquired_at_once(
    stored_lock: tuple[TableLock, dict[str, str]], put_as_apache: Put, storage: Storage
) -> None:
    lock, _ = stored_lock
    put_as_apache(60_000, isReleased="1")
    storage.put(PREPARED, b"kept, because the lock was released")
    lock.acquire(wait_s=0).release()
    assert storage.head(PREPARED) is not None


def test_item_of_another_program_is_refused(
    dynamodb: Any, stored_lock: tuple[TableLock, dict[str, str]]
) -> None:
    lock, options = stored_lock
    item = {"key": {"S": options["partition_key"]}, "note": {"S": "x"}}
    dynamodb.put_item(TableName=options["table"], Item=item)
    with pytest.raises(CorruptData, match=options["partition_key"]):
        lock.acquire(wait_s=0)


def test_missing_table_is_created_as_apache_creates_it(
    dynamodb: Any, s3_server: S3Server, storage: Storage
) -> None:
    options = dynamodb_lock(s3_server, table=f"locks-{uuid4().hex}")
    open_lock(storage, provider="dynamodb", options=options).acquire(wait_s=0).release()
    table = dynamodb.describe_table(TableName=options["table"])["Table"]
    assert table["KeySchema"] == [{"AttributeName": "key", "KeyType": "HASH"}]
    assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
