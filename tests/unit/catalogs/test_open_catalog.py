"""Catalogs of other packages, and the options of catalogs."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lakemark.catalogs.open_catalog import check_catalog, check_installed, open_catalog
from lakemark.errors import InvalidConfig
from tests.installed_package import install_package

PROGRAM = """\
from types import SimpleNamespace


def of_shop(database, *, room):
    members = ("has_database", "create_database", "find_table", "create_table", "alter_table",
        "list_partitions", "find_partitions", "add_partitions", "move_partitions",
        "drop_partitions")
    return SimpleNamespace(
        name=f"{database} in the {room}", close=lambda: None, **dict.fromkeys(members)
    )


def nothing(database):
    return object()


def secret(database, *, password):
    raise ValueError(f"no server knows {password}")
"""
POINTS = """\
[lakemark.catalogs]
shop = shop_catalogs:of_shop
nothing = shop_catalogs:nothing
secret = shop_catalogs:secret
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_package(tmp_path / "site", "shop_catalogs", PROGRAM, POINTS, monkeypatch)


def test_catalog_of_another_package_gets_the_database_and_the_options() -> None:
    check_catalog("shop", {"room": "backyard"})
    check_installed("shop")
    with open_catalog("shop", "orders", {"room": "backyard"}) as catalog:
        assert catalog.name == "orders in the backyard"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("shop", r"shop_catalogs:of_shop\) cannot be opened with the options none: TypeError;"),
        ("secret", r"\) cannot be opened with the options password: ValueError; correct them$"),
        ("nothing", r"shop_catalogs:nothing\) has no name; implement Catalog of"),
        ("unity", "'unity' is neither .* use one of hive, glue, nothing, secret, shop"),
    ],
)
def test_unusable_catalog_is_refused(kind: str, message: str) -> None:
    options = {"password": "p4ss"} if kind == "secret" else {}
    with pytest.raises(InvalidConfig, match=message), open_catalog(kind, "orders", options):
        pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "hive needs the option 'uris'"),
        ({"uris": "thrift://a", "url": "a"}, "no option 'url'; it accepts timeout_s, uris, user"),
        ({"uris": "metastore:9083"}, "expected thrift://HOST:PORT"),
        ({"uris": "thrift://a:9083,http://b"}, "expected thrift://HOST:PORT"),
        ({"uris": "thrift://a:many"}, "expected thrift://HOST:PORT"),
        ({"uris": "thrift://a", "timeout_s": "1m"}, "timeout_s of catalog hive is '1m'"),
    ],
)
def test_wrong_option_is_refused_before_a_connection(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        check_catalog("hive", options)


def test_glue_needs_no_option() -> None:
    check_catalog("glue", {})
    with pytest.raises(InvalidConfig, match="'table'; it accepts catalog_id, endpoint_url, region"):
        check_catalog("glue", {"table": "orders"})


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="no catalog of the kind 'unity'; use one of hive"):
        check_catalog("unity", {})


def test_metastore_that_does_not_answer_is_reported_by_the_error_alone() -> None:
    # In a process of its own, because handlers of pytest would take what Thrift logs.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # refuses connections, because it does not listen
        uris = f"thrift://127.0.0.1:{bound.getsockname()[1]}"
        program = f"""
from lakemark.catalogs.open_catalog import open_catalog
from lakemark.catalogs.catalog import CatalogUnavailable
try:
    with open_catalog("hive", "shop", {{"uris": "{uris}"}}):
        pass
except CatalogUnavailable as error:
    print(error)
"""
        ended = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
    assert "does not answer" in ended.stdout
    assert ended.stderr == ""
