"""A pipeline announces each commit to its hooks, and never waits for a receiver."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

import lakemark
from lakemark.errors import HudiError, InvalidConfig, OutcomeUnknown
from lakemark.model.action import COMMITS
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from sinks.hudi.sink import HudiSink
from sinks.reject_limit import TooManyRejects
from streamer import hook_worker, pipeline_hooks
from streamer.cli import main
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.config.topics import for_topic
from streamer.events import BatchPlanned, BatchWritten, Event, HookDropped, HookFailed, HookSent
from streamer.pipeline import Pipeline, build
from tests.fixtures.webhook import Webhook
from tests.short_lived import short_lived
from tests.waiting import until


class Folder:
    """A folder of files, and a pipeline with hooks that writes their rows to a table."""

    def __init__(self, root: Path, *hooks: dict[str, Any]) -> None:
        self.source, self.table, self.hooks = root / "in", root / "orders", list(hooks)
        self.source.mkdir()
        self.settings: dict[str, Any] = {}
        self.events: list[Event] = []
        self.listen: Callable[[Event], None] = self.events.append

    def config(self) -> PipelineConfig:
        return validated(self.tree())

    def tree(self) -> dict[str, Any]:
        """The pipeline file."""
        return {
            "name": "shop-orders",
            "source": {"kind": "files", "path": str(self.source), "format": "json"},
            "decode": {"schema": {"id": "string", "n": "int"}},
            "table": {"path": str(self.table), "record_key": "id"},
            "dead_letters": {"tolerated": 100},
            "run": {"mode": "once"},
            "hooks": self.hooks,
            **self.settings,
        }

    def add(self, *ids: object) -> None:
        """Add a file with a row for each id."""
        lines = [json.dumps({"id": one, "n": 1}) for one in ids]
        number = len([*self.source.iterdir()])
        (self.source / f"{number}.json").write_text("\n".join(lines) + "\n")

    def run(self, *ids: object) -> Pipeline:
        """Add a file, and run the pipeline until it is read."""
        if ids:
            self.add(*ids)
        with build(self.config(), self.listen) as pipeline:
            pipeline.loop.run()
        return pipeline

    def crash(self, *ids: object) -> None:
        """Run the pipeline, and lose its memory before a hook has sent anything."""
        hooks, worker = self.hooks, hook_worker.HookWorker
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(worker, "is_progressing", False)
            patched.setattr(worker, "_run", lambda self: None)
            self.run(*ids)
        self.hooks = hooks

    def seen(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.events if isinstance(one, kind)]

    def commits(self) -> list[str]:
        """The commits of batches."""
        return [one.instant for one in self.seen(BatchWritten) if one.instant]

    def table_commits(self) -> list[str]:
        """The commits of the table."""
        table = open_table(StorageLocation(str(self.table)))
        return [one.requested_at for one in table.timeline.completed(*COMMITS)]

    def recorded(self) -> list[dict[str, Any]]:
        """What each commit records about the hooks, oldest first."""
        table = open_table(StorageLocation(str(self.table)))
        found = [table.store.read_commit(one) for one in table.timeline.completed(*COMMITS)]
        return [json.loads(one.extra_metadata.get("lakemark.hooks", "{}")) for one in found]


def http(webhook: Webhook, **settings: Any) -> dict[str, Any]:
    options = {"url": webhook.url, **settings.pop("options", {})}
    return {"kind": "http", "options": options, **settings}


def test_commit_is_announced_with_its_numbers(tmp_path: Path, webhook: Webhook) -> None:
    folder = Folder(tmp_path, http(webhook))
    folder.run("a", "b", None)  # the last one becomes a dead letter
    (message,) = webhook.messages
    (instant,) = folder.commits()
    assert message["instant"] == instant
    assert message["event"] == "commit"
    assert message["pipeline"] == "shop-orders"
    assert message["table"] == "orders"
    assert message["path"] == f"file://{folder.table}"
    assert message["action"] == "deltacommit"
    assert message["operation"] == "UPSERT"
    assert message["completed_at"].endswith("Z")
    numbers = ("records_read", "records_rejected", "rows_written", "rows_deleted", "files_written")
    assert [message[name] for name in numbers] == [3, 1, 2, 0, 2]
    assert message["source"]["kind"] == "files"
    assert message["source"]["name"] == f"file://{folder.source}"
    assert folder.seen(HookSent) == [HookSent("http", "CommitCompleted", instant, 0)]


def test_options_contain_the_names_of_the_pipeline_and_the_table(
    tmp_path: Path, webhook: Webhook
) -> None:
    hook = http(webhook, options={"url": f"{webhook.url}/{{pipeline}}/{{table}}/{{other}}"})
    folder = Folder(tmp_path, hook)
    folder.settings = {"name": "shop / orders"}
    folder.run("a")
    (path,) = webhook.paths
    assert path.endswith("/shop%20%2F%20orders/orders/{other}")


def test_options_contain_the_topic_of_each_pipeline() -> None:
    """A file of several topics announces the commits of each one to a topic of its own."""
    template = {
        "source": {"bootstrap_servers": "h:1", "topics": ["a", "b"]},
        "table": {"path": "memory://lake/{topic}", "record_key": "id"},
        "hooks": [
            {
                "kind": "kafka",
                "options": {"bootstrap_servers": "h:1", "topic": "{topic}.{table}.commits"},
            }
        ],
    }
    for topic in ("a", "b"):
        config = validated(for_topic(template, topic))
        (hook,) = config.hooks
        assert hook.resolved(config.hook_names).options["topic"] == f"{topic}.{topic}.commits"


def test_message_in_the_format_of_apache_hudi(tmp_path: Path, webhook: Webhook) -> None:
    folder = Folder(tmp_path, http(webhook, options={"format": "hudi"}))
    folder.run("a")
    (message,) = webhook.messages
    assert message["commitTime"] == folder.commits()[0]
    assert message["tableName"] == "orders"
    assert message["basePath"] == f"file://{folder.table}"
    assert message["commitActionType"] == "deltacommit"
    assert [stat["numWrites"] for stat in message["hoodieWriteStat"]] == [1]
    assert "schema" in message["extraMetadata"]


def test_hook_that_hangs_delays_no_commit(tmp_path: Path, webhook: Webhook) -> None:
    """All commits are published, and the run ends, before the server answers for the first time."""
    webhook.is_hanging.set()
    folder = Folder(tmp_path, http(webhook, options={"timeout_s": 60}))
    ended = threading.Event()
    folder.add("a")
    folder.add("b")
    folder.settings = {"source": {**_source(folder), "max_files_per_batch": 1}}
    with build(folder.config(), folder.events.append) as pipeline:

        def run() -> None:
            pipeline.loop.run()
            ended.set()

        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: len(folder.commits()) == 2, "both commits")
        until(lambda: len(webhook.methods) == 1, "the request about the first commit")
        assert not webhook.bodies, "no answer yet"
        assert not ended.is_set(), "a run that has read everything waits for its hooks"
        webhook.release()
        thread.join(60.0)
        assert ended.is_set()
    assert webhook.instants == folder.commits()


def _table(folder: Folder) -> dict[str, Any]:
    return {"path": str(folder.table), "record_key": "id", "type": "copy_on_write"}


def _source(folder: Folder) -> dict[str, Any]:
    return {"kind": "files", "path": str(folder.source), "format": "json"}


def test_stopped_run_ends_although_a_hook_hangs(
    tmp_path: Path, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.loop.STOP_GRACE_S", 0.0)
    monkeypatch.setattr(pipeline_hooks, "_END_WITHIN_S", 0.0)
    webhook.is_hanging.set()
    folder = Folder(tmp_path, http(webhook, options={"timeout_s": 60}))
    folder.add("a")
    with build(folder.config(), folder.events.append) as pipeline:
        thread = threading.Thread(target=pipeline.loop.run)
        thread.start()
        until(lambda: len(webhook.methods) == 1, "the request about the commit")
        pipeline.loop.stop()
        thread.join(60.0)
        assert not thread.is_alive()
    assert not webhook.bodies, "the server has still not answered"


def test_hook_that_fails_delays_no_commit_and_the_next_run_announces_them(
    tmp_path: Path, webhook: Webhook
) -> None:
    webhook.status = 503
    folder = Folder(tmp_path, http(webhook))
    folder.run("a")
    folder.run("b")
    assert len(folder.commits()) == 2
    failed = folder.seen(HookFailed)
    assert {one.hook for one in failed} == {"http"}
    assert {one.error_type for one in failed} == {"HookUnavailable"}
    assert "answers POST with 503" in failed[0].error
    assert not folder.seen(HookDropped)
    webhook.status = 200
    folder.run()
    assert webhook.instants == folder.commits(), "in the order of the commits"


def test_failed_message_is_repeated_without_another_commit(
    tmp_path: Path, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_worker, "FIRST_PAUSE_S", 0.01)
    webhook.status = 500
    folder = Folder(tmp_path, http(webhook))

    def listen(event: Event) -> None:
        folder.events.append(event)
        if len(folder.seen(HookFailed)) == 2:
            webhook.status = 204

    folder.listen = listen
    folder.add("a")
    with build(folder.config(), listen) as pipeline:
        pipeline.loop.run()
        until(lambda: bool(folder.seen(HookSent)), "the repeated message")
    assert webhook.instants == folder.commits()
    assert [one.failures for one in folder.seen(HookFailed)] == [1, 2]


def test_commit_of_a_crashed_run_is_announced_at_the_next_start(
    tmp_path: Path, webhook: Webhook
) -> None:
    folder = Folder(tmp_path, http(webhook))
    folder.run("a")
    folder.crash("b")
    assert webhook.instants == folder.commits()[:1]
    folder.run("c")
    assert webhook.instants == folder.commits()
    announced = [one["instant"] for one in webhook.messages]
    assert announced.count(folder.commits()[0]) == 2, "no commit recorded the first announcement"
    assert announced.count(folder.commits()[1]) == 1


def test_commit_of_a_killed_process_is_announced_at_the_next_start(
    tmp_path: Path, webhook: Webhook
) -> None:
    webhook.is_hanging.set()
    folder = Folder(tmp_path, http(webhook, options={"timeout_s": 60}))
    folder.add("a")
    file = tmp_path / "orders.yaml"
    file.write_text(yaml.safe_dump({**folder.tree(), "run": {"mode": "continuous"}}))
    command = [sys.executable, "-m", "lakemark", "run", str(file)]
    with subprocess.Popen(
        command, env=short_lived(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        until(lambda: len(webhook.methods) == 1, "the request about the commit")
        folder.add("b")
        until(lambda: len(folder.recorded()) == 2, "the next commit, which does not wait")
        process.kill()
    assert not webhook.bodies
    webhook.release()
    folder.run()
    assert webhook.instants == folder.table_commits()


def test_commit_whose_outcome_was_unknown_is_announced(
    tmp_path: Path, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has published the commit, but its answer was lost, so the run starts again."""
    write, lost = HudiSink.write, list[str]()

    def lose_first_answer(self: HudiSink, *given: Any) -> Any:
        result = write(self, *given)
        if not lost:
            lost.append(result.instant)
            message = "the answer of the store was lost"
            raise OutcomeUnknown(message)
        return result

    monkeypatch.setattr(HudiSink, "write", lose_first_answer)
    folder = Folder(tmp_path, http(webhook))
    folder.settings = {
        "source": {**_source(folder), "max_files_per_batch": 1},
        "run": {"mode": "once", "retry": {"backoff_s": 0.01}},
    }
    folder.add("a")
    folder.add("b")
    folder.run()
    assert webhook.instants == folder.table_commits() == [*lost, *folder.commits()]


def test_run_that_fails_is_announced_as_lineage_and_as_a_trace(
    tmp_path: Path, webhook: Webhook
) -> None:
    options = {"url": webhook.url}
    folder = Folder(tmp_path, {"kind": "openlineage", "options": options})
    folder.settings = {"dead_letters": {"tolerated": 0, "max_share": 0.0}}
    with pytest.raises(TooManyRejects):
        folder.run("a", None)
    start, failure = webhook.messages
    assert (start["eventType"], failure["eventType"]) == ("START", "FAIL")
    assert start["run"]["runId"] == failure["run"]["runId"]
    assert "TooManyRejects" in failure["run"]["facets"]["errorMessage"]["message"]


def test_doctor_asks_the_receivers_and_announces_nothing(
    tmp_path: Path, webhook: Webhook, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Folder(tmp_path, http(webhook))
    file = tmp_path / "orders.yaml"
    file.write_text(yaml.safe_dump(folder.tree()))
    assert main(["doctor", str(file)]) == 0
    assert "hook http" in capsys.readouterr().out
    assert webhook.methods == ["OPTIONS"]
    webhook.status = 500
    assert main(["doctor", str(file)]) != 0
    assert "answers OPTIONS with 500; look into the log" in capsys.readouterr().out


def test_first_commits_are_announced_after_a_crash(tmp_path: Path, webhook: Webhook) -> None:
    folder = Folder(tmp_path, http(webhook))
    folder.crash("a")
    folder.run("b")
    assert webhook.instants == folder.commits()


def test_commits_that_were_archived_are_announced_after_a_crash(
    tmp_path: Path, webhook: Webhook
) -> None:
    folder = Folder(tmp_path, http(webhook))
    folder.settings = {
        "source": {**_source(folder), "max_files_per_batch": 1},
        "table": {**_table(folder), "metadata_table": False},
        "cleaning": {"commits_retained": 1},
        "archival": {"min_commits": 2, "max_commits": 3},
    }
    folder.run("a")
    for number in range(5):
        folder.add(f"b{number}")
    folder.crash()
    table = open_table(StorageLocation(str(folder.table)))
    assert table.timeline.is_archived(folder.commits()[1]), "the test is about archived commits"
    folder.run()
    assert set(webhook.instants) == set(folder.commits())


def test_commits_are_announced_although_others_have_archived_the_last_one(
    tmp_path: Path, webhook: Webhook
) -> None:
    folder = Folder(tmp_path, http(webhook))
    folder.settings = {"table": {**_table(folder), "metadata_table": False}}
    folder.run("a")
    folder.crash("b")
    table = lakemark.open(str(folder.table))
    for number in range(5):
        table.upsert(pa.table({"id": [f"z{number}"], "n": pa.array([1], pa.int32())}))
    table.clean(retain_commits=1)
    table.archive(min_commits=2, max_commits=3, retain_commits=1)
    opened = open_table(StorageLocation(str(folder.table)))
    assert opened.timeline.is_archived(folder.commits()[-1]), "the test is about archived commits"
    folder.run()
    assert webhook.instants == folder.commits()


def test_damaged_archive_does_not_end_a_run(
    tmp_path: Path, webhook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    """The batches are complete, and no batch needs the archived commits."""
    folder = Folder(tmp_path, http(webhook))
    folder.settings = {
        "source": {**_source(folder), "max_files_per_batch": 1},
        "table": {**_table(folder), "metadata_table": False},
        "cleaning": {"commits_retained": 1},
        "archival": {"min_commits": 2, "max_commits": 3},
    }
    for number in range(6):
        folder.add(f"a{number}")
    folder.crash()
    for file in (folder.table / ".hoodie/timeline/history").glob("*.parquet"):
        file.write_bytes(b"damaged")
    del folder.settings["archival"]
    folder.run()
    assert "archived commits are not announced to the hooks" in caplog.text
    assert webhook.instants, "the active commits are announced"
    assert webhook.instants == folder.commits()[-len(webhook.instants) :]


def test_only_the_newest_commits_are_announced_if_too_many_wait(
    tmp_path: Path,
    webhook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Commits of other writers do not count."""
    monkeypatch.setattr(pipeline_hooks, "MAX_PENDING", 2)
    folder = Folder(tmp_path, http(webhook))
    folder.crash("a")
    for name in "bcd":
        folder.crash(name)
    table = lakemark.open(str(folder.table))
    for number in range(3):
        table.upsert(pa.table({"id": [f"z{number}"], "n": pa.array([1], pa.int32())}))
    folder.run()
    *_, older, third, fourth = folder.commits()
    assert webhook.instants == [third, fourth]
    assert f"the commits up to {older} are not announced" in caplog.text


def test_hook_that_announces_no_commits_is_not_recorded(tmp_path: Path, webhook: Webhook) -> None:
    """It would never be up to date, so each start would read all commits since the first one."""
    folder = Folder(tmp_path, {"kind": "opentelemetry", "options": {"url": webhook.url}})
    folder.run("a")
    assert len(webhook.bodies) == 1
    folder.hooks.append({**http(webhook, name="feed")})
    folder.run("b")
    first, second = folder.recorded()
    assert first == {}
    assert list(second["announced"]) == ["feed"]


def test_commits_from_before_the_hook_was_added_are_not_announced(
    tmp_path: Path, webhook: Webhook
) -> None:
    folder = Folder(tmp_path)
    folder.run("a")
    folder.hooks.append(http(webhook))
    folder.run()
    assert not webhook.bodies
    folder.run("b")
    folder.hooks.append(http(webhook, name="second"))
    folder.run("c")
    assert {*webhook.instants} == {*folder.commits()[1:]}
    newest = {one.hook for one in folder.seen(HookSent) if one.instant == folder.commits()[-1]}
    assert newest == {"http", "second"}


def test_commits_of_others_are_not_announced(tmp_path: Path, webhook: Webhook) -> None:
    folder = Folder(tmp_path, http(webhook))
    folder.run("a")
    table = lakemark.open(str(folder.table))
    table.upsert(pa.table({"id": ["z"], "n": pa.array([1], pa.int32())}))
    folder.run("b")
    assert {*webhook.instants} == {*folder.commits()}


def test_pipeline_without_hooks_records_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.run("a")
    assert folder.recorded() == [{}]


def test_commits_record_what_was_announced(tmp_path: Path, webhook: Webhook) -> None:
    folder = Folder(tmp_path, http(webhook, name="feed"))

    def listen(event: Event) -> None:
        folder.events.append(event)
        if isinstance(event, BatchPlanned):  # each batch waits for the message about the last one
            until(lambda: len(folder.seen(HookSent)) == len(folder.commits()), "the message")

    folder.listen = listen
    folder.settings = {"source": {**_source(folder), "max_files_per_batch": 1}}
    for name in "abc":
        folder.add(name)
    folder.run()
    first, second, _ = folder.commits()
    announced = [one["announced"] for one in folder.recorded()]
    assert announced == [{"feed": ""}, {"feed": first}, {"feed": second}]


def test_message_that_the_server_refuses_is_dropped(tmp_path: Path, webhook: Webhook) -> None:
    webhook.status = 422
    folder = Folder(tmp_path, http(webhook))
    folder.run("a")
    (dropped,) = folder.seen(HookDropped)
    assert (dropped.hook, dropped.count, dropped.instant) == ("http", 1, folder.commits()[0])
    assert "422" in dropped.reason
    webhook.status = 200
    folder.run("b")
    assert set(webhook.instants) == set(folder.commits()), "the next start tries it again"


def test_secrets_are_never_printed(
    tmp_path: Path,
    webhook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SHOP_HOOK_URL", webhook.url)
    token = tmp_path / "token"
    token.write_text("Bearer quite-a-secret-token\n")
    folder = Folder(tmp_path)
    folder.add("a")
    file = tmp_path / "orders.yaml"
    file.write_text(
        f"""
source: {{kind: files, path: {folder.source}, format: json}}
decode: {{schema: {{id: string, n: int}}}}
table: {{path: {folder.table}, record_key: id}}
run: {{mode: once}}
hooks:
  - kind: http
    options: {{url: {{env: SHOP_HOOK_URL}}}}
    headers:
      Authorization: {{file: {token}}}
      X-Shop: in-the-file-itself
"""
    )
    events = tmp_path / "events.jsonl"
    webhook.status = 401
    assert main(["run", str(file), "--events", str(events)]) == 0
    assert main(["validate", str(file)]) == 0
    assert main(["doctor", str(file)]) != 0
    assert webhook.headers[0]["authorization"] == "Bearer quite-a-secret-token"
    assert webhook.headers[0]["x-shop"] == "in-the-file-itself"
    printed = "".join(capfd.readouterr()) + events.read_text()
    assert "answers POST with 401; correct the headers" in printed
    assert "answers OPTIONS with 401" in printed
    for secret in ("quite-a-secret", "in-the-file-itself", "S3CR3T-PATH"):
        assert secret not in printed


@pytest.mark.parametrize(
    ("hook", "problem"),
    [
        ({"kind": "smoke"}, "there is no hook of the kind 'smoke'; use one of http, kafka"),
        ({"kind": "http"}, "hook http needs the option url"),
        ({"kind": "http", "options": {"url": "ftp://x"}}, "option url of hook http: expected http"),
        (
            {"kind": "http", "options": {"url": "http://user:secret@host/"}},
            "option url of hook http contains a user or a password",
        ),
        (
            {"kind": "http", "options": {"url": "http://host/", "retries": 3}},
            "hook http has no option retries; use one of url, format, timeout_s, ca_file",
        ),
        (
            {"kind": "http", "options": {"url": "http://host/", "format": "xml"}},
            "option format of hook http is 'xml'; use one of lakemark, hudi",
        ),
        (
            {"kind": "http", "options": {"url": "http://host/", "timeout_s": 0}},
            "option timeout_s of hook http is '0'",
        ),
        (
            {"kind": "http", "options": {"url": "https://host/", "ca_file": "/no/such"}},
            "cannot read /no/such: No such file or directory",
        ),
        (
            {"kind": "http", "options": {"url": "http://host/"}, "headers": {"A": "b\nC: d"}},
            "header A of hook http contains a character",
        ),
        (
            {"kind": "http", "options": {"url": "http://host/"}, "headers": {"Host": "b"}},
            "header 'Host' of hook http cannot be set",
        ),
        *(
            (
                {"kind": "kafka", "options": {"bootstrap_servers": servers, "topic": "a"}},
                f"option bootstrap_servers of hook kafka is {servers!r}; expected host:port",
            )
            for servers in ("h", "h:1,h", "h:0", "h:1,")
        ),
        (
            {"kind": "kafka", "options": {"bootstrap_servers": "h:1", "topic": "{topic}"}},
            "option topic contains {topic}, but the pipeline reads no topic of Kafka",
        ),
        (
            {"kind": "kafka", "options": {"bootstrap_servers": "h:1", "topic": "a b"}},
            "option topic of hook kafka: expected the name of one topic",
        ),
        (
            {
                "kind": "kafka",
                "options": {"bootstrap_servers": "h:1", "topic": "a"},
                "properties": {"acks": 1},
            },
            "property acks of hook kafka is not supported",
        ),
        (
            {
                "kind": "kafka",
                "options": {"bootstrap_servers": "h:1", "topic": "a"},
                "properties": {"compression.type": "zip"},
            },
            "property compression.type of hook kafka is 'zip'; use one of none, gzip",
        ),
        (
            {
                "kind": "kafka",
                "options": {"bootstrap_servers": "h:1", "topic": "a"},
                "properties": {"max.request.size": "1MB"},
            },
            "property max.request.size of hook kafka is '1MB'; expected a number of bytes",
        ),
        (
            {
                "kind": "kafka",
                "options": {"bootstrap_servers": "h:1", "topic": "a"},
                "properties": {"sasl.oauthbearer.client.id": "lakemark"},
            },
            "sasl.oauthbearer.client.id is only for sasl.oauthbearer.method: oidc",
        ),
        (
            {
                "kind": "kafka",
                "options": {"bootstrap_servers": "h:1", "topic": "a"},
                "headers": {"A": "b"},
            },
            "hook kafka has no headers",
        ),
        ({"kind": "openlineage"}, "hook openlineage needs the option url"),
        ({"kind": "opentelemetry"}, "hook opentelemetry needs the option url"),
    ],
)
def test_bad_settings_are_refused_before_the_start(
    tmp_path: Path, hook: dict[str, Any], problem: str
) -> None:
    with pytest.raises(HudiError) as refused:
        Folder(tmp_path, hook).config()
    assert "hooks.0" in str(refused.value)
    assert problem in str(refused.value)
    assert "secret" not in str(refused.value)


def test_two_hooks_need_different_names(tmp_path: Path, webhook: Webhook) -> None:
    with pytest.raises(HudiError, match=r"hooks.1: is the second hook with the name 'http'"):
        Folder(tmp_path, http(webhook), http(webhook)).config()


def test_missing_secret_is_reported_before_the_start(tmp_path: Path, webhook: Webhook) -> None:
    hook = http(webhook, headers={"Authorization": {"env": "NO_SUCH_TOKEN"}})
    (problem,) = Folder(tmp_path, hook).config().unresolved()
    assert problem.path == "hooks.0.headers.Authorization"


def test_lineage_of_a_snapshot_names_its_files_and_no_secret_of_the_topic(
    tmp_path: Path, webhook: Webhook
) -> None:
    table = tmp_path / "orders"
    lakemark.create(str(table), schema=pa.schema([("id", pa.string())]), record_key="id")
    password = "very-secret-password"
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule password="{password}";'
    tree = {
        "source": {
            "bootstrap_servers": "broker:9092",
            "topic": "orders",
            "consumer": {"sasl.jaas.config": login},
        },
        "snapshot": {"path": str(tmp_path / "export"), "format": "parquet"},
        "decode": {"schema": {"id": "string"}},
        "table": {"path": str(table), "record_key": "id"},
        "hooks": [{"kind": "openlineage", "options": {"url": webhook.url}}],
    }
    hooks = pipeline_hooks.pipeline_hooks(validated(tree), lambda _: None, reads_snapshot=True)
    refused = InvalidConfig(f"the broker refuses {login}")
    with pytest.raises(InvalidConfig), hooks.until_end():
        hooks.begin(open_table(StorageLocation(str(table))))
        raise refused
    began, ended = webhook.messages
    for event in (began, ended):
        (read,) = event["inputs"]
        assert (read["namespace"], read["name"]) == ("file", f"{tmp_path}/export")
    text = ended["run"]["facets"]["errorMessage"]["message"]
    assert "the broker refuses" in text
    assert password not in text
