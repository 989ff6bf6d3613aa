"""The status of real runs, over HTTP."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer.events import BatchWritten, Event
from streamer.health import Health
from streamer.metrics.table_shape import ROWS
from streamer.status.process_status import ProcessStatus
from streamer.status.table_status import TableStatus
from tests.stream.monitoring import get
from tests.unit.streamer.status.files_run import SECRET, FilesRun, row
from tests.waiting import until

DOCS = Path(__file__).parents[4] / "docs" / "status_page.md"


@pytest.fixture
def run(tmp_path: Path) -> FilesRun:
    return FilesRun(tmp_path)


def test_status_of_a_real_run(run: FilesRun, tmp_path: Path) -> None:
    with run.running():
        run.write("a.json", row("a", 1), row("b", 1), "{")
        run.wait_for_batches(1)
        run.write("b.json", row("a", 2))
        run.wait_for_batches(2)
        until(lambda: run.pipeline()["details"]["tables"][0].get("file_groups") == 2)
        found = run.pipeline()
    assert (found["state"], found["source"]) == ("running", str(tmp_path / "in"))
    assert (found["batches"], found["records"], found["rows"], found["rejects"]) == (2, 4, 3, 1)
    assert (found["lag_records"], found["lag_s"]) == (None, None)
    details = found["details"]
    assert [(one["id"], one["instant"], one["seconds"]) for one in details["batches"]] == [
        (one.batch_id, one.instant, one.seconds) for one in run.written()
    ]
    stages = {one["stage"]: one["seconds"] for one in details["batches"][0]["stages"]}
    assert stages == run.written()[0].stage_s
    rows, letters = details["tables"]
    assert (rows["name"], letters["name"]) == ("rows", "dead_letters")
    instants = open_table(StorageLocation(str(tmp_path / "rows"))).timeline.instants
    assert [one["instant"] for one in rows["instants"]] == [one.requested_at for one in instants]
    assert all(one["requested_at"] < one["completed_at"] for one in rows["instants"])
    assert {one["partition"] for one in rows["largest_slices"]} == {""}
    (rejected,) = details["rejects"]["codes"]
    assert (rejected["code"], rejected["count"]) == ("invalid_message", 1)
    assert rejected["sample"].startswith(f"file://{tmp_path}/in/a.json 0:2: ")
    assert details["columns"] == [
        {"name": "id", "type": "string"},
        {"name": "n", "type": "int64"},
    ]
    assert details["settings"]["table"]["record_key"] == ["id"]


def test_secrets_are_masked(run: FilesRun) -> None:
    with run.running():
        text = get(run.port, "/status.json")[1]
    assert "spark.hadoop.fs.s3a.secret.key" in text
    assert SECRET not in text


def test_details_are_those_of_the_pipeline_that_was_asked_for(tmp_path: Path) -> None:
    run = FilesRun(tmp_path, "a/b <&> c")
    with run.running():
        named = run.status("?pipeline=a%2Fb%20%3C%26%3E%20c")["pipelines"]
        other = run.status("?pipeline=other")["pipelines"]
        assert run.status("?pipeline=")["pipelines"][0].keys() == other[0].keys()
    assert [("details" in one, one["name"]) for one in named] == [(True, "a/b <&> c")]
    assert [("details" in one, one["name"]) for one in other] == [(False, "a/b <&> c")]


def test_every_field_is_documented(run: FilesRun) -> None:
    def names(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for name, one in value.items():
                yield name
                if name != "settings":
                    yield from names(one)
        elif isinstance(value, list):
            for one in value:
                yield from names(one)

    with run.running():
        run.write("a.json", row("a", 1), "{")
        run.wait_for_batches(1)
        until(lambda: "files" in run.pipeline()["details"]["tables"][0])
        found = {*names(run.status())}
    documented = {*re.findall(r"`(\w+)`", DOCS.read_text(encoding="utf-8"))}
    assert found - documented == set()


def test_status_answers_while_the_loop_is_stuck(run: FilesRun) -> None:
    may_continue, listen = threading.Event(), run._listen

    def block(event: Event) -> None:
        listen(event)
        if isinstance(event, BatchWritten):
            assert may_continue.wait(120)

    run._listen = block  # type: ignore[method-assign]
    with run.running():
        run.write("a.json", row("a", 1))
        run.wait_for_batches(1)
        assert run.pipeline()["batches"] == 1
        may_continue.set()


def test_status_reads_no_storage(tmp_path: Path) -> None:
    path = str(tmp_path / "rows")
    lakemark.create(path, schema=pa.schema([("id", pa.string())]), record_key="id")
    table = open_table(StorageLocation(path))
    facts = TableStatus(ROWS, table, lambda: None).facts()
    assert "instants" not in facts
    assert table.snapshot.loaded_timeline is None
    assert table.snapshot.loaded_view is None


def test_many_requests_compute_one_answer() -> None:
    judged, now = [0], [0.0]

    class Counting(Health):
        def verdict(self):  # type: ignore[no-untyped-def]
            judged[0] += 1
            return super().verdict()

    status = ProcessStatus(Counting(10.0), monotonic_s=lambda: now[0])
    threads = [threading.Thread(target=status.to_json, args=(None,)) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert judged == [1]
    for unknown in ("a", "b"):
        status.to_json(unknown)
    assert judged == [2]
    now[0] = 10.0
    status.to_json(None)
    assert judged == [3]


def test_page_allows_only_its_own_style_and_script(run: FilesRun) -> None:
    with (
        run.running(),
        urllib.request.urlopen(f"http://127.0.0.1:{run.port}/", timeout=60) as answer,
    ):
        html, policy = answer.read().decode(), answer.headers["Content-Security-Policy"]
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"
    assert policy.startswith("default-src 'none'; connect-src 'self'; ")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
    for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert unsafe not in html


def test_page_can_be_switched_off(tmp_path: Path) -> None:
    run = FilesRun(tmp_path, status_page=False)
    with run.running():
        assert get(run.port, "/") == (404, "/metrics, /health or /ready\n")
        assert get(run.port, "/status.json")[0] == 404
        assert get(run.port, "/metrics")[0] == 200


def test_web_pages_of_others_cannot_read_the_status_by_a_dns_name(run: FilesRun) -> None:
    def answer(path: str, host: str) -> int:
        request = urllib.request.Request(f"http://127.0.0.1:{run.port}{path}")
        request.add_header("Host", host)
        try:
            with urllib.request.urlopen(request, timeout=60) as found:
                return int(found.status)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code

    with run.running():
        for path in ("/", "/status.json", "/status.json?pipeline=orders"):
            assert answer(path, f"attacker.example:{run.port}") == 421
            assert answer(path, f"localhost:{run.port}") == 200
            assert answer(path, "status.shop.example") == 200, "a proxy keeps the name"
        assert answer("/metrics", f"node7.shop.example:{run.port}") == 200
