"""Logged warnings become events of a run, and lines in other commands, without secrets."""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path

import pytest

from lakemark.errors import StorageUnavailable
from streamer import pipeline
from streamer.cli import FAILED, OK, main
from streamer.commands import table_compact

PIPELINE = """
source: {bootstrap_servers: "localhost:9092", topic: orders, consumer: {ssl.key.password: geheim}}
table: {path: /lake/orders, record_key: id}
"""
WARNING = "it stays until it expires: no access with geheim"


def warn() -> None:
    part = logging.getLogger("lakemark.transaction.heartbeat")
    part.warning("it stays %s: %s", "until it expires", "no access with geheim")


def build(*_: object, **__: object) -> None:
    """Log a warning and fail, as a pipeline may do while it is opened."""
    warn()
    message = "the store is gone"
    raise StorageUnavailable(message)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_run_emits_warnings_as_events(
    log_format: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "build", build)
    (tmp_path / "orders.yaml").write_text(PIPELINE)
    log = tmp_path / "events"
    arguments = ["run", str(tmp_path / "orders.yaml"), "--events", str(log)]
    assert main([*arguments, "--log-format", log_format]) == FAILED
    warned, failed = map(json.loads, log.read_text().splitlines())
    assert (warned["event"], failed["event"]) == ("WarningLogged", "RunFailed")
    reported = {name: warned[name] for name in ("level", "module", "message")}
    message = WARNING.replace("geheim", "***")
    assert reported == {
        "level": "warning",
        "module": "lakemark.transaction.heartbeat",
        "message": message,
    }
    out, err = capsys.readouterr()
    if log_format == "json":
        lines = [json.loads(line) for line in err.splitlines()]
        assert [line["event"] for line in lines] == ["WarningLogged", "RunFailed"]
    else:
        (line,) = out.splitlines()
        assert line.endswith(f" warning (lakemark.transaction.heartbeat): {message}")
        assert err == "lakemark: the store is gone\n"


def test_other_commands_print_warnings_as_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(_: argparse.Namespace) -> int:
        warn()
        return OK

    monkeypatch.setattr(table_compact, "execute", execute)
    options = ["--storage", "aws_secret_access_key=geheim"]
    before = logging.getLogger("lakemark").handlers
    assert main(["table", "compact", "/lake/orders", *options]) == OK
    reported = WARNING.replace("geheim", "***")
    assert capsys.readouterr() == ("", f"lakemark: warning: {reported}\n")
    assert logging.getLogger("lakemark").handlers is before
