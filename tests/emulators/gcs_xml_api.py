"""The XML API of Google Cloud Storage in front of fake-gcs-server, for clients that write with it.

obstore writes with the XML API, of which fake-gcs-server 1.56 has only reads, listings and
deletions (its issue 331). This server forwards these requests, and translates writes into the JSON
API. fake-gcs-server alone decides whether the condition of a write holds. It ignores the conditions
of copies. So this server replaces a copy by a read and a conditional upload, and handles no other
write in between. It also collects the parts of multipart uploads.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from uuid import uuid4
from xml.sax.saxutils import escape

#: The host for which fake-gcs-server answers with its XML API.
_XML_HOST = "storage.googleapis.com"
_WITHIN_S = 60.0
_PASSED_ON = ("content-type", "content-range", "etag", "last-modified", "x-goog-generation")
_NOT_FOUND = b"<Error><Code>NoSuchKey</Code></Error>"


class Answer(NamedTuple):
    """An answer of either server. The names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Translation:
    """Translates requests for fake-gcs-server, and collects the parts of multipart uploads."""

    port: int
    changing: Lock = field(default_factory=Lock)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)

    def ask(
        self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request to fake-gcs-server."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_WITHIN_S)
        connection.request(method, target, body, {"Host": _XML_HOST, **(headers or {})})
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        made = Answer(answer.status, found, answer.read())
        connection.close()
        return made

    def upload(self, path: str, data: bytes, condition: str | None) -> Answer:
        """Write an object, if its generation is the one that ``condition`` names."""
        bucket, _, name = unquote(path).removeprefix("/").partition("/")
        query = {"uploadType": "media", "name": name}
        if condition is not None:
            query["ifGenerationMatch"] = condition
        target = f"/upload/storage/v1/b/{quote(bucket)}/o?{urlencode(query)}"
        answer = self.ask("POST", target, data, {"Content-Type": "application/octet-stream"})
        if answer.status != 200:
            return Answer(answer.status, {}, answer.body)
        made = json.loads(answer.body)
        return Answer(200, {"etag": made["etag"], "x-goog-generation": made["generation"]}, b"")

    def copy(self, source: str, path: str, condition: str | None) -> Answer:
        """Write an object with the content of another."""
        found = self.ask("GET", f"/{source.removeprefix('/')}")
        if found.status != 200:
            return Answer(404, {}, _NOT_FOUND)
        made = self.upload(path, found.body, condition)
        body = b"<CopyObjectResult/>" if made.status == 200 else made.body
        return Answer(made.status, made.headers, body)

    def begin_parts(self) -> Answer:
        """Begin a multipart upload."""
        upload = uuid4().hex
        self.uploads[upload] = {}
        text = f"<UploadId>{upload}</UploadId>"
        body = f"<InitiateMultipartUploadResult>{text}</InitiateMultipartUploadResult>"
        return Answer(200, {}, body.encode())

    def complete_parts(self, path: str, upload: str) -> Answer:
        """Write an object from its parts."""
        parts = self.uploads.pop(upload)
        made = self.upload(path, b"".join(data for _, data in sorted(parts.items())), None)
        text = f"<ETag>{escape(made.headers.get('etag', ''))}</ETag>"
        body = f"<CompleteMultipartUploadResult>{text}</CompleteMultipartUploadResult>"
        return Answer(made.status, made.headers, body.encode())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet for head and body
    disable_nagle_algorithm = True

    def __init__(self, translation: Translation, *arguments: object) -> None:
        self._translation = translation
        super().__init__(*arguments)  # type: ignore[arg-type]

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, because the tests provoke refused requests."""

    def do_GET(self) -> None:
        self._send(self._pass_on())

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        upload = self._query().get("uploadId")
        if upload is not None:
            self._translation.uploads.pop(upload, None)
            self._send(Answer(204, {}, b""))
            return
        with self._translation.changing:
            self._send(self._pass_on())

    def do_PUT(self) -> None:
        body, query = self._body(), self._query()
        if "partNumber" in query:
            self._translation.uploads[query["uploadId"]][int(query["partNumber"])] = body
            self._send(Answer(200, {"etag": f'"{uuid4().hex}"'}, b""))
            return
        source = self.headers.get("x-goog-copy-source")
        condition = self.headers.get("x-goog-if-generation-match")
        path = urlsplit(self.path).path
        with self._translation.changing:
            if source is None:
                self._send(self._translation.upload(path, body, condition))
            else:
                self._send(self._translation.copy(source, path, condition))

    def do_POST(self) -> None:
        self._body()
        query = self._query()
        if "uploadId" not in query:
            self._send(self._translation.begin_parts())
            return
        with self._translation.changing:
            path = urlsplit(self.path).path
            self._send(self._translation.complete_parts(path, query["uploadId"]))

    def _pass_on(self) -> Answer:
        span = self.headers.get("Range")
        headers = {} if span is None else {"Range": span}
        return self._translation.ask(self.command, self.path, self._body(), headers)

    def _query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name in _PASSED_ON:
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        is_head = self.command == "HEAD"
        size_bytes = answer.headers.get("content-length", "0") if is_head else len(answer.body)
        self.send_header("Content-Length", str(size_bytes))
        self.end_headers()
        if not is_head:
            self.wfile.write(answer.body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True


@contextmanager
def xml_api(port: int) -> Iterator[str]:
    """Run a server that answers like Google's, in front of the fake-gcs-server at ``port``."""
    server = _Server(("127.0.0.1", 0), partial(_Handler, Translation(port)))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
