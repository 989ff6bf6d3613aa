"""A schema registry for tests: a real server of the REST interface's reading side, over HTTP.

Answers and error codes are those of Confluent's documentation ("Schema Registry API Reference"):
``schemaType`` is left out for Avro, ``references`` where there are none.

No registry can be had from the package registries that tests may use: Confluent's and Karapace's
are not there, and Apicurio publishes no application that starts.
"""

from __future__ import annotations

import json
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any
from urllib.parse import unquote


class RegistryServer:
    """Listens on a port of this machine from ``start`` to ``stop``; then again on the same one.

    Attributes:
        schemas: text by id, or another whole answer.
        subjects: versions of each subject, oldest first, as answers to be.
        asked: paths of all requests.
        failures: statuses of the next answers.
        sign_in: what the header ``Authorization`` must be; None for no matter what.
        moved_to: where all requests are sent on to; None for nowhere.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, object] = {}
        self.subjects: dict[str, list[dict[str, Any]]] = {}
        self.asked: list[str] = []
        self.failures: list[int] = []
        self.sign_in: str | None = None
        self.moved_to: str | None = None
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self.start()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._port}"

    def require(self, user: str, password: str) -> None:
        """Answer this user only."""
        self.sign_in = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"

    def start(self) -> None:
        """Listen."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, answer = registry._answer(self.path, self.headers.get("Authorization"))
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                if registry.moved_to is not None:
                    self.send_header("Location", f"{registry.moved_to}{self.path}")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Hear nothing any more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> RegistryServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _answer(self, path: str, sign_in: str | None) -> tuple[int, object]:
        self.asked.append(path)
        if self.moved_to is not None:
            return 302, {}
        if self.failures:
            status = self.failures.pop(0)
            return status, {"error_code": status, "message": "failed"}
        if self.sign_in not in (None, sign_in):
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match path.strip("/").split("/"):
            case ["schemas", "ids", number]:
                return self._by_id(int(number))
            case ["subjects", subject, "versions", version]:
                return self._by_subject(unquote(subject), version)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _by_id(self, number: int) -> tuple[int, object]:
        if number not in self.schemas:
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        schema = self.schemas[number]
        return 200, {"schema": schema} if isinstance(schema, str) else schema

    def _by_subject(self, subject: str, version: str) -> tuple[int, object]:
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        versions = self.subjects[subject]
        place = len(versions) if version == "latest" else int(version)
        if not 0 < place <= len(versions):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        return 200, {"subject": subject, "version": place, "id": place, **versions[place - 1]}
