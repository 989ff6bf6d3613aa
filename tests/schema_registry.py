"""A server between a client and a schema registry. It adds faults that a registry rarely has.

For answers without faults, tests use a real registry (``tests/fixtures/schema_registry.py``), which
may be behind this server.
"""

from __future__ import annotations

import json
import urllib.request
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from urllib.error import HTTPError


class FaultyRegistry:
    """Listens on a port of this machine. After ``stop``, ``start`` listens on the same port again.

    Args:
        behind: url of the registry to which other requests are forwarded. If it is None, other
            requests get 404.

    Attributes:
        answers: prepared answers by the path of the request.
        asked: paths of all requests.
        failures: the statuses with which the next requests fail.
        sign_in: the value that the header ``Authorization`` must have; None if any is accepted.
        moved_to: the url to which all requests are redirected; None for no redirect.
    """

    def __init__(self, behind: str | None = None) -> None:
        self.answers: dict[str, object] = {}
        self.asked: list[str] = []
        self.failures: list[int] = []
        self.sign_in: str | None = None
        self.moved_to: str | None = None
        self._behind = behind
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self.start()

    @property
    def url(self) -> str:
        """The URL of this server."""
        return f"http://127.0.0.1:{self._port}"

    def require(self, user: str, password: str) -> None:
        """Refuse requests without the credentials of this user."""
        self.sign_in = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"

    def start(self) -> None:
        """Start to listen."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = registry._answer(self.path, self.headers.get("Authorization"))
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                if registry.moved_to is not None:
                    self.send_header("Location", f"{registry.moved_to}{self.path}")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> FaultyRegistry:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _answer(self, path: str, sign_in: str | None) -> tuple[int, bytes]:
        self.asked.append(path)
        if self.moved_to is not None:
            return 302, b"{}"
        if self.failures:
            return _failed(self.failures.pop(0))
        if self.sign_in not in (None, sign_in):
            return _failed(401)
        if path in self.answers:
            return 200, json.dumps(self.answers[path]).encode()
        if self._behind is None:
            return 404, json.dumps({"error_code": 40403, "message": "not found"}).encode()
        return _passed_on(f"{self._behind}{path}")


def _failed(status: int) -> tuple[int, bytes]:
    return status, json.dumps({"error_code": status, "message": "failed"}).encode()


def _passed_on(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read()
    except HTTPError as error:
        return error.code, error.read()
