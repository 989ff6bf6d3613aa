"""Serves ``/metrics``, ``/health``, ``/ready`` and the status page over HTTP during a run."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from lakemark.errors import InvalidConfig
from streamer.config.metrics import TOKEN_PATH
from streamer.health import Health, Judge
from streamer.metrics.rebinding import is_rebound
from streamer.requested_services import RunnableService
from streamer.status.control import RunAction
from streamer.status.page import load_page
from streamer.status.pipeline_status import PipelineStatus
from streamer.status.process_status import ProcessStatus

_LOG = logging.getLogger(__name__)

_TEXT, _HTML, _JSON = "text/plain; charset=utf-8", "text/html; charset=utf-8", "application/json"

#: Headers of the status: no browser may keep it, or guess another type.
_UNCACHED = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_REBOUND = b"open the page as localhost or by its IP address: another name may be an attacker's\n"
_PATHS = "/, /status.json, /metrics, /health or /ready"
_POLL_S = 0.1

#: The number of parts of a path of an action, with the empty one before the first slash.
_ACTION_PARTS = 4

#: The same of a path of a request for a table service, ``/pipelines/NAME/services/SERVICE``.
_SERVICE_PARTS = 5

_ACTION_PATHS = b"/pipelines/NAME/ACTION\n"

#: No more bytes of the body of a request are read. No request needs a body.
_MAX_BODY_BYTES = 1 << 16

#: Seconds after which the connection of a client that sends nothing is closed.
_CLIENT_TIMEOUT_S = 10

#: Seconds after which any connection is closed, because each one has a thread. A client could
#: otherwise keep its thread for hours, if it sends its request slowly.
_CONNECTION_ENDS_WITHIN_S = 30.0


class CannotListen(InvalidConfig):
    """Another process uses the address of ``metrics``, or this machine has no such address."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(
            f"metrics.port: cannot listen on {host}:{port} ({reason}); name another port, 0 for "
            "a free port, or omit the setting"
        )
        self.host, self.port, self.reason = host, port, reason


@contextmanager
def serve(
    host: str,
    port: int,
    registry: CollectorRegistry,
    health: Judge,
    status: ProcessStatus | None = None,
) -> Iterator[int]:
    """Serve until the block ends; yield the port.

    Args:
        host: the address to listen on.
        port: the port; 0 for a free port.
        registry: the metrics that ``/metrics`` returns.
        health: decides the answers of ``/health`` and ``/ready``.
        status: what ``/status.json`` and the status page show, and what performs actions; None to
            serve neither.

    Raises:
        CannotListen: the server cannot listen on the address.
    """
    server = _open_server(host, port, registry, health, status)
    thread = threading.Thread(
        target=server.serve_forever, args=(_POLL_S,), name="lakemark-http", daemon=True
    )
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def check_port(host: str, port: int) -> None:
    """Check that a server could listen on the address, without serving anything.

    Raises:
        CannotListen: see ``serve``.
    """
    _open_server(host, port, CollectorRegistry(), Health(stuck_after_s=0)).server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self,
        address: tuple[str, int],
        registry: CollectorRegistry,
        health: Judge,
        status: ProcessStatus | None,
    ) -> None:
        self.registry, self.health, self.status = registry, health, status
        self._opened_at = dict[socket.socket, float]()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    @property
    def shown(self) -> ProcessStatus | None:
        """The status, if it may be shown."""
        return self.status if self.status is not None and self.status.has_page else None

    def server_bind(self) -> None:
        # The base class looks up the name of the machine, which can take seconds.
        TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a request in a thread of its own; see the base class."""
        self._opened_at[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection; see the base class."""
        self._opened_at.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End the connections that are open for too long; called every ``_POLL_S``."""
        opened_before = time.monotonic() - _CONNECTION_ENDS_WITHIN_S
        for connection, opened_at in tuple(self._opened_at.items()):
            if opened_at < opened_before:
                with suppress(OSError):  # its thread closes it now
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_request: object) -> None:
        """Ignore the errors of clients that close their connection."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "lakemark"
    sys_version = ""
    timeout = _CLIENT_TIMEOUT_S

    def do_GET(self) -> None:
        url, status = urlsplit(self.path), self.server.shown
        if url.path == "/metrics":
            self._answer_metrics()
        elif url.path in ("/health", "/ready"):
            self._answer_health(url.path)
        elif status is not None and self._is_rebound():
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, _TEXT, _REBOUND)
        elif url.path == "/" and status is not None:
            page = load_page()
            policy = {"Content-Security-Policy": page.policy}
            self._answer(HTTPStatus.OK, _HTML, page.html, _UNCACHED | policy)
        elif url.path == "/status.json" and status is not None:
            self._answer_status(status, parse_qs(url.query, keep_blank_values=True))
        else:
            paths = "/metrics, /health or /ready" if status is None else _PATHS
            self._answer(HTTPStatus.NOT_FOUND, _TEXT, f"{paths}\n".encode())

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self._skip_body()
        status, parts = self.server.status, urlsplit(self.path).path.split("/")
        if status is None or not _names_action(parts):
            self._answer(HTTPStatus.NOT_FOUND, _TEXT, _ACTION_PATHS)
        elif status.token is None:
            self._answer(HTTPStatus.FORBIDDEN, _TEXT, f"actions need {TOKEN_PATH}\n".encode())
        elif not status.token.is_in(self.headers.get("Authorization", "")):
            challenge = {"WWW-Authenticate": 'Bearer realm="lakemark"'}
            self._answer(HTTPStatus.UNAUTHORIZED, _TEXT, b"wrong or missing token\n", challenge)
        else:
            self._perform(status, unquote(parts[2]), parts[3:])

    def _is_rebound(self) -> bool:
        host, port = self.server.server_address[:2]
        return is_rebound(self.headers.get("Host", ""), str(host), int(port))

    def _skip_body(self) -> None:
        """Read the body of a request, because the client may send it before it reads the answer."""
        length = self.headers.get("Content-Length", "0")
        self.rfile.read(min(int(length), _MAX_BODY_BYTES) if length.isdecimal() else 0)

    def _perform(self, status: ProcessStatus, name: str, asked: list[str]) -> None:
        pipeline = status.find(name)
        if pipeline is None:
            text = f"no pipeline {name!r}; pipelines: {', '.join(status.names) or 'none yet'}\n"
            self._answer(HTTPStatus.NOT_FOUND, _TEXT, text.encode())
            return
        action = asked[-1]
        if len(asked) > 1:
            self._request(pipeline, action)
            return
        if action not in {*RunAction}:
            text = f"no action {unquote(action)!r}; actions: {', '.join(RunAction)}\n"
            self._answer(HTTPStatus.NOT_FOUND, _TEXT, text.encode())
            return
        possible = pipeline.possible_actions()
        if action not in possible:
            text = f"not possible now; possible: {', '.join(possible) or 'nothing'}\n"
            self._answer(HTTPStatus.CONFLICT, _TEXT, text.encode())
            return
        pipeline.perform(RunAction(action))
        self._answer(HTTPStatus.ACCEPTED, _TEXT, f"asked to {action}\n".encode())

    def _request(self, pipeline: PipelineStatus, service: str) -> None:
        """Ask a pipeline for a table service."""
        if service not in {*RunnableService}:
            text = f"no service {unquote(service)!r}; services: {', '.join(RunnableService)}\n"
            self._answer(HTTPStatus.NOT_FOUND, _TEXT, text.encode())
            return
        possible = pipeline.possible_services()
        if service not in possible:
            text = f"not possible now; possible: {', '.join(possible) or 'nothing'}\n"
            self._answer(HTTPStatus.CONFLICT, _TEXT, text.encode())
            return
        pipeline.request(RunnableService(service))
        self._answer(HTTPStatus.ACCEPTED, _TEXT, f"asked to run {service}\n".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing, because the output belongs to the run."""

    def _answer_metrics(self) -> None:
        try:
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            text = encode(self.server.registry)
        except Exception as error:  # without an answer, the client would assume a network failure
            self._answer_failure("/metrics", "the metrics", error)
        else:
            self._answer(HTTPStatus.OK, content_type, text)

    def _answer_health(self, path: str) -> None:
        verdict = self.server.health.verdict()
        is_good = verdict.is_alive if path == "/health" else verdict.is_ready
        status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
        self._answer(status, _TEXT, f"{verdict.reason}\n".encode())

    def _answer_status(self, status: ProcessStatus, query: Mapping[str, list[str]]) -> None:
        names = query.get("pipeline", [])
        try:
            text = status.to_json(names[0] if names else None)
        except Exception as error:  # as for the metrics
            self._answer_failure("/status.json", "the status", error)
        else:
            self._answer(HTTPStatus.OK, _JSON, text, _UNCACHED)

    def _answer_failure(self, path: str, what: str, error: Exception) -> None:
        name = type(error).__name__
        _LOG.error(
            "%s answers 500, because %s cannot be collected: %s: %s", path, what, name, error
        )
        self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, b"see the log of the run\n")

    def _answer(
        self,
        status: HTTPStatus,
        content_type: str,
        body: bytes,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _names_action(parts: list[str]) -> bool:
    """Return whether a path is ``/pipelines/NAME/ACTION`` or ``…/services/SERVICE``."""
    if len(parts) == _SERVICE_PARTS and parts[3] != "services":
        return False
    return len(parts) in (_ACTION_PARTS, _SERVICE_PARTS) and parts[1] == "pipelines"


def _open_server(
    host: str,
    port: int,
    registry: CollectorRegistry,
    health: Judge,
    status: ProcessStatus | None = None,
) -> _Server:
    try:
        return _Server((host, port), registry, health, status)
    except OSError as error:
        raise CannotListen(host, port, error.strerror or str(error)) from None
