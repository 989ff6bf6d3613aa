"""Time travel: the table in its state as of an instant.

Instants are compared by their requested times. A commit that was requested before an instant and
completes after it belongs to the state as of it. So that state is final only when no older instant
is pending. ``check_retained`` checks this, and whether the files of the state still exist.

Source: ``HoodieSqlCommonUtils.formatQueryInstant``, ``BaseHoodieTableFileIndex``,
``TableSchemaResolver.getTableSchema(timestamp)`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

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
    "yyyyMMddHHmmss[SSS], yyyy-MM-dd, yyyy-MM-dd HH:mm:ss[.SSS], yyyy-MM-ddTHH:mm:ss[.SSS], "
    "and seconds (10 digits) or milliseconds (13 digits) since 1970"
)
_SECONDS_DIGITS, _MILLIS_DIGITS = 10, 13
_INSTANT_DIGITS = (14, 17)


@dataclass(frozen=True, slots=True)
class TimeTravel:
    """What a time travel query reads; can be pickled, and any worker may read a slice.

    Attributes:
        instant: the instant time.
        slices: file slices as of the instant.
        visible: which blocks of their logs are visible.
        schema: the table's Avro schema as of the instant, as JSON without the meta columns; None
            if the active timeline has no commit of that time. Then the current schema is used.
    """

    instant: str
    slices: tuple[FileSlice, ...]
    visible: VisibleInstants
    schema: str | None


def query_instant(text: str, clock: TimelineClock) -> str:
    """Parse a user's time into an instant time; a whole second means its last millisecond.

    Args:
        text: an instant, a date, a time, or a number of (milli)seconds since 1970.
        clock: the timeline's. Dates and times are in its zone, so it is not needed for them.

    Raises:
        InvalidConfig: the text has another form.
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
    """Plan a time travel query; it is empty if the table had no commit yet.

    Args:
        view: the table's latest state.
        store: reads its instants.
        as_of: the time, in one of the forms that ``query_instant`` accepts.
        read_optimized: base files only.

    Raises:
        InvalidConfig: an invalid time; or the state as of it is not final, or was cleaned.
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
    if len(text) == len("yyyy-MM-dd HH:mm:ss"):
        text += ".999"
    if len(text) != len("yyyy-MM-dd HH:mm:ss.SSS"):
        raise ValueError(text)
    return _on_the_wall(text.replace("T", " "), "%Y-%m-%d %H:%M:%S.%f")


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
    """In any zone: an instant time is wall-clock time in the timeline's zone."""
    return UTC_CLOCK.format(datetime.strptime(text, form).replace(tzinfo=UTC))


def _schema_as_of(view: FileSystemView, store: TimelineStore, instant: str) -> str | None:
    """The schema of the newest commit until then that has one."""
    commits = [i for i in view.timeline.completed(*COMMITS) if i.requested_at <= instant]
    for commit in sorted(commits, key=lambda i: i.requested_at, reverse=True):
        schema = store.read_commit(commit).extra_metadata.get(keys.SCHEMA)
        if schema:
            return schema
    return None
