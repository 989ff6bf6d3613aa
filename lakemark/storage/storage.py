"""What the table format asks of a place to keep files.

Invariants every implementation keeps, and ``tests/contract/test_storage.py`` proves on each:

- an object appears whole or not at all, and is seen by everyone once it was written;
- ``create`` never replaces; two callers creating one path with unlike bytes: exactly one succeeds;
- ``publish`` makes one object out of a prepared one, and fails once the prepared one is gone, so
  that whoever deletes it first has the last word (the fence of the commit);
- a folder is there as long as an object lies below it;
- paths are relative, ``/`` between segments, without ``..``, empty segments or control characters;
- a listing never hides a folder: which names are staging files or checksums concerns files alone;
- an object survives a power failure once ``make_durable`` returned; before that it may be missing,
  as what was deleted may be back, but it is never there cut, unless its writer allowed that;
- every method raises ``StorageUnavailable`` when the store does not answer in time. Of a write
  that did, nobody knows whether it landed: call it again with the same arguments, or look.
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

#: What no object is called; folders may end in "#" and digits, under which local stores keep
#: unfinished files.
REFUSED_IN_PATHS = rf"{_REFUSED_CHARACTERS}|#[0-9]+\Z"


class InvalidPath(Permanent, ValueError):
    """A path that leaves the table's root, or that some store refuses."""


class NotFound(Permanent):
    """No object at this path."""


class AlreadyExists(HudiError):
    """An object that was to be created is there already; reading it tells whose it is."""


class PreconditionFailed(HudiError):
    """The object is no longer the version that was to be replaced."""


@dataclass(frozen=True, slots=True)
class StorageLocation:
    """Where a table lies, and how to get there; small, and picklable to workers.

    Attributes:
        url: ``file:///…`` or a plain local path, ``s3://bucket/prefix`` (``s3a://``), ``gs://``,
            ``az://container/prefix`` (``abfss://``), ``memory://name``. Taken as it is written,
            without percent-decoding.
        options: what the store's client needs (endpoint, keys); never printed. Its environment
            variables (``AWS_…``, ``GOOGLE_…``, ``AZURE_…``) fill in what is not given.
    """

    url: str
    options: dict[str, str] = field(default_factory=dict, repr=False)

    def child(self, folder: str) -> StorageLocation:
        """A folder of this place as a root of its own, reached in the same way."""
        return StorageLocation(f"{self.url.rstrip('/')}/{check_folder(folder)}", self.options)


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as a listing shows it; ``path`` is relative to the storage's root."""

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
    """A file being written front to back; nothing is visible before ``close``."""

    @property
    def closed(self) -> bool:
        """Whether it takes no more bytes (closed or aborted); pyarrow asks for it."""
        ...

    def write(self, data: bytes | memoryview, /) -> int:
        """Append bytes; bounded memory, whatever the size of the file."""
        ...

    def close(self) -> int:
        """Make the whole file visible; returns its size in bytes. Closing again does nothing.

        Raises:
            AlreadyExists: a file with other bytes lies there. The same bytes count as ours.
        """
        ...

    def abort(self) -> None:
        """Forget what was written; safe to call at any time. After ``close`` the file stays."""
        ...


class Storage(Protocol):
    """One root on one store. All paths are relative to it."""

    @property
    def location(self) -> StorageLocation:
        """What opens the same root elsewhere."""
        ...

    @property
    def supports_compare_and_swap(self) -> bool:
        """Whether ``replace`` works (object stores and memory, not a local disk)."""
        ...

    def read(self, path: str) -> bytes:
        """The whole object.

        Raises:
            NotFound: nothing lies there.
        """
        ...

    def read_versioned(self, path: str) -> tuple[bytes, str | None]:
        """The whole object and the version that ``replace`` expects (an e-tag, opaque).

        Raises:
            NotFound: nothing lies there.
        """
        ...

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Random access to an object, as pyarrow wants it (``read``, ``seek``, ``tell``).

        Raises:
            NotFound: nothing lies there; also while reading, once the object was removed.
        """
        ...

    def head(self, path: str) -> ObjectInfo | None:
        """Size and version of an object, or None when nothing lies there."""
        ...

    def set_modified_at(self, path: str, moment: datetime) -> bool:
        """Say when an object was last written; False where the store does not let anybody say so.

        Raises:
            NotFound: nothing lies there.
        """
        ...

    def list_folder(self, folder: str) -> tuple[list[str], list[ObjectInfo]]:
        """Folders (paths) and objects directly inside ``folder`` ("" is the root); may be empty."""
        ...

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        """Every object at any depth below ``folder``."""
        ...

    def create(self, path: str, data: bytes, *, may_be_cut: bool = False) -> None:
        """Write a new object.

        An answer that is lost on the way is settled by reading: the same bytes count as ours.

        Args:
            path: of the object.
            data: its content.
            may_be_cut: whether a power failure before the next ``make_durable`` may leave the
                object empty or cut. Faster on a local disk, for what nobody reads then.

        Raises:
            AlreadyExists: other bytes lie there; they are untouched.
        """
        ...

    def create_streaming(self, path: str) -> StreamingFile:
        """A new object written front to back, for files that may not fit in memory.

        A power failure before the next ``make_durable`` may leave it cut.
        """
        ...

    def put(self, path: str, data: bytes, *, may_be_cut: bool = False) -> None:
        """Write or replace an object; ``may_be_cut`` as for ``create``."""
        ...

    def replace(self, path: str, data: bytes, version: str) -> str:
        """Replace exactly the version that was read; returns the new one.

        An answer that is lost on the way is settled by reading: the same bytes count as ours, so
        what excludes others (a lock) writes bytes that nobody else would.

        Raises:
            PreconditionFailed: the object changed or went away since.
            Unsupported: a local disk, which has no compare-and-swap.
        """
        ...

    def make_durable(self) -> None:
        """Return once what this process wrote and deleted here survives a power failure.

        An object store keeps what it has acknowledged; a local disk is forced to.

        Raises:
            StorageUnavailable: the disk failed; what was written is not to be relied on.
        """
        ...

    def publish(self, prepared: str, path: str) -> None:
        """Make ``path`` out of the object at ``prepared``, at once and by the store itself.

        What this process wrote here before is durable before ``path`` appears.

        A second call with the same arguments is harmless. Not a read followed by a write: a
        process stopped before the call and resumed after ``prepared`` was deleted fails.

        Raises:
            NotFound: the prepared object is gone, and nothing lies at ``path``.
            OutcomeUnknown: the prepared object is gone, yet something lies at ``path``.
            AlreadyExists: other bytes lie at ``path``.
        """
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Remove objects; those that are gone already do not count as failures."""
        ...

    def make_folder(self, folder: str) -> None:
        """Have a folder there for others who list it before it holds anything.

        Deleting the last object in it removes it. An object store has no folders to make.
        """
        ...


def check_path(path: str) -> str:
    """``path`` itself, if an object may be written there on every store.

    Raises:
        InvalidPath: it would leave the root, or a store refuses it.
    """
    return _check(path, REFUSED_IN_PATHS)


def check_folder(path: str) -> str:
    """``path`` itself, if objects may be written below it on every store; errors as above."""
    return _check(path, _REFUSED_CHARACTERS)


def _check(path: str, refused: str) -> str:
    segments = path.split("/")
    if any(s in ("", ".", "..") for s in segments) or re.search(refused, path):
        message = f"not a path inside the table: {path!r}"
        raise InvalidPath(message)
    return path
