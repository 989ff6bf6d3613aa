"""``ClockedStore`` answers all requests like the store in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from lakemark.errors import HudiError
from lakemark.storage import Storage
from tests.protocol.clocked_store import ClockedStore
from tests.protocol.virtual_time import VirtualTime
from tests.table_services import new_storage

Call: TypeAlias = Callable[[Storage], object]

PATHS = st.sampled_from(["a", "b", "f/a", "f/b", "f/g/a", "ff/a"])
FOLDERS = st.sampled_from(["", "f", "f/g", "g"])
DATA = st.sampled_from([b"1", b"2"])


def _replace(path: str, data: bytes, is_read_before: bool) -> Call:
    def call(storage: Storage) -> object:
        version = storage.read_versioned(path)[1] if is_read_before else None
        storage.replace(path, data, version or "none")
        return storage.read(path)

    return call


def _stream(path: str, data: bytes) -> Call:
    def call(storage: Storage) -> object:
        file = storage.create_streaming(path)
        file.write(data)
        return file.close()

    return call


def _head(path: str) -> Call:
    def call(storage: Storage) -> object:
        found = storage.head(path)
        return found and (found.path, found.size_bytes)

    return call


def _list_folder(folder: str) -> Call:
    def call(storage: Storage) -> object:
        folders, objects = storage.list_folder(folder)
        return folders, [info.path for info in objects]

    return call


CALLS = st.one_of(
    st.builds(lambda path, data: lambda s: s.create(path, data), PATHS, DATA),
    st.builds(lambda path, data: lambda s: s.put(path, data), PATHS, DATA),
    st.builds(lambda path: lambda s: s.delete([path]), PATHS),
    st.builds(lambda source, path: lambda s: s.publish(source, path), PATHS, PATHS),
    st.builds(lambda path: lambda s: s.read(path), PATHS),
    st.builds(lambda folder: lambda s: [i.path for i in s.list_tree(folder)], FOLDERS),
    st.builds(_replace, PATHS, DATA, st.booleans()),
    st.builds(_stream, PATHS, DATA),
    st.builds(_head, PATHS),
    st.builds(_list_folder, FOLDERS),
)


@given(st.lists(CALLS, max_size=30))
def test_clocked_store_answers_like_the_store_in_memory(calls: list[Call]) -> None:
    clocked, plain = ClockedStore(VirtualTime()), new_storage()
    for call in calls:
        assert _answer(call, clocked) == _answer(call, plain)


def test_modification_time_of_an_object_is_the_time_of_its_write() -> None:
    clock = VirtualTime()
    store = ClockedStore(clock)
    store.put("a", b"")
    clock.sleep(60.0)
    store.put("b", b"")
    first, second = store.list_tree("")
    assert 60.0 <= (second.modified_at - first.modified_at).total_seconds() < 60.01


def _answer(call: Call, storage: Storage) -> object:
    try:
        return call(storage)
    except HudiError as error:
        return type(error)
