"""A pipeline registers its table in catalogs after commits, and never waits for a catalog."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakemark
from lakemark.catalogs.open_catalog import open_catalog
from lakemark.catalogs.sync import SyncPlan
from lakemark.catalogs.table_definition import Registration
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.storage import StorageLocation
from streamer.catalog_sync import CatalogSync, SyncTarget, sync_targets
from streamer.checks.catalogs import catalog_checks
from streamer.checks.check import run_checks
from streamer.checks.tables import start_checks
from streamer.cli import main
from streamer.config.errors import ConfigError
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.config.render import render_yaml
from streamer.events import BatchWritten, Event, ServiceCompleted, ServiceFailed
from streamer.pipeline import build
from tests.fixtures.hive_metastore import HiveMetastore
from tests.waiting import until


class Folder:
    """A folder of files, and a pipeline that writes their rows to a table."""

    def __init__(self, root: Path, *catalogs: dict[str, Any]) -> None:
        self.source, self.table, self.catalogs = root / "in", root / "orders", list(catalogs)
        self.source.mkdir()
        self.events: list[Event] = []

    def config(self) -> PipelineConfig:
        columns = {"id": "string", "region": "string"}
        return validated(
            {
                "source": {"kind": "files", "path": str(self.source), "format": "json"},
                "decode": {"schema": columns},
                "table": {"path": str(self.table), "record_key": "id", "partition_by": "region"},
                "run": {"mode": "once"},
                "catalogs": self.catalogs,
            }
        )

    def run(self, *regions: str) -> None:
        """Write a file with a row for each region, and run the pipeline until it is read."""
        lines = [json.dumps({"id": f"{region}", "region": region}) for region in regions]
        if lines:
            number = len([*self.source.iterdir()])
            (self.source / f"{number}.json").write_text("\n".join(lines) + "\n")
        with build(self.config(), self.events.append) as pipeline:
            pipeline.loop.run()

    def run_without_catalogs(self, *regions: str) -> None:
        """Run the pipeline as ``run`` does, but without its catalogs."""
        catalogs, self.catalogs = self.catalogs, []
        self.run(*regions)
        self.catalogs = catalogs

    def seen(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.events if isinstance(one, kind)]

    def syncs(self) -> list[str]:
        done = self.seen(ServiceCompleted)
        return [one.summary for one in done if one.service == "catalog_sync"]


def regions(metastore: HiveMetastore, database: str) -> list[str]:
    with open_catalog("hive", database, {"uris": metastore.uris}) as catalog:
        return sorted(one.values[0] for one in catalog.list_partitions("orders"))


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a server that accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"thrift://127.0.0.1:{server.getsockname()[1]}"


def test_table_is_registered_when_a_run_ends(tmp_path: Path, hive_metastore: HiveMetastore) -> None:
    database = hive_metastore.new_database()
    catalog = {"kind": "hive", "database": database, "options": {"uris": hive_metastore.uris}}
    folder = Folder(tmp_path, catalog)
    folder.run("north", "south")
    assert regions(hive_metastore, database) == ["north", "south"]
    (first,) = folder.syncs()
    assert "create the database; orders_ro: create the table with 7 columns" in first
    assert "orders: add 2 partitions" in first
    folder.run("east")
    assert regions(hive_metastore, database) == ["east", "north", "south"]
    assert len(folder.syncs()) == 2
    folder.run()
    assert len(folder.syncs()) == 2, "there was nothing to change"


def asked(folder: Folder) -> list[tuple[str, str]]:
    """The status and the text of the doctor's check of each catalog."""
    config = folder.config()
    checks = [*start_checks(config, tries_stores=False), *catalog_checks(config)]
    outcomes = {one.check.name: one for one in run_checks(checks, within_s=60)}
    names = sorted(name for name in outcomes if name.startswith("catalog"))
    return [(outcomes[name].status.value, outcomes[name].text) for name in names]


def test_doctor_says_what_the_next_sync_changes(
    tmp_path: Path, hive_metastore: HiveMetastore
) -> None:
    database = hive_metastore.new_database()
    catalog = {"kind": "hive", "database": database, "options": {"uris": hive_metastore.uris}}
    folder = Folder(tmp_path, catalog)
    nothing = "answers; a sync after the first commit creates the"
    assert asked(folder) == [("ok", f"{nothing} database and the table")]
    folder.run_without_catalogs("north")
    ((status, planned),) = asked(folder)
    assert status == "ok"
    assert planned.startswith(
        "the next sync will: create the database; orders_ro: create the table"
    )
    folder.run("south")
    assert asked(folder) == [("ok", "has the table")]
    (tmp_path / "other").mkdir()
    other = Folder(tmp_path / "other", catalog)
    for _ in range(2):  # before and after the first commit
        ((status, refused),) = asked(other)
        assert (status, "choose another name" in refused) == ("failed", True), refused
        other.run_without_catalogs("north")
    other.catalogs[0] = {**catalog, "table": "new"}
    assert asked(other)[0][1].startswith("the next sync will: new_ro: create the table")


def test_doctor_reports_each_catalog_that_cannot_have_the_table(
    tmp_path: Path, hive_metastore: HiveMetastore
) -> None:
    database = hive_metastore.new_database()
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed = f"thrift://127.0.0.1:{unused.getsockname()[1]}"
    folder = Folder(
        tmp_path,
        {"kind": "hive", "database": database, "options": {"uris": closed}},
        {
            "kind": "hive",
            "database": database,
            "create_database": False,
            "options": {"uris": hive_metastore.uris},
        },
    )
    (unreachable, missing) = asked(folder)
    assert (unreachable[0], missing[0]) == ("failed", "failed")
    assert "does not answer" in unreachable[1]
    assert "create the database in the catalog" in missing[1]


def test_commits_go_on_while_a_catalog_fails_and_the_next_run_syncs_all(
    tmp_path: Path, hive_metastore: HiveMetastore
) -> None:
    database = hive_metastore.new_database()
    with socket.create_server(("127.0.0.1", 0)) as unused:
        uris = f"thrift://127.0.0.1:{unused.getsockname()[1]}"
    folder = Folder(tmp_path, {"kind": "hive", "database": database, "options": {"uris": uris}})
    folder.run("north")
    folder.run("south")
    assert len(folder.seen(BatchWritten)) == 2
    failed = folder.seen(ServiceFailed)
    assert {one.service for one in failed} == {"catalog_sync"}
    assert {one.error_type for one in failed} == {"CatalogUnavailable"}
    assert f"database {database} of Hive at {uris} does not answer" in failed[0].error
    folder.catalogs[0]["options"] = {"uris": hive_metastore.uris}
    folder.run()
    assert regions(hive_metastore, database) == ["north", "south"]


def test_request_returns_while_a_catalog_does_not_answer(
    tmp_path: Path, silent_server: str
) -> None:
    folder = Folder(tmp_path)
    folder.run("north")
    folder.catalogs.append({"kind": "hive", "options": {"uris": silent_server, "timeout_s": 600}})
    (target,) = sync_targets(folder.config())
    events: list[Event] = []
    opened = lambda: open_table(StorageLocation(str(folder.table)))  # noqa: E731
    sync = CatalogSync(target, opened, str(folder.table), events.append)
    for _ in range(3):  # each would wait for minutes
        sync.request()
    assert sync.is_progressing
    assert sync.end(within_s=0.0), "its thread still waits"
    assert not events


def test_failed_sync_is_repeated_without_another_commit(
    tmp_path: Path, hive_metastore: HiveMetastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.service_guard.FIRST_PAUSE_S", 0.01)
    folder = Folder(tmp_path)
    folder.run("north")
    database, events = hive_metastore.new_database(), list[Event]()
    folder.catalogs.append(
        {"kind": "hive", "database": database, "options": {"uris": hive_metastore.uris}}
    )
    (target,) = sync_targets(folder.config())
    attempts = iter([lakemark.SnapshotChanged("cleaned")] * 3)

    def open_newest() -> Any:
        for error in attempts:
            raise error
        return open_table(StorageLocation(str(folder.table)))

    sync = CatalogSync(target, open_newest, str(folder.table), events.append)
    sync.request()
    until(lambda: any(isinstance(one, ServiceCompleted) for one in events))
    assert not sync.end(60.0)
    assert [type(one) for one in events] == [ServiceFailed, ServiceCompleted]
    assert regions(hive_metastore, database) == ["north"]


@pytest.mark.parametrize(
    ("catalog", "message"),
    [
        ({"kind": "unity"}, "catalogs.0: there is no catalog of the kind 'unity'"),
        ({"kind": "hive"}, "catalogs.0: catalog hive needs the option 'uris'"),
    ],
)
def test_wrong_catalog_is_refused_in_the_pipeline_file(
    catalog: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        Folder(tmp_path, catalog).config()


def test_secret_of_a_catalog_is_not_shown(tmp_path: Path) -> None:
    options = {"uris": "thrift://metastore:9083", "user": "shop"}
    catalog = {"kind": "hive", "options": options, "parameters": {"api_password": "s3cr3t"}}
    config = Folder(tmp_path, catalog).config()
    assert "s3cr3t" not in render_yaml(config)
    assert "thrift://metastore:9083" in render_yaml(config)
    (target,) = sync_targets(config)
    assert "options" not in repr(target)
    assert isinstance(target, SyncTarget)


def test_command_prints_the_plan_and_then_executes_it(
    tmp_path: Path, hive_metastore: HiveMetastore, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, database = Folder(tmp_path), hive_metastore.new_database()
    folder.run("north")
    command = ["table", "sync", str(folder.table), "--to", "hive", "--database", database]
    command += ["--option", f"uris={hive_metastore.uris}", "--merge-on-read", "current", "--json"]

    def changes(*more: str) -> list[str]:
        assert main([*command, *more]) == 0
        lines = capsys.readouterr().out.splitlines()
        return [f"{one['table']}: {one['change']}" for one in map(json.loads, lines)]

    expected = [
        "None: create the database",
        "orders: create the table with 7 columns",
        "orders: add 1 partition",
        "orders: record the newest commit",
    ]
    assert changes() == expected
    assert changes("--run") == expected
    assert changes() == []
    assert regions(hive_metastore, database) == ["north"]


def test_command_names_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Folder(tmp_path)
    folder.run("north")
    assert main(["table", "sync", str(folder.table)]) == 2
    assert "name a catalog with --to" in capsys.readouterr().err
    secret = ["--option", "password=p4ssw0rd", "--option", "uris=thrift://a"]
    assert main(["table", "sync", str(folder.table), "--to", "hive", *secret]) == 2
    shown = capsys.readouterr().err
    assert "no option 'password'" in shown
    assert "p4ssw0rd" not in shown


def test_option_that_the_pipeline_would_override_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Folder(tmp_path, {"kind": "hive", "options": {"uris": "thrift://metastore"}})
    (tmp_path / "orders.yaml").write_text(render_yaml(folder.config()))
    folder.run_without_catalogs("north")
    command = ["table", "sync", str(folder.table), "--config", str(tmp_path / "orders.yaml")]
    for option in (["--database", "test"], ["--merge-on-read", "all"], ["--option", "user=a"]):
        assert main([*command, *option]) == 2
        assert f"{option[0]} and --config exclude each other" in capsys.readouterr().err


class Unchanging(SyncTarget):
    """A catalog that needs a new database at each sync."""

    def sync(self, table: OpenTable) -> SyncPlan:
        return SyncPlan(creates_database=True, tables=())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_run_does_not_wait_for_a_sync_whose_listener_fails() -> None:
    def fail(event: Event) -> None:
        raise OSError(str(event))

    target = Unchanging("shop", "default", {}, Registration("orders", "file:///orders"))
    opened: Any = lambda: None  # noqa: E731
    sync = CatalogSync(target, opened, "file:///orders", fail)
    sync.request()
    until(lambda: not sync.is_progressing)
    assert not sync.end(60.0)
