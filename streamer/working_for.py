"""The pipeline for which the current thread works, if a process runs several pipelines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_THREAD = threading.local()


@contextmanager
def working_for(pipeline: str) -> Iterator[None]:
    """Until the block ends, let ``current_pipeline`` return this name in the current thread."""
    before = current_pipeline()
    _THREAD.pipeline = pipeline
    try:
        yield
    finally:
        _THREAD.pipeline = before


def current_pipeline() -> str:
    """Return the name of the pipeline for which this thread works; "" if it is not known."""
    name: str = getattr(_THREAD, "pipeline", "")
    return name
