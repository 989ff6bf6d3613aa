"""The protocol of storages.

``tests/contract/test_storage.py`` tests these invariants on every implementation:

- Readers see an object completely or not at all. All processes see the object once it was written.
- ``create`` never replaces an object. If two callers create the same path with different content,
  exactly one caller succeeds.
- ``publish`` creates an object from a prepared object, and fails if the prepared object was
  deleted. So a process that deletes the prepared object first prevents the publication. This is how
  a paused writer is fenced.
- A folder exists as long as it contains an object at any depth. Only a local storage keeps some
  empty folders, namely those that each commit of a table uses.
- Paths are relative, with ``/`` between segments, and without ``..``, empty segments or control
  characters.
- A listing never hides a folder. Only files are hidden, namely staging files and checksums.
- An object survives a power failure once ``make_durable`` has returned. Before that, a power
  failure may lose the object, and may restore a deleted object. An object can be truncated only if
  the writer has allowed this (``may_be_cut``), or if the object was written as a stream.
- Every method raises ``StorageUnavailable`` if the store does not answer in time. Then it is
  unknown whether a write was executed. Call the method again with the same arguments, or read the
  object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import BinaryIO, Protocol

from lakemark.errors import HudiError, InvalidConfig, Permanent

#: Control characters, and halves of surrogate pairs, which cannot be encoded as UTF-8.
_REFUSED_CHARACTERS = r"[\x00-\x1f\x7f\ud800-\udfff]"

#: Names that objects must not have. A local storage uses names that end in "#" and digits for
#: unfinished files. Folders may have such names.
REFUSED_IN_PATHS = rf"{_REFUSED_CHARACTERS}|#[0-9]+\Z"


class InvalidPath(Permanent, ValueError):
    """The path is outside the table's root, or at least one kind of store refuses it."""


class NotFound(Permanent):
    """There is no object at the path."""


class AlreadyExists(HudiError):
    """An object that was to be created exists. Read the object to find out who wrote it."""


class AccessDenied(InvalidConfig):
    """The store knows these credentials, or this user, but does not allow the request."""


class PreconditionFailed(HudiError):
    """The version that was to be replaced is no longer the current version."""


@dataclass(frozen=True, slots=True)
class StorageLocation:
    """The location of a table, and the options for access. The object can be pickled for workers.

    Attributes:
        url: ``file:///…`` or a plain local path, ``s3://bucket/prefix`` (``s3a://``), ``gs://``,
            ``az://container/prefix`` (``abfss://``), or ``memory://name``. The URL is not
            percent-decoded.
        options: the options of the store's client (endpoint, keys), which are never printed. The
            client takes missing options from environment variables (``AWS_…``, ``GOOGLE_…``,
            ``AZURE_…``).
    """

    url: str
    options: dict[str, str] = field(default_factory=dict, repr=False)

    def child(self, folder: str) -> StorageLocation:
        """Return the location of a folder below this location, with the same options."""
        return StorageLocation(f"{self.url.rstrip('/')}/{check_folder(folder)}", self.options)


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object in a listing. The ``path`` is relative to the storage's root."""

    path: str
    size_bytes: int
    modified_at: datetime
    etag: str | None = None

    @property
    def name(self) -> str:
        """The last segment of the path."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def folder(self) -> str:
        """The path without its last segment; "" for the root."""
        return self.path.rpartition("/")[0]


class StreamingFile(Protocol):
    """A file that is written from start to end, and is not visible before ``close``."""

    @property
    def closed(self) -> bool:
        """Whether the file was closed or aborted. pyarrow requires this property."""
        ...

    def write(self, data: bytes | memoryview, /) -> int:
        """Append bytes. The use of memory is bounded, for any size of the file."""
        ...

    def close(self) -> int:
        """Make the complete file visible; return its size in bytes. A second call does nothing.

        Raises:
            AlreadyExists: a file with different content exists. A file with the same content is
                accepted.
        """
        ...

    def abort(self) -> None:
        """Discard the file. May be called at any time, but has no effect after ``close``."""
        ...


class Storage(Protocol):
    """The objects below one root on one store. All paths are relative to the root."""

    @property
    def location(self) -> StorageLocation:
        """The location that opens the same root in another process."""
        ...

    @property
    def supports_compare_and_swap(self) -> bool:
        """Whether ``replace`` is supported: true for object stores and memory, not a local disk."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether requests pass a network, so that waiting for each of them costs time.

        True for object stores and memory, not for a local disk.
        """
        ...

    def read(self, path: str) -> bytes:
        """Read the whole object.

        Raises:
            NotFound: there is no such object.
        """
        ...

    def read_versioned(self, path: str) -> tuple[bytes, str | None]:
        """Read the whole object, and its version for ``replace`` (an opaque text).

        Raises:
            NotFound: there is no such object.
        """
        ...

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Open an object for random access by pyarrow (``read``, ``seek``, ``tell``).

        Raises:
            NotFound: there is no such object. If the object is deleted later, reading from the file
                may raise this error, too.
        """
        ...

    def head(self, path: str) -> ObjectInfo | None:
        """Return the size and version of an object; None if there is no such object."""
        ...

    def set_modified_at(self, path: str, moment: datetime) -> bool:
        """Set the modification time of an object; return false if the store does not allow that.

        Raises:
            NotFound: there is no such object.
        """
        ...

    def list_folder(self, folder: str) -> tuple[list[str], list[ObjectInfo]]:
        """Return the paths of the folders, and the objects, directly inside ``folder``.

        The root is "".
        """
        ...

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        """List every object at any depth below ``folder``."""
        ...

    def create(self, path: str, data: bytes, *, may_be_cut: bool = False) -> None:
        """Create a new object.

        If the store's answer is lost, the object is read. An existing object with the same content
        counts as created.

        Args:
            path: the path of the object.
            data: the object's content.
            may_be_cut: whether a power failure before the next ``make_durable`` may leave the
                object empty or incomplete. True is faster on a local disk, for objects that are not
                read after a power failure.

        Raises:
            AlreadyExists: an object with different content exists; it is not changed.
        """
        ...

    def create_streaming(self, path: str) -> StreamingFile:
        """Create a new object from start to end, for files that may not fit in memory.

        A power failure before the next ``make_durable`` may leave the object incomplete.
        """
        ...

    def put(self, path: str, data: bytes, *, may_be_cut: bool = False) -> None:
        """Write or replace an object; see ``create`` for ``may_be_cut``."""
        ...

    def replace(self, path: str, data: bytes, version: str) -> str:
        """Replace an object if its version is unchanged; return the new version.

        If the store's answer is lost, the object is read. If the object has the same content, the
        call counts as successful. So the content of a lock must be unique to its writer.

        Raises:
            PreconditionFailed: the object was changed or deleted in the meantime.
            Unsupported: the storage is a local disk, which has no compare-and-swap.
        """
        ...

    def make_durable(self, path: str | None = None) -> None:
        """Make all earlier writes and deletes of this process survive a power failure.

        An object store keeps every acknowledged object, so nothing needs to be done there. On a
        local disk, changes are forced to the disk (``fsync``).

        Args:
            path: only the object at this path, and the names in its folder, are made durable. No
                earlier failure of another object is raised. None for all objects.

        Raises:
            StorageUnavailable: the disk failed; writes may be lost.
        """
        ...

    def publish(self, prepared: str, path: str) -> None:
        """Create ``path`` from the object at ``prepared``, in one atomic step of the store.

        The prepared object is made durable before ``path`` is created, and ``path`` is durable when
        this method returns. Other objects are not made durable. If ``path`` depends on other
        objects, call ``make_durable`` first.

        A second call with the same arguments is harmless. The store itself reads the prepared
        object. So if ``prepared`` is deleted while the process is paused, the call fails.

        Raises:
            NotFound: neither the prepared object nor ``path`` exists.
            OutcomeUnknown: the prepared object does not exist, but ``path`` does.
            AlreadyExists: ``path`` exists with different content.
        """
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects. Missing objects are ignored."""
        ...

    def make_folder(self, folder: str) -> None:
        """Create an empty folder, for other programs that list the folder.

        The folder is removed when its last object is deleted. On an object store, this method does
        nothing.
        """
        ...


def check_path(path: str) -> str:
    """Return the path if every store accepts it as an object's path.

    Raises:
        InvalidPath: the path is outside the root, or a store refuses the path.
    """
    return _check(path, REFUSED_IN_PATHS)


def check_folder(path: str) -> str:
    """Return the path if every store accepts it as a folder; else raise ``InvalidPath``."""
    return _check(path, _REFUSED_CHARACTERS)


def _check(path: str, refused: str) -> str:
    segments = path.split("/")
    if any(s in ("", ".", "..") for s in segments) or re.search(refused, path):
        message = f"not a path inside the table: {path!r}"
        raise InvalidPath(message)
    return path
