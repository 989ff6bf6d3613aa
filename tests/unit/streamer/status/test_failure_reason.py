"""The status says why a pipeline failed; the answers about its health name only the class."""

from __future__ import annotations

import json

import pytest

from streamer.config.metrics import MetricsConfig
from streamer.events import Event, Retrying, RunFailed, RunStarted, ignore
from streamer.metrics.server import RunMonitors

_SECRET = "hunter2-hunter2"
_ERROR = f"/lake/orders has other keys: id\nnot n, says user:{_SECRET}@host"
_SHOWN = "/lake/orders has other keys: id; not n, says user:***@host"


@pytest.mark.parametrize(
    ("event", "state", "begins"),
    [
        (RunFailed("InvalidConfig", _ERROR), "failed", "failed: InvalidConfig"),
        (Retrying(_ERROR, 1, 0, 1.0, "StorageBusy"), "failing", "failing for 0 s (StorageBusy)"),
    ],
)
def test_status_has_the_message_of_a_failure_without_secrets(
    event: Event, state: str, begins: str
) -> None:
    monitors = RunMonitors(MetricsConfig(port=1), lambda text: text.replace(_SECRET, "***"))
    monitor = monitors.add_refused("shop/orders", "shop", ignore)
    monitor.listener(RunStarted("shop/orders", "shop", "/lake/orders", {}, False))
    monitor.listener(event)
    (shown,) = json.loads(monitors.status.to_json(None))["pipelines"]
    assert shown["state"] == state
    assert shown["reason"].startswith(begins)
    assert shown["reason"].endswith(f": {_SHOWN}")
    health = monitors.health.verdict().reason
    assert begins in health
    assert "/lake/orders" not in health
