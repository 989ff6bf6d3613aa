"""HTTP servers in place of an object store, for answers that a healthy store never gives."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Run a server with this handler during the block, and yield its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, because the tests provoke refused requests."""

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))


def answering(status: int, text: str = "") -> type[BaseHTTPRequestHandler]:
    """Return a handler that gives every request the same answer."""

    class Answering(Quiet):
        def do_GET(self) -> None:
            self.body()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text.encode())

        do_PUT = do_HEAD = do_POST = do_DELETE = do_GET

    return Answering


def checking_keys(endpoint: str, accepted: set[str]) -> type[BaseHTTPRequestHandler]:
    """Return a handler that forwards the requests that are signed with an accepted key to S3."""
    forwarding = losing_answers(endpoint, [])

    class CheckingKeys(forwarding):  # type: ignore[misc, valid-type]  # the class is a value
        def do_GET(self) -> None:
            signed = self.headers.get("Authorization", "")
            if any(f"Credential={key}/" in signed for key in accepted):
                super().do_GET()
                return
            self.body()
            text = b"<Error><Code>InvalidAccessKeyId</Code></Error>"
            self.send_response(403)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text)

        do_PUT = do_HEAD = do_POST = do_DELETE = do_GET

    return CheckingKeys


def losing_answers(endpoint: str, lost: list[str]) -> type[BaseHTTPRequestHandler]:
    """Return a handler that forwards requests to a store, and drops the answers of some.

    Args:
        endpoint: endpoint of the store.
        lost: methods whose next request is carried out but not answered. Each entry is used once.
    """
    address = urlsplit(endpoint).netloc

    class LosingAnswers(Quiet):
        def do_GET(self) -> None:
            store = http.client.HTTPConnection(address)
            headers = {name: text for name, text in self.headers.items() if name.lower() != "host"}
            store.request(self.command, self.path, self.body(), headers)
            answer = store.getresponse()
            data = answer.read()
            store.close()
            if self.command in lost:
                lost.remove(self.command)
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                    self.send_header(name, value)
            if answer.getheader("Content-Length") is None:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_PUT = do_HEAD = do_POST = do_DELETE = do_GET

    return LosingAnswers
