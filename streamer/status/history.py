"""Remembers the recent events of a run, so that its status shows them."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass

from streamer.event_text import describe
from streamer.events import (
    Alive,
    BatchPlanned,
    BatchWritten,
    ChecksViolated,
    ClusteringAwaited,
    CompactionCompleted,
    CompactionFailed,
    CompactionResolved,
    CompactionStarted,
    Event,
    GroupCommitFailed,
    HookDropped,
    HookFailed,
    HookSent,
    MetricsServed,
    OffsetsLost,
    PartitionsExpired,
    RecordsRejected,
    RequestedServiceFailed,
    Retrying,
    RulesViolated,
    RunFailed,
    RunStopped,
    ServiceCompleted,
    ServiceFailed,
    SnapshotRead,
    UnresolvedLettersExpire,
    WarningLogged,
)

#: How many batches, services, notes and samples of the lag are remembered.
_BATCHES, _SERVICES, _NOTES, _LAGS = 40, 30, 40, 180

#: The length of an interval of the throughput in seconds, and the number of intervals.
_INTERVAL_S, _INTERVALS = 10, 180

#: The rate of records is that of this number of intervals.
_RATE_INTERVALS = 6

#: The largest length of a remembered text. The log of the run has all of it.
_MAX_TEXT = 2_000

#: Events that other parts of the status show, or that say nothing of the run.
_NOT_NOTED = (
    Alive,
    BatchPlanned,
    BatchWritten,
    CompactionCompleted,
    CompactionStarted,
    HookSent,
    MetricsServed,
    PartitionsExpired,
    RecordsRejected,
    ServiceCompleted,
)
_ERRORS = (
    RunFailed,
    Retrying,
    CompactionFailed,
    ServiceFailed,
    RequestedServiceFailed,
    HookFailed,
    HookDropped,
    OffsetsLost,
)
_WARNINGS = (
    GroupCommitFailed,
    ClusteringAwaited,
    RulesViolated,
    ChecksViolated,
    UnresolvedLettersExpire,
)


@dataclass(slots=True)
class _Interval:
    """What was committed in an interval, which begins at ``at``, in seconds since 1970."""

    at: int
    records: int = 0
    rows: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _Rejected:
    """Rejects of one code: their number, the newest sample, and its time."""

    count: int = 0
    sample: str = ""
    at: float = 0.0


class RunHistory:
    """A listener that remembers recent events. Its memory is bounded; any thread may use it.

    It keeps facts instead of events, because an event may name thousands of partitions.

    Args:
        now: returns the seconds since 1970.
        redacted: removes secrets from a text. They must be removed before a long text is cut, which
            would leave a part of a secret that nothing recognises.
    """

    def __init__(
        self, now: Callable[[], float] = time.time, redacted: Callable[[str], str] = str
    ) -> None:
        self._now, self._redacted, self._lock = now, redacted, threading.Lock()
        self._began_at = now()
        self._last_commit_at: float | None = None
        self._batches = deque[dict[str, object]](maxlen=_BATCHES)
        self._services = deque[dict[str, object]](maxlen=_SERVICES)
        self._notes = deque[dict[str, object]](maxlen=_NOTES)
        self._lags = deque[tuple[float, int | None, float | None]](maxlen=_LAGS)
        self._intervals = deque[_Interval](maxlen=_INTERVALS)
        self._rejected: dict[str, _Rejected] = {}
        self._dead_letters = ""
        self._totals = Counter[str]()
        self._planned: dict[str, object] | None = None
        self._compaction: dict[str, object] | None = None
        self._has_failed, self._failure = False, ""

    @property
    def has_failed(self) -> bool:
        """Whether the run has failed, and was not started again."""
        return self._has_failed

    @property
    def failure(self) -> str:
        """The message of the last failure, in one line and without secrets; "" if none failed."""
        return self._failure

    def __call__(self, event: Event, /) -> None:
        """Remember an event."""
        at = self._now()
        with self._lock:
            self._add(at, event)
            if not isinstance(event, _NOT_NOTED):
                self._notes.append(_note_facts(at, event, self._text(event)))

    def add_lag(self, records: int | None, seconds: float | None) -> None:
        """Remember the lag of all partitions together.

        Args:
            records: the number of unread offsets; None if it is not known.
            seconds: the age of the oldest unread record; None if it is not known.
        """
        with self._lock:
            self._lags.append((self._now(), records, seconds))

    def _add(self, at: float, event: Event) -> None:
        match event:
            case BatchPlanned():
                self._planned = _planned_facts(at, event)
            case BatchWritten():
                self._add_batch(at, event)
            case RecordsRejected():
                self._add_rejects(at, event)
            case ServiceCompleted() | PartitionsExpired():
                self._services.append(_service_facts(at, event, self._text(event)))
            case CompactionStarted():
                self._compaction = _compaction_facts(at, event)
            case CompactionCompleted():
                self._services.append(_service_facts(at, event, self._text(event)))
                self._compaction = None
            case CompactionFailed() | CompactionResolved():
                self._compaction = None
            case Retrying():
                self._has_failed, self._planned = False, None
                self._failure = self._one_line(event.error)
            case RunFailed():
                self._has_failed, self._planned, self._compaction = True, None, None
                self._failure = self._one_line(event.error)
            case SnapshotRead() | RunStopped():
                self._planned = self._compaction = None
            case _:
                pass

    def _add_batch(self, at: float, event: BatchWritten) -> None:
        self._planned = None
        self._batches.append(_batch_facts(at, event))
        if event.instant is not None:
            self._last_commit_at = at
        counts = {
            "records": event.records_read,
            "rows": event.rows_written,
            "bytes": event.bytes_written,
        }
        self._totals.update(batches=1, rejects=event.rejects, **counts)
        begins_at = int(at) // _INTERVAL_S * _INTERVAL_S
        if not self._intervals or self._intervals[-1].at < begins_at:
            self._intervals.append(_Interval(begins_at))
        newest = self._intervals[-1]
        newest.records += event.records_read
        newest.rows += event.rows_written
        newest.bytes += event.bytes_written

    def _add_rejects(self, at: float, event: RecordsRejected) -> None:
        self._dead_letters = event.dead_letters
        for one in event.codes:
            known = self._rejected.setdefault(one.code, _Rejected())
            known.count, known.at = known.count + one.count, at
            known.sample = self._shortened(one.first)

    def _text(self, event: Event) -> str:
        return self._shortened(describe(event))

    def _one_line(self, text: str) -> str:
        return "; ".join(self._shortened(text).splitlines())

    def _shortened(self, text: str) -> str:
        shown = self._redacted(text)
        return shown if len(shown) <= _MAX_TEXT else f"{shown[:_MAX_TEXT]}…"

    def summary(self) -> dict[str, object]:
        """Return the totals of the run, and the current rate."""
        with self._lock:
            names = ("batches", "records", "rows", "rejects", "bytes")
            return {
                "records_per_s": self._rate(self._now()),
                "last_commit_at": self._last_commit_at,
                **{name: self._totals[name] for name in names},
            }

    def details(self) -> dict[str, object]:
        """Return the recent batches, services, notes, rejects, lags and rates."""
        with self._lock:
            planned, compaction = self._planned, self._compaction
            batches, services = [*self._batches], [*self._services]
            notes, lags = [*self._notes], [*self._lags]
            intervals = [asdict(one) for one in self._intervals]
            rejected = {code: asdict(one) for code, one in self._rejected.items()}
            dead_letters = self._dead_letters
        return {
            "batch_in_progress": planned,
            "batches": batches,
            "throughput": intervals,
            "lag_history": [{"at": at, "records": n, "seconds": s} for at, n, s in lags],
            "compaction": compaction,
            "services": services,
            "rejects": _reject_facts(rejected, dead_letters),
            "notes": notes,
        }

    def _rate(self, now: float) -> float:
        """Return the records per second of the last minute, or since the start if it is later."""
        window_s = _INTERVAL_S * _RATE_INTERVALS
        records = sum(
            one.records for one in self._intervals if one.at + _INTERVAL_S > now - window_s
        )
        return records / min(max(now - self._began_at, 1.0), float(window_s))


def _planned_facts(at: float, event: BatchPlanned) -> dict[str, object]:
    return {"id": event.batch_id, "planned_at": at, "records": event.records}


def _batch_facts(at: float, event: BatchWritten) -> dict[str, object]:
    return {
        "id": event.batch_id,
        "at": at,
        "instant": event.instant,
        "records": event.records_read,
        "rows": event.rows_written,
        "deletes": event.rows_deleted,
        "rejects": event.rejects,
        "bytes": event.bytes_written,
        "files": event.files_written,
        "seconds": event.seconds,
        "stages": [{"stage": name, "seconds": taken} for name, taken in event.stage_s.items()],
    }


def _compaction_facts(at: float, event: CompactionStarted) -> dict[str, object]:
    return {
        "instant": event.instant,
        "table": event.table,
        "started_at": at,
        "file_groups": event.file_groups,
        "log_bytes": event.log_bytes,
    }


def _service_facts(
    at: float, event: ServiceCompleted | CompactionCompleted | PartitionsExpired, text: str
) -> dict[str, object]:
    match event:
        case ServiceCompleted():
            name = event.service
        case CompactionCompleted():
            name = "compaction"
        case PartitionsExpired():
            name = "partition_expiry"
    return {"at": at, "service": name, "text": text, "seconds": event.seconds, "table": event.table}


def _reject_facts(
    rejected: Mapping[str, Mapping[str, object]], dead_letters: str
) -> dict[str, object]:
    return {
        "dead_letters": dead_letters,
        "codes": [{"code": code, **one} for code, one in rejected.items()],
    }


def _note_facts(at: float, event: Event, text: str) -> dict[str, object]:
    level = "info"
    if isinstance(event, WarningLogged):
        level = event.level
    elif isinstance(event, _ERRORS):
        level = "error"
    elif isinstance(event, _WARNINGS):
        level = "warning"
    return {"at": at, "level": level, "text": text}


def total_lag(
    lags: Iterable[tuple[int | None, float | None]],
) -> tuple[int | None, float | None]:
    """Return the lag of all partitions together, from the records and seconds of each.

    Values that are not known are skipped; the result is None if none is known. The seconds are
    those of the partition that is most behind.
    """
    pairs = [*lags]
    records = [one for one, _ in pairs if one is not None]
    seconds = [one for _, one in pairs if one is not None]
    return sum(records) if records else None, max(seconds, default=None)
