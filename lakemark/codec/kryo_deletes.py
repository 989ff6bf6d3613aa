"""Decodes the Java objects in delete blocks of Hudi before 0.14, which Kryo has serialized.

Releases before 0.11 wrote an array of ``HoodieKey`` (block version 1), and later ones an array of
``DeleteRecord`` (block version 2). Each value is preceded by its class, if the field does not imply
the class::

    HoodieKey      partition path, record key: nullable strings
    DeleteRecord   class and ``HoodieKey``; class and ordering value

A key without an ordering value is an unconditional delete, as is one with the integer 0. The
ordering values keep their Java classes, because Hudi compares only values of the same class.

Source: ``HoodieDeleteBlock``, ``HoodieKey``, ``DeleteRecord`` and ``SerializationUtils`` of Apache
Hudi 0.9 and 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from lakemark.codec.delete_records import DeleteRecords
from lakemark.codec.kryo import KryoInput
from lakemark.codec.ordering_wrappers import CONTENT, OrderingValues, Wrapper
from lakemark.errors import Unsupported

_MODEL = "org.apache.hudi.common.model."
_KEY = f"{_MODEL}HoodieKey"
_RECORD = f"{_MODEL}DeleteRecord"

#: The ordering value of a delete that wins against any other record.
_UNCONDITIONAL = (Wrapper.INT, 0)

#: Size of the unscaled number of a decimal with 38 digits, which is the most that Hudi stores.
_LONGEST_DECIMAL_BYTES = 16

#: The wrapper of an ordering value's class, and the value.
_Ordering = tuple[Wrapper, object]


@dataclass(frozen=True, slots=True)
class _Key:
    partition_path: str | None
    record_key: str | None


@dataclass(frozen=True, slots=True)
class _Record:
    key: _Key
    ordering: _Ordering = _UNCONDITIONAL


def decode_keys(data: bytes, path: str) -> DeleteRecords:
    """Return the records of a delete block of version 1.

    Args:
        data: the serialized array of ``HoodieKey``.
        path: path of the log file, for errors.

    Raises:
        CorruptData: the data is not such an array.
        Unsupported: the data has an object of another class.
    """
    source = KryoInput(data, path)
    keys = _read_array(source, _KEY, _Key, lambda: _read_key(source))
    return _columns([_Record(key) for key in keys], path)


def decode_records(data: bytes, path: str) -> DeleteRecords:
    """Return the records of a delete block of version 2.

    Args:
        data: the serialized array of ``DeleteRecord``.
        path: path of the log file, for errors.

    Raises:
        CorruptData: the data is not such an array.
        Unsupported: the data has an object of another class, such as an ordering value of a class
            that lakemark does not know.
    """
    source = KryoInput(data, path)
    records = _read_array(source, _RECORD, _Record, lambda: _read_record(source, path))
    return _columns(records, path)


def _read_array(
    source: KryoInput, element: str, kind: type[Any], read: Callable[[], Any]
) -> list[Any]:
    _check_class(source, f"[L{element};")
    elements = source.object(list, lambda: _read_elements(source, element, kind, read))
    if elements is None:
        raise source.corrupt(expected="an array of deletes", actual="null")
    if source.remaining_bytes:
        raise source.corrupt(expected="the end of the deletes", actual="more bytes")
    return elements


def _read_elements(
    source: KryoInput, element: str, kind: type[Any], read: Callable[[], Any]
) -> list[Any]:
    count = source.unsigned() - 1
    if not 0 <= count <= source.remaining_bytes:
        raise source.corrupt(expected="a number of deletes that fit", actual=str(count))
    return [_read_object(source, element, kind, read) for _ in range(count)]


def _read_object(source: KryoInput, name: str, kind: type[Any], read: Callable[[], Any]) -> Any:
    """Read the class and the content of an object, which must not be null."""
    _check_class(source, name)
    value = source.object(kind, read)
    if value is None:
        raise source.corrupt(expected=f"an object of class {name}", actual="null")
    return value


def _check_class(source: KryoInput, name: str) -> None:
    found = source.class_name()
    if found != name:
        raise source.corrupt(expected=f"an object of class {name}", actual=repr(found)[:120])


def _read_key(source: KryoInput) -> _Key:
    partition_path = source.object(str, source.string)
    return _Key(partition_path, source.object(str, source.string))


def _read_record(source: KryoInput, path: str) -> _Record:
    key = _read_object(source, _KEY, _Key, lambda: _read_key(source))
    return _Record(key, _read_ordering(source, path))


def _read_ordering(source: KryoInput, path: str) -> _Ordering:
    name = source.class_name()
    if name is None:
        return Wrapper.NULL, None
    if name not in _ORDERING:
        message = (
            f"{path} has deletes with ordering values of class {name[:120]!r}, which lakemark does "
            "not read; compact the table with the Hudi that wrote it"
        )
        raise Unsupported(message)
    wrapper, read = _ORDERING[name]
    value = read(source)
    return (wrapper, value) if value is not None else (Wrapper.NULL, None)


def _read_decimal(source: KryoInput) -> Decimal | None:
    """Read the unscaled number, preceded by its number of bytes plus 1, and the scale."""
    size_bytes = source.unsigned() - 1
    if size_bytes < 0:
        return None
    if size_bytes > _LONGEST_DECIMAL_BYTES:
        raise source.corrupt(
            expected=f"a decimal of at most {_LONGEST_DECIMAL_BYTES} bytes", actual=str(size_bytes)
        )
    unscaled = int.from_bytes(source.take(size_bytes), "big", signed=True)
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -source.int32()))


def _read_local_date(source: KryoInput) -> date:
    year, month, day = source.unsigned(), source.byte(), source.byte()
    try:
        return date(year, month, day)
    except (ValueError, OverflowError) as error:
        raise source.corrupt(expected="a date", actual=f"{year}-{month}-{day}") from error


def _read_time(source: KryoInput) -> datetime:
    """Read the milliseconds of a ``java.sql`` date or timestamp."""
    milliseconds = source.unsigned_int64()
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError as error:
        raise source.corrupt(expected="a time", actual=f"{milliseconds} ms") from error


def _of_object(kind: type[Any], read: Callable[[KryoInput], Any]) -> Callable[[KryoInput], Any]:
    return lambda source: source.object(kind, lambda: read(source))


#: For each class of an ordering value: its wrapper, and the function that reads the value.
_ORDERING: Mapping[str, tuple[Wrapper, Callable[[KryoInput], object]]] = {
    "java.lang.Boolean": (Wrapper.BOOLEAN, KryoInput.boolean),
    "java.lang.Integer": (Wrapper.INT, KryoInput.int32),
    "java.lang.Long": (Wrapper.LONG, KryoInput.int64),
    "java.lang.Float": (Wrapper.FLOAT, KryoInput.float32),
    "java.lang.Double": (Wrapper.DOUBLE, KryoInput.float64),
    "java.lang.String": (Wrapper.STRING, _of_object(str, KryoInput.string)),
    "java.math.BigDecimal": (Wrapper.DECIMAL, _of_object(Decimal, _read_decimal)),
    "java.time.LocalDate": (Wrapper.LOCAL_DATE, _of_object(date, _read_local_date)),
    "java.sql.Date": (Wrapper.DATE, _of_object(datetime, _read_time)),
    "java.sql.Timestamp": (Wrapper.TIMESTAMP_MICROS, _of_object(datetime, _read_time)),
}


def _columns(records: Sequence[_Record], path: str) -> DeleteRecords:
    ordering = _ordering_column([record.ordering for record in records], path)
    return DeleteRecords(
        pa.array([record.key.record_key for record in records], pa.string()),
        pa.array([record.key.partition_path for record in records], pa.string()),
        [ordering],
        ordering.is_default,
        np.zeros(len(records), np.bool_),
    )


def _ordering_column(values: Sequence[_Ordering], path: str) -> OrderingValues:
    wrappers = np.array([wrapper for wrapper, _ in values], np.int8)
    kinds = [Wrapper(kind) for kind in np.unique(wrappers) if kind != Wrapper.NULL]
    return OrderingValues(wrappers, {kind: _column_of(kind, values, path) for kind in kinds})


def _column_of(kind: Wrapper, values: Iterable[_Ordering], path: str) -> pa.Array:
    own = [value if wrapper is kind else None for wrapper, value in values]
    try:
        return pa.array(own, CONTENT[kind])
    except (pa.ArrowException, ValueError, ArithmeticError) as error:
        message = (
            f"{path} has deletes with ordering values that do not fit {CONTENT[kind]}: "
            f"{str(error)[:120]}; compact the table with the Hudi that wrote it"
        )
        raise Unsupported(message) from error
