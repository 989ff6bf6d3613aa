"""Lock providers of other packages, and the options of lock providers."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from lakemark.errors import InvalidConfig, StorageUnavailable
from lakemark.storage import StorageLocation, open_storage
from lakemark.timeline.locks.open_lock import open_lock
from lakemark.timeline.locks.options import hash_of_path
from lakemark.timeline.locks.table_lock import TableLock
from lakemark.timeline.locks.zookeeper_lock import ZooKeeperSettings
from lakemark.timeline.locks.zookeeper_session import Session
from tests.installed_package import install_package

PROGRAM = """\
from lakemark.timeline.locks.in_process_lock import InProcessLock


class OfShop(InProcessLock):
    def __init__(self, url, *, room):
        super().__init__(f"{room} of {url}")


def nothing(url):
    return object()


def secret(url, *, password):
    raise ValueError(f"no server knows {password}")
"""
POINTS = """\
[lakemark.locks]
shop = shop_locks:OfShop
nothing = shop_locks:nothing
secret = shop_locks:secret
"""


def opened(path: Path, provider: str, options: Mapping[str, str] | None = None) -> TableLock:
    return open_lock(open_storage(StorageLocation(str(path))), provider=provider, options=options)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_package(tmp_path / "site", "shop_locks", PROGRAM, POINTS, monkeypatch)


@pytest.mark.usefixtures("package")
def test_provider_of_another_package_gets_the_url_and_the_options(tmp_path: Path) -> None:
    lock = opened(tmp_path / "table", "shop", {"room": "backyard"})
    with lock.hold(0) as lease:
        lease.check()
        assert f"backyard of {tmp_path / 'table'}" in vars(lock._provider).values()


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("provider", "message"),
    [
        (
            "shop",
            r"shop_locks:OfShop\) cannot be created with the options none: TypeError; correct",
        ),
        ("secret", r"\) cannot be created with the options password: ValueError; correct them$"),
        ("nothing", r"shop_locks:nothing\) has no try_acquire; implement LockProvider"),
        ("stop", "'stop' is neither .* use one of storage, .*, dynamodb, nothing, secret, shop"),
    ],
)
def test_unusable_provider_of_another_package_is_refused(
    provider: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        opened(tmp_path, provider, {"password": "p4ss"} if provider == "secret" else None)


@pytest.mark.parametrize(
    ("provider", "options", "message"),
    [
        ("storage", {"table": "t"}, "storage has no option 'table'; it accepts no options"),
        ("zookeeper", {}, "zookeeper needs the option 'hosts'"),
        ("zookeeper", {"hosts": "zk", "host": "zk"}, "'host'; it accepts base_path, hosts, lock"),
        ("zookeeper", {"hosts": "zk", "base_path": "/a"}, "base_path and lock_key together"),
        ("zookeeper", {"hosts": "zk", "session_timeout_s": "1m"}, "is '1m'; expected a number"),
        ("dynamodb", {"region": "eu-west-1"}, "dynamodb needs the option 'table'"),
    ],
)
def test_wrong_option_is_refused_before_a_connection(
    provider: str, options: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        opened(tmp_path, provider, options)


@pytest.mark.parametrize(("provider", "library"), [("zookeeper", "kazoo"), ("dynamodb", "boto3")])
def test_missing_library_is_named(
    provider: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = (f"lakemark.timeline.locks.{provider}_lock", "lakemark.timeline.locks.zookeeper_session")
    for name in [*sys.modules]:
        if name in own or name.partition(".")[0] == library:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InvalidConfig, match=rf"pip install '/path/to/lakemark\[{provider}\]'"):
        opened(tmp_path, provider, {"hosts": "zk:2181", "table": "locks"})


def test_node_is_named_by_the_options_or_by_the_path_of_the_table() -> None:
    named = {"hosts": "zk:2181", "base_path": "/hudi/locks/", "lock_key": "orders"}
    assert ZooKeeperSettings.of(named, "s3://lake/orders").path == "/hudi/locks/orders"
    implicit = ZooKeeperSettings.of({"hosts": "zk:2181"}, "s3a://lake/orders/")
    assert implicit.path == f"/tmp/{hash_of_path('s3://lake/orders')}/lock_key"


def test_server_that_does_not_answer_is_logged_once_and_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("lakemark.timeline.locks.zookeeper_session._CONNECTION_S", 1.5)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        hosts = f"127.0.0.1:{unused.getsockname()[1]}"
        session = Session(hosts, 60)
        with caplog.at_level(logging.WARNING), pytest.raises(StorageUnavailable) as found:
            session.children("/hudi")
        session.close()
    assert str(found.value) == (
        f"ZooKeeper at {hosts} has accepted no connection within 2 s; check the option hosts of "
        "the lock and the network"
    )
    refused = [one for one in caplog.messages if "Connection refused" in one]
    assert len(refused) == 1
