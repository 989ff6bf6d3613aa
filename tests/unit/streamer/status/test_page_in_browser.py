"""The status page in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.events import CompactionCompleted
from tests.fixtures.browser import Browser, open_browser
from tests.unit.streamer.status.files_run import FilesRun, row
from tests.waiting import until

#: What a page that does not escape values would execute.
INJECTION = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with open_browser(tmp_path / "browser") as started:
        yield started


def test_page_shows_a_run_and_follows_it(browser: Browser, tmp_path: Path) -> None:
    run = FilesRun(tmp_path)
    with run.running():
        run.write("a.json", row("a", 1), row("b", 1), "{")
        run.wait_for_batches(1)
        browser.open(f"http://127.0.0.1:{run.port}/")
        browser.wait_for_text("#state", "running")
        browser.wait_for_text("#rejects", "invalid_message")
        browser.wait_for_text("#tables", run.written()[0].instant or "")
        assert browser.evaluate("document.querySelectorAll('#batches tbody tr').length") == 1
        run.write("b.json", row("c", 1))
        run.wait_for_batches(2)
        browser.wait_for_text("#batches", run.written()[1].instant or "")
        assert browser.evaluate("document.querySelectorAll('#batches svg g').length") == 2
        browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        browser.wait_for_text("#columns", "int64")
        browser.wait_for_text("#settings", "record_key")
    browser.wait_for_text("#problem", "No answer")
    assert "b.json" not in browser.text("#problem")
    assert {url.rpartition(":")[2].partition("?")[0] for url in browser.requests} <= {
        f"{run.port}/",
        f"{run.port}/status.json",
        ",",  # the empty icon, which is part of the page
    }


def test_values_are_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    run = FilesRun(tmp_path, INJECTION)
    with run.running():
        run.write("a<b>.json", row("a", 1), json.dumps({"id": "x", INJECTION: 1}), INJECTION)
        run.wait_for_batches(1)
        browser.open(f"http://127.0.0.1:{run.port}/")
        browser.wait_for_text("#state", INJECTION)
        browser.wait_for_text("#rejects", "a<b>.json")
        assert browser.evaluate("document.querySelectorAll('main img, main script').length") == 0
        assert browser.evaluate("window.hacked === undefined")
        assert browser.errors == []


def test_page_fits_a_phone_and_has_dark_colours(browser: Browser, tmp_path: Path) -> None:
    run = FilesRun(tmp_path)
    with run.running():
        run.write("a.json", row("a", 1), "{")
        run.wait_for_batches(1)
        browser.call(
            "Emulation.setDeviceMetricsOverride",
            width=360,
            height=740,
            deviceScaleFactor=1,
            mobile=True,
        )
        browser.open(f"http://127.0.0.1:{run.port}/")
        browser.wait_for_text("#batches", run.written()[0].instant or "")
        assert browser.evaluate("document.documentElement.scrollWidth") == 360
        colours = []
        for scheme in ("light", "dark"):
            browser.call(
                "Emulation.setEmulatedMedia",
                features=[{"name": "prefers-color-scheme", "value": scheme}],
            )
            colours.append(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert len(set(colours)) == 2
        until(lambda: not browser.evaluate("document.querySelector('#problem').innerText"))
        assert browser.errors == []


def test_button_pauses_a_run_with_the_token_of_the_field(browser: Browser, tmp_path: Path) -> None:
    token = "a token of a good length"
    run = FilesRun(tmp_path, "a/b & c", action_token=token)
    with run.running():
        browser.open(f"http://127.0.0.1:{run.port}/")
        browser.wait_for_text("#buttons", "pause")
        browser.evaluate("document.querySelector('button[value=pause]').click()")
        browser.wait_for_text("#outcome", "a/b & c: wrong or missing token")
        browser.evaluate(f"document.querySelector('#token').value = {json.dumps(token)}")
        browser.evaluate("document.querySelector('button[value=pause]').click()")
        browser.wait_for_text("#state", "paused")
        browser.wait_for_text("#buttons", "resume")
        kept = "JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}])"
        assert browser.evaluate(kept) == '["",{},{}]'
        browser.evaluate("document.querySelector('button[value=resume]').click()")
        browser.wait_for_text("#state", "running")


def test_button_runs_a_table_service(browser: Browser, tmp_path: Path) -> None:
    token = "a token of a good length"
    run = FilesRun(tmp_path, action_token=token)
    with run.running():
        for n in (1, 2):
            run.write(f"{n}.json", row("a", n))
            run.wait_for_batches(n)
        browser.open(f"http://127.0.0.1:{run.port}/")
        browser.wait_for_text("#buttons", "run compaction")
        browser.evaluate(f"document.querySelector('#token').value = {json.dumps(token)}")
        browser.evaluate("document.querySelector('button[value=compaction]').click()")
        browser.wait_for_text("#outcome", "orders: asked to run compaction")
        until(lambda: any(isinstance(one, CompactionCompleted) for one in run.events))
        browser.wait_for_text("#services", "compaction")


def test_page_without_actions_shows_no_token_field(browser: Browser, tmp_path: Path) -> None:
    run = FilesRun(tmp_path)
    with run.running():
        browser.open(f"http://127.0.0.1:{run.port}/")
        browser.wait_for_text("#state", "running")
        assert browser.evaluate("document.querySelector('#actions').hidden")
