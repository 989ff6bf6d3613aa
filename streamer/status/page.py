"""The status page: one HTML document with its style and script, which loads nothing else."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Page:
    """The page.

    Attributes:
        html: the document in UTF-8. It contains no values; its script asks for ``status.json``.
        policy: its Content-Security-Policy, which allows no other script and no other style.
    """

    html: bytes
    policy: str


@cache
def load_page() -> Page:
    """Read the page and compute its policy, at the first call."""
    style, script = _read("page.css"), _read("page.js")
    html = _read("page.html").replace("/* style */", style).replace("/* script */", script)
    policy = (
        "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; "
        f"form-action 'none'; frame-ancestors 'none'; script-src '{_digest(script)}'; "
        f"style-src '{_digest(style)}'"
    )
    return Page(html.encode(), policy)


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
