"""Checks, when a table opens, that its store has the guarantees that commits and locks need."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from uuid import uuid4

from lakemark.errors import HudiError, InvalidConfig, Unsupported
from lakemark.storage.storage import (
    AlreadyExists,
    InvalidPath,
    NotFound,
    PreconditionFailed,
    Storage,
)

_FOLDER = ".hoodie/.aux"


def check_conditional_puts(storage: Storage) -> None:
    """Check that the store refuses to create an object that exists, and to publish a missing one.

    The check writes probe objects, and deletes them at the end.

    Raises:
        InvalidConfig: nothing can be written to the storage.
        Unsupported: the store created an object that exists, replaced another version than the
            named one, or published from a prepared object that does not exist.
    """
    probe = f"{_FOLDER}/probe_{uuid4().hex}"
    other = f"{probe}_other"
    try:
        _create_first(storage, probe)
        _expect(storage, AlreadyExists, "a create-only put", lambda: storage.create(probe, b"2nd"))
        if storage.supports_compare_and_swap:
            _check_replace(storage, probe)
        storage.delete([probe])
        _expect(storage, NotFound, "a copy of no object", lambda: storage.publish(probe, other))
    finally:
        with suppress(HudiError):
            storage.delete([probe, other])


def _create_first(storage: Storage, path: str) -> None:
    """Write the first object. Errors name the storage, because users do not know the object."""
    try:
        storage.create(path, b"first")
    except NotFound:
        reason = "nothing can be written there; use another path, or create the folder"
    except (InvalidConfig, InvalidPath) as error:
        reason = str(error).partition(f"{path}: ")[2] or str(error)
    else:
        return
    message = f"{storage.location.url}: {reason}"
    raise InvalidConfig(message)


def _check_replace(storage: Storage, path: str) -> None:
    _, version = storage.read_versioned(path)
    stale = version or ""
    storage.replace(path, b"second", stale)
    _expect(
        storage,
        PreconditionFailed,
        "a put that replaces another version",
        lambda: storage.replace(path, b"third", stale),
    )


def _expect(
    storage: Storage, refusal: type[HudiError], what: str, request: Callable[[], object]
) -> None:
    try:
        request()
    except refusal:
        return
    message = (
        f"the store at {storage.location.url} accepts {what}, so two writers could both believe "
        "they had committed; use a store (or a newer release of it) with conditional requests"
    )
    raise Unsupported(message)
