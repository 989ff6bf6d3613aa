"""Smallest and largest values of statistics as they are stored: a wrapper for each Java type.

    long      branch of the union, as the schema orders it
    content   the value

Source: ``HoodieAvroWrapperUtils`` and ``HoodieMetadata.avsc`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from lakemark.codec.avro_cursors import Cursors
from lakemark.codec.avro_nodes import Node
from lakemark.codec.avro_row_reader import read_value
from lakemark.codec.ordering_wrappers import CONTENT, Wrapper
from lakemark.errors import Unsupported

#: Avro's word for what each wrapper holds, by the wrapper's name on disk.
_STORED: Mapping[str, tuple[Wrapper, str]] = {
    "BooleanWrapper": (Wrapper.BOOLEAN, "boolean"),
    "IntWrapper": (Wrapper.INT, "int"),
    "LongWrapper": (Wrapper.LONG, "long"),
    "FloatWrapper": (Wrapper.FLOAT, "float"),
    "DoubleWrapper": (Wrapper.DOUBLE, "double"),
    "BytesWrapper": (Wrapper.BYTES, "bytes"),
    "StringWrapper": (Wrapper.STRING, "string"),
    "DateWrapper": (Wrapper.DATE, "int"),
    "DecimalWrapper": (Wrapper.DECIMAL, "bytes"),
    "TimeMicrosWrapper": (Wrapper.TIME_MICROS, "long"),
    "TimestampMicrosWrapper": (Wrapper.TIMESTAMP_MICROS, "long"),
    "LocalDateWrapper": (Wrapper.LOCAL_DATE, "int"),
}

WRAPPERS = [wrapper for wrapper, _ in _STORED.values()]

#: A value as it was stored: one field for each wrapper, of which at most one is not null.
WRAPPED = pa.struct([(wrapper.name, CONTENT[wrapper]) for wrapper in WRAPPERS])

VALUE_TYPE = pa.struct([("typeOrdinal", pa.int32()), ("additionalInfo", pa.string())])


def wrapped_reader(branches: Sequence[object]) -> Callable[[Cursors], pa.StructArray]:
    """What reads the next union of wrappers of each row, as ``WRAPPED``.

    Args:
        branches: of the union, as the schema names or defines them.
    """
    names = [_name_of(branch) for branch in branches]

    def read(cursors: Cursors) -> pa.StructArray:
        chosen = cursors.longs()
        cursors.check((chosen >= 0) & (chosen < len(names)), "a wrapper of a value")
        columns = {wrapper: pa.nulls(len(cursors), CONTENT[wrapper]) for wrapper in WRAPPERS}
        for branch in np.unique(chosen).tolist():
            if names[branch] != "null":
                wrapper, kind = _known(names[branch], cursors.path)
                rows = chosen == branch
                picked = cursors.pick(rows)
                values = read_value(picked, Node(kind, CONTENT[wrapper]))
                cursors.put(rows, picked)
                columns[wrapper] = values.take(pa.array(np.cumsum(rows) - 1, mask=~rows))
        return pa.StructArray.from_arrays(list(columns.values()), fields=list(WRAPPED))

    return read


def _name_of(branch: object) -> str:
    name = branch.get("name") if isinstance(branch, Mapping) else branch
    return str(name).rpartition(".")[2]


def _known(name: str, path: str) -> tuple[Wrapper, str]:
    if name in _STORED:
        return _STORED[name]
    message = f"{path} holds statistics in a {name}; known are {', '.join(_STORED)}"
    raise Unsupported(message)
