"""Time travel: the table as it was when an instant was the newest one.

Times are those of requests. A commit that was requested before the moment and completed after it is
part of the answer, so the answer of a moment is final only once nothing older is pending; that, and
whether the files of that time are still there, ``check_retained`` decides.

Source: ``HoodieSqlCommonUtils.formatQueryInstant``, ``BaseHoodieTableFileIndex``,
``TableSchemaResolver.getTableSchema(timestamp)`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from lakemark.config import keys
from lakemark.errors import InvalidConfig
from lakemark.model.action import COMMITS
from lakemark.model.file_slice import FileSlice
from lakemark.timeline.clock import UTC_CLOCK, TimelineClock
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.as_of import check_retained, is_kept
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.visible_instants import VisibleInstants

_ACCEPTED = (
    "yyyyMMddHHmmss[SSS], yyyy-MM-dd, yyyy-MM-dd HH:mm[:ss[.SSS]] (or with T between date and "
    "time), each time also with Z or an offset such as +02:00, and seconds (10 digits) or "
    "milliseconds (13 digits) since 1970"
)
_TIME = re.compile(
    r"(?P<date>\d{4}-\d{2}-\d{2})[T ](?P<minute>\d{2}:\d{2})"
    r"(?:(?P<second>:\d{2})(?P<millis>\.\d{3})?)?(?P<zone>Z|[+-]\d{2}:\d{2})?",
    re.ASCII,
)
_SECONDS_DIGITS, _MILLIS_DIGITS = 10, 13
_INSTANT_DIGITS = (14, 17)


@dataclass(frozen=True, slots=True)
class TimeTravel:
    """What a query of the past reads; pickles, and each slice may be read by another worker.

    Attributes:
        instant: the moment, as an instant time.
        slices: file slices as of then.
        visible: which blocks of their logs count.
        schema: the table's Avro schema as of then, as JSON without the meta columns; None where no
            commit of that time is on the active timeline, so that the table's own is read.
    """

    instant: str
    slices: tuple[FileSlice, ...]
    visible: VisibleInstants
    schema: str | None


def query_instant(text: str, clock: TimelineClock) -> str:
    """The instant time that a user means; of a second without a fraction its last millisecond.

    Args:
        text: an instant, a date, a time, or a number of (milli)seconds since 1970.
        clock: the timeline's. Dates, and times without a zone, are in its zone, which need not be
            known for them.

    Raises:
        InvalidConfig: none of these.
    """
    try:
        return _formatted(text.strip(), clock)
    except (ValueError, OverflowError, OSError):
        message = f"{text!r} is not a time; accepted: {_ACCEPTED}"
        raise InvalidConfig(message) from None


def plan(
    view: FileSystemView,
    store: TimelineStore,
    as_of: str,
    *,
    read_optimized: bool = False,
) -> TimeTravel:
    """What the table was at a moment; nothing when it had no commit yet.

    Args:
        view: the table's latest state.
        store: reads its instants.
        as_of: the moment, in one of the forms that ``query_instant`` takes.
        read_optimized: base files only.

    Raises:
        InvalidConfig: no moment; or one whose state is not final, or was cleaned away.
        CorruptData: an instant is damaged.
    """
    instant = query_instant(as_of, store.clock)
    check_retained(view.timeline, store, instant, lambda: is_kept(view, store, instant))
    then = view.as_of(instant)
    slices = then.read_optimized() if read_optimized else then.latest_slices()
    schema = _schema_as_of(view, store, instant)
    return TimeTravel(instant, tuple(slices), then.visible_instants, schema)


def _formatted(text: str, clock: TimelineClock) -> str:
    if text.isdecimal() and text.isascii():
        return _from_digits(text, clock)
    if len(text) == len("yyyy-MM-dd"):
        return _on_the_wall(text, "%Y-%m-%d")
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(text)
    second, millis = found["second"] or ":00", found["millis"] or ".999"
    time = f"{found['date']} {found['minute']}{second}{millis}"
    if found["zone"]:
        return clock.format(datetime.fromisoformat(time + found["zone"]))
    return _on_the_wall(time, "%Y-%m-%d %H:%M:%S.%f")


def _from_digits(text: str, clock: TimelineClock) -> str:
    if len(text) == _SECONDS_DIGITS:
        return clock.format(datetime.fromtimestamp(int(text), UTC))
    if len(text) == _MILLIS_DIGITS:
        seconds, millis = divmod(int(text), 1000)
        moment = datetime.fromtimestamp(seconds, UTC)
        return clock.format(moment.replace(microsecond=millis * 1000))
    if len(text) not in _INSTANT_DIGITS:
        raise ValueError(text)
    if text.strip("0") != "":
        _on_the_wall(text[:14], "%Y%m%d%H%M%S")
    return text


def _on_the_wall(text: str, form: str) -> str:
    """In whatever zone: an instant time is what a clock in the timeline's zone showed."""
    return UTC_CLOCK.format(datetime.strptime(text, form).replace(tzinfo=UTC))


def _schema_as_of(view: FileSystemView, store: TimelineStore, instant: str) -> str | None:
    """Of the newest commit until then that has one."""
    commits = [i for i in view.timeline.completed(*COMMITS) if i.requested_at <= instant]
    for commit in sorted(commits, key=lambda i: i.requested_at, reverse=True):
        schema = store.read_commit(commit).extra_metadata.get(keys.SCHEMA)
        if schema:
            return schema
    return None
