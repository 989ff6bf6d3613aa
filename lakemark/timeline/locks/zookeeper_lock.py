"""The lock provider ``zookeeper``, for tables whose other writers use Apache Hudi's provider.

``ZookeeperBasedLockProvider`` of Apache Hudi uses the mutex of the library Curator on the node
``<base_path>/<lock_key>``. Each writer that wants the lock creates an ephemeral node below it:
``_c_<uuid>-lock-<number>``, with the next number. The writer with the lowest number holds the lock,
and deletes its node to release the lock. If a writer dies, its session expires, and the server
deletes the node. This provider creates the same nodes, so lakemark and Apache Hudi exclude each
other, and acquire the lock in the order in which they asked for it.

Apache Hudi does not notice, without further requests, that its session has expired. lakemark's
writers have two more rules:

- The node of a lakemark writer contains a lock record, and the lease ends before the session can
  expire. If the lease has ended but the session lives, other lakemark writers delete the node.
- The node ``<base_path>/<lock_key>`` contains the record of the last lakemark writer that held the
  lock. It shows the next writer whether that writer released the lock.

The steps that acquire, check, renew and release the lock are transactions. They fail if the node of
the holder no longer exists.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from kazoo.client import TransactionRequest
from kazoo.exceptions import NoNodeError

from lakemark.errors import CorruptData, HudiError, InvalidConfig, StorageUnavailable
from lakemark.timeline.locks.lock_provider import Claim, LockRecord
from lakemark.timeline.locks.options import check_options, implicit_node
from lakemark.timeline.locks.zookeeper_session import shared_session

#: Between the name of a node and its number (``StandardLockInternalsDriver`` of Curator).
_LOCK = "lock-"

_ANY_VERSION = -1

_DEFAULT_SESSION_S = 60.0

#: The part of a session's timeout for which a lease is valid. The leader may learn a little later
#: than other servers that a session is alive.
_LEASE_SHARE = 0.9

#: The part of the wanted lease that the session must allow. ``Lease.check`` needs half of it.
_LEAST_SHARE = 0.58

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """Where a table's lock is in ZooKeeper.

    Attributes:
        hosts: the servers; see ``Session`` (``hoodie.write.lock.zookeeper.url``).
        path: the node ``<base_path>/<lock_key>``.
        session_s: the requested timeout of the session
            (``hoodie.write.lock.zookeeper.session_timeout_ms``).
    """

    hosts: str
    path: str
    session_s: float = _DEFAULT_SESSION_S

    @classmethod
    def of(cls, options: Mapping[str, str], url: str) -> ZooKeeperSettings:
        """Parse the options of the provider.

        Without ``base_path`` and ``lock_key``, the node is that of Apache Hudi's
        ``ZookeeperBasedImplicitBasePathLockProvider``.

        Args:
            options: ``hosts``; ``base_path`` and ``lock_key``; ``session_timeout_s``.
            url: the table's URL.

        Raises:
            InvalidConfig: an option is missing, unknown or wrong.
        """
        names = ("base_path", "lock_key", "session_timeout_s")
        check_options("zookeeper", options, required=("hosts",), optional=names)
        base, key = options.get("base_path", ""), options.get("lock_key", "")
        if bool(base) != bool(key):
            message = "lock provider zookeeper needs base_path and lock_key together, or neither"
            raise InvalidConfig(message)
        if not base:
            base, key = implicit_node(url.rstrip("/"))
        segments = [one for one in f"{base}/{key}".split("/") if one]
        session_s = _seconds(options.get("session_timeout_s", str(_DEFAULT_SESSION_S)))
        return cls(options["hosts"], "/" + "/".join(segments), session_s)


class ZooKeeperLock:
    """A ``LockProvider`` on a ZooKeeper server.

    Args:
        settings: where the lock is.
        url: the URL of the table, which the records contain.
        now_ms: returns this machine's time in epoch milliseconds.
    """

    longer_wait_s = 0.0

    def __init__(self, settings: ZooKeeperSettings, url: str, now_ms: Callable[[], int]) -> None:
        self._path, self._hosts, self._url = settings.path, settings.hosts, url
        self._session = shared_session(settings.hosts, settings.session_s)
        self._now_ms = now_ms

    @property
    def name(self) -> str:
        """See ``LockProvider.name``."""
        return f"{self._path} of ZooKeeper at {self._hosts}"

    def try_acquire(self, ours: LockRecord, is_free: Callable[[LockRecord], bool]) -> Claim | None:
        """See ``LockProvider.try_acquire``; the writer's node waits in the queue until ``cancel``.

        Raises:
            InvalidConfig: the server expires sessions too early for a lease.
        """
        ours = replace(ours, table=self._url)
        node = self._queue_up(ours)
        while (queue := self._queue()) and queue[0] != node:
            record, version = self._record(queue[0])
            if record is None or not is_free(record):
                return None
            _log.warning("lock %s: removes %s, whose lease has ended", self.name, queue[0])
            self._delete(queue[0], version)  # unless its writer has just shown that it lives
        return self._hold(node, ours) if queue else None

    def cancel(self, owner: str, after_s: float = 0.0) -> None:
        """See ``LockProvider.cancel``; deletes the nodes of the owner.

        If the server does not answer, they are deleted when it answers again. Until then, they
        would block Apache Hudi, because the session lives as long as the process.
        """
        try:
            if not after_s:
                self._delete_nodes_of(owner)
                return
        except HudiError as error:
            _log.warning("lock %s: the node of %s is deleted later: %s", self.name, owner, error)
        self._session.call_later(partial(self._delete_nodes_of, owner), after_s)

    def replace_record(self, claim: Claim, record: LockRecord) -> Claim | None:
        """See ``LockProvider.replace_record``; a release deletes the writer's node."""
        node, data = claim.version, record.to_bytes()
        if record.expired or not record.valid_until_ms:
            is_ours = self._session.change(
                lambda request: request.delete(node),
                lambda request: request.set_data(self._path, data),
            )
            return Claim(record, node) if is_ours else None
        renewed = self._bounded(record)
        return Claim(renewed, node) if self._session.change(*self._writes(node, renewed)) else None

    def is_current(self, claim: Claim) -> bool:
        """See ``LockProvider.is_current``; the node of a claim exists as long as it is valid."""
        return self._session.change(lambda request: request.check(claim.version, _ANY_VERSION))

    def holder(self) -> str:
        """See ``LockProvider.holder``."""
        for node in self._queue()[:1]:
            record, _ = self._record(node)
            return record.owner if record else f"Apache Hudi (node {node})"
        return "nobody"

    def _queue_up(self, ours: LockRecord) -> str:
        """Return the path of the owner's node; create the node unless it exists.

        It exists if this is a repeated attempt, or if the answer to an earlier one was lost. Then
        its record is replaced, which shows the other writers that this one still waits.
        """
        data = ours.to_bytes()
        for node in self._nodes_of(ours.owner):
            if self._session.change(partial(_set_data, node, data)):
                return node
        path = f"{self._path}/_c_{ours.owner}-{_LOCK}"
        for _ in range(2):
            with suppress(NoNodeError):
                return self._session.create_ephemeral(path, data)
            self._session.create_parents(self._path)
        message = f"lock {self.name}: another program deletes the node of the lock"
        raise StorageUnavailable(message)

    def _hold(self, node: str, ours: LockRecord) -> Claim | None:
        """Record that the owner of the first node holds the lock; None if the node is gone."""
        record = self._bounded(ours)
        now_ms = self._now_ms()
        if record.valid_until_ms - now_ms < _LEAST_SHARE * (ours.valid_until_ms - now_ms):
            raise self._short_session(ours)
        try:
            seen, version = self._session.read(self._path)
        except NoNodeError:
            return None
        if not self._session.change(*self._writes(node, record, version)):
            return None
        previous = _parse(seen)
        taken_over = previous is not None and not previous.shows_release(self._url)
        return Claim(record, node, taken_over)

    def _writes(
        self, node: str, record: LockRecord, version: int = _ANY_VERSION
    ) -> tuple[Callable[[TransactionRequest], None], ...]:
        """Return the steps that store a record in the node of its owner and in the lock's node."""
        data = record.to_bytes()
        return (
            lambda request: request.set_data(node, data),
            lambda request: request.set_data(self._path, data, version),
        )

    def _bounded(self, record: LockRecord) -> LockRecord:
        """Return the record with an end at which the session has certainly not expired.

        The time is measured before the request that follows, and the request prolongs the session.
        """
        until_ms = self._now_ms() + int(_LEASE_SHARE * self._session.granted_ms())
        return replace(record, valid_until_ms=min(record.valid_until_ms, until_ms))

    def _queue(self) -> list[str]:
        """Return the paths of all nodes that want the lock; the first one holds it."""
        names = [name for name in self._session.children(self._path) if _LOCK in name]
        return [f"{self._path}/{name}" for name in sorted(names, key=_number)]

    def _nodes_of(self, owner: str) -> list[str]:
        return [path for path in self._queue() if f"/_c_{owner}-" in path]

    def _record(self, node: str) -> tuple[LockRecord | None, int]:
        """Return the record of a lakemark writer's node, None for Apache Hudi's; and its version.

        A node that no longer exists belongs to a writer that released the lock.
        """
        try:
            data, version = self._session.read(node)
        except NoNodeError:
            return LockRecord("", 0, expired=True), _ANY_VERSION
        return _parse(data), version

    def _delete_nodes_of(self, owner: str) -> None:
        for node in self._nodes_of(owner):
            self._delete(node)

    def _delete(self, node: str, version: int = _ANY_VERSION) -> None:
        """Delete a node, unless it is gone or has another version."""
        self._session.change(lambda request: request.delete(node, version))

    def _short_session(self, ours: LockRecord) -> InvalidConfig:
        granted_s = self._session.granted_ms() / 1000
        lease_s = (ours.valid_until_ms - self._now_ms()) / 1000
        least_s = _LEAST_SHARE * lease_s
        return InvalidConfig(
            f"lock {self.name}: the server ends a session after {granted_s:.0f} s, but a lease "
            f"takes {lease_s:.0f} s, of which at least {least_s:.0f} s are needed; raise "
            "maxSessionTimeout of the server, and the option session_timeout_s of the lock"
        )


def _set_data(node: str, data: bytes, request: TransactionRequest) -> None:
    request.set_data(node, data)


def _number(name: str) -> str:
    """Return the number of a node by which Curator sorts, with leading zeros."""
    return name.rpartition(_LOCK)[2]


def _parse(data: bytes) -> LockRecord | None:
    """Parse a lock record; None if another program wrote the content."""
    try:
        return LockRecord.parse(data, "")
    except CorruptData:
        return None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        message = f"session_timeout_s is {text!r}; expected a number of seconds"
        raise InvalidConfig(message)
    return seconds
