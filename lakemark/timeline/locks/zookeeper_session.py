"""A session with ZooKeeper, by the library kazoo.

The server deletes the ephemeral nodes of a session that it has not heard for the session's timeout.
kazoo connects again if the connection is lost, and continues the session if it has not expired.
Otherwise it begins a new session, which does not have the nodes of the old one.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    KazooException,
    NoAuthError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.retry import KazooRetry

from lakemark.errors import StorageUnavailable
from lakemark.storage.storage import AccessDenied

#: How long a call waits for a connection, and for the answer. Together they are less than half of a
#: lease.
_CONNECTION_S, _ANSWER_S = 15.0, 10.0

#: Longest pause between two attempts to connect again.
_LONGEST_PAUSE_S = 2.0

#: The pause before each attempt of a call for which nobody waits.
_LATER_S = 1.0

#: The sessions of each process, by its id, the hosts and the timeout.
_sessions: dict[tuple[int, str, float], Session] = {}
_opening = threading.Lock()

_UNDONE = (RolledBackError, RuntimeInconsistency)

#: For how long a message of kazoo is not logged again. While a server does not answer, kazoo tries
#: to connect every two seconds, and logs each attempt.
_QUIET_S = 60.0

_log = logging.getLogger(__name__)

#: The logger that kazoo uses.
_kazoo_log = _log.getChild("kazoo")


class _RepeatedMessages(logging.Filter):
    """Drops a message that was logged within the last minute."""

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the message is to be logged."""
        text, now = record.getMessage(), time.monotonic()
        self._logged = {one: at for one, at in self._logged.items() if now - at < _QUIET_S}
        return self._logged.setdefault(text, now) == now


_kazoo_log.addFilter(_RepeatedMessages())


def shared_session(hosts: str, timeout_s: float) -> Session:
    """Return the session of this process, because a server limits the connections of a machine."""
    with _opening:
        return _sessions.setdefault((os.getpid(), hosts, timeout_s), Session(hosts, timeout_s))


class Session:
    """One session, which is opened by the first call. Threads may share the object.

    A call raises ``StorageUnavailable`` if there is no answer within half a minute. The request may
    have been executed then.

    Args:
        hosts: ``host:port`` of each server, with commas; a folder of the server may follow:
            ``zk1:2181,zk2:2181/lakes``.
        timeout_s: the timeout of the session that is requested from the server.
    """

    def __init__(self, hosts: str, timeout_s: float) -> None:
        self._hosts, self._timeout_s = hosts, timeout_s
        self._client: KazooClient | None = None
        self._mutex = threading.Lock()
        #: Calls for which nobody waits, and the time of ``time.monotonic`` at which each is due.
        self._later: list[tuple[float, Callable[[], None]]] = []

    def granted_ms(self) -> int:
        """Return the timeout in milliseconds that the server granted, which may be shorter."""
        connection: _Connection = self._connected()._connection
        return connection.granted_ms

    def read(self, path: str) -> tuple[bytes, int]:
        """Return the content of a node, and its version.

        Raises:
            NoNodeError: there is no such node.
        """
        data, stat = self._answer(lambda client: client.get_async(path))
        return data, stat.version

    def children(self, path: str) -> list[str]:
        """Return the names of the nodes below a node; none if there is no such node."""
        names: list[str] = []
        with suppress(NoNodeError):
            names = self._answer(lambda client: client.get_children_async(path))
        return names

    def create_parents(self, path: str) -> None:
        """Create a node and the nodes above it, unless they exist; they outlive the session."""
        self._answer(lambda client: client.ensure_path_async(path))

    def create_ephemeral(self, path: str, data: bytes) -> str:
        """Create a node of this session, with the next number at the end of its path.

        Raises:
            NoNodeError: the node above it does not exist.
        """
        created: str = self._answer(
            lambda client: client.create_async(path, data, ephemeral=True, sequence=True)
        )
        return created

    def change(self, *steps: Callable[[TransactionRequest], None]) -> bool:
        """Execute steps in one transaction; return false if their conditions do not hold.

        The leader executes a transaction after all earlier ones, whichever server the session uses.
        A read, in contrast, may return an old state.
        """
        results = self._answer(lambda client: _request(client, steps))
        failures = [one for one in results if isinstance(one, Exception)]
        causes = [one for one in failures if not isinstance(one, _UNDONE)]
        for cause in causes:
            if not isinstance(cause, (NoNodeError, BadVersionError)):
                raise self._failure(cause) from cause
        return not failures

    def call_later(self, call: Callable[[], None], after_s: float) -> None:
        """Run a call of this session in a thread after some seconds, until it is answered."""
        with self._mutex:
            self._later.append((time.monotonic() + after_s, call))
            has_thread = len(self._later) > 1
        if not has_thread:
            threading.Thread(target=self._run_later, daemon=True).start()

    def close(self) -> None:
        """End the session, which deletes its ephemeral nodes. The next call opens a new one.

        This ends the leases of all locks of this process on these servers. If the server does not
        answer, it deletes the nodes when the session expires.
        """
        with self._mutex:
            client, self._client = self._client, None
            self._later.clear()
        if client is not None:
            with suppress(Exception):  # kazoo raises plain exceptions if its threads do not end
                client.stop()
                client.close()

    def _run_later(self) -> None:
        """Run the calls that are due, until none is left."""
        while self._later:
            time.sleep(_LATER_S)
            for one in [one for one in self._later if one[0] <= time.monotonic()]:
                try:
                    one[1]()
                except Exception as error:  # the thread also has to run the other calls
                    _log.warning("%s; it is tried again", error)
                    break
                with self._mutex:
                    if one in self._later:
                        self._later.remove(one)

    def _answer(self, call: Callable[[KazooClient], Any]) -> Any:
        client = self._connected()
        try:
            return call(client).get(timeout=_ANSWER_S)
        except NoNodeError:
            raise
        except (KazooException, KazooTimeoutError) as error:
            raise self._failure(error) from error

    def _connected(self) -> KazooClient:
        """Return the client, after waiting for its connection.

        Without a connection, a request would wait in kazoo's queue, and might be executed long
        after its caller has given up.
        """
        with self._mutex:
            if self._client is None:
                self._client = self._open()
            client = self._client
        if not client._live.wait(_CONNECTION_S):
            message = (
                f"ZooKeeper at {self._hosts} has accepted no connection within {_CONNECTION_S:.0f} "
                "s; check the option hosts of the lock and the network"
            )
            raise StorageUnavailable(message)
        return client

    def _open(self) -> KazooClient:
        retry = KazooRetry(max_tries=-1, delay=0.1, max_delay=_LONGEST_PAUSE_S)
        client = KazooClient(
            self._hosts, self._timeout_s, connection_retry=retry, logger=_kazoo_log
        )
        client._connection = _Connection(client, retry, logger=_kazoo_log)
        client.start_async()
        return client

    def _failure(self, error: Exception) -> StorageUnavailable | AccessDenied:
        reason = f"ZooKeeper at {self._hosts}: {type(error).__name__} {error}".rstrip()
        if isinstance(error, (NoAuthError, AuthFailedError)):
            return AccessDenied(f"{reason}; allow the nodes of the lock to be changed")
        return StorageUnavailable(reason)


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """Remembers the timeout that the server granted, which kazoo only logs."""

    granted_ms = 0

    def _invoke(self, timeout: float, request: object, xid: int | None = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect):
            self.granted_ms = int(answer[0].time_out)
        return answer


def _request(client: KazooClient, steps: Sequence[Callable[[TransactionRequest], None]]) -> Any:
    request = client.transaction()
    for step in steps:
        step(request)
    return request.commit_async()
