"""The connection of one process to the store: a fault may happen at each request.

The contract is that of ``lakemark.storage.storage``. An object appears whole, and every process
sees it once it was written. A request without an answer may have been carried out, or may be
carried out later. A listing is never stale, but a store may read it in pages: an object that is
created or deleted meanwhile is in the listing or not.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeVar

from lakemark.config.table_properties import PROPERTIES_PATH
from lakemark.errors import HudiError, StorageUnavailable
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.storage.storage import ObjectInfo, StreamingFile
from tests.protocol.clocked_store import ClockedStore
from tests.protocol.virtual_time import VirtualTime
from tests.simulation.scheduler import Process, Scheduler
from tests.storages.wrapped_storage import WrappedStorage

T = TypeVar("T")


class Fault(StrEnum):
    """The faults that may happen at a request.

    Attributes:
        PAUSE: the process pauses before it, from milliseconds to longer than a heartbeat.
        SLOW: the answer takes long.
        KILL: the process dies.
        CUT_OFF: requests of the process are not answered for a while; some are carried out.
        LOST: the request does not arrive.
        UNANSWERED: the request is carried out, and its answer is lost.
        LATE: as UNANSWERED, but it is carried out after its client has given up.
        REPEATED: the request is answered, and carried out once more later.
        SPREAD: a listing is read in two parts at different times.
    """

    PAUSE = "pause"
    SLOW = "slow"
    KILL = "kill"
    CUT_OFF = "cut-off"
    LOST = "lost"
    UNANSWERED = "unanswered"
    LATE = "late"
    REPEATED = "repeated"
    SPREAD = "spread"


#: Durations of faults, in milliseconds: within a request, a lease, a heartbeat, and beyond.
_LASTS_MS = (50, 1_000, 5_000, 20_000, 35_000, 61_000, 75_000, 121_000, 200_000)
#: After how long a client gives up a request.
_GIVEN_UP_MS = (10, 1_000, 10_000, 30_000)
#: A path that every metadata table of a data table has; it is not deleted late.
_OF_ALL_METADATA_TABLES = f"{METADATA_FOLDER}/{PROPERTIES_PATH}"
#: Requests that decide a race between processes, and how many times as often faults happen there.
_DECISIVE = ("publish", "replace")
_CRITICAL = 10


class Step(NamedTuple):
    """One line of a trace."""

    at_ms: int
    process: str
    method: str
    path: str
    outcome: str

    def __str__(self) -> str:
        request = f"{self.process:12} {self.method:14} {self.path}"
        return f"{self.at_ms / 1000:9.3f} {request}  {self.outcome}"


@dataclass
class Faults:
    """How often each fault happens for each request, and a record of what happened.

    Attributes:
        rates: the rates of the enabled faults.
        trace: all steps.
        counts: how often each fault has happened.
        brought_back: paths of data files that a repeated request created again after they had been
            deleted. ``table check`` names such a file, and an operator deletes it.
    """

    rates: dict[Fault, float]
    trace: list[Step] = field(default_factory=list)
    counts: dict[Fault, int] = field(default_factory=dict)
    brought_back: set[str] = field(default_factory=set)


class StoreTime(VirtualTime):
    """The clock of a simulated store: a request takes time, and no task runs meanwhile."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def now_ms(self) -> int:
        """Return the simulated time, which all processes share."""
        return self._scheduler.time.now_ms()

    def sleep(self, seconds: float) -> None:
        """A write takes a millisecond."""
        self._scheduler.time.passed_ms += 1


class FaultyStore(WrappedStorage):
    """Requests of one process to a store.

    Attributes:
        inner: the store.
    """

    inner: ClockedStore

    def __init__(
        self, inner: ClockedStore, scheduler: Scheduler, faults: Faults, process: Process
    ) -> None:
        super().__init__(inner)
        self._scheduler, self._faults, self._process = scheduler, faults, process

    def create_streaming(self, path: str) -> StreamingFile:
        return _File(self, path)

    def list_folder(self, folder: str) -> tuple[list[str], list[ObjectInfo]]:
        folders, infos = super().list_folder(folder)
        if not self._draws(Fault.SPREAD):
            return folders, infos
        later_folders, later = super().list_folder(folder)
        names = {*folders} & {*later_folders}
        names |= {name for name in {*folders} ^ {*later_folders} if self._is_seen(name)}
        return sorted(names), self._spread(infos, later)

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        infos = super().list_tree(folder)
        if not self._draws(Fault.SPREAD):
            return infos
        return self._spread(infos, super().list_tree(folder))

    def _spread(
        self, first: Iterable[ObjectInfo], second: Iterable[ObjectInfo]
    ) -> list[ObjectInfo]:
        """Join the names up to a random one of the first listing with the rest of the second."""
        both = sorted({info.path for info in (*first, *second)})
        if not both:
            return []
        last = self._scheduler.draw.choice(both)
        early = [info for info in first if info.path <= last]
        return early + [info for info in second if info.path > last]

    def _is_seen(self, name: str) -> bool:
        return self._scheduler.draw.random() < 0.5

    def _reading(self, method: str, path: str, call: Callable[[], T]) -> T:
        return self._request(method, path, call, is_write=False)

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        return self._request(method, path, call, is_write=True)

    def _request(self, method: str, path: str, call: Callable[[], T], *, is_write: bool) -> T:
        draw, time = self._scheduler.draw, self._scheduler.time
        self._draw_process_fault(method, path, _CRITICAL if method in _DECISIVE else 1)
        self._scheduler.step()
        time.passed_ms += draw.choice((0, 0, 1, 5))
        if self._process.cut_off_until_ms > time.passed_ms:
            self._lose(method, path, call, self._draw_loss(is_write), "cut off: ")
        for fault in (Fault.LOST, Fault.UNANSWERED, Fault.LATE):
            if (is_write or fault is Fault.LOST) and self._draws(fault):
                self._lose(method, path, call, fault)
        if is_write and self._draws(Fault.REPEATED):
            self._later(method, path, call, is_repeated=True)
        answer = self._carry_out(method, path, call)
        if self._draws(Fault.SLOW):
            self._scheduler.sleep(draw.choice(_LASTS_MS))
        return answer

    def _carry_out(self, method: str, path: str, call: Callable[[], T], why: str = "") -> T:
        try:
            answer = call()
        except HudiError as error:
            self._note(method, path, f"{why}{type(error).__name__}")
            raise
        self._note(method, path, f"{why}done")
        return answer

    def _draw_process_fault(self, method: str, path: str, times: int) -> None:
        draw, now_ms = self._scheduler.draw, self._scheduler.time.passed_ms
        if self._draws(Fault.PAUSE, times):
            lasts_ms = draw.choice(_LASTS_MS)
            self._process.paused_until_ms = now_ms + lasts_ms
            self._note(method, path, f"not yet: the process is paused for {lasts_ms} ms")
        if self._draws(Fault.CUT_OFF, times):
            lasts_ms = draw.choice(_LASTS_MS)
            self._process.cut_off_until_ms = now_ms + lasts_ms
            self._note(method, path, f"not yet: the process is cut off for {lasts_ms} ms")
        if self._draws(Fault.KILL, times):
            self._note(method, path, "not sent: the process is killed")
            self._process.is_killed = True

    def _draw_loss(self, is_write: bool) -> Fault:
        losses = (Fault.LOST, Fault.UNANSWERED, Fault.LATE)
        on = [f for f in losses if f in self._faults.rates] if is_write else []
        return self._scheduler.draw.choice([Fault.LOST, *on])

    def _lose(
        self, method: str, path: str, call: Callable[[], T], fault: Fault, why: str = ""
    ) -> None:
        """Raise the error of a client that got no answer."""
        if fault is Fault.UNANSWERED:
            with suppress(HudiError):
                self._carry_out(method, path, call, f"{why}unanswered: ")
        elif fault is Fault.LATE:
            self._later(method, path, call)
        given_up_ms = self._scheduler.draw.choice(_GIVEN_UP_MS)
        self._note(method, path, f"{why}{fault}, given up after {given_up_ms} ms")
        self._scheduler.sleep(given_up_ms)
        message = f"no answer to {method} {path}"
        raise StorageUnavailable(message)

    def _later(
        self, method: str, path: str, call: Callable[[], T], *, is_repeated: bool = False
    ) -> None:
        def land() -> None:
            if (method, path) == ("delete", _OF_ALL_METADATA_TABLES):
                return
            is_gone = self.inner.head(path) is None
            with suppress(HudiError):
                self._carry_out(method, path, call, "late: ")
                is_data = method == "create" and not path.startswith(".hoodie")
                if is_repeated and is_data and is_gone:
                    self._faults.brought_back.add(path)

        lasts_ms = self._scheduler.draw.choice(_LASTS_MS)
        self._scheduler.at(self._scheduler.time.passed_ms + lasts_ms, land)

    def _draws(self, fault: Fault, times: int = 1) -> bool:
        rate = self._faults.rates.get(fault)
        if rate is None or self._process.is_killed or self._scheduler.draw.random() >= rate * times:
            return False
        self._faults.counts[fault] = self._faults.counts.get(fault, 0) + 1
        return True

    def _note(self, method: str, path: str, outcome: str) -> None:
        at_ms = self._scheduler.time.passed_ms
        self._faults.trace.append(Step(at_ms, self._process.name, method, path, outcome))


class _File:
    """A ``StreamingFile`` in memory; closing it is one request."""

    def __init__(self, store: FaultyStore, path: str) -> None:
        self._store, self._path = store, path
        self._buffer = io.BytesIO()
        self.closed = False

    def write(self, data: bytes | memoryview, /) -> int:
        return self._buffer.write(data)

    def close(self) -> int:
        if not self.closed:
            self.closed = True
            self._store.create(self._path, self._buffer.getvalue())
        return self._buffer.tell()

    def abort(self) -> None:
        self.closed = True
