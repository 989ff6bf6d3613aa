"""A storage of objects through obstore: S3, GCS, Azure, or memory.

Invariants:
- ``create`` and ``replace`` are conditional puts of the store. If the store's answer is lost, the
  object is read to find out whether the put succeeded.
- ``publish`` is a copy that the store makes. The copy is create-only if the store supports that. On
  S3, a copy replaces an existing object, but no two published instants have the same name.
- A file of more than ``_SINGLE_PUT_BYTES`` is uploaded in parts. No store can do this
  conditionally, so ``create_streaming`` first checks that the path does not exist. Two writers of
  the same path upload the same bytes, because the name depends on the content.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count, islice
from typing import IO, TYPE_CHECKING, BinaryIO, Literal, cast

import obstore

from lakemark.errors import OutcomeUnknown, StorageUnavailable
from lakemark.storage.forks import refuse_after_fork
from lakemark.storage.range_reader import RangeReader
from lakemark.storage.same_content import same_content
from lakemark.storage.spooled_file import SpooledFile
from lakemark.storage.storage import (
    AlreadyExists,
    InvalidPath,
    NotFound,
    ObjectInfo,
    PreconditionFailed,
    Storage,
    StorageLocation,
    StreamingFile,
    check_folder,
    check_path,
)
from lakemark.storage.store_errors import StoreErrors

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode, PutResult, UpdateVersion
    from obstore.store import ObjectStore

# Up to this size, an object is read completely, because one request is faster than three ranges.
_SMALL_BYTES = 1 << 20
_SINGLE_PUT_BYTES = 16 << 20
_PART_BYTES = 8 << 20
_PARTS_AT_ONCE = 4

_CREATE_ATTEMPTS = 3

# Must be shorter than the time that a lease is still valid after ``Lease.check``.
_COPY_WAIT_S, _COPY_LOOK_AGAIN_S = 20.0, 0.05
_DELETE_BATCH = 1000


Reopen = Callable[[StorageLocation], Storage]


@dataclass(frozen=True, slots=True)
class StoreAbilities:
    """The differences between kinds of stores.

    Attributes:
        version: the field of the store's answer that identifies a version in conditional puts.
        copies_conditionally: whether a copy can be create-only.
        copies_in_background: whether the store may answer before a copy is complete (``Copy Blob``
            of Azure, status ``pending``). Until then, the new object exists but is empty.
        reads_backslashes_as_slashes: whether the store replaces backslashes in names with slashes,
            as Azure does.
    """

    version: Literal["e_tag", "version"] = "e_tag"
    copies_conditionally: bool = True
    copies_in_background: bool = False
    reads_backslashes_as_slashes: bool = False


class ObjectStorage:
    """The objects below a prefix of a bucket or container.

    Args:
        location: the location that opens the same root in another process.
        store: the client of the bucket.
        prefix: the path of the root in the bucket.
        abilities: the features of the store.
        reopen: opens a location in the process that unpickles the storage.
    """

    def __init__(
        self,
        location: StorageLocation,
        store: ObjectStore,
        prefix: str,
        abilities: StoreAbilities,
        reopen: Reopen,
    ) -> None:
        self._location, self._reopen = location, reopen
        self._store = store
        self._prefix = f"{prefix}/" if prefix else ""
        self._abilities = abilities
        self._errors = StoreErrors(location.url, location.options)

    def __repr__(self) -> str:
        return f"ObjectStorage({self._location.url!r})"

    def __reduce__(self) -> tuple[Reopen, tuple[StorageLocation]]:
        """Unpickle by opening the location, so that the other process has its own client."""
        return self._reopen, (self._location,)

    @property
    def location(self) -> StorageLocation:
        """The location that opens the same root in another process."""
        return self._location

    @property
    def supports_compare_and_swap(self) -> bool:
        """Always true."""
        return True

    @property
    def is_remote(self) -> bool:
        """Always true."""
        return True

    def read(self, path: str) -> bytes:
        """See ``Storage.read``."""
        return self.read_versioned(path)[0]

    def read_versioned(self, path: str) -> tuple[bytes, str | None]:
        """See ``Storage.read_versioned``."""
        with self._request(path):
            answer = obstore.get(self._store, self._key(path))
            return answer.bytes().to_bytes(), self._version_of(answer.meta)

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """See ``Storage.open``. A small object is read in one request, a large object in ranges."""
        with self._request(path):
            answer = obstore.get(self._store, self._key(path))
            size_bytes = answer.meta["size"]
            if size_bytes <= _SMALL_BYTES:
                return io.BytesIO(answer.bytes().to_bytes())
        reader = RangeReader(lambda start, length: self._range(path, start, length), size_bytes)
        return cast(BinaryIO, reader)

    def head(self, path: str) -> ObjectInfo | None:
        """See ``Storage.head``."""
        try:
            with self._request(path):
                return self._info(obstore.head(self._store, self._key(path)))
        except NotFound:
            return None

    def set_modified_at(self, path: str, moment: datetime) -> bool:
        """Return false, because only the store can set the modification time of an object."""
        return False

    def list_folder(self, folder: str) -> tuple[list[str], list[ObjectInfo]]:
        """See ``Storage.list_folder``."""
        with self._request(folder):
            answer = obstore.list_with_delimiter(self._store, self._folder_key(folder))
            folders = sorted(self._path(key) for key in answer["common_prefixes"])
            infos = [self._info(meta) for meta in answer["objects"]]
        return folders, _without_markers(infos, {folder, *folders})

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        """See ``Storage.list_tree``."""
        with self._request(folder):
            metas = obstore.list(self._store, self._folder_key(folder)).collect()
            infos = [self._info(meta) for meta in metas]
        return _without_markers(infos, {folder, *_folders_above(infos)})

    def create(self, path: str, data: bytes, *, may_be_cut: bool = False) -> None:
        """See ``Storage.create``."""
        for attempt in count(1):
            try:
                self._put(path, data, "create")
            except (AlreadyExists, StorageUnavailable):
                with suppress(NotFound):
                    if self.read(path) != data:
                        raise _content_mismatch(path) from None
                    return
                if attempt == _CREATE_ATTEMPTS:
                    raise
            else:
                return

    def create_streaming(self, path: str) -> StreamingFile:
        """See ``Storage.create_streaming``."""
        check_path(path)
        return SpooledFile(lambda file, size_bytes: self._create_from(path, file, size_bytes))

    def put(self, path: str, data: bytes, *, may_be_cut: bool = False) -> None:
        """See ``Storage.put``."""
        self._put(path, data, "overwrite")

    def replace(self, path: str, data: bytes, version: str) -> str:
        """See ``Storage.replace``."""
        expected: UpdateVersion = {"e_tag": version, "version": version}
        try:
            return self._put(path, data, expected)
        except (PreconditionFailed, StorageUnavailable):
            with suppress(NotFound):
                content, stored_version = self.read_versioned(path)
                if content == data and stored_version is not None:
                    return stored_version
            raise

    def make_durable(self, path: str | None = None) -> None:
        """Do nothing, because an object is durable once the store has answered."""

    def publish(self, prepared: str, path: str) -> None:
        """See ``Storage.publish``."""
        try:
            is_copied = self._copy(prepared, path)
            self._await_copy(prepared, path)
            if not is_copied and self.read(path) != self.read(prepared):
                raise _content_mismatch(path)
        except NotFound as error:
            if self.head(path) is None:
                message = f"{prepared} does not exist, and {path} was not created from it"
                raise NotFound(message) from error
            message = f"{prepared} does not exist, but {path} exists; check which writer created it"
            raise OutcomeUnknown(message) from error

    def delete(self, paths: Iterable[str]) -> None:
        """See ``Storage.delete``."""
        keys = iter([self._key(path) for path in paths])
        while batch := list(islice(keys, _DELETE_BATCH)):
            try:
                with self._request(self._path(batch[0])):
                    obstore.delete(self._store, batch)
            except NotFound:  # GCS and Azure stop at the first missing object
                self._delete_one_by_one(batch)

    def make_folder(self, folder: str) -> None:
        """Do nothing; see ``Storage.make_folder``."""

    def _request(self, path: str) -> AbstractContextManager[None]:
        refuse_after_fork()
        return self._errors.typed(path)

    def _key(self, path: str) -> str:
        return self._prefix + self._named_as_written(check_path(path))

    def _folder_key(self, folder: str) -> str | None:
        if folder:
            return self._prefix + self._named_as_written(check_folder(folder))
        return self._prefix.rstrip("/") or None

    def _named_as_written(self, path: str) -> str:
        """Return ``path``, after a check that the store uses exactly this name.

        Raises:
            InvalidPath: the store would change the name.
        """
        if self._abilities.reads_backslashes_as_slashes and "\\" in path:
            message = f"{path!r} has a backslash, which this store replaces with a slash"
            raise InvalidPath(message)
        return path

    def _path(self, key: str) -> str:
        """Return the path of a key, relative to the root; "" for the key of the root."""
        return f"{key}/".removeprefix(self._prefix).removesuffix("/")

    def _info(self, meta: ObjectMeta) -> ObjectInfo:
        path = self._path(meta["path"])
        return ObjectInfo(path, meta["size"], meta["last_modified"], _quoted(meta["e_tag"]))

    def _version_of(self, answer: ObjectMeta | PutResult) -> str | None:
        return answer[self._abilities.version]

    def _range(self, path: str, start: int, length_bytes: int) -> bytes:
        with self._request(path):
            key = self._key(path)
            return obstore.get_range(self._store, key, start=start, length=length_bytes).to_bytes()

    def _put(self, path: str, data: bytes, mode: PutMode) -> str:
        with self._request(path):
            key = self._key(path)
            answer = obstore.put(self._store, key, data, mode=mode, use_multipart=False)
        return self._version_of(answer) or ""

    def _copy(self, source: str, path: str) -> bool:
        """Copy an object; return false if ``path`` already exists."""
        conditional = self._abilities.copies_conditionally
        if not conditional and self.head(path) is not None:
            return False
        try:
            with self._request(path):
                keys = self._key(source), self._key(path)
                obstore.copy(self._store, *keys, overwrite=not conditional)
        except AlreadyExists:
            return False
        return True

    def _await_copy(self, prepared: str, path: str) -> None:
        """Wait until the store has completed a copy. Until then, the new object is empty.

        Raises:
            OutcomeUnknown: the copy was not completed within ``_COPY_WAIT_S``.
        """
        if not self._abilities.copies_in_background:
            return
        deadline = time.monotonic() + _COPY_WAIT_S
        while (made := self.head(path)) is not None and not made.size_bytes:
            source = self.head(prepared)
            if source is not None and not source.size_bytes:
                return
            if time.monotonic() > deadline:
                message = f"the store has not completed the copy {path} in {_COPY_WAIT_S:.0f} s"
                raise OutcomeUnknown(message)
            time.sleep(_COPY_LOOK_AGAIN_S)

    def _delete_one_by_one(self, keys: list[str]) -> None:
        for key in keys:
            with suppress(NotFound), self._request(self._path(key)):
                obstore.delete(self._store, key)

    def _create_from(self, path: str, file: IO[bytes], size_bytes: int) -> None:
        if size_bytes <= _SINGLE_PUT_BYTES:
            self.create(path, file.read())
        elif not self._holds(path, file, size_bytes):
            try:
                self._put_parts(path, file)
            except (StorageUnavailable, NotFound):  # NotFound: the upload was already completed
                if not self._holds(path, file, size_bytes):
                    raise

    def _put_parts(self, path: str, file: IO[bytes]) -> None:
        with self._request(path):
            obstore.put(
                self._store,
                self._key(path),
                file,
                use_multipart=True,
                chunk_size=_PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )

    def _holds(self, path: str, file: IO[bytes], size_bytes: int) -> bool:
        """Return whether ``path`` exists with the file's content; rewind the file to its start.

        Raises:
            AlreadyExists: ``path`` exists with different content.
        """
        existing = self.head(path)
        if existing is None:
            return False
        with suppress(NotFound), self.open(path) as other:
            same = existing.size_bytes == size_bytes and same_content(file, other)
            file.seek(0)
            if not same:
                raise _content_mismatch(path)
            return True
        file.seek(0)
        return False


def _quoted(etag: str | None) -> str | None:
    """Return an e-tag with quotes, as reads return it, because Azure's listings omit the quotes."""
    return etag if etag is None or etag.endswith('"') else f'"{etag}"'


def _folders_above(infos: list[ObjectInfo]) -> set[str]:
    folders: set[str] = set()
    for info in infos:
        path = info.path
        while (path := path.rpartition("/")[0]) and path not in folders:
            folders.add(path)
    return folders


def _without_markers(infos: list[ObjectInfo], folders: set[str]) -> list[ObjectInfo]:
    """Return the objects in order, without empty objects that other tools create for folders."""
    objects = [info for info in infos if info.size_bytes or info.path not in folders]
    return sorted(objects, key=lambda info: info.path)


def _content_mismatch(path: str) -> AlreadyExists:
    return AlreadyExists(f"{path} already exists with different content")
