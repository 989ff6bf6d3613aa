from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge, Metric
from prometheus_client.registry import Collector

from lakemark.errors import InvalidConfig
from streamer.events import BatchPlanned, RunStarted
from streamer.health import Health
from streamer.metrics import endpoint
from streamer.metrics.endpoint import CannotListen, serve
from tests.stream.monitoring import get
from tests.waiting import until

STARTED = RunStarted("p", "orders", "/t", {0: 0}, False)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(10.0, clock)


@pytest.fixture
def port(health: Health) -> Iterator[int]:
    registry = CollectorRegistry()
    Gauge("lakemark_answer", "known", registry=registry).set(42)
    with serve("127.0.0.1", 0, registry, health) as listening:
        yield listening


def test_metrics_are_served(port: int) -> None:
    status, text = get(port, "/metrics?name[]=x")
    assert status == 200
    assert "lakemark_answer 42.0" in text
    assert get(port, "/")[0] == 404


def test_metrics_that_cannot_be_collected_answer_500_and_log_the_reason(
    health: Health, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Collector):
        def collect(self) -> Iterable[Metric]:
            message = "no such partition"
            raise KeyError(message)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Broken())
    with serve("127.0.0.1", 0, registry, health) as port:
        assert get(port, "/metrics") == (500, "see the log of the run\n")
        assert get(port, "/health")[0] == 200
    message = "/metrics answers 500, because the metrics cannot be collected"
    assert caplog.messages == [f"{message}: KeyError: 'no such partition'"]


def test_a_loop_that_stalls_turns_health_to_503(port: int, health: Health, clock: Clock) -> None:
    assert get(port, "/health") == (200, "starting\n")
    assert get(port, "/ready")[0] == 503
    health(STARTED)
    health.watch(lambda: clock.now)
    clock.now = 1_000.0
    assert get(port, "/health") == (200, "waiting for records\n")
    assert get(port, "/ready")[0] == 200
    health.watch(lambda: 1_000.0)
    health(BatchPlanned(7, {0: 5}))
    clock.now = 1_010.0
    assert get(port, "/health") == (200, "batch 7\n")
    clock.now = 1_010.5
    assert get(port, "/health") == (503, "stuck for 10 s: batch 7\n")
    assert get(port, "/ready")[0] == 503


def test_nothing_is_listened_on_after_the_end(health: Health) -> None:
    with serve("127.0.0.1", 0, CollectorRegistry(), health) as port:
        assert get(port, "/health")[0] == 200
    with serve("127.0.0.1", port, CollectorRegistry(), health) as again:
        assert again == port


def test_port_in_use_is_refused(health: Health) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(CannotListen, match=rf"127.0.0.1:{port} \(Address already") as refused:
            with serve("127.0.0.1", port, CollectorRegistry(), health):
                pass
    assert isinstance(refused.value, InvalidConfig)


def test_a_client_that_says_nothing_does_not_hold_the_others_up(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)):
        assert get(port, "/metrics")[0] == 200


def test_a_client_that_sends_its_request_slowly_does_not_keep_its_thread(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "_CONNECTION_ENDS_WITHIN_S", 0.3)
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.settimeout(0.05)
        slow.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        until(lambda: _is_closed_after_another_byte(slow))
    assert get(port, "/metrics")[0] == 200


def _is_closed_after_another_byte(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"x")
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:  # the server has reset the connection
        return True
