"""The protocol of storages.

Invariants of every implementation, which ``tests/contract/test_storage.py`` tests on each:

- An object appears whole or not at all, and all processes see it once it was written.
- ``create`` never replaces. If two callers create one path with different content, exactly one
  succeeds.
- ``publish`` creates an object from a prepared one, and fails if the prepared one was deleted. So a
  process that deletes it first stops the publication (the fence of the commit).
- A folder exists as long as an object is below it.
- Paths are relative, with ``/`` between segments, and without ``..``, empty segments or control
  characters.
- A listing never hides a folder; only files may be staging files or checksums.
- An object survives a power failure once ``make_durable`` has returned. Before that it may be
  missing, and a deleted object may be back. A part of an object remains only if its writer has
  allowed that (``may_be_cut``).
- Every method raises ``StorageUnavailable`` if the store does not answer in time. Then a write may
  or may not have been carried out: call it again with the same arguments, or read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import BinaryIO, Protocol

from lakemark.errors import HudiError, Permanent

#: Control characters, and halves of surrogate pairs, which have no UTF-8.
_REFUSED_CHARACTERS = r"[\x00-\x1f\x7f\ud800-\udfff]"

#: Names that objects must not have. Folders may end in "#" and digits; local storages use such
#: names for unfinished files.
REFUSED_IN_PATHS = rf"{_REFUSED_CHARACTERS}|#[0-9]+\Z"


class InvalidPath(Permanent, ValueError):
    """The path is outside the table's root, or some store refuses it."""


class NotFound(Permanent):
    """There is no object at the path."""


class AlreadyExists(HudiError):
    """An object that was to be created already exists; read it to find out which writer's it is."""


class PreconditionFailed(HudiError):
    """The version that was to be replaced is not the current one any more."""


@dataclass(frozen=True, slots=True)
class StorageLocation:
    """The location of a table and the options to access it; small, and picklable to workers.

    Attributes:
        url: ``file:///…`` or a plain local path, ``s3://bucket/prefix`` (``s3a://``), ``gs://``,
            ``az://container/prefix`` (``abfss://``), ``memory://name``. It is not
            percent-decoded.
        options: of the store's client (endpoint, keys); never printed. Missing ones are taken from
            its environment variables (``AWS_…``, ``GOOGLE_…``, ``AZURE_…``).
    """

    url: str
    options: dict[str, str] = field(default_factory=dict, repr=False)

    def child(self, folder: str) -> StorageLocation:
        """Return a folder of this location as a location of its own, with the same options."""
        return StorageLocation(f"{self.url.rstrip('/')}/{check_folder(folder)}", self.options)


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object of a listing; ``path`` is relative to the storage's root."""

    path: str
    size_bytes: int
    modified_at: datetime
    etag: str | None = None

    @property
    def name(self) -> str:
        """Last segment of the path."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def folder(self) -> str:
        """The path without its last segment; "" for the root."""
        return self.path.rpartition("/")[0]


class StreamingFile(Protocol):
    """A file that is written front to back, and is not visible before ``close``."""

    @property
    def closed(self) -> bool:
        """Whether it was closed or aborted; pyarrow requires it."""
        ...

    def write(self, data: bytes | memoryview, /) -> int:
        """Append bytes. Memory is bounded, for any size of the file."""
        ...

    def close(self) -> int:
        """Make the whole file visible; returns its size in bytes. Closing again does nothing.

        Raises:
            AlreadyExists: a file with different content exists. A file with the same content is
                accepted.
        """
        ...

    def abort(self) -> None:
        """Discard the file; may be called at any time. Has no effect after ``close``."""
        ...


class Storage(Protocol):
    """One root on one store. All paths are relative to it."""

    @property
    def location(self) -> StorageLocation:
        """Opens the same root in another process."""
        ...

    @property
    def supports_compare_and_swap(self) -> bool:
        """Whether ``replace`` works (object stores and memory, not a local disk)."""
        ...

    def read(self, path: str) -> bytes:
        """Read the whole object.

        Raises:
            NotFound: there is no such object.
        """
        ...

    def read_versioned(self, path: str) -> tuple[bytes, str | None]:
        """Read the whole object and the version that ``replace`` expects (an opaque e-tag).

        Raises:
            NotFound: there is no such object.
        """
        ...

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Open an object for random access by pyarrow (``read``, ``seek``, ``tell``).

        Raises:
            NotFound: there is no such object; also while reading, if the object was deleted.
        """
        ...

    def head(self, path: str) -> ObjectInfo | None:
        """Return the size and version of an object; None if there is no such object."""
        ...

    def set_modified_at(self, path: str, moment: datetime) -> bool:
        """Set the modification time of an object; False if the store does not allow that.

        Raises:
            NotFound: there is no such object.
        """
        ...

    def list_folder(self, folder: str) -> tuple[list[str], list[ObjectInfo]]:
        """List folders (paths) and objects directly inside ``folder`` ("" is the root)."""
        ...

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        """List every object at any depth below ``folder``."""
        ...

    def create(self, path: str, data: bytes, *, may_be_cut: bool = False) -> None:
        """Create a new object.

        If an answer is lost, the object is read: an object with the same content is accepted.

        Args:
            path: of the object.
            data: its content.
            may_be_cut: whether a power failure before the next ``make_durable`` may leave the
                object empty or incomplete. This is faster on a local disk, for objects that are not
                read after a power failure.

        Raises:
            AlreadyExists: an object with different content exists; it is not changed.
        """
        ...

    def create_streaming(self, path: str) -> StreamingFile:
        """Create a new object front to back, for files that may not fit in memory.

        A power failure before the next ``make_durable`` may leave it incomplete.
        """
        ...

    def put(self, path: str, data: bytes, *, may_be_cut: bool = False) -> None:
        """Write or replace an object; ``may_be_cut`` as for ``create``."""
        ...

    def replace(self, path: str, data: bytes, version: str) -> str:
        """Replace the version that was read; returns the new version.

        If an answer is lost, the object is read: an object with the same content is accepted. So
        the content of a lock must be unique to its writer.

        Raises:
            PreconditionFailed: the object was changed or deleted in the meantime.
            Unsupported: on a local disk, which has no compare-and-swap.
        """
        ...

    def make_durable(self) -> None:
        """Return when all writes and deletes of this process survive a power failure.

        An object store keeps acknowledged objects; on a local disk, changes are forced (fsync).

        Raises:
            StorageUnavailable: the disk failed; writes may be lost.
        """
        ...

    def publish(self, prepared: str, path: str) -> None:
        """Create ``path`` from the object at ``prepared``, in one step of the store.

        The prepared object is durable before ``path`` appears, and ``path`` is durable when this
        returns. Other objects are not made durable: if ``path`` depends on them, call
        ``make_durable`` first.

        A second call with the same arguments is harmless. It is not a read followed by a write: if
        a process is paused before the call, and ``prepared`` is deleted, the call fails.

        Raises:
            NotFound: neither the prepared object nor ``path`` exists.
            OutcomeUnknown: the prepared object does not exist, but ``path`` does.
            AlreadyExists: ``path`` exists with different content.
        """
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects; missing ones are ignored."""
        ...

    def make_folder(self, folder: str) -> None:
        """Create an empty folder, for other programs that list it.

        Deleting the last object in it removes it. On an object store this does nothing.
        """
        ...


def check_path(path: str) -> str:
    """Return the path if an object may be written there on every store.

    Raises:
        InvalidPath: it is outside the root, or a store refuses it.
    """
    return _check(path, REFUSED_IN_PATHS)


def check_folder(path: str) -> str:
    """Return the path if objects may be written below it on every store; errors as above."""
    return _check(path, _REFUSED_CHARACTERS)


def _check(path: str, refused: str) -> str:
    segments = path.split("/")
    if any(s in ("", ".", "..") for s in segments) or re.search(refused, path):
        message = f"not a path inside the table: {path!r}"
        raise InvalidPath(message)
    return path
