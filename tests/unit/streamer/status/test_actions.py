"""Clients of the endpoint pause, resume and stop a pipeline, if they have the token."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import lakemark
from lakemark.model.action import Action
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer.config.errors import ConfigError
from streamer.config.render import render_yaml
from streamer.events import (
    ActionRequested,
    CompactionCompleted,
    Event,
    RequestedServiceFailed,
    RunPaused,
    RunResumed,
    RunStopped,
    ServiceCompleted,
)
from tests.stream.monitoring import get, post, scraped
from tests.unit.streamer.status.files_run import FilesRun, row
from tests.waiting import until

TOKEN = "0123456789abcdef"
PAUSE, RESUME, STOP = (f"/pipelines/orders/{one}" for one in ("pause", "resume", "stop"))

#: A run that is not paused would read a file in this time.
MOMENT_S = 0.5


@pytest.fixture
def run(tmp_path: Path) -> FilesRun:
    return FilesRun(tmp_path, action_token=TOKEN)


def rows(folder: Path) -> dict[str, int]:
    found = lakemark.open(str(folder / "rows")).scan().to_table()
    return dict(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))


def requested(run: FilesRun) -> list[Event]:
    kinds = ActionRequested | RunPaused | RunResumed | RunStopped
    return [one for one in run.events if isinstance(one, kinds)]


def test_paused_run_reads_nothing_and_resumes_where_it_was(run: FilesRun, tmp_path: Path) -> None:
    with run.running():
        run.write("a.json", row("a", 1))
        run.wait_for_batches(1)
        assert post(run.port, PAUSE, TOKEN) == (202, "asked to pause\n")
        until(lambda: run.pipeline()["state"] == "paused")
        run.write("b.json", row("b", 2))
        time.sleep(MOMENT_S)
        assert len(run.written()) == 1
        assert get(run.port, "/ready") == (503, "paused\n")
        assert get(run.port, "/health") == (200, "paused\n")
        assert scraped(run.port)["lakemark_paused"] == 1
        assert run.pipeline()["actions"] == ["resume", "stop"]
        assert post(run.port, PAUSE, TOKEN) == (409, "not possible now; possible: resume, stop\n")
        assert post(run.port, RESUME, TOKEN)[0] == 202
        run.wait_for_batches(2)
        assert scraped(run.port)["lakemark_paused"] == 0
        until(lambda: run.pipeline()["state"] == "running")
        assert run.pipeline()["actions"] == ["pause", "stop"]
    assert rows(tmp_path) == {"a": 1, "b": 2}
    assert [one.records_read for one in run.written()] == [1, 1]
    kinds = [type(one) for one in requested(run)]
    assert kinds == [ActionRequested, RunPaused, ActionRequested, RunResumed, RunStopped]


def test_other_programs_may_change_the_table_of_a_paused_run(run: FilesRun, tmp_path: Path) -> None:
    with run.running():
        run.write("a.json", row("a", 1), row("b", 1))
        run.wait_for_batches(1)
        post(run.port, PAUSE, TOKEN)
        until(lambda: run.pipeline()["state"] == "paused")
        lakemark.open(str(tmp_path / "rows")).delete(["b"])
        post(run.port, RESUME, TOKEN)
        run.write("c.json", row("c", 3))
        run.wait_for_batches(2)
    assert rows(tmp_path) == {"a": 1, "c": 3}


def test_pause_does_not_wait_for_the_next_batch(tmp_path: Path) -> None:
    run = FilesRun(tmp_path, trigger_interval_s=86_400.0, action_token=TOKEN)
    with run.running():
        run.write("a.json", row("a", 1))
        run.wait_for_batches(1)
        post(run.port, PAUSE, TOKEN)
        until(lambda: run.pipeline()["state"] == "paused")
        run.write("b.json", row("b", 2))
        post(run.port, RESUME, TOKEN)
        run.wait_for_batches(2)


def test_stop_ends_the_run_also_while_it_is_paused(run: FilesRun, tmp_path: Path) -> None:
    with run.running():
        run.write("a.json", row("a", 1))
        run.wait_for_batches(1)
        post(run.port, PAUSE, TOKEN)
        until(lambda: run.pipeline()["state"] == "paused")
        assert post(run.port, STOP, TOKEN) == (202, "asked to stop\n")
        until(lambda: run.pipeline()["state"] == "stopped")
        assert run.pipeline()["actions"] == []
        assert post(run.port, RESUME, TOKEN) == (409, "not possible now; possible: nothing\n")
    (stopped,) = [one for one in run.events if isinstance(one, RunStopped)]
    assert stopped.reason == "interrupted"
    assert rows(tmp_path) == {"a": 1}


COMPACTION, CLEANING, ARCHIVAL, CLUSTERING = (
    f"/pipelines/orders/services/{one}"
    for one in ("compaction", "cleaning", "archival", "clustering")
)


def services(run: FilesRun) -> list[Event]:
    kinds = CompactionCompleted | ServiceCompleted | RequestedServiceFailed
    return [one for one in run.events if isinstance(one, kinds)]


def test_requested_services_run_between_two_batches(run: FilesRun, tmp_path: Path) -> None:
    with run.running():
        run.write("a.json", row("a", 1))
        run.wait_for_batches(1)
        run.write("b.json", row("a", 2))
        run.wait_for_batches(2)
        until(lambda: run.pipeline()["state"] == "running")
        until(lambda: run.pipeline()["runnable_services"] == ["compaction", "cleaning", "archival"])
        assert post(run.port, COMPACTION, TOKEN) == (202, "asked to run compaction\n")
        until(lambda: any(isinstance(one, CompactionCompleted) for one in run.events))
        for path in (CLEANING, ARCHIVAL):
            assert post(run.port, path, TOKEN)[0] == 202
        until(lambda: len(idle(run)) == 4)  # of the table and of its dead letters
        run.write("c.json", row("c", 3))
        run.wait_for_batches(3)
        until(lambda: {"compaction", "cleaning", "archival"} <= shown_services(run))
    assert rows(tmp_path) == {"a": 2, "c": 3}
    assert [one.records_read for one in run.written()] == [1, 1, 1]
    timeline = open_table(StorageLocation(str(tmp_path / "rows"))).timeline
    assert timeline.completed(Action.COMMIT)


def shown_services(run: FilesRun) -> set[str]:
    """Return the services that the status lists. An answer may be half a second old."""
    return {one["service"] for one in run.pipeline()["details"]["services"]}


def shown_errors(run: FilesRun) -> str:
    """Return the errors that the status lists."""
    notes = run.pipeline()["details"]["notes"]
    return "\n".join(one["text"] for one in notes if one["level"] == "error")


def idle(run: FilesRun) -> list[ServiceCompleted]:
    """Return the requested cleanings and archivals that had nothing to do."""
    found = [one for one in run.events if isinstance(one, ServiceCompleted)]
    return [
        one
        for one in found
        if one.service in ("cleaning", "archival") and "nothing to do" in one.summary
    ]


def test_requested_service_that_fails_is_shown_and_the_run_continues(
    run: FilesRun, tmp_path: Path
) -> None:
    with run.running():
        for n in (1, 2):
            run.write(f"{n}.json", row("a", n))
            run.wait_for_batches(n)
        (log,) = [*(tmp_path / "rows").glob(".*.log.*")]
        log.rename(tmp_path / "log")
        assert post(run.port, COMPACTION, TOKEN)[0] == 202
        until(lambda: any(isinstance(one, RequestedServiceFailed) for one in run.events))
        (tmp_path / "log").rename(log)
        until(lambda: "requested compaction" in shown_errors(run))
        run.write("b.json", row("b", 3))
        run.wait_for_batches(3)
    assert rows(tmp_path) == {"a": 2, "b": 3}


def test_request_for_a_service_is_refused_with_the_reason(run: FilesRun) -> None:
    unknown = "/pipelines/orders/services/repair"
    with run.running():
        run.write("a.json", row("a", 1))
        run.wait_for_batches(1)
        assert post(run.port, COMPACTION, "wrong") == (401, "wrong or missing token\n")
        assert post(run.port, unknown, TOKEN)[0] == 404
        assert post(run.port, "/pipelines/orders/service/compaction", TOKEN)[0] == 404
        assert post(run.port, CLUSTERING, TOKEN) == (
            409,
            "not possible now; possible: compaction, cleaning, archival\n",
        )
        post(run.port, PAUSE, TOKEN)
        until(lambda: run.pipeline()["state"] == "paused")
        until(lambda: run.pipeline()["runnable_services"] == [])
        assert post(run.port, COMPACTION, TOKEN) == (409, "not possible now; possible: nothing\n")
    assert not [one for one in services(run) if isinstance(one, CompactionCompleted)]


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], "ü" * 16])
def test_wrong_token_is_refused(run: FilesRun, token: str | None) -> None:
    with run.running():
        assert post(run.port, PAUSE, token) == (401, "wrong or missing token\n")
        assert run.pipeline()["actions"] == ["pause", "stop"]
    assert not [one for one in run.events if isinstance(one, ActionRequested)]


def test_another_scheme_is_refused(run: FilesRun) -> None:
    with run.running():
        request = urllib.request.Request(
            f"http://127.0.0.1:{run.port}{PAUSE}",
            b"",
            {"Authorization": f"Basic {TOKEN}"},
            method="POST",
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)
    assert (refused.value.code, refused.value.headers["WWW-Authenticate"]) == (
        401,
        'Bearer realm="lakemark"',
    )
    refused.value.close()


def test_without_a_token_in_the_settings_actions_are_forbidden(tmp_path: Path) -> None:
    run = FilesRun(tmp_path)
    with run.running():
        for token in (None, "", TOKEN):
            assert post(run.port, STOP, token) == (403, "actions need metrics.action_token\n")
        assert run.status()["accepts_actions"] is False
        assert run.pipeline()["state"] in ("starting", "running")


@pytest.mark.parametrize(
    ("token", "problem"),
    [
        (TOKEN[:-1], "metrics.action_token: shorter than 16 characters; openssl rand -hex 16"),
        ({"env": "LAKEMARK_NO_TOKEN"}, "environment variable LAKEMARK_NO_TOKEN is not set"),
    ],
)
def test_run_with_a_short_or_missing_token_does_not_start(
    tmp_path: Path, token: object, problem: str
) -> None:
    run = FilesRun(tmp_path, action_token=token)
    with pytest.raises(ConfigError, match=problem), run.running():
        pass


def test_token_is_masked_where_settings_are_printed(run: FilesRun) -> None:
    assert "action_token: '***'" in render_yaml(run.config)
    with run.running():
        assert TOKEN not in get(run.port, "/status.json")[1]


def test_token_file_may_be_replaced_but_not_by_a_short_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    run = FilesRun(tmp_path, action_token={"file": str(file)})
    with run.running():
        assert post(run.port, PAUSE, TOKEN)[0] == 202
        file.write_text("another token of a good length")
        assert post(run.port, RESUME, TOKEN)[0] == 401
        assert post(run.port, RESUME, "another token of a good length")[0] == 202
        file.write_text("")
        assert post(run.port, PAUSE, "")[0] == 401
        file.unlink()
        assert post(run.port, PAUSE, TOKEN)[0] == 401


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/pipelines/orders%20/pause", "no pipeline 'orders '; pipelines: orders\n"),
        ("/pipelines/%0A/pause", "no pipeline '\\n'; pipelines: orders\n"),
        ("/pipelines/orders/delete", "no action 'delete'; actions: pause, resume, stop\n"),
        ("/pipelines/orders", "/pipelines/NAME/ACTION\n"),
        ("/status.json", "/pipelines/NAME/ACTION\n"),
    ],
)
def test_unknown_paths_are_not_found(run: FilesRun, path: str, answer: str) -> None:
    with run.running():
        assert post(run.port, path, TOKEN, b"x" * 5_000) == (404, answer)


def test_page_may_be_off_while_actions_are_accepted(tmp_path: Path) -> None:
    run = FilesRun(tmp_path, action_token=TOKEN, status_page=False)
    with run.running():
        assert get(run.port, "/status.json")[0] == 404
        assert post(run.port, PAUSE, TOKEN)[0] == 202
