"""Requests to the metrics and health endpoint of a run."""

from __future__ import annotations

import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families


def get(port: int, path: str) -> tuple[int, str]:
    """Return the status and the text of an answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def post(port: int, path: str, token: str | None = None, body: bytes = b"") -> tuple[int, str]:
    """Send a request with a body and perhaps a token; return the status and the text."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    url = f"http://127.0.0.1:{port}{path}"
    request = urllib.request.Request(url, body, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def scraped(port: int) -> dict[str, float]:
    """Return every sample by its name, followed by its partition or table if it has one."""
    return {
        sample.name + sample.labels.get("partition", sample.labels.get("table", "")): sample.value
        for family in text_string_to_metric_families(get(port, "/metrics")[1])
        for sample in family.samples
    }
