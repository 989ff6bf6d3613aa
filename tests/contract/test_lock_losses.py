"""What a writer does with a lock that it lost, could not release, or could not check in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore.stub import Stubber
from kazoo.client import KazooClient

from lakemark.errors import (
    HudiError,
    InvalidConfig,
    LockTimeout,
    Refused,
    StorageUnavailable,
)
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.storage import AccessDenied
from lakemark.timeline.locks.dynamodb_lock import DynamoDbLock, DynamoDbSettings
from lakemark.timeline.locks.lock_provider import Claim, LockRecord
from lakemark.timeline.locks.open_lock import LockProviderName, open_lock
from lakemark.timeline.locks.table_lock import (
    CLOCK_DRIFT_MS,
    Clock,
    LeaseLost,
    SystemClock,
    TableLock,
)
from lakemark.timeline.locks.zookeeper_lock import ZooKeeperLock, ZooKeeperSettings
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
from tests.waiting import until

PREPARED = ".hoodie/.aux/prepared/20260101000000000"
LEASE_MS = 60_000


class ShiftedClock(SystemClock):
    """The clock of a machine whose time differs."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def sleep(self, seconds: float) -> None:
        self.ahead_ms += int(1000 * seconds)


@pytest.fixture(scope="module", autouse=True)
def credentials() -> Iterator[None]:
    with aws_credentials(), patient_clients():
        yield


@pytest.fixture(params=["memory", "local"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    url = f"memory://{uuid4().hex}" if request.param == "memory" else str(tmp_path / "table")
    return open_storage(StorageLocation(url))


def is_free_at(now_ms: Callable[[], int]) -> Callable[[LockRecord], bool]:
    return lambda record: record.expired or now_ms() > record.valid_until_ms + CLOCK_DRIFT_MS


# Every provider


@pytest.mark.parametrize("checks", [True, False])
def test_writer_that_lost_the_lock_leaves_the_prepared_content_of_the_next(
    storage: Storage, checks: bool
) -> None:
    """The clock of the second writer is wrong, so the lease of the first one has not ended."""
    first, second = open_lock(storage), open_lock(storage, clock=ShiftedClock(70_000))
    with pytest.raises((LeaseLost, Refused), match="another writer"), first.hold(0) as lost:
        lease = second.acquire(0)
        storage.put(PREPARED, b"of the second writer")
        if checks:
            lost.check()
        message = "another writer"
        raise Refused(message)
    assert lost.remaining_s() == 0, "whatever its clock says"
    lease.check()
    assert storage.head(PREPARED) is not None


@pytest.mark.parametrize("answers_s", [(24.0, 0.0), (24.0, 31.0)], ids=["once", "always"])
def test_half_of_the_lease_remains_after_each_check(answers_s: tuple[float, float]) -> None:
    """The answers of the store to a check, and to the renewal that follows, come late."""
    clock = ManualClock()
    memory = open_storage(StorageLocation(f"memory://{uuid4().hex}"))
    reading = InterruptedStorage(memory, partial(clock.sleep, answers_s[0]))
    writing = InterruptedStorage(reading, partial(clock.sleep, answers_s[1]))
    lease = open_lock(writing, clock=clock).acquire(0)
    clock.sleep(29.9)
    reading.is_before = lambda number, method, path: method == "read_versioned"
    writing.is_before = lambda number, method, path: method == "replace"
    if answers_s[1]:
        with pytest.raises(StorageUnavailable, match=r"only 29 s of the lease remain"):
            lease.check()
    else:
        lease.check()
        assert lease.remaining_s() >= 30


@pytest.mark.parametrize("error", [StorageUnavailable, InvalidConfig])
def test_work_under_the_lock_counts_although_the_lock_cannot_be_released(
    storage: Storage, error: type[HudiError]
) -> None:
    def refuse() -> None:
        raise error

    refusing = InterruptedStorage(storage, refuse)
    with open_lock(refusing).hold(0):
        refusing.is_before = lambda number, method, path: ".locks/" in path
    refusing.is_before = lambda number, method, path: False
    with pytest.raises(LockTimeout):
        open_lock(storage).acquire(0)


@pytest.mark.parametrize("provider", [LockProviderName.ZOOKEEPER, LockProviderName.DYNAMODB])
def test_lock_that_two_tables_have_by_mistake_still_fences_a_paused_holder(
    provider: LockProviderName, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    clock = ShiftedClock()
    options = lock_options(provider, request)
    paths = [str(tmp_path / name) for name in ("orders", "payments")]
    orders, payments = (
        open_lock(
            open_storage(StorageLocation(path)), provider=provider, options=options, clock=clock
        )
        for path in paths
    )
    orders.acquire(0)
    storage = open_storage(StorageLocation(paths[0]))
    storage.put(PREPARED, b"of a holder that is paused")
    clock.sleep(61)
    payments.acquire(0).release()
    orders.acquire(0).release()
    assert storage.head(PREPARED) is None
    storage.put(PREPARED, b"kept, because the lock was released for this table")
    orders.acquire(0).release()
    assert storage.head(PREPARED) is not None


# ZooKeeper


@pytest.fixture
def options(zookeeper: ZooKeeper) -> dict[str, str]:
    return zookeeper.new_lock()


@pytest.fixture
def client(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.hosts, timeout=60)
    client.start(60)
    yield client
    client.stop()
    client.close()


def nodes_of(client: KazooClient, options: Mapping[str, str]) -> list[str]:
    found: list[str] = client.get_children(f"{options['base_path']}/{options['lock_key']}")
    return found


def test_writer_that_waits_longer_than_a_lease_is_not_removed(options: dict[str, str]) -> None:
    clock = ShiftedClock()
    settings = ZooKeeperSettings.of(options, "s3://lake/orders")
    holder, waiting, late = (
        ZooKeeperLock(settings, "s3://lake/orders", clock.now_ms) for _ in range(3)
    )
    is_free = is_free_at(clock.now_ms)

    def attempt(lock: ZooKeeperLock, owner: str) -> Any:
        return lock.try_acquire(LockRecord(owner, clock.now_ms() + LEASE_MS), is_free)

    held = attempt(holder, "holder")
    assert attempt(waiting, "waiting") is None
    clock.sleep(50)
    held = holder.replace_record(held, LockRecord("holder", clock.now_ms() + LEASE_MS))
    assert attempt(waiting, "waiting") is None
    clock.sleep(15)
    assert held is not None
    holder.replace_record(held, replace(held.record, expired=True))
    assert attempt(late, "late") is None, "the other one is alive"
    claim = attempt(waiting, "waiting")
    assert claim is not None
    assert waiting.is_current(claim)


def test_writer_that_resumes_while_its_node_is_judged_is_not_removed(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ShiftedClock()
    settings = ZooKeeperSettings.of(options, "s3://lake/orders")
    paused, late = (ZooKeeperLock(settings, "s3://lake/orders", clock.now_ms) for _ in range(2))
    is_free = is_free_at(clock.now_ms)
    record = LockRecord("paused", clock.now_ms() + LEASE_MS)
    assert paused.try_acquire(record, is_free) is not None
    clock.sleep(61)
    renewed = replace(record, valid_until_ms=clock.now_ms() + LEASE_MS)
    claims: list[Claim | None] = []
    read = late._record

    def read_and_pause(node: str) -> tuple[LockRecord | None, int]:
        seen = read(node)
        if not claims:
            claims.append(paused.try_acquire(renewed, is_free))
        return seen

    monkeypatch.setattr(late, "_record", read_and_pause)
    assert late.try_acquire(LockRecord("late", clock.now_ms() + LEASE_MS), is_free) is None
    (claim,) = claims
    assert claim is not None
    assert paused.is_current(claim)


@pytest.fixture
def relay(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    session = "lakemark.timeline.locks.zookeeper_session"
    monkeypatch.setattr(f"{session}._LATER_S", 0.05)
    with relay_to(options["hosts"]) as relay:
        yield relay
        relay.restore()


@pytest.fixture
def relayed(relay: Relay, options: dict[str, str], tmp_path: Path) -> Callable[..., TableLock]:
    """Open a lock of this process, whose requests all pass the relay."""

    def opened(key: str, clock: Clock | None = None) -> TableLock:
        storage = open_storage(StorageLocation(str(tmp_path / key)))
        given = {**options, "hosts": relay.address, "lock_key": key}
        return open_lock(storage, provider="zookeeper", options=given, clock=clock)

    return opened


def cut(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemark.timeline.locks.zookeeper_session._CONNECTION_S", 0.2)
    relay.cut()


class CutWhileWaiting(ManualClock):
    """A clock of a writer that loses its connection while it waits."""

    def __init__(self, cut: Callable[[], None]) -> None:
        super().__init__()
        self._cut = cut

    def sleep(self, seconds: float) -> None:
        self._cut()
        super().sleep(seconds)


def test_failed_wait_for_one_table_keeps_the_locks_of_the_others(
    relay: Relay,
    relayed: Callable[..., TableLock],
    client: KazooClient,
    options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = relayed("payments").acquire(0)
    first = relayed("orders").acquire(0)
    waiting = relayed("orders", CutWhileWaiting(partial(cut, relay, monkeypatch)))
    with pytest.raises(StorageUnavailable):
        waiting.acquire(0.3)
    relay.restore()
    monkeypatch.undo()
    held.check()
    first.check()
    until(lambda: len(nodes_of(client, options)) == 1, "the node of the writer that gave up")


def test_lock_that_could_not_be_released_does_not_block_apache(
    relay: Relay,
    relayed: Callable[..., TableLock],
    client: KazooClient,
    options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lease = relayed("orders").acquire(0)
    cut(relay, monkeypatch)
    lease.release()
    assert len(nodes_of(client, options)) == 1
    relay.restore()
    until(lambda: not nodes_of(client, options), "the node of the released lock")


def test_lease_that_ended_in_a_live_process_does_not_block_apache(
    relayed: Callable[..., TableLock],
    client: KazooClient,
    options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ShiftedClock()
    shifted = SimpleNamespace(monotonic=lambda: clock.now_ms() / 1000, sleep=time.sleep)
    monkeypatch.setattr("lakemark.timeline.locks.zookeeper_session.time", shifted)
    lock = relayed("orders", clock)
    with pytest.raises(LeaseLost, match="expired"), lock.hold(0) as lease:
        clock.sleep(61)
        lease.check()
    until(lambda: not nodes_of(client, options), "the node of the lease that ended")
    lease = lock.acquire(0)
    clock.sleep(5)
    lease.expire()
    assert nodes_of(client, options), "the lease has not ended"
    clock.sleep(56)
    until(lambda: not nodes_of(client, options), "the node of the lease that ended")


# DynamoDB


@pytest.fixture
def stored(s3_server: S3Server) -> tuple[DynamoDbLock, dict[str, str]]:
    options = dynamodb_lock(s3_server)
    return DynamoDbLock(DynamoDbSettings.of(options, ""), "", SystemClock().now_ms), options


def test_renewal_whose_answer_was_lost_keeps_the_lock(
    stored: tuple[DynamoDbLock, dict[str, str]],
) -> None:
    lock, _ = stored
    record = LockRecord("ours", SystemClock().now_ms() + LEASE_MS)
    claim = lock.try_acquire(record, lambda record: record.expired)
    assert claim is not None
    assert lock.replace_record(claim, record), "the answer is lost"
    assert lock.is_current(claim)
    renewed = lock.replace_record(claim, record)
    assert renewed is not None
    assert lock.is_current(renewed)
    lock.replace_record(renewed, replace(record, expired=True))
    assert not lock.is_current(renewed)
    assert lock.replace_record(renewed, record) is None


def test_dead_apache_writer_blocks_no_later_attempt_and_no_short_wait(
    stored: tuple[DynamoDbLock, dict[str, str]],
    s3_server: S3Server,
    storage: Storage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock, options = stored
    clock = ManualClock()
    of_process = SimpleNamespace(monotonic=lambda: clock.now_ms() / 1000)
    monkeypatch.setattr("lakemark.timeline.locks.dynamodb_lock.time", of_process)
    lock.holder()  # which creates the table
    dynamodb = boto3.client("dynamodb", region_name="us-east-1", endpoint_url=s3_server.endpoint)

    def hold_as_apache() -> None:
        item = {"key": options["partition_key"], "ownerName": "apache", "leaseDuration": "1000"}
        item["recordVersionNumber"] = uuid4().hex
        texts = {name: {"S": text} for name, text in item.items()}
        dynamodb.put_item(TableName=options["table"], Item=texts)

    def open_again(clock: Clock) -> TableLock:
        return open_lock(storage, provider="dynamodb", options=options, clock=clock)

    hold_as_apache()
    open_again(clock).acquire(0.6).release()
    hold_as_apache()
    with pytest.raises(LockTimeout):
        open_again(ManualClock()).acquire(0)  # an attempt that takes no time of the process
    clock.sleep(1.6)
    before_ms = clock.now_ms()
    open_again(clock).acquire(0).release()
    assert clock.now_ms() == before_ms, "this process knows the item since the other attempt"


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("InternalServerError", 500, StorageUnavailable),
        ("503", 503, StorageUnavailable),
        ("LimitExceededException", 400, StorageUnavailable),
        ("ReplicatedWriteConflictException", 400, StorageUnavailable),
        ("ExpiredTokenException", 400, AccessDenied),
        ("ValidationException", 400, InvalidConfig),
    ],
)
def test_error_of_dynamodb_is_permanent_only_if_it_is_known_to_be(
    code: str, status: int, error: type[HudiError]
) -> None:
    lock = DynamoDbLock(DynamoDbSettings("locks", "orders"), "", SystemClock().now_ms)
    with Stubber(lock._client) as stubber:
        stubber.add_client_error("get_item", code, http_status_code=status)
        with pytest.raises(error) as raised:
            lock.holder()
    assert type(raised.value) is error


def test_endpoint_may_lack_the_scheme_as_in_apache() -> None:
    options = {"table": "locks", "endpoint_url": "dynamodb.eu-west-1.amazonaws.com"}
    settings = DynamoDbSettings.of(options, "s3://lake/orders")
    assert settings.endpoint_url == "https://dynamodb.eu-west-1.amazonaws.com"
