"""Merges several streams, which threads read at the same time, into one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from queue import Full, Queue
from typing import Generic, TypeVar

Item = TypeVar("Item")

#: Longest time until a thread that waits for space in the queue notices that it must stop.
_LOOK_S = 0.05


def interleaved(
    sources: Sequence[Callable[[], Iterator[Item]]], threads: int, ahead: int = 2
) -> Generator[Item, None, None]:
    """Yield the items of all sources; items of one source keep their order.

    Closing the generator ends the threads.

    Args:
        sources: functions that open the sources. A thread calls the function of a source when it
            begins to read that source.
        threads: number of sources that are read at the same time.
        ahead: largest number of items that wait for the caller. Each thread reads one more item
            meanwhile.

    Raises:
        BaseException: the exception that a source raised. Earlier items are yielded first.
    """
    threads = min(threads, len(sources))
    if threads <= 1:
        for source in sources:
            yield from source()
    else:
        yield from _Interleaving(sources, threads, ahead).items()


def read_ahead(source: Callable[[], Iterator[Item]], ahead: int = 1) -> Generator[Item, None, None]:
    """Yield the items of one source; a thread reads the next ones while the caller works.

    Args:
        source: function that opens the source; the thread calls it.
        ahead: largest number of items that wait for the caller. The thread reads one more item
            meanwhile.

    Raises:
        BaseException: the exception that the source raised. Earlier items are yielded first.
    """
    return _Interleaving([source], 1, ahead).items()


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Interleaving(Generic[Item]):
    """Threads that fill one queue; each thread reads one source after another."""

    def __init__(
        self, sources: Sequence[Callable[[], Iterator[Item]]], threads: int, ahead: int
    ) -> None:
        self._sources = iter(sources)
        self._taking = threading.Lock()
        #: Entries are items, exceptions that ended a thread, and None if a thread found no further
        #: source.
        self._queue: Queue[tuple[Item] | _Failure | None] = Queue(ahead)
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._fill, daemon=True) for _ in range(threads)]

    def items(self) -> Generator[Item, None, None]:
        for thread in self._threads:
            thread.start()
        at_work = len(self._threads)
        try:
            while at_work:
                came = self._queue.get()
                if isinstance(came, _Failure):
                    raise came.error
                if came is None:
                    at_work -= 1
                else:
                    yield came[0]
        finally:
            self._stopping.set()
            for thread in self._threads:
                thread.join()

    def _fill(self) -> None:
        try:
            while (source := self._take()) is not None:
                for item in source():
                    if not self._put((item,)):
                        return
        except BaseException as error:
            self._put(_Failure(error))
        else:
            self._put(None)

    def _take(self) -> Callable[[], Iterator[Item]] | None:
        with self._taking:
            return next(self._sources, None)

    def _put(self, item: tuple[Item] | _Failure | None) -> bool:
        while not self._stopping.is_set():
            try:
                self._queue.put(item, timeout=_LOOK_S)
            except Full:
                continue
            return True
        return False
